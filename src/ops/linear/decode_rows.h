// Decoding packed rows on the GPU: embedding look-up, and the weights of a prefill. Internal to
// ops/linear.
#pragma once

#include <cstdint>

#include "core/cuda/launch.h"
#include "ops/linear/device_matrix.h"

namespace octet {

struct DecodeRowsParameters {
  const std::uint8_t* weights = nullptr;
  std::int64_t row_bytes = 0;
  DeviceScales scales;
  int columns = 0;
  // Row i of the output is matrix row row_ids[i], where [first_row, first_row + part_rows) are this
  // part's; null: part row first_output_row + i.
  const std::int32_t* row_ids = nullptr;
  std::int64_t first_output_row = 0;
  std::int64_t first_row = 0;
  std::int64_t part_rows = 0;
  // Rows of the whole matrix; what is not among them becomes zeros where zero_others is set.
  std::int64_t matrix_rows = 0;
  bool zero_others = false;
  std::int64_t rows = 0;
  float scale = 1.0f;
  void* out = nullptr;  // float32, or bfloat16 where row_ids is null
  std::int64_t out_stride = 0;
};

void decode_rows_float32(const CudaLaunch& launch, DataType dtype,
                         const DecodeRowsParameters& parameters);
// Columns up to out_stride that the matrix has not become zeros.
void decode_rows_bfloat16(const CudaLaunch& launch, DataType dtype,
                          const DecodeRowsParameters& parameters);

// out[i] = in[i], rounded to bfloat16.
void round_to_bfloat16_cuda(const CudaLaunch& launch, const float* in, std::int64_t count,
                            void* out);

// Fills a plain part (bfloat16, or float8_e4m3 codes) with about N(0, deviation^2), padding with
// zeros; `scales` (of float8_e4m3, one a row) become `scale`.
void fill_random_rows(const CudaLaunch& launch, const DeviceMatrixPart& part, std::int64_t columns,
                      float deviation, float scale, std::uint64_t seed);

}  // namespace octet
