#include "ops/linear/linear_stream.cuh"

namespace octet {

LinearStreamKernel linear_stream_kernel_blocks_32(DataType dtype, int rows) {
  switch (dtype) {
    case DataType::q4_0:
      return make_linear_stream_kernel<DataType::q4_0>(rows);
    case DataType::q4_1:
      return make_linear_stream_kernel<DataType::q4_1>(rows);
    case DataType::q5_0:
      return make_linear_stream_kernel<DataType::q5_0>(rows);
    case DataType::q5_1:
      return make_linear_stream_kernel<DataType::q5_1>(rows);
    case DataType::q8_0:
      return make_linear_stream_kernel<DataType::q8_0>(rows);
    case DataType::iq4_nl:
      return make_linear_stream_kernel<DataType::iq4_nl>(rows);
    case DataType::mxfp4:
      return make_linear_stream_kernel<DataType::mxfp4>(rows);
    default:
      return {};
  }
}

}  // namespace octet
