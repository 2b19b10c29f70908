// Which CPU kernels run. Kernels are compiled once per instruction set and picked at run time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace octet {

// Each set has all of the ones before it, so that an operation without kernels of its own for a set
// runs those of an earlier one. NEON, and AMX after avx512_bf16, would be further sets: kernels of
// theirs are files with their suffix, and a line where each operation picks its own.
enum class InstructionSet {
  portable,     // plain C++
  avx2,         // AVX2, FMA and F16C
  avx512,       // and AVX-512 F, BW, DQ and VL
  avx512_bf16,  // and AVX-512 BF16, VBMI and VNNI
};

// The fastest set that this build has and this machine runs.
InstructionSet detect_instruction_set();

// Whether this machine's BF16 dot products are faster than its float32 multiply-adds: on AMD, twice
// (Zen 4: 234 and 117 GFLOPS a core); on an Intel Xeon of 2023 slower (83 and 110).
bool prefers_bfloat16();

// Every set that this build has and this machine runs, slowest first: what tests iterate over.
std::vector<InstructionSet> available_instruction_sets();

// "portable", "avx2", "avx512", "avx512_bf16".
std::string_view name_of(InstructionSet set);

// The set called `name` ("auto": the fastest). Throws Error{bad_input} for an unknown name and
// Error{unsupported} for one that this machine or build does not have; both list the valid names.
InstructionSet parse_instruction_set(std::string_view name);

}  // namespace octet
