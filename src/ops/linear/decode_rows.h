// Decoding packed rows on the GPU: embedding look-up, and the weights of a prefill. Internal to
// ops/linear.
#pragma once

#include <cstdint>

#include "core/cuda/launch.h"
#include "ops/linear/device_matrix.h"

namespace octet {

struct DecodeRowsParameters {
  const std::uint8_t* weights = nullptr;  // a part's, which `scales` are of as well
  std::int64_t row_bytes = 0;
  DeviceScales scales;
  int columns = 0;
  std::int64_t rows = 0;  // of the output
  void* out = nullptr;
  std::int64_t out_stride = 0;

  // Chosen rows: row i of the output is row row_ids[i] of the matrix, if the part, which has rows
  // first_row to first_row + part_rows - 1, has it. Numbers that no part has (matrix_rows and more)
  // give zeros where zero_others is set. All is multiplied by `scale`.
  const std::int32_t* row_ids = nullptr;
  std::int64_t first_row = 0;
  std::int64_t part_rows = 0;
  std::int64_t matrix_rows = 0;
  bool zero_others = false;
  float scale = 1.0f;

  // All rows from one of the part on, a multiple of 8.
  std::int64_t first_output_row = 0;
};

// Chosen rows, to float32.
void decode_rows_float32(const CudaLaunch& launch, DataType dtype,
                         const DecodeRowsParameters& parameters);
// All rows, to bfloat16; out_stride is at least the columns, rounded up to a multiple of 32, and
// what the matrix has not becomes zeros.
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
