#include "ops/attention/attention.h"

#include "core/error.h"
#include "ops/attention/attention_cpu.h"
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

}  // namespace

void attention(const OpContext& context, const AttentionArgs& args) {
  validate(args);
  if (context.observer != nullptr) context.observer->on_attend(args);
  attention_cpu(context, args);
}

}  // namespace octet
