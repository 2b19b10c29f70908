#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "core/error.h"
#include "ops/attention/prefill_sm90.h"
#include "ops/attention/prefill_sm90_kernels.h"
#include "ops/attention/prefill_sm90_parameters.h"

namespace octet {

namespace {

struct KernelsOfHeadDim {
  int head_dim;
  PrefillKernel (*fp8)(bool scaled);
  PrefillKernel (*int8_keys)();
  PrefillKernel (*bfloat16)();
};

constexpr KernelsOfHeadDim all_kernels[] = {
    {64, prefill_kernel_fp8_64, prefill_kernel_int8_64, prefill_kernel_bfloat16_64},
    {128, prefill_kernel_fp8_128, prefill_kernel_int8_128, prefill_kernel_bfloat16_128},
    {256, prefill_kernel_fp8_256, prefill_kernel_int8_256, prefill_kernel_bfloat16_256},
};

// One number, or one for each head: it need not be looked up for each token.
bool is_one_scale(KvScales scales) { return scales == KvScales::unit || is_static(scales); }

PrefillKernel find_kernel(const PrefillSm90Shape& shape) {
  const KvSidePolicy& key = shape.policy.key;
  const KvSidePolicy& value = shape.policy.value;
  for (const KernelsOfHeadDim& kernels : all_kernels) {
    if (kernels.head_dim != shape.head_dim) continue;
    if (key.dtype == KvDtype::bfloat16 && value.dtype == KvDtype::bfloat16) {
      return kernels.bfloat16();
    }
    const bool dynamic = key.scales == KvScales::dynamic && value.scales == KvScales::dynamic;
    if (key.dtype == KvDtype::int8 && value.dtype == KvDtype::fp8 && dynamic) {
      return kernels.int8_keys();
    }
    if (key.dtype == KvDtype::fp8 && value.dtype == KvDtype::fp8) {
      if (dynamic) return kernels.fp8(true);
      if (is_one_scale(key.scales) && is_one_scale(value.scales)) return kernels.fp8(false);
    }
  }
  return {};
}

PrefillKernel kernel_of(const PrefillSm90Shape& shape) {
  if (shape.kv_heads <= 0 || shape.query_heads <= 0 || shape.query_heads % shape.kv_heads != 0) {
    throw_error(ErrorKind::internal, "prefill: {} query heads do not divide among {} KV heads",
                shape.query_heads, shape.kv_heads);
  }
  const PrefillKernel kernel = find_kernel(shape);
  if (kernel.function == nullptr) {
    throw_unsupported(
        "prefill on Hopper: head_dim {} with a cache of {} with {} and {} scales; expected "
        "head_dim 64, 128 or 256 and bfloat16, fp8 whose scales are dynamic on both sides or on "
        "neither, or int8:fp8 with dynamic scales",
        shape.head_dim, describe(shape.policy), name_of(shape.policy.key.scales),
        name_of(shape.policy.value.scales));
  }
  return kernel;
}

}  // namespace

PrefillSm90Workspace::PrefillSm90Workspace(const PrefillSm90Shape& shape, int max_query_rows,
                                           int max_sequences)
    : shape_(shape) {
  const PrefillKernel kernel = kernel_of(shape);
  check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel.function),
                                  cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(kernel.shared_bytes)),
             "cudaFuncSetAttribute");
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, device),
             "cudaDeviceGetAttribute");
  const std::int64_t rows =
      static_cast<std::int64_t>(max_query_rows) * (shape.query_heads / shape.kv_heads);
  // A sequence's last block may be short.
  const std::int64_t blocks = rows / prefill_block_rows + max_sequences;
  if (max_query_rows < 0 || max_sequences < 0 || rows > std::numeric_limits<std::int32_t>::max() ||
      blocks * shape.kv_heads > std::numeric_limits<std::int32_t>::max() / 2) {
    throw_error(ErrorKind::internal, "prefill: a workspace for {} query rows of {} sequences",
                max_query_rows, max_sequences);
  }
  blocks_ = DeviceArray<std::byte>(static_cast<std::size_t>(blocks) * sizeof(PrefillBlock));
  counters_ = DeviceArray<std::uint32_t>(2);
  counters_.fill_bytes(0);
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

bool PrefillSm90Workspace::supports(const PrefillSm90Shape& shape) {
  return find_kernel(shape).function != nullptr;
}

void PrefillSm90Workspace::plan(std::span<const PrefillSm90Sequence> sequences,
                                cudaStream_t stream) {
  const std::vector<PrefillBlock> blocks =
      make_prefill_blocks(sequences, shape_.query_heads / shape_.kv_heads, shape_.window);
  const std::size_t bytes = blocks.size() * sizeof(PrefillBlock);
  if (bytes > blocks_.bytes()) {
    throw_error(ErrorKind::internal, "prefill: {} blocks of work in a workspace for {}",
                blocks.size(), blocks_.bytes() / sizeof(PrefillBlock));
  }
  block_count_ = static_cast<int>(blocks.size());
  if (bytes == 0) return;
  // From pageable memory: the call returns once the blocks have been read.
  check_cuda(cudaMemcpyAsync(blocks_.data(), blocks.data(), bytes, cudaMemcpyHostToDevice, stream),
             "cudaMemcpyAsync");
}

void prefill_sm90(const AttentionCudaArgs& args, PrefillSm90Workspace& workspace,
                  cudaStream_t stream) {
  const PrefillSm90Shape& shape = workspace.shape_;
  const PrefillKernel kernel = kernel_of(shape);
  const KvLayerView& layer = args.layer.view;
  const KvGroup& group = *layer.group;
  if (group.geometry.kv_heads != shape.kv_heads || group.run.head_dim != shape.head_dim ||
      !(group.run.policy == shape.policy) || group.run.key_order != KvOrder::swizzled_rows ||
      group.run.value_order != (shape.policy.value.dtype == KvDtype::bfloat16
                                    ? KvOrder::swizzled_rows
                                    : KvOrder::swizzled_transpose)) {
    throw_error(ErrorKind::internal,
                "prefill: the layer's pages are not of the workspace's shape in Hopper's order");
  }
  if (args.soft_cap > 0 || args.sinks != nullptr) {
    throw_error(ErrorKind::internal, "prefill: soft caps and sinks are not taken");
  }
  if (workspace.block_count_ == 0) return;

  PrefillParameters parameters;
  parameters.query = args.query;
  parameters.output = args.output;
  parameters.query_stride = args.query_stride;
  parameters.output_stride = args.output_stride;
  parameters.output_float32 = args.output_type == AttentionOutput::float32;
  parameters.scale_log2 = args.softmax_scale * 1.44269504088896341f;
  parameters.key_scales = static_scales(shape.policy.key, args.layer.key_scales);
  parameters.value_scales = static_scales(shape.policy.value, args.layer.value_scales);
  parameters.layer = layer.arena + layer.layer_offset;
  parameters.slab_bytes = layer.slab_bytes;
  parameters.page_bytes = layer.page_bytes;
  parameters.run_bytes = group.run.bytes;
  parameters.pages_per_slab = layer.pages_per_slab;
  parameters.page_table = args.page_table;
  parameters.page_table_stride = args.page_table_stride;
  parameters.blocks = reinterpret_cast<const PrefillBlock*>(workspace.blocks_.data());
  parameters.block_count = workspace.block_count_;
  parameters.kv_heads = shape.kv_heads;
  parameters.group = shape.query_heads / shape.kv_heads;
  parameters.window = shape.window;
  parameters.counters = workspace.counters_.data();

  const std::int64_t items = static_cast<std::int64_t>(workspace.block_count_) * shape.kv_heads;
  const auto grid =
      static_cast<unsigned>(std::min<std::int64_t>(items, workspace.multiprocessors_));
  void* arguments[] = {&parameters};
  check_cuda(cudaLaunchKernel(reinterpret_cast<const void*>(kernel.function), dim3(grid),
                              dim3(static_cast<unsigned>(kernel.threads)), arguments,
                              kernel.shared_bytes, stream),
             "launch of the prefill kernel");
}

}  // namespace octet
