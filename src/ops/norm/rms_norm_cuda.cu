#include <algorithm>

#include <cuda_runtime.h>

#include "core/cuda/launch.cuh"
#include "core/cuda/warp.cuh"
#include "ops/norm/rms_norm_cuda.h"

namespace octet {
namespace {

constexpr int most_threads = 512;
constexpr std::int64_t widest_row = 49152;  // float32 in the shared memory of a multiprocessor

template <int count>
struct alignas(4 * count) Floats {
  float at[count];
};
template <int count>
struct alignas(2 * count) Bfloats {
  __nv_bfloat16 at[count];
};

// A block for each row; every thread sees to its own elements of it, `count` at a time, and keeps
// up to `held` times as many in registers; held = 0: in shared memory, as many as there are.
template <int count, int held>
__global__ void __launch_bounds__(most_threads) rms_norm_kernel(const RmsNormCudaArgs args) {
  extern __shared__ float shared[];
  __shared__ float sums[2][32];
  const int items = static_cast<int>(args.width / count);
  const int thread = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x);
  const auto* weights = reinterpret_cast<const Floats<count>*>(args.weight);
  const auto* branch_norm = reinterpret_cast<const Floats<count>*>(args.branch_norm);
  Floats<count> row[held > 0 ? held : 1];
  Floats<count> weight[held > 0 ? held : 1];
  const auto for_each_item = [&](auto&& function) {
    if constexpr (held > 0) {
#pragma unroll
      for (int j = 0; j < held; ++j) {
        const int i = thread + j * threads;
        if (i < items) function(i, row[j], weight[j]);
      }
    } else {
      for (int i = thread; i < items; i += threads) {
        function(i, reinterpret_cast<Floats<count>*>(shared)[i], weight[0]);
      }
    }
  };

  // Weights are settled, whatever still runs.
  if (held > 0 && args.y != nullptr) {
    for_each_item([&](int i, Floats<count>&, Floats<count>& w) { w = weights[i]; });
  }
  let_next_kernel_begin();
  begin_after_previous_kernels();

  const std::int64_t to = blockIdx.x;
  const std::int64_t from = args.row_ids == nullptr ? to : args.row_ids[to];
  if (from < 0) return;
  auto* residual = reinterpret_cast<Floats<count>*>(args.residual + from * args.width);
  const auto* branch = reinterpret_cast<const Bfloats<count>*>(args.branch + from * args.width);
  const auto width = static_cast<float>(args.width);

  float factor = 1.0f;
  if (args.branch_norm != nullptr) {
    float sum = 0;
    for_each_item([&](int i, Floats<count>&, Floats<count>&) {
      const Bfloats<count> b = branch[i];
#pragma unroll
      for (int j = 0; j < count; ++j) {
        const float x = __bfloat162float(b.at[j]);
        sum = fmaf(x, x, sum);
      }
    });
    factor = 1.0f / sqrtf(block_sum(sum, sums[0]) / width + args.epsilon);
  }

  float sum = 0;
  for_each_item([&](int i, Floats<count>& of_row, Floats<count>&) {
    Floats<count> x = residual[i];
    if (args.branch != nullptr) {
      const Bfloats<count> b = branch[i];
      Floats<count> w;
#pragma unroll
      for (int j = 0; j < count; ++j) w.at[j] = 1.0f;
      if (args.branch_norm != nullptr) w = branch_norm[i];
#pragma unroll
      for (int j = 0; j < count; ++j) x.at[j] += __bfloat162float(b.at[j]) * factor * w.at[j];
      if (args.row_ids == nullptr) residual[i] = x;
    }
#pragma unroll
    for (int j = 0; j < count; ++j) sum = fmaf(x.at[j], x.at[j], sum);
    of_row = x;
  });
  if (args.y == nullptr) return;
  factor = 1.0f / sqrtf(block_sum(sum, sums[1]) / width + args.epsilon);

  auto* y = reinterpret_cast<Bfloats<count>*>(args.y + to * args.width);
  for_each_item([&](int i, Floats<count>& x, Floats<count>& w) {
    if constexpr (held == 0) w = weights[i];
    Bfloats<count> rounded;
#pragma unroll
    for (int j = 0; j < count; ++j) rounded.at[j] = __float2bfloat16_rn(x.at[j] * factor * w.at[j]);
    y[i] = rounded;
  });
}

template <int count, int held>
void launch_held(const CudaLaunch& launch, const RmsNormCudaArgs& args, unsigned threads,
                 std::size_t shared_bytes) {
  if (shared_bytes > 48 * 1024) {
    check_cuda(cudaFuncSetAttribute(rms_norm_kernel<count, held>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shared_bytes)),
               "cudaFuncSetAttribute");
  }
  launch_kernel(launch, "launch of the RMS norm", rms_norm_kernel<count, held>,
                dim3(static_cast<unsigned>(args.rows)), dim3(threads), shared_bytes, args);
}

template <int count>
void launch_rows(const CudaLaunch& launch, const RmsNormCudaArgs& args) {
  // Two items a thread where that does, so that a thread has two loads in flight.
  const std::int64_t items = args.width / count;
  const auto threads =
      static_cast<unsigned>(std::clamp<std::int64_t>((items / 2 + 31) / 32 * 32, 32, most_threads));
  if (items <= 2 * threads) {
    launch_held<count, 2>(launch, args, threads, 0);
  } else if (items <= 4 * threads) {
    launch_held<count, 4>(launch, args, threads, 0);
  } else {
    launch_held<count, 0>(launch, args, threads,
                          static_cast<std::size_t>(args.width) * sizeof(float));
  }
}

}  // namespace

void rms_norm_cuda(const CudaLaunch& launch, const RmsNormCudaArgs& args) {
  check_internal(args.rows >= 0 && args.width >= 0, "rms_norm: negative extents");
  if (args.rows == 0 || args.width == 0) return;
  check_internal(args.residual != nullptr && (args.y == nullptr || args.weight != nullptr),
                 "rms_norm: expected a residual, and a weight for y");
  check_internal(args.branch_norm == nullptr || args.branch != nullptr,
                 "rms_norm: a branch's norm without the branch");
  check_supported(args.width <= widest_row, "rms_norm: rows of more than 49152 elements");
  if (args.width % 4 == 0) {
    launch_rows<4>(launch, args);
  } else {
    launch_rows<1>(launch, args);
  }
}

}  // namespace octet
