#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/bfloat16.h"
#include "core/float16.h"
#include "core/float8_e4m3.h"
#include "ops/attention/attention.h"

namespace octet {

namespace {

template <typename Stored>
Stored load(const std::byte* bytes, std::size_t index) {
  Stored value;
  std::memcpy(&value, bytes + index * sizeof(Stored), sizeof(Stored));
  return value;
}

double stored_element(KvDtype dtype, const std::byte* bytes, std::size_t index) {
  switch (dtype) {
    case KvDtype::float32:
      return load<float>(bytes, index);
    case KvDtype::float16:
      return float16_to_float(load<std::uint16_t>(bytes, index));
    case KvDtype::bfloat16:
      return bfloat16_to_float(load<std::uint16_t>(bytes, index));
    case KvDtype::fp8:
      return float8_e4m3_to_float(load<std::uint8_t>(bytes, index));
    case KvDtype::int8:
      return load<std::int8_t>(bytes, index);
  }
  return 0;
}

// Row `token` of a run's K or V, scaled by its own scale or by the head's.
std::vector<double> stored_row(const KvSidePolicy& side, KvOrder order, int head_dim,
                               const std::byte* elements, const std::byte* scales,
                               double static_scale, std::size_t token) {
  const double scale = side.scales == KvScales::dynamic
                           ? bfloat16_to_float(load<std::uint16_t>(scales, token))
                           : static_scale;
  const auto width = static_cast<std::size_t>(head_dim);
  std::vector<double> row(width);
  for (std::size_t i = 0; i < width; ++i) {
    const std::size_t index =
        order == KvOrder::token_major ? token * width + i : i * page_tokens + token;
    row[i] = stored_element(side.dtype, elements, index) * scale;
  }
  return row;
}

// Undoes the rotation of int8 keys by the matrix itself, entry by entry: H[i][j] is
// (-1)^(bits that i and j share) / sqrt(block), and H is its own inverse.
std::vector<double> unrotate(const std::vector<double>& row) {
  const std::size_t block = row.size() & (~row.size() + 1);
  std::vector<double> out(row.size(), 0.0);
  for (std::size_t start = 0; start < row.size(); start += block) {
    for (std::size_t i = 0; i < block; ++i) {
      for (std::size_t j = 0; j < block; ++j) {
        const bool negative = (__builtin_popcountll(i & j) & 1) != 0;
        out[start + i] += negative ? -row[start + j] : row[start + j];
      }
      out[start + i] /= std::sqrt(static_cast<double>(block));
    }
  }
  return out;
}

void attend_row(const AttentionArgs& args, const SequenceRows& sequence, std::int32_t row, int head,
                double* out) {
  const KvGroup& group = *args.layer.group;
  const KvRunLayout& run = group.run;
  const int kv_head = head / (args.query_heads / group.geometry.kv_heads);
  const std::int32_t position = sequence.first_position + row;
  const std::int32_t first =
      group.geometry.window == 0 ? 0 : std::max(position - group.geometry.window + 1, 0);
  const float* query =
      args.query + (sequence.first_row + row) * args.query_stride + head * run.head_dim;

  std::vector<double> scores;
  std::vector<std::vector<double>> values;
  for (std::int32_t key = first; key <= position; ++key) {
    const PageId page = sequence.pages[static_cast<std::size_t>(args.group)][key / page_tokens];
    const std::byte* bytes = args.layer.run(page, kv_head);
    const auto token = static_cast<std::size_t>(key % page_tokens);
    std::vector<double> k =
        stored_row(run.policy.key, run.key_order, run.head_dim, bytes + run.key_offset,
                   bytes + run.key_scale_offset, static_key_scale(args.layer, kv_head), token);
    if (run.policy.rotates_keys()) k = unrotate(k);
    values.push_back(stored_row(run.policy.value, run.value_order, run.head_dim,
                                bytes + run.value_offset, bytes + run.value_scale_offset,
                                static_value_scale(args.layer, kv_head), token));
    double score = 0;
    for (int i = 0; i < run.head_dim; ++i) score += query[i] * k[static_cast<std::size_t>(i)];
    scores.push_back(score * args.softmax_scale);
  }
  const double highest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  std::fill_n(out, run.head_dim, 0.0);
  for (std::size_t key = 0; key < scores.size(); ++key) {
    const double weight = std::exp(scores[key] - highest);
    sum += weight;
    for (int i = 0; i < run.head_dim; ++i) {
      out[i] += weight * values[key][static_cast<std::size_t>(i)];
    }
  }
  for (int i = 0; i < run.head_dim; ++i) out[i] /= sum;
}

}  // namespace

void attention_reference(const AttentionArgs& args, double* output) {
  const int head_dim = args.layer.group->run.head_dim;
  for (const SequenceRows& sequence : args.sequences) {
    for (std::int32_t row = 0; row < sequence.rows; ++row) {
      for (int head = 0; head < args.query_heads; ++head) {
        const std::int64_t index =
            static_cast<std::int64_t>(sequence.first_row + row) * args.query_heads + head;
        attend_row(args, sequence, row, head, output + index * head_dim);
      }
    }
  }
}

}  // namespace octet
