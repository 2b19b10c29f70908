#include "ops/attention/attention_cpu.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "core/bfloat16.h"
#include "ops/attention/attention_kernels.h"
#include "ops/cpu/dispatch.h"
#include "ops/cpu/scratch.h"
#include "ops/quantize/hadamard.h"

namespace octet {

namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

// A page decoded for 96 query rows costs about 3 % of the arithmetic that it feeds.
constexpr int rows_per_block = 96;
constexpr int rows_per_wide_block = 48;  // head_dim above 128: the same scratch
// With fewer work items than this per thread, a block's context is split among threads as well.
constexpr std::int64_t items_per_thread = 4;

// Running maximum, sum and output of each query row over a range of keys.
struct SoftmaxState {
  float* maximum = nullptr;  // [rows]
  float* sum = nullptr;      // [rows]
  float* output = nullptr;   // [rows][head_dim], not yet divided by the sum
  static std::size_t floats(int rows, int head_dim) {
    return static_cast<std::size_t>(rows) * (static_cast<std::size_t>(head_dim) + 2);
  }
  SoftmaxState(float* memory, int rows, int head_dim)
      : maximum(memory),
        sum(memory + rows),
        output(memory + 2 * static_cast<std::ptrdiff_t>(rows)) {
    std::fill_n(maximum, rows, minus_infinity);
    std::fill_n(memory + rows, floats(rows, head_dim) - static_cast<std::size_t>(rows), 0.0f);
  }
};

// Consecutive tokens of one sequence, for the query heads of one KV head.
struct Block {
  const SequenceRows* sequence = nullptr;
  int kv_head = 0;
  std::int32_t first_row = 0;  // within the sequence
  std::int32_t tokens = 0;
  std::int32_t first_chunk = 0;  // chunks that any of its rows sees: [first_chunk, last_chunk)
  std::int32_t last_chunk = 0;
  std::size_t first_partial = 0;  // where a split block's partial states start, in chunks
};

class BlockRunner {
 public:
  BlockRunner(const AttentionArgs& args, const AttentionKernels& kernels, const Block& block)
      : args_(args),
        kernels_(kernels),
        block_(block),
        run_(args.layer.group->run),
        head_dim_(run_.head_dim),
        heads_(args.query_heads / args.layer.group->geometry.kv_heads),
        rows_(block.tokens * heads_),
        window_(args.layer.group->geometry.window),
        pairs_(pairs_for(kernels)),
        direct_(kernels.multiply_stored != nullptr && rows_ <= attention_direct_rows &&
                head_dim_ % 16 == 0) {}

  int rows() const { return rows_; }

  static std::size_t scratch_floats(int rows, int head_dim) {
    const auto tile = static_cast<std::size_t>(page_tokens) * static_cast<std::size_t>(head_dim);
    // Queries and scores once more, rounded to bfloat16.
    return static_cast<std::size_t>(rows) *
               (3 * (static_cast<std::size_t>(head_dim) + page_tokens) / 2 + 1) +
           tile + 2 * page_tokens + 2 * SoftmaxState::floats(rows, head_dim);
  }

  // Cuts the thread's scratch up and gathers the block's queries, rotated where the keys are.
  void prepare(float* scratch) {
    const auto take = [&scratch](std::size_t floats) {
      float* part = scratch;
      scratch += floats;
      return part;
    };
    const auto tile = static_cast<std::size_t>(page_tokens) * static_cast<std::size_t>(head_dim_);
    const auto rows = static_cast<std::size_t>(rows_);
    tile_ = take(tile);
    query_ = take(rows * static_cast<std::size_t>(head_dim_));
    scores_ = take(rows * page_tokens);
    if (pairs_ != nullptr) {
      rounded_query_ =
          reinterpret_cast<std::uint16_t*>(take(rows * static_cast<std::size_t>(head_dim_) / 2));
      rounded_weights_ = reinterpret_cast<std::uint16_t*>(take(rows * page_tokens / 2));
    }
    alpha_ = take(rows);
    key_scales_ = take(page_tokens);
    value_scales_ = take(page_tokens);
    chunk_memory_ = take(SoftmaxState::floats(rows_, head_dim_));
    total_memory_ = take(SoftmaxState::floats(rows_, head_dim_));
    for (int row = 0; row < rows_; ++row) {
      float* query = query_ + static_cast<std::ptrdiff_t>(row) * head_dim_;
      std::copy_n(args_.query + source_row(row) * args_.query_stride + source_head(row) * head_dim_,
                  head_dim_, query);
      if (run_.policy.rotates_keys()) hadamard_rotate(query, head_dim_);
    }
    if (pairs_ != nullptr) {
      pairs_->round(query_, static_cast<std::int64_t>(rows_) * head_dim_, rounded_query_);
    }
  }

  // The whole of the block: every chunk in ascending order.
  void run_all() {
    SoftmaxState total(total_memory_, rows_, head_dim_);
    for (std::int32_t chunk = block_.first_chunk; chunk < block_.last_chunk; ++chunk) {
      SoftmaxState state(chunk_memory_, rows_, head_dim_);
      run_chunk(chunk, state);
      merge(total, state);
    }
    write_output(total);
  }

  void run_chunk_into(std::int32_t chunk, float* partial) {
    SoftmaxState state(partial, rows_, head_dim_);
    run_chunk(chunk, state);
  }

  // The same merges as run_all, over states that other threads made.
  void merge_partials(float* scratch, float* partials) {
    SoftmaxState total(scratch, rows_, head_dim_);
    for (std::int32_t chunk = block_.first_chunk; chunk < block_.last_chunk; ++chunk) {
      SoftmaxStateView state(partials, rows_);
      merge(total, state);
      partials += SoftmaxState::floats(rows_, head_dim_);
    }
    write_output(total);
  }

 private:
  struct SoftmaxStateView {
    float* maximum;
    float* sum;
    float* output;
    SoftmaxStateView(float* memory, int rows)
        : maximum(memory),
          sum(memory + rows),
          output(memory + 2 * static_cast<std::ptrdiff_t>(rows)) {}
  };

  std::int64_t source_row(int row) const {
    return block_.sequence->first_row + block_.first_row + row / heads_;
  }
  int source_head(int row) const { return block_.kv_head * heads_ + row % heads_; }
  std::int32_t position(int row) const {
    return block_.sequence->first_position + block_.first_row + row / heads_;
  }
  std::int32_t first_seen(int row) const {
    return window_ == 0 ? 0 : std::max(position(row) - window_ + 1, 0);
  }

  void load_scales(const KvSidePolicy& side, const std::byte* stored, float factor, float* out) {
    if (side.dtype == KvDtype::fp8) factor *= kernels_.fp8_divisor;
    if (side.scales != KvScales::dynamic) {
      std::fill_n(out, page_tokens, factor);
      return;
    }
    for (int token = 0; token < page_tokens; ++token) {
      std::uint16_t bits;
      std::memcpy(&bits, stored + static_cast<std::size_t>(token) * sizeof(bits), sizeof(bits));
      out[token] = bfloat16_to_float(bits) * factor;
    }
  }

  // float32 pages are used as they lie.
  const float* load_tile(KvDtype dtype, const std::byte* stored, std::int64_t count,
                         float* buffer) {
    if (dtype == KvDtype::float32) return reinterpret_cast<const float*>(stored);
    kernels_.decode(dtype, stored, count, buffer);
    return buffer;
  }

  void run_chunk(std::int32_t chunk, SoftmaxState& state) {
    const std::int32_t chunk_start = chunk * attention_chunk_tokens;
    const std::int32_t end =
        std::min(chunk_start + attention_chunk_tokens, position(rows_ - 1) + 1);
    const std::int32_t start = std::max(chunk_start, first_seen(0) / page_tokens * page_tokens);
    for (std::int32_t tile = start; tile < end; tile += page_tokens) run_tile(tile, state);
  }

  void run_tile(std::int32_t tile_start, SoftmaxState& state) {
    const PageId page =
        block_.sequence->pages[static_cast<std::size_t>(args_.group)][tile_start / page_tokens];
    const std::byte* bytes = args_.layer.run(page, block_.kv_head);
    // Rows see keys up to their own position: the last row sees the most.
    const int tokens = std::min(position(rows_ - 1) + 1 - tile_start, page_tokens);
    const KvLayerPolicy& policy = run_.policy;
    load_scales(policy.key, bytes + run_.key_scale_offset,
                args_.softmax_scale * static_key_scale(args_.layer, block_.kv_head), key_scales_);
    const bool scaled_values = policy.value.scales == KvScales::dynamic ||
                               (policy.value.dtype == KvDtype::fp8 && kernels_.fp8_divisor != 1);
    if (scaled_values) {
      load_scales(policy.value, bytes + run_.value_scale_offset, 1.0f, value_scales_);
    }

    const std::byte* next = next_tile(tile_start);
    if (pairs_ != nullptr) {
      multiply_pairs(policy.key.dtype, bytes + run_.key_offset, rounded_query_, head_dim_, nullptr,
                     head_dim_, page_tokens, scores_);
    } else {
      multiply_tile({policy.key.dtype, bytes + run_.key_offset,
                     next == nullptr ? nullptr : next + run_.key_offset},
                    query_, head_dim_, nullptr, head_dim_, page_tokens, scores_);
    }
    for (int row = 0; row < rows_; ++row) {
      SoftmaxTile tile;
      tile.scores = scores_ + static_cast<std::ptrdiff_t>(row) * page_tokens;
      tile.key_scales = key_scales_;
      tile.value_scales = scaled_values ? value_scales_ : nullptr;
      tile.first = std::max(first_seen(row) - tile_start, 0);
      tile.last = std::min(position(row) + 1 - tile_start, page_tokens);
      tile.maximum = state.maximum + row;
      tile.sum = state.sum + row;
      alpha_[row] = kernels_.softmax_tile(tile);
    }
    if (pairs_ != nullptr) {
      pairs_->round(scores_, static_cast<std::int64_t>(rows_) * page_tokens, rounded_weights_);
      multiply_pairs(policy.value.dtype, bytes + run_.value_offset, rounded_weights_, page_tokens,
                     alpha_, tokens, head_dim_, state.output);
      return;
    }
    multiply_tile({policy.value.dtype, bytes + run_.value_offset,
                   next == nullptr ? nullptr : next + run_.value_offset},
                  scores_, page_tokens, alpha_, tokens, head_dim_, state.output);
  }

  // Whether every stored key and value is a bfloat16, so that products of pairs are exact.
  const AttentionPairKernels* pairs_for(const AttentionKernels& kernels) const {
    const auto exact = [](KvDtype dtype) {
      return dtype == KvDtype::bfloat16 || dtype == KvDtype::fp8 || dtype == KvDtype::int8;
    };
    const KvLayerPolicy& policy = run_.policy;
    const bool fits = head_dim_ % 64 == 0 && exact(policy.key.dtype) && exact(policy.value.dtype);
    return fits ? kernels.pairs : nullptr;
  }

  void multiply_pairs(KvDtype dtype, const std::byte* stored, const std::uint16_t* a, int a_stride,
                      const float* scale, int depth, int columns, float* c) {
    auto* pairs = reinterpret_cast<std::uint16_t*>(tile_);
    pairs_->decode(dtype, stored, depth, columns, pairs);
    pairs_->multiply(a, a_stride, pairs, c, scale, rows_, (depth + 1) / 2, columns);
  }

  // The run that follows in this block's chunk, or null.
  const std::byte* next_tile(std::int32_t tile_start) const {
    const std::int32_t next = tile_start + page_tokens;
    if (next > position(rows_ - 1) || next % attention_chunk_tokens == 0) return nullptr;
    return args_.layer.run(
        block_.sequence->pages[static_cast<std::size_t>(args_.group)][next / page_tokens],
        block_.kv_head);
  }

  struct StoredTile {
    KvDtype dtype;
    const std::byte* data;  // [depth][columns]
    const std::byte* next;  // what will be read after it, or null
  };

  // AttentionKernels::multiply over a stored tile: by few rows straight, else decoded once for all.
  void multiply_tile(const StoredTile& tile, const float* a, int a_stride, const float* scale,
                     int depth, int columns, float* c) {
    if (direct_) {
      kernels_.multiply_stored(tile.dtype, a, a_stride, tile.data, tile.next, c, scale, rows_,
                               depth, columns);
      return;
    }
    const float* b =
        load_tile(tile.dtype, tile.data, static_cast<std::int64_t>(depth) * columns, tile_);
    kernels_.multiply(a, a_stride, b, columns, c, columns, scale, rows_, depth, columns);
  }

  template <typename State>
  void merge(SoftmaxState& total, const State& part) {
    for (int row = 0; row < rows_; ++row) {
      if (part.maximum[row] == minus_infinity) continue;  // the row sees none of these keys
      const float maximum = std::max(total.maximum[row], part.maximum[row]);
      const float a = kernels_.exponential(total.maximum[row] - maximum);
      const float b = kernels_.exponential(part.maximum[row] - maximum);
      total.maximum[row] = maximum;
      total.sum[row] = total.sum[row] * a + part.sum[row] * b;
      float* into = total.output + static_cast<std::ptrdiff_t>(row) * head_dim_;
      const float* from = part.output + static_cast<std::ptrdiff_t>(row) * head_dim_;
      for (int i = 0; i < head_dim_; ++i) into[i] = into[i] * a + from[i] * b;
    }
  }

  void write_output(const SoftmaxState& total) {
    const float scale = static_value_scale(args_.layer, block_.kv_head);
    for (int row = 0; row < rows_; ++row) {
      float* out =
          args_.output + source_row(row) * args_.output_stride + source_head(row) * head_dim_;
      const float* from = total.output + static_cast<std::ptrdiff_t>(row) * head_dim_;
      for (int i = 0; i < head_dim_; ++i) out[i] = from[i] / total.sum[row] * scale;
    }
  }

  const AttentionArgs& args_;
  const AttentionKernels& kernels_;
  const Block& block_;
  const KvRunLayout& run_;
  int head_dim_;
  int heads_;
  int rows_;
  int window_;
  const AttentionPairKernels* pairs_;  // null: float32
  bool direct_;
  std::uint16_t* rounded_query_ = nullptr;
  std::uint16_t* rounded_weights_ = nullptr;
  float* tile_ = nullptr;
  float* query_ = nullptr;
  float* scores_ = nullptr;
  float* alpha_ = nullptr;
  float* key_scales_ = nullptr;
  float* value_scales_ = nullptr;
  float* chunk_memory_ = nullptr;
  float* total_memory_ = nullptr;
};

// Into a vector that is kept between calls: no allocation per step.
void make_blocks(const AttentionArgs& args, std::vector<Block>* made) {
  const KvLayerGeometry& geometry = args.layer.group->geometry;
  const int heads = args.query_heads / geometry.kv_heads;
  const int most_rows = geometry.head_dim > 128 ? rows_per_wide_block : rows_per_block;
  const std::int32_t most_tokens = std::max(most_rows / heads, 1);
  std::vector<Block>& blocks = *made;
  blocks.clear();
  std::size_t partials = 0;
  for (const SequenceRows& sequence : args.sequences) {
    for (std::int32_t row = 0; row < sequence.rows; row += most_tokens) {
      const std::int32_t tokens = std::min(most_tokens, sequence.rows - row);
      const std::int32_t first = sequence.first_position + row;
      const std::int32_t seen = geometry.window == 0 ? 0 : std::max(first - geometry.window + 1, 0);
      for (int head = 0; head < geometry.kv_heads; ++head) {
        Block block;
        block.sequence = &sequence;
        block.kv_head = head;
        block.first_row = row;
        block.tokens = tokens;
        block.first_chunk = seen / attention_chunk_tokens;
        block.last_chunk = (first + tokens - 1) / attention_chunk_tokens + 1;
        block.first_partial = partials;
        partials += static_cast<std::size_t>(block.last_chunk - block.first_chunk);
        blocks.push_back(block);
      }
    }
  }
}

// The arithmetic of integers has no kernels of attention: it takes the fastest.
bool takes_bfloat16(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::float32:
      return false;
    case Arithmetic::bfloat16:
      return true;
    case Arithmetic::int16:
    case Arithmetic::int8:
      return prefers_bfloat16();
  }
  return false;
}

const AttentionKernels& select_kernels(const OpContext& context) {
  if constexpr (has_avx2_kernels) {
    const InstructionSet set = context.instruction_set;
    if (set == InstructionSet::avx512_bf16 && takes_bfloat16(context.arithmetic)) {
      return attention_kernels_avx512_bf16();
    }
    if (set >= InstructionSet::avx512) return attention_kernels_avx512();
    if (set == InstructionSet::avx2) return attention_kernels_avx2();
  }
  if (context.instruction_set == InstructionSet::portable) return attention_kernels_portable();
  throw_no_kernel("attention", context.instruction_set);
}

// Grown once and kept: no allocation per step.
float* thread_scratch(std::size_t floats) {
  thread_local Scratch memory;
  return static_cast<float*>(memory.reserve(floats * sizeof(float)));
}

void run_whole_blocks(const OpContext& context, const AttentionArgs& args,
                      const AttentionKernels& kernels, const std::vector<Block>& blocks) {
  // The last blocks of a prompt see the most keys: start with them, so that none is left at the
  // end.
  const auto count = static_cast<std::int64_t>(blocks.size());
  context.pool->parallel_for(count, [&](std::int64_t index, int) {
    BlockRunner runner(args, kernels, blocks[static_cast<std::size_t>(count - 1 - index)]);
    runner.prepare(thread_scratch(
        BlockRunner::scratch_floats(runner.rows(), args.layer.group->geometry.head_dim)));
    runner.run_all();
  });
}

void run_split_blocks(const OpContext& context, const AttentionArgs& args,
                      const AttentionKernels& kernels, const std::vector<Block>& blocks) {
  const int head_dim = args.layer.group->geometry.head_dim;
  const int heads = args.query_heads / args.layer.group->geometry.kv_heads;
  struct Item {
    std::size_t block;
    std::int32_t chunk;
  };
  thread_local std::vector<Item> items;
  thread_local std::vector<float> partials;
  items.clear();
  std::int32_t most_tokens = 0;
  for (std::size_t block = 0; block < blocks.size(); ++block) {
    most_tokens = std::max(most_tokens, blocks[block].tokens);
    for (std::int32_t c = blocks[block].first_chunk; c < blocks[block].last_chunk; ++c) {
      items.push_back({block, c});
    }
  }
  const std::size_t stride = SoftmaxState::floats(most_tokens * heads, head_dim);
  if (partials.size() < items.size() * stride) partials.resize(items.size() * stride);
  // A block's partials are packed at its own row count.
  float* const memory = partials.data();
  const std::vector<Item>& work = items;
  const auto partial_of = [&](const Block& block, std::int32_t chunk) {
    return memory + block.first_partial * stride +
           static_cast<std::size_t>(chunk - block.first_chunk) *
               SoftmaxState::floats(block.tokens * heads, head_dim);
  };
  context.pool->parallel_for(static_cast<std::int64_t>(work.size()), [&](std::int64_t index, int) {
    const Item& item = work[static_cast<std::size_t>(index)];
    const Block& block = blocks[item.block];
    BlockRunner runner(args, kernels, block);
    runner.prepare(thread_scratch(BlockRunner::scratch_floats(runner.rows(), head_dim)));
    runner.run_chunk_into(item.chunk, partial_of(block, item.chunk));
  });
  context.pool->parallel_for(
      static_cast<std::int64_t>(blocks.size()), [&](std::int64_t index, int) {
        const Block& block = blocks[static_cast<std::size_t>(index)];
        BlockRunner runner(args, kernels, block);
        runner.merge_partials(thread_scratch(SoftmaxState::floats(runner.rows(), head_dim)),
                              partial_of(block, block.first_chunk));
      });
}

}  // namespace

void attention_cpu(const OpContext& context, const AttentionArgs& args) {
  const AttentionKernels& kernels = select_kernels(context);
  thread_local std::vector<Block> blocks;
  make_blocks(args, &blocks);
  std::int64_t chunks = 0;
  for (const Block& block : blocks) chunks += block.last_chunk - block.first_chunk;
  const auto count = static_cast<std::int64_t>(blocks.size());
  const bool enough = count >= items_per_thread * context.pool->size();
  if (enough || chunks == count || context.pool->size() == 1) {
    run_whole_blocks(context, args, kernels, blocks);
  } else {
    run_split_blocks(context, args, kernels, blocks);
  }
}

}  // namespace octet
