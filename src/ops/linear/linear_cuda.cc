#include "ops/linear/linear_cuda.h"

#include <algorithm>
#include <limits>

#include "core/cuda/device_memory.h"
#include "core/error.h"
#include "core/printable.h"
#include "ops/linear/cublaslt_cuda.h"
#include "ops/linear/decode_rows.h"
#include "ops/linear/device_packing.h"
#include "ops/linear/linear_stream.h"

namespace octet {

struct LinearCudaWorkspace::Contents {
  std::size_t shared_room = 0;  // of a multiprocessor
  CublasLt library;
  DeviceArray<std::byte> scratch;  // decoded weights
  DeviceArray<std::byte> bias;     // a bias rounded to y's type
};

namespace {

// The longest bias that has room; a longer one is added by the kernels that stream.
constexpr std::size_t bias_bytes = std::size_t{1} << 20;

[[noreturn]] void fail(const LinearCudaArgs& args, const char* what) {
  throw_error(ErrorKind::internal,
              "linear on the GPU: weight {} [{}, {}]: {} (rows {}, x_stride {}, y_stride {})",
              printable(args.weight->name), args.weight->rows, args.weight->columns, what,
              args.rows, args.x_stride, args.y_stride);
}

void validate(const LinearCudaArgs& args) {
  if (args.weight == nullptr) throw_error(ErrorKind::internal, "linear on the GPU: no weight");
  if (args.rows < 0 || args.rows > std::numeric_limits<std::int32_t>::max()) {
    fail(args, "expected from 0 to 2^31 - 1 rows");
  }
  if (args.x_stride < args.weight->columns) fail(args, "expected x_stride of at least the inputs");
  if (args.y_stride < args.weight->rows) fail(args, "expected y_stride of at least the outputs");
  if (args.rows > 0 && (args.x == nullptr || args.y == nullptr)) fail(args, "expected x and y");
}

std::int64_t y_bytes(const LinearCudaArgs& args) {
  return args.y_type == LinearOutput::float32 ? 4 : 2;
}

void* y_at(const LinearCudaArgs& args, std::int64_t row, std::int64_t output) {
  return static_cast<std::byte*>(args.y) + (row * args.y_stride + output) * y_bytes(args);
}

bool has_block_scales(const DeviceMatrix& matrix, const DeviceMatrixPart& part) {
  return part.scales.values != nullptr && matrix.columns > part.scales.block_columns;
}

int log2_or_minus_one(std::int64_t value) {
  int log = 0;
  while (std::int64_t{1} << log < value) ++log;
  return std::int64_t{1} << log == value ? log : -1;
}

// So much that a multiprocessor holds kernel.blocks and no more. A launch that begins early would
// else fill one multiprocessor after the other, four blocks each: 264 lay on 70 of 132, and Llama's
// gate and up took 87 us in place of 62.
std::size_t shared_bytes_of(const LinearStreamKernel& kernel, std::size_t room) {
  constexpr std::size_t of_driver = 1024;  // of each block
  constexpr std::size_t granule = 128;
  const std::size_t share = room / (static_cast<std::size_t>(kernel.blocks) + 1);
  if (share <= of_driver) return kernel.shared_bytes;
  return std::max(kernel.shared_bytes, (share - of_driver) / granule * granule + granule);
}

// A kernel needs to be told once, for each GPU, that it may have more than 48 KB.
void allow_shared_memory(const LinearStreamKernel& kernel, std::size_t room) {
  check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel.function),
                                  cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(shared_bytes_of(kernel, room))),
             "cudaFuncSetAttribute");
}

void launch_stream(const CudaLaunch& launch, const LinearStreamKernel& kernel,
                   std::size_t shared_room, const LinearStreamParameters& parameters) {
  const std::int64_t tiles = (parameters.outputs + kernel.outputs - 1) / kernel.outputs;
  const std::int64_t most = std::int64_t{kernel.blocks} * std::max(launch.multiprocessors, 1);
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(std::min(tiles, most)));
  config.blockDim = dim3(32 * linear_stream_warps);
  config.dynamicSmemBytes = shared_bytes_of(kernel, shared_room);
  config.stream = launch.stream;
  config.attrs = &overlap;
  config.numAttrs = launch.overlap ? 1 : 0;
  LinearStreamParameters copy = parameters;
  void* arguments[] = {&copy};
  check_cuda(
      cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel.function), arguments),
      "launch of the matrix product");
}

// Rows [first_row, first_row + rows) of x, at most linear_stream_most_rows, times one part.
void stream_part(const CudaLaunch& launch, std::size_t shared_room, const LinearCudaArgs& args,
                 const DeviceMatrixPart& part, std::int64_t first_row, std::int64_t rows) {
  const DeviceMatrix& matrix = *args.weight;
  LinearStreamParameters p;
  p.x = args.x + first_row * args.x_stride;
  p.x_stride = args.x_stride;
  p.rows = static_cast<int>(rows);
  p.x_aligned = reinterpret_cast<std::uintptr_t>(p.x) % 16 == 0 && args.x_stride % 8 == 0 &&
                matrix.columns % 8 == 0;
  p.weights = reinterpret_cast<const std::uint8_t*>(part.data);
  p.row_bytes = part.row_bytes;
  p.outputs = static_cast<int>(part.rows);
  p.k = static_cast<int>(matrix.columns);
  p.scales = part.scales.values;
  p.grid_columns = static_cast<int>(part.scales.grid_columns);
  p.block_rows = static_cast<int>(part.scales.block_rows);
  p.block_columns = static_cast<int>(part.scales.block_columns);
  p.block_shift = log2_or_minus_one(part.scales.block_columns);
  p.bias = args.bias == nullptr ? nullptr : args.bias + part.first_row;
  p.y = y_at(args, first_row, part.first_row);
  p.y_stride = args.y_stride;
  p.y_float32 = args.y_type == LinearOutput::float32;
  launch_stream(
      launch,
      linear_stream_kernel(part.dtype, has_block_scales(matrix, part), static_cast<int>(rows)),
      shared_room, p);
}

void stream_rows(const CudaLaunch& launch, std::size_t shared_room, const LinearCudaArgs& args,
                 const DeviceMatrixPart& part) {
  for (std::int64_t row = 0; row < args.rows; row += linear_stream_most_rows) {
    stream_part(launch, shared_room, args, part, row,
                std::min<std::int64_t>(linear_stream_most_rows, args.rows - row));
  }
}

// The outputs [first, first + outputs) of a part whose weights lie as bfloat16 at `weights`.
bool multiply_decoded(const CudaLaunch& launch, LinearCudaWorkspace::Contents& contents,
                      const LinearCudaArgs& args, const DeviceMatrixPart& part, std::int64_t first,
                      std::int64_t outputs, const void* weights, std::int64_t weight_stride) {
  CublasLtProduct product;
  product.x = args.x;
  product.x_stride = args.x_stride;
  product.rows = args.rows;
  product.weights = weights;
  product.weight_stride = weight_stride;
  product.outputs = outputs;
  product.k = args.weight->columns;
  product.y = y_at(args, 0, part.first_row + first);
  product.y_stride = args.y_stride;
  product.y_float32 = args.y_type == LinearOutput::float32;
  if (args.bias != nullptr) {
    // The library takes a bias of y's type alone.
    const float* bias = args.bias + part.first_row + first;
    product.bias = product.y_float32 ? static_cast<const void*>(bias) : contents.bias.data();
    if (!product.y_float32) {
      round_to_bfloat16_cuda(launch, bias, outputs, contents.bias.data());
    }
  }
  return contents.library.multiply(product, launch.stream);
}

// Decodes as many rows at a time as fit into the scratch memory. False where the library has no
// algorithm for the shape.
bool multiply_part(const CudaLaunch& launch, LinearCudaWorkspace::Contents& contents,
                   const LinearCudaArgs& args, const DeviceMatrixPart& part) {
  if (args.bias != nullptr && static_cast<std::size_t>(part.rows) * 2 > contents.bias.bytes()) {
    return false;
  }
  if (part.dtype == DataType::bfloat16) {
    return multiply_decoded(launch, contents, args, part, 0, part.rows, part.data,
                            part.row_bytes / 2);
  }
  const std::int64_t stride = device_row_bytes(DataType::bfloat16, args.weight->columns) / 2;
  const auto room = static_cast<std::int64_t>(contents.scratch.bytes()) / (2 * stride);
  if (room < 1) return false;
  // Pieces of nearly equal size, of whole tiles of the library's kernels.
  const std::int64_t pieces = (part.rows + room - 1) / room;
  const std::int64_t even = (part.rows + pieces - 1) / pieces;
  const std::int64_t step = std::min(room, (even + 255) / 256 * 256);
  for (std::int64_t first = 0; first < part.rows; first += step) {
    const std::int64_t outputs = std::min(step, part.rows - first);
    DecodeRowsParameters decode;
    decode.weights = reinterpret_cast<const std::uint8_t*>(part.data);
    decode.row_bytes = part.row_bytes;
    decode.scales = part.scales;
    decode.columns = static_cast<int>(args.weight->columns);
    decode.first_output_row = first;
    decode.rows = outputs;
    decode.out = contents.scratch.data();
    decode.out_stride = stride;
    decode_rows_bfloat16(launch, part.dtype, decode);
    if (!multiply_decoded(launch, contents, args, part, first, outputs, contents.scratch.data(),
                          stride)) {
      return false;
    }
  }
  return true;
}

}  // namespace

LinearStreamKernel linear_stream_kernel(DataType dtype, bool block_scales, int rows) {
  LinearStreamKernel kernel = linear_stream_kernel_plain(dtype, block_scales, rows);
  if (kernel.function == nullptr) kernel = linear_stream_kernel_blocks_32(dtype, rows);
  if (kernel.function == nullptr) kernel = linear_stream_kernel_blocks_256(dtype, rows);
  if (kernel.function == nullptr) {
    throw_error(ErrorKind::internal, "linear on the GPU: no kernel for {}", traits_of(dtype).name);
  }
  return kernel;
}

LinearCudaWorkspace::LinearCudaWorkspace(std::size_t scratch_bytes)
    : contents_(std::make_unique<Contents>()) {
  contents_->scratch = DeviceArray<std::byte>(scratch_bytes);
  contents_->bias = DeviceArray<std::byte>(bias_bytes);
  int device = 0;
  int room = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&room, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device),
             "cudaDeviceGetAttribute");
  contents_->shared_room = static_cast<std::size_t>(room);
  for (const DataType dtype : all_data_types) {
    for (const int rows : {1, 8, 16}) {
      allow_shared_memory(linear_stream_kernel(dtype, false, rows), contents_->shared_room);
      if (dtype == DataType::float8_e4m3) {
        allow_shared_memory(linear_stream_kernel(dtype, true, rows), contents_->shared_room);
      }
    }
  }
}

LinearCudaWorkspace::~LinearCudaWorkspace() = default;

std::size_t LinearCudaWorkspace::bytes() const {
  return contents_->scratch.bytes() + contents_->bias.bytes() + contents_->library.bytes();
}

void linear_cuda(const CudaLaunch& launch, LinearCudaWorkspace& workspace,
                 const LinearCudaArgs& args) {
  validate(args);
  if (args.rows == 0) return;
  for (const DeviceMatrixPart& part : args.weight->parts) {
    const bool library =
        args.rows > (part.dtype == DataType::bfloat16 ? linear_cuda_streamed_rows_bfloat16
                                                      : linear_cuda_streamed_rows);
    if (library && multiply_part(launch, workspace.contents(), args, part)) continue;
    stream_rows(launch, workspace.contents().shared_room, args, part);
  }
}

void decode_rows_cuda(const CudaLaunch& launch, const DeviceMatrix& matrix,
                      const std::int32_t* row_ids, std::int64_t rows, float scale, float* out) {
  if (rows <= 0) return;
  bool first = true;
  for (const DeviceMatrixPart& part : matrix.parts) {
    DecodeRowsParameters decode;
    decode.weights = reinterpret_cast<const std::uint8_t*>(part.data);
    decode.row_bytes = part.row_bytes;
    decode.scales = part.scales;
    decode.columns = static_cast<int>(matrix.columns);
    decode.row_ids = row_ids;
    decode.first_row = part.first_row;
    decode.part_rows = part.rows;
    decode.matrix_rows = matrix.rows;
    decode.zero_others = first;
    decode.rows = rows;
    decode.scale = scale;
    decode.out = out;
    decode.out_stride = matrix.columns;
    decode_rows_float32(launch, part.dtype, decode);
    first = false;
  }
}

}  // namespace octet
