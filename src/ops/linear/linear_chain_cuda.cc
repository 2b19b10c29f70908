#include <algorithm>

#include "core/cuda/check.h"
#include "core/cuda/device.h"
#include "core/error.h"
#include "core/printable.h"
#include "ops/linear/device_packing.h"
#include "ops/linear/linear_chain.h"
#include "ops/linear/linear_chain_parameters.h"

namespace octet {

namespace {

// The widest x of two rows that has room: 14,336 columns are Llama-3.1-8B's, 28,672 Llama-3.1-70B's
// with one row.
constexpr int most_x_bytes = 57 * 1024;
constexpr std::int64_t long_row = 8192;
// Of a group. In the layers of an 8B model, with up to 14 tiles, claims changed nothing.
constexpr int least_claimed_tiles = 16;
// In lines of the L2 of their own.
constexpr std::size_t counters_apart = 32;
constexpr int least_architecture = 90;

// A row of x in shared memory: whole groups, and 64 bytes more, so that two rows' threads meet no
// bank twice.
std::int64_t x_row_bytes(std::int64_t columns) {
  return (columns + device_group_elements - 1) / device_group_elements * device_group_elements * 2 +
         64;
}

// Of bfloat16, by the longest row: eight warps share a tile of long ones (a step's chains of an 8B
// model in 127 us instead of 132), four one of short ones (its logits in 250 us instead of 293).
ChainKernel kernel_of(DataType dtype, std::int64_t most_columns) {
  return dtype == DataType::bfloat16 ? chain_kernel_bfloat16(most_columns >= long_row)
                                     : chain_kernel_float8();
}

void check_step(const LinearChainArgs& args, const LinearChainStep& step, DataType dtype) {
  const bool reads = step.input == ChainInput::normed_residual;
  const bool adds = step.output == ChainOutput::residual;
  check_internal(step.weight != nullptr && linear_chain_takes(*step.weight) &&
                     step.weight->parts[0].dtype == dtype,
                 "chain of products: a matrix that it does not take");
  check_internal(reads ? step.norm != nullptr : step.x != nullptr,
                 "chain of products: a step without its input");
  check_internal(adds || step.y != nullptr, "chain of products: a step without its output");
  check_internal((!reads && !adds) || args.residual != nullptr,
                 "chain of products: no residual stream");
  check_internal(
      (!reads || step.weight->columns == args.width) && (!adds || step.weight->rows == args.width),
      "chain of products: a matrix that is not as wide as the residual stream");
  const bool gated = step.output == ChainOutput::gated;
  check_internal(!gated || step.weight->rows % (2 * device_band_rows) == 0,
                 "chain of products: gates and ups that are no whole bands");
  check_internal(step.bias == nullptr || !(gated || adds),
                 "chain of products: a bias where none is added");
}

// Tiles that a group has from the start. Of a step with few they are all: claims have no time to
// mend anything. Else as many as are asked for ahead: the copies run ahead of the products by a
// ring's stages, and a claim takes no longer than two more.
int given_tiles(const ChainKernel& kernel, int blocks, const ChainStepParameters& step) {
  const int tiles = (step.outputs + device_band_rows - 1) / device_band_rows;
  if (tiles / (blocks * kernel.groups) < least_claimed_tiles) return chain_tiles_all_given;
  const int units = (step.columns + device_unit_elements - 1) / device_unit_elements;
  const int of_warp =
      std::max(1, units / kernel.group_warps) * (step.output == ChainOutput::gated ? 2 : 1);
  return (kernel.stages + of_warp) / of_warp;  // (stages + 1) / of_warp, rounded up
}

ChainStepParameters parameters_of(const LinearChainStep& step) {
  const DeviceMatrixPart& part = step.weight->parts[0];
  const bool gated = step.output == ChainOutput::gated;
  ChainStepParameters p = {};
  p.weights = reinterpret_cast<const std::uint8_t*>(part.data);
  p.row_bytes = part.row_bytes;
  p.up_bytes = part.rows / 2 * part.row_bytes;
  p.outputs = static_cast<int>(gated ? part.rows / 2 : part.rows);
  p.columns = static_cast<int>(step.weight->columns);
  p.scales = part.scales.values;
  p.bias = step.bias;
  p.norm = step.norm;
  p.x = step.x;
  p.y = step.y;
  p.input = step.input;
  p.output = step.output;
  return p;
}

}  // namespace

bool linear_chain_takes(const DeviceMatrix& matrix) {
  if (matrix.parts.size() != 1) return false;
  const DeviceMatrixPart& part = matrix.parts[0];
  const bool float8 = part.dtype == DataType::float8_e4m3 && part.scales.values != nullptr &&
                      part.scales.block_rows == 1 && part.scales.block_columns >= matrix.columns;
  return (part.dtype == DataType::bfloat16 || float8) && matrix.columns % 8 == 0 &&
         linear_chain_most_rows * x_row_bytes(matrix.columns) <= most_x_bytes;
}

LinearChainWorkspace::LinearChainWorkspace() {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  const auto attribute = [&](cudaDeviceAttr name) {
    int value = 0;
    check_cuda(cudaDeviceGetAttribute(&value, name, device), "cudaDeviceGetAttribute");
    return value;
  };
  if (cuda_device_info().architecture < least_architecture) return;
  const int room = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  for (const ChainKernel& kernel :
       {kernel_of(DataType::bfloat16, 0), kernel_of(DataType::bfloat16, long_row),
        kernel_of(DataType::float8_e4m3, 0)}) {
    const int bytes = static_cast<int>(kernel.shared_bytes) + most_x_bytes;
    if (bytes > room) return;
    check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel.function),
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
               "cudaFuncSetAttribute");
  }
  blocks_ = attribute(cudaDevAttrMultiProcessorCount);
  counters_ = DeviceArray<unsigned long long>(2 * counters_apart);
  counters_.fill_bytes(0);
  claims_ = DeviceArray<unsigned>(linear_chain_most_steps);
  claims_.fill_bytes(0);
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

void linear_chain_cuda(const CudaLaunch& launch, LinearChainWorkspace& workspace,
                       const LinearChainArgs& args) {
  check_internal(workspace.supported(), "chain of products: not on this GPU");
  check_internal(args.rows >= 1 && args.rows <= linear_chain_most_rows && !args.steps.empty() &&
                     args.steps.size() <= linear_chain_most_steps,
                 "chain of products: too many rows or steps, or none");
  check_internal(args.steps[0].weight != nullptr && !args.steps[0].weight->parts.empty(),
                 "chain of products: a step without a matrix");
  const DataType dtype = args.steps[0].weight->parts[0].dtype;
  ChainParameters p = {};
  std::int64_t most_columns = 0;
  for (const LinearChainStep& step : args.steps) {
    check_step(args, step, dtype);
    p.steps[p.count++] = parameters_of(step);
    most_columns = std::max(most_columns, step.weight->columns);
  }
  const ChainKernel kernel = kernel_of(dtype, most_columns);
  for (int i = 0; i < p.count; ++i) {
    p.steps[i].given_tiles = given_tiles(kernel, workspace.blocks(), p.steps[i]);
  }
  p.x_bytes = static_cast<int>(x_row_bytes(most_columns));
  p.rows = args.rows;
  p.residual = args.residual;
  p.epsilon = args.epsilon;
  p.activation = args.activation;
  p.arrivals = workspace.arrivals();
  p.tickets = workspace.tickets();
  p.claims = workspace.claims();

  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(workspace.blocks()));
  config.blockDim = dim3(static_cast<unsigned>(kernel.threads));
  config.dynamicSmemBytes =
      kernel.shared_bytes + static_cast<std::size_t>(p.rows) * static_cast<std::size_t>(p.x_bytes);
  config.stream = launch.stream;
  config.attrs = &overlap;
  config.numAttrs = launch.overlap ? 1 : 0;
  void* arguments[] = {&p};
  check_cuda(
      cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel.function), arguments),
      "launch of the chain of products");
}

}  // namespace octet
