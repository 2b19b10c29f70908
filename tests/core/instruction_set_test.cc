#include "core/instruction_set.h"

#include <algorithm>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "core/error.h"

namespace octet {
namespace {

// Whether the kernel lists `flag` for this machine's CPUs.
bool cpu_has(const std::string& flag) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string word; file >> word;) {
    if (word == flag) return true;
  }
  return false;
}

TEST(InstructionSet, PortableIsAlwaysThereAndFirst) {
  const std::vector<InstructionSet> sets = available_instruction_sets();
  ASSERT_FALSE(sets.empty());
  EXPECT_EQ(sets.front(), InstructionSet::portable);
  EXPECT_EQ(sets.back(), detect_instruction_set());
}

TEST(InstructionSet, Avx2IsThereWhereTheKernelSaysSo) {
  const std::vector<InstructionSet> sets = available_instruction_sets();
  const bool found = std::find(sets.begin(), sets.end(), InstructionSet::avx2) != sets.end();
  EXPECT_EQ(found, cpu_has("avx2") && cpu_has("fma") && cpu_has("f16c"));
}

TEST(InstructionSet, Avx512IsThereWhereTheKernelSaysSo) {
  const std::vector<InstructionSet> sets = available_instruction_sets();
  const auto found = [&sets](InstructionSet set) {
    return std::find(sets.begin(), sets.end(), set) != sets.end();
  };
  const bool avx512 = found(InstructionSet::avx2) && cpu_has("avx512f") && cpu_has("avx512bw") &&
                      cpu_has("avx512dq") && cpu_has("avx512vl");
  EXPECT_EQ(found(InstructionSet::avx512), avx512);
  EXPECT_EQ(found(InstructionSet::avx512_bf16),
            avx512 && cpu_has("avx512_bf16") && cpu_has("avx512vbmi") && cpu_has("avx512_vnni"));
}

TEST(InstructionSet, NamesParseBack) {
  EXPECT_EQ(name_of(InstructionSet::portable), "portable");
  EXPECT_EQ(name_of(InstructionSet::avx2), "avx2");
  EXPECT_EQ(name_of(InstructionSet::avx512), "avx512");
  EXPECT_EQ(name_of(InstructionSet::avx512_bf16), "avx512_bf16");
  for (const InstructionSet set : available_instruction_sets()) {
    EXPECT_EQ(parse_instruction_set(name_of(set)), set);
  }
  EXPECT_EQ(parse_instruction_set("auto"), detect_instruction_set());
}

TEST(InstructionSet, AnUnknownNameIsRefusedWithTheValidOnes) {
  for (const std::string name : {"avx3", "", "AVX2", "portable "}) {
    try {
      parse_instruction_set(name);
      FAIL() << "accepted '" << name << "'";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input);
      const std::string message = error.what();
      EXPECT_NE(message.find("--instruction-set " + name), std::string::npos) << message;
      EXPECT_NE(message.find("auto, portable"), std::string::npos) << message;
    }
  }
}

}  // namespace
}  // namespace octet
