#include "ops/linear/linear_chain.cuh"

namespace octet {

ChainKernel chain_kernel_bfloat16(bool is_long) {
  return is_long ? make_chain_kernel<ChainShape<DataType::bfloat16, 8>>()
                 : make_chain_kernel<ChainShape<DataType::bfloat16, 4>>();
}

}  // namespace octet
