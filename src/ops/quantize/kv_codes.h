// A row of keys or values as 8-bit codes, one table per instruction set; all give the same codes
// and counts. Internal to src/ops/quantize; kv_write.h says how rows are rounded.
#pragma once

#include <cstdint>

#include "core/instruction_set.h"
#include "ops/quantize/kv_write_counters.h"

namespace octet {

struct KvCodeKernels {
  // The largest magnitude among the finite elements, 0 where there is none. `non_finite` grows by
  // the number of the others.
  float (*largest_finite)(const float* row, int elements, std::int64_t* non_finite);
  // e4m3 of row[i] / scale. `counts` grows by those that saturate and those that are subnormal.
  void (*to_fp8)(const float* row, int elements, float scale, std::uint8_t* codes,
                 KvWriteCounts* counts);
  // int8 of row[i] / scale, in two's complement.
  void (*to_int8)(const float* row, int elements, float scale, std::uint8_t* codes);
};

const KvCodeKernels& kv_code_kernels(InstructionSet set);

const KvCodeKernels& kv_code_kernels_portable();
// x86-64 builds alone (ops/cpu/dispatch.h):
const KvCodeKernels& kv_code_kernels_avx2();

}  // namespace octet
