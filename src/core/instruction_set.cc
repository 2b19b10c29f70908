#include "core/instruction_set.h"

#include <fmt/ranges.h>

#include "core/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace octet {

#if defined(__x86_64__)
namespace {

// Asked of the CPU itself: clang 14 knows no "f16c" in __builtin_cpu_supports. Whether the system
// saves the wide registers is what "avx2" there answers for both.
bool cpu_has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

}  // namespace
#endif

std::vector<InstructionSet> available_instruction_sets() {
  std::vector<InstructionSet> sets = {InstructionSet::portable};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && cpu_has_f16c()) {
    sets.push_back(InstructionSet::avx2);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
      sets.push_back(InstructionSet::avx512);
      if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vbmi") &&
          __builtin_cpu_supports("avx512vnni")) {
        sets.push_back(InstructionSet::avx512_bf16);
      }
    }
  }
#endif
  return sets;
}

bool prefers_bfloat16() {
#if defined(__x86_64__)
  static const bool prefers =
      detect_instruction_set() == InstructionSet::avx512_bf16 && __builtin_cpu_is("amd");
  return prefers;
#else
  return false;
#endif
}

InstructionSet detect_instruction_set() { return available_instruction_sets().back(); }

std::string_view name_of(InstructionSet set) {
  switch (set) {
    case InstructionSet::portable:
      return "portable";
    case InstructionSet::avx2:
      return "avx2";
    case InstructionSet::avx512:
      return "avx512";
    case InstructionSet::avx512_bf16:
      return "avx512_bf16";
  }
  return "?";
}

InstructionSet parse_instruction_set(std::string_view name) {
  if (name == "auto") return detect_instruction_set();
  std::vector<std::string_view> valid = {"auto"};
  for (const InstructionSet set : available_instruction_sets()) {
    if (name_of(set) == name) return set;
    valid.push_back(name_of(set));
  }
  if (name == "avx2" || name == "avx512" || name == "avx512_bf16") {
    throw_unsupported("--instruction-set {}: this machine or build has only {}", name,
                      fmt::join(valid, ", "));
  }
  throw_bad_input("--instruction-set {}: expected one of {}", name, fmt::join(valid, ", "));
}

}  // namespace octet
