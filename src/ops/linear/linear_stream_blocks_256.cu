#include "ops/linear/linear_stream.cuh"

namespace octet {

LinearStreamKernel linear_stream_kernel_blocks_256(DataType dtype, int rows) {
  switch (dtype) {
    case DataType::q2_k:
      return make_linear_stream_kernel<DataType::q2_k>(rows);
    case DataType::q3_k:
      return make_linear_stream_kernel<DataType::q3_k>(rows);
    case DataType::q4_k:
      return make_linear_stream_kernel<DataType::q4_k>(rows);
    case DataType::q5_k:
      return make_linear_stream_kernel<DataType::q5_k>(rows);
    case DataType::q6_k:
      return make_linear_stream_kernel<DataType::q6_k>(rows);
    case DataType::iq4_xs:
      return make_linear_stream_kernel<DataType::iq4_xs>(rows);
    default:
      return {};
  }
}

}  // namespace octet
