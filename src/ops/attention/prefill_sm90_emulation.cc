#include "ops/attention/prefill_sm90_emulation.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/bfloat16.h"
#include "core/error.h"
#include "core/float8_e4m3.h"
#include "kv/element_order.h"
#include "ops/attention/prefill_sm90_work.h"

namespace octet {

namespace {

// Static scales are the reader's to apply.
float scale_at(const KvSidePolicy& side, const std::byte* scales, int token) {
  if (side.scales != KvScales::dynamic) return 1.0f;
  std::uint16_t bits;
  std::memcpy(&bits, scales + 2 * token, sizeof(bits));
  return bfloat16_to_float(bits);
}

float round_e4m3(double x) {
  // From double to float first: a tie of e4m3 is a float, so that this rounds as one step would,
  // but for values a float's half step from a tie.
  return float8_e4m3_to_float(float_to_float8_e4m3(static_cast<float>(x)));
}

double dot(const float* a, const float* b, int count) {
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

const float* row_of(const std::vector<float>& rows, int head_dim, int row) {
  return rows.data() + static_cast<std::size_t>(row) * static_cast<std::size_t>(head_dim);
}

}  // namespace

StoredHead read_stored_head(const KvRunLayout& layout, int first_key, int context,
                            const std::function<const std::byte*(int page)>& run) {
  const KvDtype key_dtype = layout.policy.key.dtype;
  const KvDtype value_dtype = layout.policy.value.dtype;
  const bool of_one =
      key_dtype == value_dtype && (key_dtype == KvDtype::fp8 || key_dtype == KvDtype::bfloat16);
  if (!of_one && !(key_dtype == KvDtype::int8 && value_dtype == KvDtype::fp8)) {
    throw_error(ErrorKind::internal, "read_stored_head: a cache of {}", describe(layout.policy));
  }
  StoredHead head;
  head.key_dtype = key_dtype;
  head.value_dtype = value_dtype;
  head.head_dim = layout.head_dim;
  const auto width = static_cast<std::size_t>(layout.head_dim);
  const auto keys = static_cast<std::size_t>(context);
  head.keys.resize(keys * width);
  head.values.resize(keys * width);
  head.key_scales.resize(keys);
  head.value_scales.resize(keys);
  for (int key = first_key / page_tokens * page_tokens; key < context; ++key) {
    const std::byte* bytes = run(key / page_tokens);
    const int token = key % page_tokens;
    const auto at = static_cast<std::size_t>(key);
    head.key_scales[at] = scale_at(layout.policy.key, bytes + layout.key_scale_offset, token);
    head.value_scales[at] = scale_at(layout.policy.value, bytes + layout.value_scale_offset, token);
    for (int i = 0; i < layout.head_dim; ++i) {
      const auto place = at * width + static_cast<std::size_t>(i);
      const auto element = [&](KvDtype dtype, std::size_t side, KvOrder order) {
        if (dtype == KvDtype::bfloat16) {
          std::uint16_t bits;
          std::memcpy(&bits, bytes + side + element_offset(order, 2, layout.head_dim, token, i),
                      sizeof(bits));
          return bfloat16_to_float(bits);
        }
        const std::byte code = bytes[side + element_offset(order, 1, layout.head_dim, token, i)];
        if (dtype == KvDtype::int8) return static_cast<float>(static_cast<std::int8_t>(code));
        return float8_e4m3_to_float(static_cast<std::uint8_t>(code));
      };
      head.keys[place] = element(key_dtype, layout.key_offset, layout.key_order);
      head.values[place] = element(value_dtype, layout.value_offset, layout.value_order);
    }
  }
  return head;
}

void attend_exactly(const StoredHead& head, std::span<const float> query, int first, int last,
                    double softmax_scale, double* output) {
  std::vector<double> scores;
  for (int key = first; key < last; ++key) {
    const double product = dot(query.data(), row_of(head.keys, head.head_dim, key), head.head_dim);
    scores.push_back(product * head.key_scales[static_cast<std::size_t>(key)] * softmax_scale);
  }
  const double highest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  std::fill_n(output, head.head_dim, 0.0);
  for (int key = first; key < last; ++key) {
    const double weight = std::exp(scores[static_cast<std::size_t>(key - first)] - highest);
    sum += weight;
    const double scaled = weight * head.value_scales[static_cast<std::size_t>(key)];
    const float* value = row_of(head.values, head.head_dim, key);
    for (int i = 0; i < head.head_dim; ++i) output[i] += scaled * value[i];
  }
  for (int i = 0; i < head.head_dim; ++i) output[i] /= sum;
}

void attend_as_prefill_rounds(const StoredHead& head, std::span<const float> query,
                              double query_norm, int first, int last, double softmax_scale,
                              double* output) {
  const bool fp8 = head.value_dtype == KvDtype::fp8;
  const auto round_weight = [&](double weight) {
    return fp8 ? round_e4m3(weight) : round_to_bfloat16(static_cast<float>(weight));
  };
  double query_scale = 1;
  std::vector<float> rounded(query.begin(), query.end());
  if (head.key_dtype == KvDtype::fp8 && query_norm > 0) {
    // The largest norm of the rows that share a scale comes to [2^(e - 1), 2^e).
    query_scale = std::exp2(std::ilogb(query_norm) + 1 - prefill_query_exponent(head.head_dim));
    for (float& x : rounded) x = round_e4m3(x / query_scale);
  } else if (head.key_dtype == KvDtype::int8) {
    double largest = 1e-30;
    for (const float x : query) largest = std::max(largest, std::abs(static_cast<double>(x)));
    query_scale = largest / 127;
    for (float& x : rounded) x = static_cast<float>(std::nearbyint(x / query_scale));
  }
  const double factor = softmax_scale * 1.44269504088896341 * query_scale;

  double highest = -HUGE_VAL;
  double sum = 0;
  std::fill_n(output, head.head_dim, 0.0);
  std::vector<double> scores;
  for (int begin = first; begin < last;) {
    const int end = std::min(last, (begin / prefill_tile_keys + 1) * prefill_tile_keys);
    scores.clear();
    for (int key = begin; key < end; ++key) {
      const double product =
          dot(rounded.data(), row_of(head.keys, head.head_dim, key), head.head_dim);
      scores.push_back(product * factor * head.key_scales[static_cast<std::size_t>(key)] +
                       std::log2(head.value_scales[static_cast<std::size_t>(key)]));
    }
    const double tile = std::ceil(*std::max_element(scores.begin(), scores.end()));
    const double before = std::exp2(highest - std::max(highest, tile));
    highest = std::max(highest, tile);
    const double beta = std::exp2(tile - highest);
    sum *= before;
    for (int i = 0; i < head.head_dim; ++i) output[i] *= before;
    for (int key = begin; key < end; ++key) {
      const double score = scores[static_cast<std::size_t>(key - begin)];
      const double exact = std::exp2(score - tile + 8);
      const double weight = beta * round_weight(exact);
      // Sums of bfloat16 weights are of those before they were rounded.
      sum += (fp8 ? weight : beta * exact) / head.value_scales[static_cast<std::size_t>(key)];
      const float* value = row_of(head.values, head.head_dim, key);
      for (int i = 0; i < head.head_dim; ++i) output[i] += weight * value[i];
    }
    begin = end;
  }
  for (int i = 0; i < head.head_dim; ++i) output[i] /= sum;
}

}  // namespace octet
