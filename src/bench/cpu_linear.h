// How fast matrices of quantised weights are on the CPU, by type and number of rows.
#pragma once

#include <cstdint>

#include "core/data_type.h"
#include "ops/context.h"

namespace octet {

struct CpuLinearFigure {
  DataType dtype = DataType::float32;
  std::int64_t rows = 0;
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
  double seconds = 0;   // of one call: the median
  double gb_per_s = 0;  // packed weights, 1e9 bytes a second
  double gflops = 0;    // 2 for each row, output and input, 1e9 a second
};

// `rows` rows times a matrix of random weights, which comes from memory: calls go through copies of
// it that together are larger than the CPU's caches, as those of a step go through its layers.
// Types as stored in blocks; throws Error{bad_input} for a shape without whole blocks.
CpuLinearFigure bench_cpu_linear(const OpContext& context, DataType dtype, std::int64_t rows,
                                 std::int64_t outputs, std::int64_t inputs);

}  // namespace octet
