#include <algorithm>

#include <fmt/format.h>

#include "core/error.h"
#include "ops/attention/decode_sm90.h"
#include "ops/attention/decode_sm90_kernels.h"
#include "ops/attention/decode_sm90_parameters.h"
#include "ops/attention/single_level.h"

namespace octet {

namespace {

// Turns of a warpgroup, as many as it has stages: those pages are asked for before the launch ahead
// has ended, and with one more the merge of equal pieces is the quicker.
constexpr int whole_pairs_up_to = 3;
// Blocks that start late (DecodeCut), on a device that has many more.
constexpr int late_blocks = 4;
constexpr int many_blocks = 64;

using KernelOf = DecodeKernel (*)(int queries);

struct KernelsOfHeadDim {
  int head_dim;
  KernelOf fp8;
  KernelOf int8_keys;
  KernelOf bfloat16;
  KernelOf single_level;
};

constexpr KernelsOfHeadDim all_kernels[] = {
    {64, decode_kernel_fp8_64, decode_kernel_int8_64, decode_kernel_bfloat16_64,
     decode_kernel_single_64},
    {96, decode_kernel_fp8_96, decode_kernel_int8_96, decode_kernel_bfloat16_96, nullptr},
    {128, decode_kernel_fp8_128, decode_kernel_int8_128, decode_kernel_bfloat16_128,
     decode_kernel_single_128},
    {192, decode_kernel_fp8_192, decode_kernel_int8_192, decode_kernel_bfloat16_192, nullptr},
    {256, decode_kernel_fp8_256, decode_kernel_int8_256, decode_kernel_bfloat16_256,
     decode_kernel_single_256},
    {512, decode_kernel_fp8_512, decode_kernel_int8_512, nullptr, nullptr},
};

KernelOf kernels_of(const DecodeSm90Shape& shape) {
  const KvDtype key = shape.policy.key.dtype;
  const KvDtype value = shape.policy.value.dtype;
  const bool single = shape.accumulation == AttentionAccumulation::single_level;
  for (const KernelsOfHeadDim& kernels : all_kernels) {
    if (kernels.head_dim != shape.head_dim) continue;
    if (single) {
      return has_single_level(shape.policy, shape.head_dim) ? kernels.single_level : nullptr;
    }
    if (key == KvDtype::fp8 && value == KvDtype::fp8) return kernels.fp8;
    if (key == KvDtype::int8 && value == KvDtype::fp8) return kernels.int8_keys;
    if (key == KvDtype::bfloat16 && value == KvDtype::bfloat16) return kernels.bfloat16;
  }
  return nullptr;
}

int queries_of(const DecodeSm90Shape& shape) {
  return shape.query_heads / shape.kv_heads * shape.query_rows;
}

DecodeKernel kernel_of(const DecodeSm90Shape& shape) {
  std::string why;
  if (!DecodeSm90Workspace::supports(shape, &why)) throw_unsupported("{}", why);
  return kernels_of(shape)(queries_of(shape));
}

// Heads of the work map: a KV head is several where it has more queries than a kernel takes.
int chunks_of(const DecodeSm90Shape& shape, const DecodeKernel& kernel) {
  return (queries_of(shape) + kernel.queries - 1) / kernel.queries;
}

DecodeTurns turns_of(const DecodeSm90Shape& shape, const DecodeKernel& kernel) {
  return {kernel.turn_pages, shape.kv_heads * chunks_of(shape, kernel), shape.query_rows,
          shape.window};
}

}  // namespace

bool DecodeSm90Workspace::supports(const DecodeSm90Shape& shape, std::string* why) {
  if (shape.kv_heads <= 0 || shape.query_heads <= 0 || shape.query_heads % shape.kv_heads != 0 ||
      shape.query_rows < 1) {
    throw_error(ErrorKind::internal, "decode: {} query heads over {} KV heads, {} query rows",
                shape.query_heads, shape.kv_heads, shape.query_rows);
  }
  if (kernels_of(shape) != nullptr) return true;
  if (why == nullptr) return false;
  if (shape.accumulation == AttentionAccumulation::single_level) {
    has_single_level(shape.policy, shape.head_dim, why);
  } else {
    *why = fmt::format(
        "decode on Hopper: a cache of {} at head_dim {}; expected fp8, int8:fp8 or bfloat16 at "
        "64, 96, 128, 192 or 256 (8-bit also 512)",
        describe(shape.policy), shape.head_dim);
  }
  return false;
}

DecodeSm90Workspace::DecodeSm90Workspace(const DecodeSm90Shape& shape, int max_sequences)
    : shape_(shape), max_sequences_(max_sequences) {
  const DecodeKernel kernel = kernel_of(shape);
  const void* function = reinterpret_cast<const void*>(kernel.function);
  check_cuda(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(kernel.shared_bytes)),
             "cudaFuncSetAttribute");
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&blocks_, cudaDevAttrMultiProcessorCount, device),
             "cudaDeviceGetAttribute");
  blocks_ = std::min(blocks_, max_decode_blocks);

  const auto blocks = static_cast<std::size_t>(blocks_);
  const auto pieces = blocks * static_cast<std::size_t>(kernel.warpgroups);
  pieces_map_ = DeviceArray<std::byte>(pieces * sizeof(DecodePiece));
  shared_pairs_ = DeviceArray<std::byte>(blocks * sizeof(DecodeSharedPairs));
  starts_ = DeviceArray<std::int32_t>(static_cast<std::size_t>(max_sequences) + 1);
  parts_ = DeviceArray<std::byte>(2 * blocks * kernel.part_bytes);
  parts_.fill_bytes(0xFF);  // not there
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

void DecodeSm90Workspace::plan(const std::int32_t* context_lengths, int sequences,
                               cudaStream_t stream) {
  if (sequences < 1 || sequences > max_sequences_) {
    throw_error(ErrorKind::internal, "decode: {} sequences planned in a workspace for 1 to {}",
                sequences, max_sequences_);
  }
  sequences_ = sequences;
  context_lengths_ = context_lengths;
  const DecodeKernel kernel = kernel_of(shape_);
  const DecodePlan plan = {reinterpret_cast<DecodePiece*>(pieces_map_.data()),
                           reinterpret_cast<DecodeSharedPairs*>(shared_pairs_.data()),
                           starts_.data(),
                           blocks_,
                           kernel.warpgroups,
                           whole_pairs_up_to,
                           blocks_ >= many_blocks ? late_blocks : 0};
  launch_decode_plan(turns_of(shape_, kernel), context_lengths, sequences, plan, stream);
}

void decode_sm90(const DecodeSm90Args& args, DecodeSm90Workspace& workspace, cudaStream_t stream) {
  const DecodeSm90Shape& shape = workspace.shape_;
  const DecodeKernel kernel = kernel_of(shape);
  const KvLayerView& layer = args.layer.view;
  const KvGroup& group = *layer.group;
  const KvRunLayout expected = make_run_layout(shape.policy, shape.head_dim, KvTarget::sm90);
  if (group.geometry.kv_heads != shape.kv_heads || group.run.head_dim != shape.head_dim ||
      !(group.run.policy == shape.policy) || group.run.key_order != expected.key_order ||
      group.run.value_order != expected.value_order) {
    throw_error(ErrorKind::internal,
                "decode: the layer's pages are not of the workspace's shape in Hopper's order");
  }
  if (workspace.sequences_ == 0) throw_error(ErrorKind::internal, "decode before its plan");

  DecodeParameters parameters;
  parameters.query = args.query;
  parameters.output = args.output;
  parameters.query_stride = args.query_stride;
  parameters.output_stride = args.output_stride;
  parameters.output_float32 = args.output_type == AttentionOutput::float32;
  parameters.scale_log2 = args.softmax_scale * 1.44269504088896341f;
  parameters.soft_cap_log2 = args.soft_cap * 1.44269504088896341f;
  // tanh(s / c) = 1 - 2 / (1 + e^(2 s / c)), and s is in powers of two already.
  parameters.soft_cap_factor = args.soft_cap > 0 ? 2 / args.soft_cap : 0;
  parameters.sinks = args.sinks;
  parameters.query_means = args.query_means;
  parameters.key_scales = static_scales(group.run.policy.key, args.layer.key_scales);
  parameters.value_scales = static_scales(group.run.policy.value, args.layer.value_scales);
  parameters.keys_scaled = group.run.policy.key.scales == KvScales::dynamic;
  parameters.values_scaled = group.run.policy.value.scales == KvScales::dynamic;
  parameters.layer = layer.arena + layer.layer_offset;
  parameters.slab_bytes = layer.slab_bytes;
  parameters.page_bytes = layer.page_bytes;
  parameters.run_bytes = group.run.bytes;
  parameters.pages_per_slab = layer.pages_per_slab;
  parameters.page_table = args.page_table;
  parameters.page_table_stride = args.page_table_stride;
  parameters.context_lengths = workspace.context_lengths_;
  parameters.turns = turns_of(shape, kernel);
  parameters.query_heads = shape.query_heads;
  parameters.group = shape.query_heads / shape.kv_heads;
  parameters.total_queries = queries_of(shape);
  parameters.chunks = chunks_of(shape, kernel);
  parameters.queries = std::min(parameters.total_queries, kernel.queries);
  parameters.has_query_extras =
      args.sinks != nullptr || parameters.key_scales != nullptr || args.soft_cap > 0;
  parameters.work = {reinterpret_cast<const DecodePiece*>(workspace.pieces_map_.data()),
                     reinterpret_cast<const DecodeSharedPairs*>(workspace.shared_pairs_.data())};
  parameters.older_pages_settled = args.overlap;
  parameters.parts = workspace.parts_.data();

  cudaLaunchAttribute overlap;
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t launch = {};
  launch.gridDim = dim3(static_cast<unsigned>(workspace.blocks_));
  launch.blockDim = dim3(static_cast<unsigned>(kernel.threads));
  launch.dynamicSmemBytes = kernel.shared_bytes;
  launch.stream = stream;
  launch.attrs = &overlap;
  launch.numAttrs = args.overlap ? 1 : 0;
  void* arguments[] = {&parameters};
  check_cuda(
      cudaLaunchKernelExC(&launch, reinterpret_cast<const void*>(kernel.function), arguments),
      "launch of the decode kernel");
}

}  // namespace octet
