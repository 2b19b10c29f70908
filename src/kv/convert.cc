#include "kv/convert.h"

#include <cstring>

#include "core/error.h"
#include "kv/element_order.h"

namespace octet {

namespace {

void convert_side(std::size_t element_bytes, int head_dim, KvOrder from_order,
                  const std::byte* from, KvOrder to_order, std::byte* to) {
  for (int token = 0; token < page_tokens; ++token) {
    for (int i = 0; i < head_dim; ++i) {
      std::memcpy(to + element_offset(to_order, element_bytes, head_dim, token, i),
                  from + element_offset(from_order, element_bytes, head_dim, token, i),
                  element_bytes);
    }
  }
}

}  // namespace

void convert_run(const KvRunLayout& from_layout, const std::byte* from,
                 const KvRunLayout& to_layout, std::byte* to) {
  if (!(from_layout.policy == to_layout.policy) || from_layout.head_dim != to_layout.head_dim) {
    throw_error(ErrorKind::internal,
                "a run of {}, head_dim {}, cannot become one of {}, head_dim {}",
                describe(from_layout.policy), from_layout.head_dim, describe(to_layout.policy),
                to_layout.head_dim);
  }
  convert_side(bytes_of(from_layout.policy.key.dtype), from_layout.head_dim, from_layout.key_order,
               from + from_layout.key_offset, to_layout.key_order, to + to_layout.key_offset);
  convert_side(bytes_of(from_layout.policy.value.dtype), from_layout.head_dim,
               from_layout.value_order, from + from_layout.value_offset, to_layout.value_order,
               to + to_layout.value_offset);
  std::memcpy(to + to_layout.key_scale_offset, from + from_layout.key_scale_offset,
              from_layout.bytes - from_layout.key_scale_offset);
}

}  // namespace octet
