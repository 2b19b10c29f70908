// What the Hopper prefill kernel rounds, on the CPU: the oracle of its tests and its benchmark.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kv/kv_layout.h"

namespace octet {

// The first `context` keys and values of one KV head, as they are stored.
struct StoredHead {
  KvDtype key_dtype = KvDtype::fp8;
  KvDtype value_dtype = KvDtype::fp8;
  int head_dim = 0;
  std::vector<float> keys;    // [context][head_dim], not yet scaled
  std::vector<float> values;  // the same
  std::vector<float> key_scales;
  std::vector<float> value_scales;
};

// e4m3, int8 keys with e4m3 values, or bfloat16, in any order; where scales are static, without
// them. run(page) gives the head's run in the sequence's i-th page. Pages before that of
// `first_key` are not asked for.
StoredHead read_stored_head(const KvRunLayout& layout, int first_key, int context,
                            const std::function<const std::byte*(int page)>& run);

// One query row of one head over keys [first, last), in double precision: output[head_dim].
void attend_exactly(const StoredHead& head, std::span<const float> query, int first, int last,
                    double softmax_scale, double* output);

// The same with the kernel's rounding of the query and of the weights (prefill_sm90.h), summed
// exactly. query_norm: the largest norm of the rows that share the query's scale, which beside int8
// keys is each row's own.
void attend_as_prefill_rounds(const StoredHead& head, std::span<const float> query,
                              double query_norm, int first, int last, double softmax_scale,
                              double* output);

}  // namespace octet
