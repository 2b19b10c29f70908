#include "ops/attention/attention_cuda.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "core/error.h"
#include "kv/element_order.h"
#include "ops/attention/attention_cuda_launch.h"
#include "ops/attention/attention_decode_cuda_parameters.h"
#include "ops/attention/attention_prefill_cuda_parameters.h"

namespace octet {

namespace {

constexpr float log2_e = 1.44269504088896341f;
constexpr int decode_turn_pages = 4;  // two tiles for each of a block's warps

void validate(const AttentionCudaShape& shape) {
  if (shape.kv_heads <= 0 || shape.query_heads <= 0 || shape.query_heads % shape.kv_heads != 0 ||
      shape.window < 0) {
    throw_error(ErrorKind::internal, "attention: {} query heads, {} KV heads and a window of {}",
                shape.query_heads, shape.kv_heads, shape.window);
  }
  if (shape.head_dim <= 0 || shape.head_dim > max_head_dim) {
    throw_unsupported("attention on the GPU: head_dim {}; expected at most {}", shape.head_dim,
                      max_head_dim);
  }
  make_run_layout(shape.policy, shape.head_dim,
                  KvTarget::sm90);  // refuses what it has no order for
}

int group_of(const AttentionCudaShape& shape) { return shape.query_heads / shape.kv_heads; }

// One entry for up to eight query heads of a KV head, one for up to sixteen.
AttentionDecodeKernel decode_kernel_of(const AttentionCudaShape& shape) {
  const int tiles = group_of(shape) <= 8 || shape.head_dim > 256 ? 1 : 2;
  if (shape.head_dim <= 64) return attention_decode_kernel_64(tiles);
  if (shape.head_dim <= 128) return attention_decode_kernel_128(tiles);
  if (shape.head_dim <= 256) return attention_decode_kernel_256(tiles);
  return attention_decode_kernel_512(tiles);
}

AttentionPrefillKernel prefill_kernel_of(const AttentionCudaShape& shape) {
  const bool key_codes = is_eight_bit(shape.policy.key.dtype);
  const bool value_codes = is_eight_bit(shape.policy.value.dtype);
  if (shape.head_dim <= 64) return attention_prefill_kernel_64(key_codes, value_codes);
  if (shape.head_dim <= 128) return attention_prefill_kernel_128(key_codes, value_codes);
  if (shape.head_dim <= 256) return attention_prefill_kernel_256(key_codes, value_codes);
  return attention_prefill_kernel_512(key_codes, value_codes);
}

template <typename Function>
void allow_shared_bytes(Function* function, std::size_t bytes) {
  check_cuda(
      cudaFuncSetAttribute(reinterpret_cast<const void*>(function),
                           cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
      "cudaFuncSetAttribute");
}

int units_of_head(const AttentionCudaShape& shape, const AttentionDecodeKernel& kernel) {
  return (group_of(shape) + kernel.queries - 1) / kernel.queries;
}

DecodeTurns turns_of(const AttentionCudaShape& shape, const AttentionDecodeKernel& kernel) {
  return {decode_turn_pages, shape.kv_heads * units_of_head(shape, kernel), 1, shape.window};
}

AttentionSide side_of(const KvSidePolicy& policy, int head_dim, std::size_t offset,
                      std::size_t scale_offset, const float* static_scales) {
  AttentionSide side = {};
  side.dtype = policy.dtype;
  side.is_scaled = policy.scales == KvScales::dynamic;
  const std::size_t row =
      panel_row_bytes(static_cast<std::size_t>(head_dim) * bytes_of(policy.dtype));
  side.panel_shift = row == 128 ? 7 : row == 64 ? 6 : 5;
  side.offset = static_cast<std::uint32_t>(offset);
  side.scale_offset = static_cast<std::uint32_t>(scale_offset);
  side.static_scales = is_static(policy.scales) ? static_scales : nullptr;
  if (is_static(policy.scales) && static_scales == nullptr) {
    throw_error(ErrorKind::internal, "attention: a layer of static scales without them");
  }
  return side;
}

AttentionParameters parameters_of(const AttentionCudaShape& shape, const AttentionCudaArgs& args) {
  const KvGroup& group = *args.layer.view.group;
  const KvRunLayout& run = group.run;
  const KvRunLayout expected = make_run_layout(shape.policy, shape.head_dim, KvTarget::sm90);
  if (group.geometry.kv_heads != shape.kv_heads || run.head_dim != shape.head_dim ||
      !(run.policy == shape.policy) || run.key_order != expected.key_order ||
      run.value_order != expected.value_order) {
    throw_error(ErrorKind::internal,
                "attention: the layer's pages are not of the workspace's shape in Hopper's order");
  }
  if (args.output_type != AttentionOutput::bfloat16) {
    throw_error(ErrorKind::internal, "attention: its output is bfloat16");
  }
  if (args.query == nullptr || args.output == nullptr || args.page_table == nullptr) {
    throw_error(ErrorKind::internal, "attention: expected a query, an output and a page table");
  }
  if (args.layer.key_mean != nullptr && args.query_means == nullptr &&
      (args.soft_cap > 0 || args.sinks != nullptr)) {
    throw_error(ErrorKind::internal,
                "attention: a soft cap or sinks over centred keys need the queries' means");
  }
  AttentionParameters parameters = {};
  parameters.query = static_cast<const __nv_bfloat16*>(args.query);
  parameters.output = static_cast<__nv_bfloat16*>(args.output);
  parameters.query_stride = args.query_stride;
  parameters.output_stride = args.output_stride;
  parameters.scale_log2 = args.softmax_scale * log2_e;
  parameters.soft_cap_log2 = args.soft_cap * log2_e;
  parameters.sinks = args.sinks;
  parameters.query_means = args.query_means;
  parameters.layer = args.layer.view.arena + args.layer.view.layer_offset;
  parameters.slab_bytes = args.layer.view.slab_bytes;
  parameters.page_bytes = args.layer.view.page_bytes;
  parameters.run_bytes = run.bytes;
  parameters.pages_per_slab = args.layer.view.pages_per_slab;
  parameters.key = side_of(run.policy.key, run.head_dim, run.key_offset, run.key_scale_offset,
                           args.layer.key_scales);
  parameters.value = side_of(run.policy.value, run.head_dim, run.value_offset,
                             run.value_scale_offset, args.layer.value_scales);
  parameters.page_table = args.page_table;
  parameters.page_table_stride = args.page_table_stride;
  parameters.head_dim = shape.head_dim;
  parameters.query_heads = shape.query_heads;
  parameters.kv_heads = shape.kv_heads;
  parameters.group = group_of(shape);
  parameters.window = shape.window;
  return parameters;
}

}  // namespace

AttentionDecodeWorkspace::AttentionDecodeWorkspace(const AttentionCudaShape& shape,
                                                   int max_sequences)
    : shape_(shape), max_sequences_(max_sequences) {
  validate(shape);
  const AttentionDecodeKernel kernel = decode_kernel_of(shape);
  allow_shared_bytes(kernel.function, kernel.shared_bytes);
  int device = 0;
  int multiprocessors = 0;
  int blocks = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
             "cudaDeviceGetAttribute");
  check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                 &blocks, reinterpret_cast<const void*>(kernel.function),
                 32 * attention_decode_warps, kernel.shared_bytes),
             "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  if (blocks < 1) {
    throw_unsupported(
        "attention on the GPU: head_dim {} needs {} bytes of shared memory a block, more than this "
        "GPU has",
        shape.head_dim, kernel.shared_bytes);
  }
  blocks_ = std::min(blocks * multiprocessors, max_attention_decode_blocks);
  const auto count = static_cast<std::size_t>(blocks_);
  pieces_ = DeviceArray<std::byte>(count * sizeof(DecodePiece));
  shared_pairs_ = DeviceArray<std::byte>(count * sizeof(DecodeSharedPairs));
  starts_ = DeviceArray<std::int32_t>(static_cast<std::size_t>(max_sequences) + 1);
  parts_ = DeviceArray<float>(2 * count * kernel.part_floats);
  arrivals_ = DeviceArray<std::uint32_t>(count);
  arrivals_.fill_bytes(0);
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

std::size_t AttentionDecodeWorkspace::bytes() const {
  return pieces_.bytes() + shared_pairs_.bytes() + starts_.bytes() + parts_.bytes() +
         arrivals_.bytes();
}

void AttentionDecodeWorkspace::plan(const CudaLaunch& launch, const std::int32_t* context_lengths,
                                    int sequences) {
  if (sequences < 1 || sequences > max_sequences_) {
    throw_error(ErrorKind::internal, "attention: {} sequences planned in a workspace for 1 to {}",
                sequences, max_sequences_);
  }
  sequences_ = sequences;
  context_lengths_ = context_lengths;
  const DecodePlan plan = {reinterpret_cast<DecodePiece*>(pieces_.data()),
                           reinterpret_cast<DecodeSharedPairs*>(shared_pairs_.data()),
                           starts_.data(), blocks_, 1};
  launch_decode_plan(turns_of(shape_, decode_kernel_of(shape_)), context_lengths, sequences, plan,
                     launch.stream);
}

void attention_decode_cuda(const CudaLaunch& launch, AttentionDecodeWorkspace& workspace,
                           const AttentionCudaArgs& args) {
  const AttentionCudaShape& shape = workspace.shape_;
  if (workspace.sequences_ == 0) {
    throw_error(ErrorKind::internal, "attention: decode before its plan");
  }
  const AttentionDecodeKernel kernel = decode_kernel_of(shape);
  AttentionDecodeParameters parameters = {};
  parameters.common = parameters_of(shape, args);
  parameters.context_lengths = workspace.context_lengths_;
  parameters.turns = turns_of(shape, kernel);
  parameters.units_of_head = units_of_head(shape, kernel);
  parameters.work = {reinterpret_cast<const DecodePiece*>(workspace.pieces_.data()),
                     reinterpret_cast<const DecodeSharedPairs*>(workspace.shared_pairs_.data())};
  parameters.parts = workspace.parts_.data();
  parameters.arrivals = workspace.arrivals_.data();
  launch_attention_decode(launch, kernel, workspace.blocks_, parameters);
}

AttentionPrefillWorkspace::AttentionPrefillWorkspace(const AttentionCudaShape& shape,
                                                     int max_query_rows, int max_sequences)
    : shape_(shape) {
  validate(shape);
  const AttentionPrefillKernel kernel = prefill_kernel_of(shape);
  allow_shared_bytes(kernel.function, kernel.shared_bytes);
  const std::int64_t rows = static_cast<std::int64_t>(max_query_rows) * group_of(shape);
  // A sequence's last tile may be short.
  const std::int64_t tiles = rows / kernel.tile_rows + max_sequences;
  if (max_query_rows < 0 || max_sequences < 0 || rows > std::numeric_limits<std::int32_t>::max() ||
      tiles * shape.kv_heads > std::numeric_limits<std::int32_t>::max()) {
    throw_error(ErrorKind::internal, "attention: a workspace for {} query rows of {} sequences",
                max_query_rows, max_sequences);
  }
  tiles_ = DeviceArray<std::byte>(static_cast<std::size_t>(tiles) * sizeof(AttentionPrefillTile));
}

std::size_t AttentionPrefillWorkspace::bytes() const { return tiles_.bytes(); }

void AttentionPrefillWorkspace::plan(const CudaLaunch& launch,
                                     std::span<const PrefillSm90Sequence> sequences) {
  const AttentionPrefillKernel kernel = prefill_kernel_of(shape_);
  const int group = group_of(shape_);
  std::vector<AttentionPrefillTile> tiles;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const PrefillSm90Sequence& sequence = sequences[i];
    if (sequence.rows < 0 || sequence.rows > sequence.context || sequence.first_query_row < 0) {
      throw_error(ErrorKind::internal, "attention: sequence {} brings {} rows to a context of {}",
                  i, sequence.rows, sequence.context);
    }
    const std::int32_t rows = sequence.rows * group;
    for (std::int32_t first = 0; first < rows; first += kernel.tile_rows) {
      const std::int32_t last = std::min(first + kernel.tile_rows, rows) - 1;
      AttentionPrefillTile tile = {};
      tile.sequence = static_cast<std::int32_t>(i);
      tile.query_row = sequence.first_query_row;
      tile.first_position = sequence.context - sequence.rows;
      tile.context = sequence.context;
      tile.first_row = first;
      tile.rows = rows;
      const std::int32_t position = tile.first_position + first / group;
      const std::int32_t first_key =
          shape_.window > 0 ? std::max(position - shape_.window + 1, 0) : 0;
      tile.first_keys = first_key / kernel.tile_keys;
      tile.end_keys = (tile.first_position + last / group) / kernel.tile_keys + 1;
      tiles.push_back(tile);
    }
  }
  // The longest first, so that the short ones fill the end.
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const AttentionPrefillTile& a, const AttentionPrefillTile& b) {
                     return a.end_keys - a.first_keys > b.end_keys - b.first_keys;
                   });
  const std::size_t bytes = tiles.size() * sizeof(AttentionPrefillTile);
  if (bytes > tiles_.bytes()) {
    throw_error(ErrorKind::internal, "attention: {} tiles of rows in a workspace for {}",
                tiles.size(), tiles_.bytes() / sizeof(AttentionPrefillTile));
  }
  tile_count_ = static_cast<int>(tiles.size());
  if (bytes == 0) return;
  // From pageable memory: the call returns once the tiles have been read.
  check_cuda(
      cudaMemcpyAsync(tiles_.data(), tiles.data(), bytes, cudaMemcpyHostToDevice, launch.stream),
      "cudaMemcpyAsync");
}

void attention_prefill_cuda(const CudaLaunch& launch, AttentionPrefillWorkspace& workspace,
                            const AttentionCudaArgs& args) {
  if (workspace.tile_count_ == 0) return;
  const AttentionPrefillKernel kernel = prefill_kernel_of(workspace.shape_);
  AttentionPrefillParameters parameters = {};
  parameters.common = parameters_of(workspace.shape_, args);
  parameters.tiles = reinterpret_cast<const AttentionPrefillTile*>(workspace.tiles_.data());
  launch_attention_prefill(launch, kernel, workspace.tile_count_ * workspace.shape_.kv_heads,
                           parameters);
}

}  // namespace octet
