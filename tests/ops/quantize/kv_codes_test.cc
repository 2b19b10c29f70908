// Every instruction set rounds to the same codes and counts the same; kv_write_test.cc holds the
// portable kernels to their definition.
#include "ops/quantize/kv_codes.h"

#include <bit>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "core/instruction_set.h"

namespace octet {
namespace {

struct Coded {
  std::vector<std::uint8_t> fp8;
  std::vector<std::uint8_t> int8;
  float largest = 0;
  std::int64_t non_finite = 0;
  KvWriteCounts counts;
};

Coded code(const KvCodeKernels& kernels, const std::vector<float>& row, float scale) {
  Coded coded;
  const auto count = static_cast<int>(row.size());
  coded.fp8.assign(row.size() + 1, 0xAA);
  coded.int8 = coded.fp8;
  kernels.to_fp8(row.data(), count, scale, coded.fp8.data(), &coded.counts);
  kernels.to_int8(row.data(), count, scale, coded.int8.data());
  coded.largest = kernels.largest_finite(row.data(), count, &coded.non_finite);
  return coded;
}

void expect_same(InstructionSet set, const std::vector<float>& row, float scale) {
  const Coded expected = code(kv_code_kernels_portable(), row, scale);
  const Coded got = code(kv_code_kernels(set), row, scale);
  ASSERT_EQ(got.fp8, expected.fp8) << "scale " << scale << ", first element " << row.at(0);
  ASSERT_EQ(got.int8, expected.int8) << "scale " << scale << ", first element " << row.at(0);
  ASSERT_EQ(got.largest, expected.largest);
  ASSERT_EQ(got.non_finite, expected.non_finite);
  ASSERT_EQ(got.counts.saturated, expected.counts.saturated);
  ASSERT_EQ(got.counts.subnormal, expected.counts.subnormal);
}

// All signs and exponents, and mantissas on, just below and just above each tie of e4m3: zeros,
// subnormals, infinities and NaNs are among them.
TEST(KvCodes, AreThePortableOnesForEveryExponentAndTie) {
  for (const InstructionSet set : available_instruction_sets()) {
    std::vector<float> row;
    for (std::uint32_t top = 0; top < 0x2000u; ++top) {
      for (const std::uint32_t low : {0u, 1u, 0x3FFFFu, 0x40000u, 0x40001u, 0x7FFFFu}) {
        row.push_back(std::bit_cast<float>((top << 19) | low));
        if (row.size() == 256) {
          for (const float scale : {1.0f, 0.37f, 3e-5f, 0x1p-126f, 1e30f}) {
            expect_same(set, row, scale);
          }
          row.clear();
        }
      }
    }
  }
}

TEST(KvCodes, ARowMayHaveAnyLength) {
  for (const InstructionSet set : available_instruction_sets()) {
    for (std::size_t length = 1; length <= 40; ++length) {
      std::vector<float> row;
      for (std::size_t i = 0; i < length; ++i) {
        row.push_back(std::sin(static_cast<float>(i * i + length)) * 300.0f);
      }
      row[length - 1] = length % 3 == 0 ? std::nanf("") : 500.0f;
      expect_same(set, row, 0.9f);
    }
  }
}

}  // namespace
}  // namespace octet
