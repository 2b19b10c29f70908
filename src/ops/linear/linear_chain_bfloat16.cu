#include "ops/linear/linear_chain.cuh"

namespace octet {

ChainKernel chain_kernel_bfloat16() { return make_chain_kernel<DataType::bfloat16>(); }

}  // namespace octet
