#include "models/attention_cuda.h"

#include "core/error.h"

namespace octet {

namespace {

constexpr int hopper = 90;

}  // namespace

GroupAttentionCuda::GroupAttentionCuda(const ModelConfig& config, const KvGroup& group,
                                       int max_sequences, int max_query_rows, int architecture,
                                       AttentionAccumulation accumulation)
    : softmax_scale_(config.softmax_scale),
      query_width_(static_cast<std::int64_t>(config.query_heads) * config.head_dim) {
  const KvLayerGeometry& geometry = group.geometry;
  const KvLayerPolicy& policy = group.run.policy;
  const DecodeSm90Shape decode_shape = {
      geometry.head_dim, config.query_heads, geometry.kv_heads, 1, geometry.window, policy,
      accumulation};
  std::string why;
  if (architecture == hopper && DecodeSm90Workspace::supports(decode_shape, &why)) {
    decode_sm90_.emplace(decode_shape, max_sequences);
  } else if (accumulation == AttentionAccumulation::single_level) {
    throw_unsupported("single-level accumulation: {}", why.empty() ? "no Hopper GPU" : why);
  }
  const PrefillSm90Shape prefill_shape = {geometry.head_dim, config.query_heads, geometry.kv_heads,
                                          geometry.window, policy};
  if (architecture == hopper && PrefillSm90Workspace::supports(prefill_shape)) {
    prefill_sm90_.emplace(prefill_shape, max_query_rows, max_sequences);
  }
  const AttentionCudaShape shape = {geometry.head_dim, config.query_heads, geometry.kv_heads,
                                    geometry.window, policy};
  if (!decode_sm90_) decode_.emplace(shape, max_sequences);
  if (!prefill_sm90_) prefill_.emplace(shape, max_query_rows, max_sequences);
}

void GroupAttentionCuda::plan_decode(const CudaLaunch& launch, const StepInputs& inputs) {
  decode_sequences_ = inputs.decode_sequences;
  settled_ = inputs.settled;
  if (decode_sequences_ == 0) return;
  if (decode_sm90_) {
    decode_sm90_->plan(inputs.context_lengths, decode_sequences_, launch.stream);
  } else {
    decode_->plan(launch, inputs.context_lengths, decode_sequences_);
  }
}

void GroupAttentionCuda::plan_prefill(const CudaLaunch& launch,
                                      std::span<const PrefillSm90Sequence> prefills) {
  has_prefills_ = !prefills.empty();
  if (!has_prefills_) return;
  if (prefill_sm90_) {
    prefill_sm90_->plan(prefills, launch.stream);
  } else {
    prefill_->plan(launch, prefills);
  }
}

void GroupAttentionCuda::attend(const CudaLaunch& launch, const DeviceKvLayer& layer,
                                const PageId* page_table, int page_table_stride,
                                const AttentionRowsCuda& rows) {
  AttentionCudaArgs args;
  args.query = rows.query;
  args.output = rows.output;
  args.query_stride = query_width_;
  args.output_stride = query_width_;
  args.softmax_scale = softmax_scale_;
  args.layer = layer;
  args.page_table = page_table;
  args.page_table_stride = page_table_stride;
  if (decode_sequences_ > 0) attend_decode(launch, args);
  if (!has_prefills_) return;
  // Prefills are planned with rows that count from the first of them all, and lines of the page
  // table that count from the first prefill's.
  args.page_table += static_cast<std::int64_t>(decode_sequences_) * page_table_stride;
  attend_prefill(launch, args);
}

void GroupAttentionCuda::attend_decode(const CudaLaunch& launch, const AttentionCudaArgs& args) {
  if (!decode_sm90_) return attention_decode_cuda(launch, *decode_, args);
  DecodeSm90Args decode{args};
  decode.overlap = launch.overlap && settled_;
  decode_sm90(decode, *decode_sm90_, launch.stream);
}

void GroupAttentionCuda::attend_prefill(const CudaLaunch& launch, const AttentionCudaArgs& args) {
  if (!prefill_sm90_) return attention_prefill_cuda(launch, *prefill_, args);
  prefill_sm90(args, *prefill_sm90_, launch.stream);
}

}  // namespace octet
