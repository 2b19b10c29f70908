#include "ops/attention/attention_hopper_emulation.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/bfloat16.h"
#include "core/error.h"
#include "core/float8_e4m3.h"
#include "kv/element_order.h"

namespace octet {

namespace {

struct StoredSide {
  const KvSidePolicy* side;
  KvOrder order;
  std::size_t offset;
  std::size_t scale_offset;
  float static_scale;
};

// The stored e4m3 numbers of one token, unscaled; returns their scale.
float load_row(const std::byte* run, const StoredSide& stored, int head_dim, int token,
               float* out) {
  for (int i = 0; i < head_dim; ++i) {
    const std::byte code = run[stored.offset + element_offset(stored.order, 1, head_dim, token, i)];
    out[i] = float8_e4m3_to_float(std::to_integer<std::uint8_t>(code));
  }
  if (stored.side->scales != KvScales::dynamic) return stored.static_scale;
  std::uint16_t bits = 0;
  std::memcpy(&bits, run + stored.scale_offset + static_cast<std::size_t>(token) * sizeof(bits),
              sizeof(bits));
  return bfloat16_to_float(bits);
}

// Rounds in place; returns the scale.
float round_query(std::vector<float>* query) {
  float largest = 0;
  for (const float x : *query) largest = std::max(largest, std::fabs(x));
  const float scale = largest > 0 ? largest / float8_e4m3_max : 1.0f;
  for (float& x : *query) x = float8_e4m3_to_float(float_to_float8_e4m3(x / scale));
  return scale;
}

float tensor_core_dot(const float* a, const float* b, int count, int bits) {
  float products[hopper_step_products];
  float sum = 0;
  for (int first = 0; first < count; first += hopper_step_products) {
    const int step = std::min(hopper_step_products, count - first);
    for (int i = 0; i < step; ++i) products[i] = a[first + i] * b[first + i];
    sum = hopper_accumulate(sum, {products, static_cast<std::size_t>(step)}, bits);
  }
  return sum;
}

void attend_row(const AttentionArgs& args, const HopperAccumulation& accumulation,
                const SequenceRows& sequence, std::int32_t row, int head) {
  const KvGroup& group = *args.layer.group;
  const KvRunLayout& run = group.run;
  const int head_dim = run.head_dim;
  const int kv_head = head / (args.query_heads / group.geometry.kv_heads);
  const std::int32_t position = sequence.first_position + row;
  const std::int32_t first_seen =
      group.geometry.window == 0 ? 0 : std::max(position - group.geometry.window + 1, 0);
  // Tiles lie at absolute positions: the first may hold keys that the row does not see.
  const std::int32_t first_key = first_seen / accumulation.tile_tokens * accumulation.tile_tokens;
  const StoredSide keys = {&run.policy.key, run.key_order, run.key_offset, run.key_scale_offset,
                           static_key_scale(args.layer, kv_head)};
  const StoredSide stored_values = {&run.policy.value, run.value_order, run.value_offset,
                                    run.value_scale_offset,
                                    static_value_scale(args.layer, kv_head)};
  const float* source =
      args.query + (sequence.first_row + row) * args.query_stride + head * head_dim;
  std::vector<float> query(source, source + head_dim);
  const float query_scale = round_query(&query);

  const auto count = static_cast<std::size_t>(position + 1 - first_key);
  const auto width = static_cast<std::size_t>(head_dim);
  std::vector<float> scores(count, -1e30f);
  std::vector<float> values(count * width, 0.0f);
  std::vector<float> value_scales(count, 1.0f);
  std::vector<float> key(width);
  for (std::int32_t at = first_seen; at <= position; ++at) {
    const PageId page = sequence.pages[static_cast<std::size_t>(args.group)][at / page_tokens];
    const std::byte* bytes = args.layer.run(page, kv_head);
    const auto index = static_cast<std::size_t>(at - first_key);
    const float key_scale = load_row(bytes, keys, head_dim, at % page_tokens, key.data());
    scores[index] =
        tensor_core_dot(query.data(), key.data(), head_dim, accumulation.accumulator_bits) *
        (query_scale * key_scale * args.softmax_scale);
    value_scales[index] =
        load_row(bytes, stored_values, head_dim, at % page_tokens, &values[index * width]);
  }
  HopperRow weighted;
  weighted.scores = scores;
  weighted.values = values.data();
  weighted.value_scales = value_scales;
  weighted.head_dim = head_dim;
  hopper_weighted_values(
      accumulation, weighted,
      args.output + (sequence.first_row + row) * args.output_stride + head * head_dim);
}

}  // namespace

void attention_hopper_emulation(const AttentionArgs& args, const HopperAccumulation& accumulation) {
  const KvLayerPolicy& policy = args.layer.group->run.policy;
  if (policy.key.dtype != KvDtype::fp8 || policy.value.dtype != KvDtype::fp8) {
    throw_unsupported("Hopper's FP8 prefill reads an fp8:fp8 cache, and this one is {}",
                      describe(policy));
  }
  for (const SequenceRows& sequence : args.sequences) {
    for (std::int32_t row = 0; row < sequence.rows; ++row) {
      for (int head = 0; head < args.query_heads; ++head) {
        attend_row(args, accumulation, sequence, row, head);
      }
    }
  }
}

}  // namespace octet
