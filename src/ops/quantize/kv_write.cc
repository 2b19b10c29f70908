#include "ops/quantize/kv_write.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "core/bfloat16.h"
#include "core/error.h"
#include "core/float16.h"
#include "core/float8_e4m3.h"
#include "ops/attention_observer.h"
#include "ops/quantize/hadamard.h"
#include "ops/quantize/kv_codes.h"

namespace octet {

namespace {

constexpr float int8_max = 127.0f;
constexpr float float16_max = 65504.0f;

template <typename Stored>
void store(std::byte* destination, std::size_t index, Stored value) {
  std::memcpy(destination + index * sizeof(Stored), &value, sizeof(Stored));
}

std::int64_t count_non_finite(const float* row, int elements) {
  std::int64_t count = 0;
  for (int i = 0; i < elements; ++i) count += std::isfinite(row[i]) ? 0 : 1;
  return count;
}

// Where one row of one side goes: element i lies at index `first + i * stride`.
struct Destination {
  std::byte* elements = nullptr;
  std::size_t first = 0;
  std::size_t stride = 1;
  std::byte* scales = nullptr;
  std::size_t token = 0;

  template <typename Stored>
  void put(int element, Stored value) const {
    store(elements, first + stride * static_cast<std::size_t>(element), value);
  }
};

void write_float16(const float* row, int elements, const Destination& to, KvWriteCounts* counts) {
  for (int i = 0; i < elements; ++i) {
    const float magnitude = std::fabs(row[i]);
    // Half a step beyond the largest number, which still rounds to it.
    counts->saturated += magnitude >= 65520.0f && std::isfinite(row[i]) ? 1 : 0;
    counts->subnormal += magnitude < 0x1p-14f && magnitude > 0.0f ? 1 : 0;
    to.put(i, float_to_float16(std::clamp(row[i], -float16_max, float16_max)));
  }
  counts->non_finite += count_non_finite(row, elements);
}

std::uint16_t scale_for(float largest, float largest_code) {
  if (largest == 0.0f) return float_to_bfloat16(1.0f);
  // A row of tiny values would give a subnormal scale, or 0: the smallest normal bfloat16 serves.
  return float_to_bfloat16_up(std::max(largest / largest_code, 0x1p-126f));
}

// Finds the row's scale and stores it.
float write_scale(const KvCodeKernels& kernels, const float* row, int elements, float largest_code,
                  const Destination& to, KvWriteCounts* counts) {
  const float largest = kernels.largest_finite(row, elements, &counts->non_finite);
  const std::uint16_t bits = scale_for(largest, largest_code);
  store(to.scales, to.token, bits);
  return bfloat16_to_float(bits);
}

using Codes = std::array<std::uint8_t, max_head_dim>;

void put_codes(const Codes& codes, int elements, const Destination& to) {
  for (int i = 0; i < elements; ++i) to.put(i, codes[static_cast<std::size_t>(i)]);
}

void write_fp8(const KvCodeKernels& kernels, const KvSidePolicy& side, float static_scale,
               const float* row, int elements, const Destination& to, KvWriteCounts* counts) {
  float scale = static_scale;
  if (side.scales == KvScales::dynamic) {
    scale = write_scale(kernels, row, elements, float8_e4m3_max, to, counts);
  } else {
    counts->non_finite += count_non_finite(row, elements);
  }
  Codes codes;
  kernels.to_fp8(row, elements, scale, codes.data(), counts);
  put_codes(codes, elements, to);
}

void write_int8(const KvCodeKernels& kernels, const float* row, int elements, const Destination& to,
                KvWriteCounts* counts) {
  const float scale = write_scale(kernels, row, elements, int8_max, to, counts);
  Codes codes;
  kernels.to_int8(row, elements, scale, codes.data());
  put_codes(codes, elements, to);
}

void write_side(const KvCodeKernels& kernels, const KvSidePolicy& side, float static_scale,
                const float* row, int elements, const Destination& to, KvWriteCounts* counts) {
  switch (side.dtype) {
    case KvDtype::float32:
      for (int i = 0; i < elements; ++i) to.put(i, row[i]);
      counts->non_finite += count_non_finite(row, elements);
      return;
    case KvDtype::float16:
      write_float16(row, elements, to, counts);
      return;
    case KvDtype::bfloat16:
      for (int i = 0; i < elements; ++i) to.put(i, float_to_bfloat16(row[i]));
      counts->non_finite += count_non_finite(row, elements);
      return;
    case KvDtype::fp8:
      write_fp8(kernels, side, static_scale, row, elements, to, counts);
      return;
    case KvDtype::int8:
      write_int8(kernels, row, elements, to, counts);
      return;
  }
}

std::size_t element_index(KvOrder order, std::size_t token, int head_dim) {
  return order == KvOrder::token_major ? token * static_cast<std::size_t>(head_dim) : token;
}

std::size_t element_stride(KvOrder order) {
  return order == KvOrder::token_major ? 1 : static_cast<std::size_t>(page_tokens);
}

Destination destination(KvOrder order, int head_dim, std::byte* elements, std::byte* scales,
                        std::size_t token) {
  return {elements, element_index(order, token, head_dim), element_stride(order), scales, token};
}

// The head's key as it is rounded: centred where the layer has means, then rotated where its format
// is. `buffer` serves where either changes it.
const float* prepared_key(const KvRunLayout& run, const KvLayerConstants& constants, int head,
                          const float* key, float* buffer) {
  const bool centred = !constants.key_mean.empty();
  if (!centred && !run.policy.rotates_keys()) return key;
  std::copy_n(key, run.head_dim, buffer);
  if (centred) {
    const float* mean =
        constants.key_mean.data() + static_cast<std::ptrdiff_t>(head) * run.head_dim;
    for (int i = 0; i < run.head_dim; ++i) buffer[i] -= mean[i];
  }
  if (run.policy.rotates_keys()) hadamard_rotate(buffer, run.head_dim);
  return buffer;
}

const KvLayerConstants no_constants;

void write_row(const KvCodeKernels& kernels, const KvWriteArgs& args, const SequenceRows& sequence,
               std::int32_t row, KvWriteCounts* counts) {
  const KvRunLayout& run = args.layer.group->run;
  const KvLayerConstants& constants =
      args.layer.constants != nullptr ? *args.layer.constants : no_constants;
  const int kv_heads = args.layer.group->geometry.kv_heads;
  const int head_dim = run.head_dim;
  const std::int32_t position = sequence.first_position + row;
  const PageId page = sequence.pages[static_cast<std::size_t>(args.group)][position / page_tokens];
  const auto token = static_cast<std::size_t>(position % page_tokens);
  const std::int64_t batch_row = sequence.first_row + row;

  std::array<float, max_head_dim> buffer;
  for (int head = 0; head < kv_heads; ++head) {
    std::byte* bytes = args.layer.run(page, head);
    const float* key =
        prepared_key(run, constants, head, args.key + batch_row * args.key_stride + head * head_dim,
                     buffer.data());
    write_side(kernels, run.policy.key, static_key_scale(args.layer, head), key, head_dim,
               destination(run.key_order, head_dim, bytes + run.key_offset,
                           bytes + run.key_scale_offset, token),
               counts);
    write_side(kernels, run.policy.value, static_value_scale(args.layer, head),
               args.value + batch_row * args.value_stride + head * head_dim, head_dim,
               destination(run.value_order, head_dim, bytes + run.value_offset,
                           bytes + run.value_scale_offset, token),
               counts);
  }
}

}  // namespace

void kv_write(const OpContext& context, const KvWriteArgs& args) {
  if (context.observer != nullptr) context.observer->on_write(args);
  const KvCodeKernels& kernels = kv_code_kernels(context.instruction_set);
  for (const SequenceRows& sequence : args.sequences) {
    if (args.layer.group->run.head_dim > max_head_dim) {
      throw_error(ErrorKind::internal, "a head of {} elements is wider than the cache ops take",
                  args.layer.group->run.head_dim);
    }
    // A block of rows is a few microseconds of work, worth a thread's while.
    constexpr std::int32_t block = 16;
    context.pool->parallel_for((sequence.rows + block - 1) / block, [&](std::int64_t index, int) {
      KvWriteCounts counts;
      const auto first = static_cast<std::int32_t>(index) * block;
      for (std::int32_t row = std::max(first, sequence.rows_in_cache);
           row < std::min(first + block, sequence.rows); ++row) {
        write_row(kernels, args, sequence, row, &counts);
      }
      if (args.counters != nullptr && counts.any()) args.counters->add(args.layer.layer, counts);
    });
  }
}

}  // namespace octet
