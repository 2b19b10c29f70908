#include "ops/linear/linear_stream.cuh"

namespace octet {

LinearStreamKernel linear_stream_kernel_blocks_256(DataType dtype, bool wide) {
  switch (dtype) {
    case DataType::q2_k:
      return make_linear_stream_kernel<DataType::q2_k>(wide);
    case DataType::q3_k:
      return make_linear_stream_kernel<DataType::q3_k>(wide);
    case DataType::q4_k:
      return make_linear_stream_kernel<DataType::q4_k>(wide);
    case DataType::q5_k:
      return make_linear_stream_kernel<DataType::q5_k>(wide);
    case DataType::q6_k:
      return make_linear_stream_kernel<DataType::q6_k>(wide);
    case DataType::iq4_xs:
      return make_linear_stream_kernel<DataType::iq4_xs>(wide);
    default:
      return {};
  }
}

}  // namespace octet
