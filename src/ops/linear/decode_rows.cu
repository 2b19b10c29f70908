#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "core/cuda/launch.cuh"
#include "ops/linear/decode_rows.h"
#include "ops/linear/device_decode.cuh"

namespace octet {

namespace {

constexpr int threads = 256;

// The values of a thread's eight elements of a group, as the format's formula has them.
template <DataType type>
__device__ __forceinline__ void decode_eight(const std::uint8_t* slab, int row, int group,
                                             int thread, float (&values)[8]) {
  using Decoder = WeightDecoder<type>;
  if constexpr (type == DataType::float32 || type == DataType::float16) {
    Decoder::floats(slab, row, group, thread, values);
  } else {
    WeightFragment codes;
    Decoder::fragments(slab, row, group, thread, &codes);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      values[2 * i] = low_of_pair(codes.pairs[i]);
      values[2 * i + 1] = high_of_pair(codes.pairs[i]);
    }
    if constexpr (Decoder::scale_groups > 0) {
      const auto scales = Decoder::load_scales(slab, row);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int index = Decoder::scale_groups == 16 ? 2 * group + i / 4 : group;
        values[i] *= scales.scale(index);
        if constexpr (Decoder::has_minimum) values[i] += scales.minimum(index);
      }
    }
  }
}

// Where a unit of a row of the part begins: its slab, or the unit itself.
template <DataType type>
__device__ __forceinline__ const std::uint8_t* unit_of(const DecodeRowsParameters& p,
                                                       std::int64_t row, int unit) {
  constexpr int bytes = device_unit_bytes(type);
  if constexpr (keeps_row_order(type)) return p.weights + row * p.row_bytes + unit * bytes;
  return p.weights + (row / device_band_rows * p.row_bytes + unit * bytes) * device_band_rows;
}

__device__ __forceinline__ float block_scale(const DeviceScales& scales, std::int64_t row,
                                             int column) {
  return scales
      .values[row / scales.block_rows * scales.grid_columns + column / scales.block_columns];
}

// Eight values of `row` of the part (-1: zeros) go to out_row. The thread's place is that of a
// product's.
template <DataType type, typename Output>
__device__ __forceinline__ void decode_to(const DecodeRowsParameters& p, std::int64_t row,
                                          std::int64_t out_row, int unit, int group, int thread) {
  constexpr bool contiguous = WeightDecoder<type>::contiguous;
  const int start = unit * device_unit_elements + group * device_group_elements;
  float values[8] = {};
  if (row >= 0) {
    decode_eight<type>(unit_of<type>(p, row, unit), static_cast<int>(row % device_band_rows), group,
                       thread, values);
    if (type == DataType::float8_e4m3 && p.scales.values != nullptr) {
      const float scale = block_scale(p.scales, row, min(start, p.columns - 1));
#pragma unroll
      for (float& value : values) value *= scale;
    }
  }
  Output* out = static_cast<Output*>(p.out) + out_row * p.out_stride + start;
  if constexpr (sizeof(Output) == 2) {
    // The scratch memory's rows are padded to whole groups.
    std::uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[i] = to_bfloat16x2(values[2 * i], values[2 * i + 1]);
    if constexpr (contiguous) {
      *reinterpret_cast<uint4*>(out + 8 * thread) =
          make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    } else {
      *reinterpret_cast<uint2*>(out + 4 * thread) = make_uint2(pairs[0], pairs[1]);
      *reinterpret_cast<uint2*>(out + 16 + 4 * thread) = make_uint2(pairs[2], pairs[3]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int place = contiguous ? 8 * thread + i : 16 * (i / 4) + 4 * thread + i % 4;
      if (start + place < p.columns) out[place] = p.scale * values[i];
    }
  }
}

// A block takes rows of the output in turn, four threads a group of one: embedding look-up.
template <DataType type>
__global__ void __launch_bounds__(threads)
    decode_chosen_rows(const __grid_constant__ DecodeRowsParameters p) {
  let_next_kernel_begin();
  begin_after_previous_kernels();
  const int groups = (p.columns + device_group_elements - 1) / device_group_elements;
  for (std::int64_t out_row = blockIdx.x; out_row < p.rows; out_row += gridDim.x) {
    const std::int64_t id = p.row_ids[out_row];
    std::int64_t row = id - p.first_row;
    if (row < 0 || row >= p.part_rows) {
      if (!p.zero_others || (id >= 0 && id < p.matrix_rows)) continue;
      row = -1;
    }
    for (int at = static_cast<int>(threadIdx.x); at < 4 * groups; at += threads) {
      decode_to<type, float>(p, row, out_row, at / 32, at / 4 % 8, at % 4);
    }
  }
}

// A warp takes a group of a band, blockIdx.y is the band: the weights of a prefill.
template <DataType type>
__global__ void __launch_bounds__(threads)
    decode_all_rows(const __grid_constant__ DecodeRowsParameters p) {
  let_next_kernel_begin();
  begin_after_previous_kernels();
  const int group = static_cast<int>(blockIdx.x * threads + threadIdx.x) / 32;
  const std::int64_t out_row =
      static_cast<std::int64_t>(blockIdx.y) * device_band_rows + threadIdx.x % 32 / 4;
  if (group * device_group_elements >= p.columns || out_row >= p.rows) return;
  decode_to<type, __nv_bfloat16>(p, p.first_output_row + out_row, out_row, group / 8, group % 8,
                                 static_cast<int>(threadIdx.x % 4));
}

// Calls run(std::integral_constant<DataType, dtype>).
template <typename Run>
void with_type(DataType dtype, const Run& run) {
  switch (dtype) {
    case DataType::float32:
      return run(std::integral_constant<DataType, DataType::float32>());
    case DataType::float16:
      return run(std::integral_constant<DataType, DataType::float16>());
    case DataType::bfloat16:
      return run(std::integral_constant<DataType, DataType::bfloat16>());
    case DataType::float8_e4m3:
      return run(std::integral_constant<DataType, DataType::float8_e4m3>());
    case DataType::q4_0:
      return run(std::integral_constant<DataType, DataType::q4_0>());
    case DataType::q4_1:
      return run(std::integral_constant<DataType, DataType::q4_1>());
    case DataType::q5_0:
      return run(std::integral_constant<DataType, DataType::q5_0>());
    case DataType::q5_1:
      return run(std::integral_constant<DataType, DataType::q5_1>());
    case DataType::q8_0:
      return run(std::integral_constant<DataType, DataType::q8_0>());
    case DataType::q2_k:
      return run(std::integral_constant<DataType, DataType::q2_k>());
    case DataType::q3_k:
      return run(std::integral_constant<DataType, DataType::q3_k>());
    case DataType::q4_k:
      return run(std::integral_constant<DataType, DataType::q4_k>());
    case DataType::q5_k:
      return run(std::integral_constant<DataType, DataType::q5_k>());
    case DataType::q6_k:
      return run(std::integral_constant<DataType, DataType::q6_k>());
    case DataType::iq4_nl:
      return run(std::integral_constant<DataType, DataType::iq4_nl>());
    case DataType::iq4_xs:
      return run(std::integral_constant<DataType, DataType::iq4_xs>());
    case DataType::mxfp4:
      return run(std::integral_constant<DataType, DataType::mxfp4>());
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

// Of float8_e4m3 an element's place in its band says its column.
template <typename Element, bool slabs>
__global__ void __launch_bounds__(threads)
    fill_random(Element* data, std::int64_t rows, std::int64_t stride, std::int64_t columns,
                float deviation, std::uint64_t seed) {
  for (std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
       at < rows * stride; at += static_cast<std::int64_t>(gridDim.x) * threads) {
    std::int64_t column = at % stride;
    if constexpr (slabs) {
      constexpr int element_of_byte[] = {2, 0, 3, 1};
      const std::int64_t in_band = at % (device_band_rows * stride);
      constexpr int slab = device_band_rows * device_unit_elements;
      constexpr int group = device_band_rows * device_group_elements;
      column = in_band / slab * device_unit_elements +
               in_band % slab / group * device_group_elements +
               in_band % device_group_elements / 4 * 4 + element_of_byte[in_band % 4];
    }
    data[at] = Element(
        column >= columns ? 0.0f : deviation * about_normal(seed, static_cast<std::uint64_t>(at)));
  }
}

__global__ void __launch_bounds__(threads)
    fill_floats(float* data, std::int64_t count, float value) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (at < count) data[at] = value;
}

}  // namespace

void decode_rows_float32(const CudaLaunch& launch, DataType dtype, const DecodeRowsParameters& p) {
  const auto grid = static_cast<unsigned>(p.rows < 65536 ? p.rows : 65536);
  with_type(dtype, [&](auto type) {
    launch_kernel(launch, "launch of the rows' decoder", decode_chosen_rows<decltype(type)::value>,
                  dim3(grid), dim3(threads), 0, p);
  });
}

void decode_rows_bfloat16(const CudaLaunch& launch, DataType dtype, const DecodeRowsParameters& p) {
  const int groups = (p.columns + device_group_elements - 1) / device_group_elements;
  constexpr int groups_of_block = threads / 32;
  constexpr std::int64_t most_rows = 65535 * device_band_rows;  // what a grid's height is
  for (std::int64_t first = 0; first < p.rows; first += most_rows) {
    DecodeRowsParameters some = p;
    some.first_output_row += first;
    some.rows = p.rows - first < most_rows ? p.rows - first : most_rows;
    some.out = static_cast<__nv_bfloat16*>(p.out) + first * p.out_stride;
    const dim3 grid(static_cast<unsigned>((groups + groups_of_block - 1) / groups_of_block),
                    static_cast<unsigned>((some.rows + device_band_rows - 1) / device_band_rows));
    with_type(dtype, [&](auto type) {
      launch_kernel(launch, "launch of the weights' decoder",
                    decode_all_rows<decltype(type)::value>, grid, dim3(threads), 0, some);
    });
  }
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
  const std::int64_t rows =
      (part.rows + device_band_rows - 1) / device_band_rows * device_band_rows;
  auto* data = const_cast<std::byte*>(part.data);
  if (part.dtype == DataType::bfloat16) {
    launch_kernel(plain, "launch of random weights", fill_random<__nv_bfloat16, false>, grid,
                  dim3(threads), 0, reinterpret_cast<__nv_bfloat16*>(data), rows,
                  part.row_bytes / 2, columns, deviation, seed);
    return;
  }
  launch_kernel(plain, "launch of random weights", fill_random<__nv_fp8_e4m3, true>, grid,
                dim3(threads), 0, reinterpret_cast<__nv_fp8_e4m3*>(data), rows, part.row_bytes,
                columns, deviation / scale, seed);
  if (part.scales.values == nullptr) return;
  const auto blocks = static_cast<unsigned>((part.rows + threads - 1) / threads);
  launch_kernel(plain, "launch of random weights' scales", fill_floats, dim3(blocks), dim3(threads),
                0, const_cast<float*>(part.scales.values), part.rows, scale);
}

}  // namespace octet
