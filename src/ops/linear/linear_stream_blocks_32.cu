#include "ops/linear/linear_stream.cuh"

namespace octet {

LinearStreamKernel linear_stream_kernel_blocks_32(DataType dtype, bool wide) {
  switch (dtype) {
    case DataType::q4_0:
      return make_linear_stream_kernel<DataType::q4_0>(wide);
    case DataType::q4_1:
      return make_linear_stream_kernel<DataType::q4_1>(wide);
    case DataType::q5_0:
      return make_linear_stream_kernel<DataType::q5_0>(wide);
    case DataType::q5_1:
      return make_linear_stream_kernel<DataType::q5_1>(wide);
    case DataType::q8_0:
      return make_linear_stream_kernel<DataType::q8_0>(wide);
    case DataType::iq4_nl:
      return make_linear_stream_kernel<DataType::iq4_nl>(wide);
    case DataType::mxfp4:
      return make_linear_stream_kernel<DataType::mxfp4>(wide);
    default:
      return {};
  }
}

}  // namespace octet
