#include <algorithm>

#include "core/error.h"
#include "ops/attention/decode_sm90.h"
#include "ops/attention/decode_sm90_kernels.h"
#include "ops/attention/decode_sm90_parameters.h"

namespace octet {

namespace {

bool is_dynamic_fp8(const KvSidePolicy& side) {
  return side.dtype == KvDtype::fp8 && side.scales == KvScales::dynamic;
}

bool is_unit_fp8(const KvSidePolicy& side) {
  return side.dtype == KvDtype::fp8 && side.scales == KvScales::unit;
}

DecodeKernel kernel_of(const DecodeSm90Shape& shape) {
  if (shape.kv_heads <= 0 || shape.query_heads <= 0 || shape.query_heads % shape.kv_heads != 0) {
    throw_error(ErrorKind::internal, "decode: {} query heads do not divide among {} KV heads",
                shape.query_heads, shape.kv_heads);
  }
  const bool scaled = is_dynamic_fp8(shape.policy.key) && is_dynamic_fp8(shape.policy.value);
  const bool unit = is_unit_fp8(shape.policy.key) && is_unit_fp8(shape.policy.value);
  if (!scaled && !unit) {
    throw_unsupported(
        "decode on Hopper: a cache of {} with {} and {} scales; expected fp8 with dynamic "
        "or unit scales",
        describe(shape.policy), name_of(shape.policy.key.scales),
        name_of(shape.policy.value.scales));
  }
  const int queries = shape.query_heads / shape.kv_heads * shape.query_rows;
  DecodeKernel kernel;
  if (shape.head_dim == 64) kernel = decode_kernel_head_dim_64(queries, scaled);
  if (shape.head_dim == 128) kernel = decode_kernel_head_dim_128(queries, scaled);
  if (shape.head_dim == 256) kernel = decode_kernel_head_dim_256(queries, scaled);
  if (kernel.function == nullptr || shape.query_rows < 1) {
    throw_unsupported(
        "decode on Hopper: head_dim {} with {} queries a KV head; expected head_dim 64, "
        "128 or 256 and at most 8 (query heads of a KV head x query rows)",
        shape.head_dim, queries);
  }
  return kernel;
}

DecodeTurns turns_of(const DecodeSm90Shape& shape, const DecodeKernel& kernel) {
  return {kernel.turn_pages, shape.kv_heads, shape.query_rows, shape.window};
}

}  // namespace

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
  arrivals_ = DeviceArray<std::uint32_t>(blocks);
  arrivals_.fill_bytes(0);
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
                           starts_.data(), blocks_, kernel.warpgroups};
  launch_decode_plan(turns_of(shape_, kernel), context_lengths, sequences, plan, stream);
}

void decode_sm90(const DecodeSm90Args& args, DecodeSm90Workspace& workspace, cudaStream_t stream) {
  const DecodeSm90Shape& shape = workspace.shape_;
  const DecodeKernel kernel = kernel_of(shape);
  const KvGroup& group = *args.layer.group;
  if (group.geometry.kv_heads != shape.kv_heads || group.run.head_dim != shape.head_dim ||
      !(group.run.policy == shape.policy) || group.run.key_order != KvOrder::swizzled_rows ||
      group.run.value_order != KvOrder::swizzled_transpose) {
    throw_error(ErrorKind::internal,
                "decode: the layer's pages are not of the workspace's shape in Hopper's order");
  }
  if (workspace.sequences_ == 0) throw_error(ErrorKind::internal, "decode before its plan");

  DecodeParameters parameters;
  parameters.query = args.query;
  parameters.output = args.output;
  parameters.query_stride = args.query_stride;
  parameters.output_stride = args.output_stride;
  parameters.output_float32 = args.output_type == DecodeOutput::float32;
  parameters.scale_log2 = args.softmax_scale * 1.44269504088896341f;
  parameters.layer = args.layer.arena + args.layer.layer_offset;
  parameters.slab_bytes = args.layer.slab_bytes;
  parameters.page_bytes = args.layer.page_bytes;
  parameters.run_bytes = group.run.bytes;
  parameters.pages_per_slab = args.layer.pages_per_slab;
  parameters.page_table = args.page_table;
  parameters.page_table_stride = args.page_table_stride;
  parameters.context_lengths = workspace.context_lengths_;
  parameters.turns = turns_of(shape, kernel);
  parameters.group = shape.query_heads / shape.kv_heads;
  parameters.work = {reinterpret_cast<const DecodePiece*>(workspace.pieces_map_.data()),
                     reinterpret_cast<const DecodeSharedPairs*>(workspace.shared_pairs_.data())};
  parameters.older_pages_settled = args.overlap;
  parameters.parts = workspace.parts_.data();
  parameters.arrivals = workspace.arrivals_.data();

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
