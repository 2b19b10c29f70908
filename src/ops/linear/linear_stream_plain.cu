#include "ops/linear/linear_stream.cuh"

namespace octet {

LinearStreamKernel linear_stream_kernel_plain(DataType dtype, bool block_scales, int rows) {
  switch (dtype) {
    case DataType::float32:
      return make_linear_stream_kernel<DataType::float32>(rows);
    case DataType::float16:
      return make_linear_stream_kernel<DataType::float16>(rows);
    case DataType::bfloat16:
      return make_linear_stream_kernel<DataType::bfloat16>(rows);
    case DataType::float8_e4m3:
      return block_scales ? make_linear_stream_kernel<DataType::float8_e4m3, true>(rows)
                          : make_linear_stream_kernel<DataType::float8_e4m3>(rows);
    default:
      return {};
  }
}

}  // namespace octet
