#include "ops/attention/attention.h"

#include "core/error.h"
#include "ops/attention/attention_cpu.h"
#include "ops/attention/attention_hopper_emulation.h"
#include "ops/attention_observer.h"

namespace octet {

namespace {

void validate(const AttentionArgs& args) {
  const KvLayerGeometry& geometry = args.layer.group->geometry;
  if (geometry.kv_heads <= 0 || args.query_heads <= 0 ||
      args.query_heads % geometry.kv_heads != 0) {
    throw_error(ErrorKind::internal, "attention: {} query heads do not divide among {} KV heads",
                args.query_heads, geometry.kv_heads);
  }
  if (geometry.head_dim <= 0 || geometry.head_dim % 8 != 0 || geometry.head_dim > max_head_dim) {
    throw_error(ErrorKind::internal, "attention: head_dim {} is no multiple of 8 up to {}",
                geometry.head_dim, max_head_dim);
  }
}

// Over what attention_cpu() wrote for the same rows.
void attend_in_a_single_level(const OpContext& context, const AttentionArgs& args) {
  HopperAccumulation accumulation;
  accumulation.promote_every = 0;
  accumulation.tile_local_scale = false;
  const auto count = static_cast<std::int64_t>(args.sequences.size());
  context.pool->parallel_for(count, [&](std::int64_t index, int) {
    const auto at = static_cast<std::size_t>(index);
    if (args.sequences[at].rows != 1) return;
    AttentionArgs one = args;
    one.sequences = args.sequences.subspan(at, 1);
    attention_hopper_emulation(one, accumulation);
  });
}

}  // namespace

void attention(const OpContext& context, const AttentionArgs& args) {
  validate(args);
  if (context.observer != nullptr) context.observer->on_attend(args);
  attention_cpu(context, args);
  if (context.accumulation == AttentionAccumulation::single_level) {
    attend_in_a_single_level(context, args);
  }
}

}  // namespace octet
