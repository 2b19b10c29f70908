#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "core/cuda/launch.cuh"
#include "ops/linear/decode_rows.h"
#include "ops/linear/device_decode.cuh"

namespace octet {

namespace {

constexpr int threads = 256;

// The values of a thread's eight elements of a group, as the format's formula has them. `group` is
// not a constant here: what it shifts by is computed.
template <DataType type>
__device__ __forceinline__ void decode_eight(const std::uint8_t* unit, int group, int thread,
                                             float (&values)[8]) {
  using Decoder = WeightDecoder<type>;
  if constexpr (type == DataType::float32 || type == DataType::float16) {
    Decoder::floats(unit, group, thread, values);
  } else {
    WeightFragment codes;
    Decoder::fragments(unit, group, thread, &codes);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      values[2 * i] = low_of_pair(codes.pairs[i]);
      values[2 * i + 1] = high_of_pair(codes.pairs[i]);
    }
    if constexpr (Decoder::scale_groups > 0) {
      const auto scales = Decoder::load_scales(unit);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int index = Decoder::scale_groups == 16 ? 2 * group + i / 4 : group;
        values[i] *= scales.scale(index);
        if constexpr (Decoder::has_minimum) values[i] += scales.minimum(index);
      }
    }
  }
}

__device__ __forceinline__ float block_scale(const DeviceScales& scales, std::int64_t row,
                                             int column) {
  return scales
      .values[row / scales.block_rows * scales.grid_columns + column / scales.block_columns];
}

__device__ __forceinline__ void store(float* to, float value) { *to = value; }
__device__ __forceinline__ void store(__nv_bfloat16* to, float value) {
  *to = __float2bfloat16_rn(value);
}

// A thread per eight elements of a row.
template <DataType type, typename Output>
__global__ void __launch_bounds__(threads)
    decode_rows(const __grid_constant__ DecodeRowsParameters p) {
  let_next_kernel_begin();
  begin_after_previous_kernels();
  using Decoder = WeightDecoder<type>;
  const int eights = (p.columns + device_group_elements - 1) / device_group_elements * 4;
  const std::int64_t count = p.rows * eights;
  for (std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; at < count;
       at += static_cast<std::int64_t>(gridDim.x) * threads) {
    const std::int64_t out_row = at / eights;
    const int group = static_cast<int>(at % eights) / 4;
    const int thread = static_cast<int>(at % 4);
    std::int64_t row = p.first_output_row + out_row;
    float values[8] = {};
    if (p.row_ids != nullptr) {
      const std::int64_t id = p.row_ids[out_row];
      row = id - p.first_row;
      if (row < 0 || row >= p.part_rows) {
        if (!p.zero_others || (id >= 0 && id < p.matrix_rows)) continue;
        row = -1;
      }
    }
    const int start = group * device_group_elements;
    if (row >= 0) {
      decode_eight<type>(p.weights + row * p.row_bytes +
                             static_cast<std::int64_t>(group / 8) * device_unit_bytes(type),
                         group % 8, thread, values);
      if (type == DataType::float8_e4m3 && p.scales.values != nullptr) {
        const float scale = block_scale(p.scales, row, min(start, p.columns - 1));
#pragma unroll
        for (float& value : values) value *= scale;
      }
    }
    Output* out = static_cast<Output*>(p.out) + out_row * p.out_stride;
    const std::int64_t limit = sizeof(Output) == 2 ? p.out_stride : p.columns;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int column =
          start + (Decoder::contiguous ? 8 * thread + i : 16 * (i / 4) + 4 * thread + i % 4);
      if (column >= limit) continue;
      store(out + column, sizeof(Output) == 2 ? values[i] : p.scale * values[i]);
    }
  }
}

template <typename Output>
void launch_decode(const CudaLaunch& launch, DataType dtype, const DecodeRowsParameters& p) {
  const std::int64_t count =
      p.rows * ((p.columns + device_group_elements - 1) / device_group_elements * 4);
  const std::int64_t most =
      std::int64_t{16} * (launch.multiprocessors > 0 ? launch.multiprocessors : 1);
  const std::int64_t needed = (count + threads - 1) / threads;
  const dim3 grid(static_cast<unsigned>(needed < most ? needed : most));
  const auto run = [&](auto kernel) {
    launch_kernel(launch, "launch of the weights' decoder", kernel, grid, dim3(threads), 0, p);
  };
  switch (dtype) {
    case DataType::float32:
      return run(decode_rows<DataType::float32, Output>);
    case DataType::float16:
      return run(decode_rows<DataType::float16, Output>);
    case DataType::bfloat16:
      return run(decode_rows<DataType::bfloat16, Output>);
    case DataType::float8_e4m3:
      return run(decode_rows<DataType::float8_e4m3, Output>);
    case DataType::q4_0:
      return run(decode_rows<DataType::q4_0, Output>);
    case DataType::q4_1:
      return run(decode_rows<DataType::q4_1, Output>);
    case DataType::q5_0:
      return run(decode_rows<DataType::q5_0, Output>);
    case DataType::q5_1:
      return run(decode_rows<DataType::q5_1, Output>);
    case DataType::q8_0:
      return run(decode_rows<DataType::q8_0, Output>);
    case DataType::q2_k:
      return run(decode_rows<DataType::q2_k, Output>);
    case DataType::q3_k:
      return run(decode_rows<DataType::q3_k, Output>);
    case DataType::q4_k:
      return run(decode_rows<DataType::q4_k, Output>);
    case DataType::q5_k:
      return run(decode_rows<DataType::q5_k, Output>);
    case DataType::q6_k:
      return run(decode_rows<DataType::q6_k, Output>);
    case DataType::iq4_nl:
      return run(decode_rows<DataType::iq4_nl, Output>);
    case DataType::iq4_xs:
      return run(decode_rows<DataType::iq4_xs, Output>);
    case DataType::mxfp4:
      return run(decode_rows<DataType::mxfp4, Output>);
  }
}

__global__ void __launch_bounds__(threads)
    round_floats(const float* in, std::int64_t count, __nv_bfloat16* out) {
  let_next_kernel_begin();
  begin_after_previous_kernels();
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (at < count) out[at] = __float2bfloat16_rn(in[at]);
}

// splitmix64's finaliser.
__device__ __forceinline__ std::uint64_t mix(std::uint64_t z) {
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ z >> 27) * 0x94D049BB133111EBull;
  return z ^ z >> 31;
}

// A sum of four uniform numbers of 16 bits has variance 4 / 12 and is near enough to normal.
__device__ __forceinline__ float about_normal(std::uint64_t seed, std::uint64_t index) {
  const std::uint64_t bits = mix(seed + index * 0x9E3779B97F4A7C15ull);
  const auto sum = static_cast<float>((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) +
                                      (bits >> 32 & 0xFFFF) + (bits >> 48));
  return (sum / 65536.0f - 2.0f) * 1.7320508f;
}

template <typename Element>
__global__ void __launch_bounds__(threads)
    fill_random(Element* data, std::int64_t rows, std::int64_t stride, std::int64_t columns,
                float deviation, std::uint64_t seed) {
  for (std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
       at < rows * stride; at += static_cast<std::int64_t>(gridDim.x) * threads) {
    const bool padding = at % stride >= columns;
    data[at] =
        Element(padding ? 0.0f : deviation * about_normal(seed, static_cast<std::uint64_t>(at)));
  }
}

__global__ void __launch_bounds__(threads)
    fill_floats(float* data, std::int64_t count, float value) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (at < count) data[at] = value;
}

}  // namespace

void decode_rows_float32(const CudaLaunch& launch, DataType dtype, const DecodeRowsParameters& p) {
  launch_decode<float>(launch, dtype, p);
}

void decode_rows_bfloat16(const CudaLaunch& launch, DataType dtype, const DecodeRowsParameters& p) {
  launch_decode<__nv_bfloat16>(launch, dtype, p);
}

void round_to_bfloat16_cuda(const CudaLaunch& launch, const float* in, std::int64_t count,
                            void* out) {
  const auto blocks = static_cast<unsigned>((count + threads - 1) / threads);
  launch_kernel(launch, "launch of a bias's rounding", round_floats, dim3(blocks), dim3(threads), 0,
                in, count, static_cast<__nv_bfloat16*>(out));
}

void fill_random_rows(const CudaLaunch& launch, const DeviceMatrixPart& part, std::int64_t columns,
                      float deviation, float scale, std::uint64_t seed) {
  // Plain kernels: they do not wait for those before them, and nothing may overlap them.
  CudaLaunch plain = launch;
  plain.overlap = false;
  const dim3 grid(2048);
  auto* data = const_cast<std::byte*>(part.data);
  if (part.dtype == DataType::bfloat16) {
    launch_kernel(plain, "launch of random weights", fill_random<__nv_bfloat16>, grid,
                  dim3(threads), 0, reinterpret_cast<__nv_bfloat16*>(data), part.rows,
                  part.row_bytes / 2, columns, deviation, seed);
    return;
  }
  launch_kernel(plain, "launch of random weights", fill_random<__nv_fp8_e4m3>, grid, dim3(threads),
                0, reinterpret_cast<__nv_fp8_e4m3*>(data), part.rows, part.row_bytes, columns,
                deviation / scale, seed);
  if (part.scales.values == nullptr) return;
  const auto blocks = static_cast<unsigned>((part.rows + threads - 1) / threads);
  launch_kernel(plain, "launch of random weights' scales", fill_floats, dim3(blocks), dim3(threads),
                0, const_cast<float*>(part.scales.values), part.rows, scale);
}

}  // namespace octet
