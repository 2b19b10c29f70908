// Attention over the paged cache.
#pragma once

#include <cstdint>
#include <span>

#include "kv/sequence_rows.h"
#include "ops/context.h"

namespace octet {

// output[r][h] = sum_j softmax_j(softmax_scale * q[r][h] . k[j][h / group]) v[j][h / group]
// over the keys j at or before the row's position, or the last `window` of them.
//   query, output: [rows, query_heads, head_dim] float32, row strides in elements; query after rope
//   layer: the layer's runs; the keys and values of all rows must have been written (kv_write)
//   query_heads: a multiple of the layer's KV heads; head_dim: a multiple of 8, at most
//   max_head_dim
//
// Stored keys are those of rope less the layer's key means (layer.constants->key_mean), where it
// has them: every score of a row is then smaller by softmax_scale * q . mean, which softmax does
// not see. A score that is more than an operand of softmax (a soft cap, a sink's) must have that
// number added back first. Static scales of keys enter the scores, those of values the output.
//
// Determinism: keys are taken in tiles of one page, tiles in chunks of `attention_chunk_tokens` at
// absolute positions; within a chunk an online softmax runs over its tiles in ascending order, and
// chunks are merged in ascending order. So a row gives the same bits alone, in a batch, in any
// chunk of a prompt, on any number of threads. What lies in a page past the row's position is never
// read into a sum (it may be NaN).
//
// context.accumulation single_level: a sequence's row that comes alone, as in decode, is attended
// to over its fp8 cache as by a Hopper tensor core that adds up the whole context by itself
// (attention_hopper_emulation): slow, to show what that loses.
struct AttentionArgs {
  const float* query = nullptr;
  float* output = nullptr;
  std::int64_t query_stride = 0;
  std::int64_t output_stride = 0;
  int query_heads = 0;
  float softmax_scale = 0;
  KvLayerView layer;
  int group = 0;
  std::span<const SequenceRows> sequences;
};
void attention(const OpContext& context, const AttentionArgs& args);

inline constexpr int attention_chunk_tokens = 512;

// Double precision over the stored keys and values, one row at a time: output is
// [rows, query_heads, head_dim], contiguous.
void attention_reference(const AttentionArgs& args, double* output);

}  // namespace octet
