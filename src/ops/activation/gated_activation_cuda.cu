#include <cuda_runtime.h>

#include "core/cuda/launch.cuh"
#include "ops/activation/gated_activation.cuh"
#include "ops/activation/gated_activation_cuda.h"

namespace octet {
namespace {

constexpr int threads = 128;

template <int count>
struct alignas(2 * count) Bfloats {
  __nv_bfloat16 at[count];
};

template <Activation activation, int count>
__global__ void __launch_bounds__(threads)
    gated_activation_kernel(const __nv_bfloat16* gate_up, __nv_bfloat16* y, std::int64_t width) {
  let_next_kernel_begin();
  begin_after_previous_kernels();
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (item * count >= width) return;
  const std::int64_t row = blockIdx.y;
  const auto* gates = reinterpret_cast<const Bfloats<count>*>(gate_up + row * 2 * width);
  const auto* ups = reinterpret_cast<const Bfloats<count>*>(gate_up + (row * 2 + 1) * width);
  const Bfloats<count> gate = gates[item];
  const Bfloats<count> up = ups[item];
  Bfloats<count> result;
#pragma unroll
  for (int i = 0; i < count; ++i) {
    result.at[i] = __float2bfloat16_rn(activate(activation, __bfloat162float(gate.at[i])) *
                                       __bfloat162float(up.at[i]));
  }
  reinterpret_cast<Bfloats<count>*>(y + row * width)[item] = result;
}

template <Activation activation, int count>
void launch_rows(const CudaLaunch& launch, const GatedActivationCudaArgs& args) {
  // The grid's second extent ends at 65535.
  constexpr std::int64_t most_rows = 65535;
  const std::int64_t items = args.width / count;
  for (std::int64_t row = 0; row < args.rows; row += most_rows) {
    const std::int64_t rows = args.rows - row < most_rows ? args.rows - row : most_rows;
    const dim3 grid(static_cast<unsigned>((items + threads - 1) / threads),
                    static_cast<unsigned>(rows));
    launch_kernel(launch, "launch of the activation", gated_activation_kernel<activation, count>,
                  grid, dim3(threads), 0, args.gate_up + row * 2 * args.width,
                  args.y + row * args.width, args.width);
  }
}

template <Activation activation>
void launch_activation(const CudaLaunch& launch, const GatedActivationCudaArgs& args) {
  if (args.width % 8 == 0) {
    launch_rows<activation, 8>(launch, args);
  } else {
    launch_rows<activation, 1>(launch, args);
  }
}

__global__ void __launch_bounds__(threads)
    soft_cap_kernel(float cap, float* x, std::int64_t count) {
  let_next_kernel_begin();
  begin_after_previous_kernels();
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; i < count;
       i += step) {
    x[i] = cap * tanhf(x[i] / cap);
  }
}

}  // namespace

void gated_activation_cuda(const CudaLaunch& launch, const GatedActivationCudaArgs& args) {
  check_internal(args.rows >= 0 && args.width >= 0, "gated_activation: negative extents");
  if (args.rows == 0 || args.width == 0) return;
  check_internal(args.gate_up != nullptr && args.y != nullptr,
                 "gated_activation: expected gate_up and y");
  if (args.activation == Activation::silu) {
    launch_activation<Activation::silu>(launch, args);
  } else {
    launch_activation<Activation::gelu_tanh>(launch, args);
  }
}

void soft_cap_cuda(const CudaLaunch& launch, float cap, float* x, std::int64_t count) {
  check_internal(cap > 0.0f && count >= 0 && (count == 0 || x != nullptr),
                 "soft_cap: expected a positive cap, and values");
  constexpr std::int64_t most_blocks = 4096;
  const std::int64_t blocks = (count + threads - 1) / threads;
  launch_kernel(launch, "launch of the soft cap", soft_cap_kernel,
                dim3(static_cast<unsigned>(blocks < most_blocks ? blocks : most_blocks)),
                dim3(threads), 0, cap, x, count);
}

}  // namespace octet
