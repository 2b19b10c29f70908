#include "models/step_inputs_cuda.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace octet {

namespace {

constexpr std::size_t array_alignment = 16;

// Offsets of the arrays of a step of these sizes.
struct Offsets {
  std::size_t tokens, positions, sequence_of_row, context_lengths, first_written, logit_rows, draws;
  std::size_t bytes;
};

Offsets offsets_of(const StepSizes& sizes) {
  std::size_t at = 0;
  const auto take = [&at](int count, std::size_t element) {
    const std::size_t offset = at;
    const std::size_t bytes = static_cast<std::size_t>(count) * element;
    at += (bytes + array_alignment - 1) / array_alignment * array_alignment;
    return offset;
  };
  Offsets offsets = {};
  offsets.tokens = take(sizes.rows, sizeof(std::int32_t));
  offsets.positions = take(sizes.rows, sizeof(std::int32_t));
  offsets.sequence_of_row = take(sizes.rows, sizeof(std::int32_t));
  offsets.context_lengths = take(sizes.sequences, sizeof(std::int32_t));
  offsets.first_written = take(sizes.sequences, sizeof(std::int32_t));
  offsets.logit_rows = take(sizes.logit_rows, sizeof(std::int32_t));
  offsets.draws = take(sizes.logit_rows, sizeof(SampleParameters));
  offsets.bytes = at;
  return offsets;
}

std::int64_t pages_of(const SequenceRows& sequence) {
  return (sequence.first_position + sequence.rows + page_tokens - 1) / page_tokens;
}

void lay_out_rows(const ForwardBatch& batch, const StepSizes& sizes, std::int32_t* tokens,
                  std::int32_t* positions, std::int32_t* sequence_of_row) {
  const std::size_t rows = batch.tokens.size();
  std::copy(batch.tokens.begin(), batch.tokens.end(), tokens);
  std::copy(batch.positions.begin(), batch.positions.end(), positions);
  const auto padded = static_cast<std::size_t>(sizes.rows);
  std::fill(tokens + rows, tokens + padded, -1);
  std::fill(positions + rows, positions + padded, -1);
  for (std::size_t i = 0; i < batch.sequences.size(); ++i) {
    const SequenceRows& sequence = batch.sequences[i];
    std::fill_n(sequence_of_row + sequence.first_row, sequence.rows, static_cast<std::int32_t>(i));
  }
  // Padded rows are those of padded sequences.
  for (std::size_t row = rows; row < padded; ++row) {
    sequence_of_row[row] = static_cast<std::int32_t>(std::min<std::size_t>(
        batch.sequences.size() + row - rows, static_cast<std::size_t>(sizes.sequences) - 1));
  }
}

SampleParameters parameters_of(const DrawRow& draw) {
  SampleParameters parameters;
  parameters.temperature = draw.temperature;
  parameters.top_p = draw.top_p;
  parameters.min_p = draw.min_p;
  parameters.top_k = draw.top_k;
  parameters.uniform = draw.uniform;
  return parameters;
}

}  // namespace

StepInputsCuda::StepInputsCuda(const StepSizes& most)
    : host_(offsets_of(most).bytes), device_(offsets_of(most).bytes) {}

StepInputs StepInputsCuda::copy(const ForwardBatch& batch, std::span<const DrawRow> draws,
                                const StepSizes& sizes, cudaStream_t stream) {
  const Offsets offsets = offsets_of(sizes);
  if (offsets.bytes > device_.bytes()) {
    throw_error(ErrorKind::internal, "a step of {} rows of {} sequences has no room", sizes.rows,
                sizes.sequences);
  }
  const auto host = [&](std::size_t offset) {
    return reinterpret_cast<std::int32_t*>(host_.data() + offset);
  };
  lay_out_rows(batch, sizes, host(offsets.tokens), host(offsets.positions),
               host(offsets.sequence_of_row));
  for (int i = 0; i < sizes.sequences; ++i) {
    const auto index = static_cast<std::size_t>(i);
    const bool padding = index >= batch.sequences.size();
    const SequenceRows sequence = padding ? SequenceRows{} : batch.sequences[index];
    host(offsets.context_lengths)[i] = sequence.first_position + sequence.rows;
    host(offsets.first_written)[i] = sequence.first_position + sequence.rows_in_cache;
  }
  auto* parameters = reinterpret_cast<SampleParameters*>(host_.data() + offsets.draws);
  for (int i = 0; i < sizes.logit_rows; ++i) {
    const auto index = static_cast<std::size_t>(i);
    host(offsets.logit_rows)[i] = index < batch.logit_rows.size() ? batch.logit_rows[index] : -1;
    parameters[i] = index < draws.size() ? parameters_of(draws[index]) : SampleParameters{};
  }
  check_cuda(
      cudaMemcpyAsync(device_.data(), host_.data(), offsets.bytes, cudaMemcpyHostToDevice, stream),
      "cudaMemcpyAsync");

  const auto device = [&](std::size_t offset) {
    return reinterpret_cast<const std::int32_t*>(device_.data() + offset);
  };
  StepInputs inputs;
  inputs.sizes = sizes;
  inputs.tokens = device(offsets.tokens);
  inputs.positions = device(offsets.positions);
  inputs.sequence_of_row = device(offsets.sequence_of_row);
  inputs.context_lengths = device(offsets.context_lengths);
  inputs.first_written = device(offsets.first_written);
  inputs.logit_rows = device(offsets.logit_rows);
  inputs.draws = reinterpret_cast<const SampleParameters*>(device_.data() + offsets.draws);
  return inputs;
}

PageTablesCuda::PageTablesCuda(int groups, int max_sequences, std::int64_t max_positions)
    : stride_(static_cast<int>((max_positions + page_tokens - 1) / page_tokens)) {
  const auto entries = static_cast<std::size_t>(max_sequences) * static_cast<std::size_t>(stride_);
  for (int group = 0; group < groups; ++group) {
    host_.emplace_back(entries);
    std::fill_n(host_.back().data(), entries, no_page);
    tables_.emplace_back(entries);
    tables_.back().fill_bytes(0xFF);  // no_page
  }
}

void PageTablesCuda::copy_group(const ForwardBatch& batch, std::size_t group, cudaStream_t stream) {
  const auto stride = static_cast<std::size_t>(stride_);
  std::size_t first = batch.sequences.size();
  std::size_t last = 0;
  std::size_t width = 0;
  for (std::size_t i = 0; i < batch.sequences.size(); ++i) {
    const auto pages = static_cast<std::size_t>(pages_of(batch.sequences[i]));
    if (pages > stride) {
      throw_error(ErrorKind::internal, "a sequence of {} pages in a page table of {}", pages,
                  stride);
    }
    PageId* line = host_[group].data() + i * stride;
    const PageId* wanted = batch.sequences[i].pages[group];
    if (std::memcmp(line, wanted, pages * sizeof(PageId)) == 0) continue;
    std::copy_n(wanted, pages, line);
    first = std::min(first, i);
    last = i + 1;
    width = std::max(width, pages);
  }
  if (last == 0) return;
  // Lines between that did not change are copied as they are.
  check_cuda(
      cudaMemcpy2DAsync(tables_[group].data() + first * stride, stride * sizeof(PageId),
                        host_[group].data() + first * stride, stride * sizeof(PageId),
                        width * sizeof(PageId), last - first, cudaMemcpyHostToDevice, stream),
      "cudaMemcpy2DAsync");
}

void PageTablesCuda::copy(const ForwardBatch& batch, cudaStream_t stream) {
  for (std::size_t group = 0; group < tables_.size(); ++group) copy_group(batch, group, stream);
}

}  // namespace octet
