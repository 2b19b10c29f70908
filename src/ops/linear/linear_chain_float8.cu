#include "ops/linear/linear_chain.cuh"

namespace octet {

ChainKernel chain_kernel_float8() {
  return make_chain_kernel<ChainShape<DataType::float8_e4m3, 4>>();
}

}  // namespace octet
