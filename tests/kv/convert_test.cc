#include "kv/convert.h"

#include <cstring>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "core/error.h"
#include "kv/element_order.h"

namespace octet {
namespace {

KvLayerPolicy policy_of(const char* dtype) {
  return make_kv_policy({.dtype = dtype, .scales = "auto"}, 1).layers[0];
}

std::vector<std::byte> random_bytes(std::size_t count) {
  std::mt19937 random(5);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 0xFF);
  return bytes;
}

TEST(Convert, ThereAndBackIsTheSameBytesAndEveryElementHasItsPlace) {
  for (const char* dtype : {"fp8", "int8:fp8", "bfloat16", "float16:fp8", "fp8:bfloat16"}) {
    for (const int head_dim : {32, 64, 96, 128, 192, 256, 512}) {
      const KvRunLayout cpu = make_run_layout(policy_of(dtype), head_dim);
      const KvRunLayout sm90 = make_run_layout(policy_of(dtype), head_dim, KvTarget::sm90);
      ASSERT_EQ(cpu.bytes, sm90.bytes);
      const std::vector<std::byte> run = random_bytes(cpu.bytes);
      std::vector<std::byte> moved(cpu.bytes, std::byte{0xAB});
      std::vector<std::byte> back(cpu.bytes, std::byte{0xCD});
      convert_run(cpu, run.data(), sm90, moved.data());
      convert_run(sm90, moved.data(), cpu, back.data());
      EXPECT_EQ(run, back) << dtype << " " << head_dim;
      EXPECT_NE(run, moved) << dtype << " " << head_dim;

      std::set<std::size_t> places;
      for (int token = 0; token < page_tokens; ++token) {
        for (int i = 0; i < head_dim; ++i) {
          places.insert(element_offset(sm90.value_order, 1, head_dim, token, i));
        }
      }
      EXPECT_EQ(places.size(), static_cast<std::size_t>(page_tokens * head_dim));
      EXPECT_EQ(*places.rbegin(), static_cast<std::size_t>(page_tokens * head_dim - 1));
    }
  }
}

// Places worked out by hand from the PTX ISA's figures of the swizzles.
TEST(Convert, KnownPlaces) {
  // 128 bytes: row 3's first 16-byte piece lies at piece 3, its piece 5 at 5 ^ 3 = 6.
  EXPECT_EQ(element_offset(KvOrder::swizzled_rows, 1, 128, 3, 0), 3u * 128 + 3 * 16);
  EXPECT_EQ(element_offset(KvOrder::swizzled_rows, 1, 128, 3, 5 * 16 + 7), 3u * 128 + 6 * 16 + 7);
  // The second panel of a head of 256, row 8: the pattern repeats every eight rows.
  EXPECT_EQ(element_offset(KvOrder::swizzled_rows, 1, 256, 8, 128), 64u * 128 + 8 * 128);
  // Two bytes an element: dimension 64 of a row of 128 opens the second panel.
  EXPECT_EQ(element_offset(KvOrder::swizzled_rows, 2, 128, 1, 64), 64u * 128 + 128 + 16);
  // 64 bytes: two rows share 128 bytes, so rows 2 and 3 are XORed with 1.
  EXPECT_EQ(element_offset(KvOrder::swizzled_rows, 1, 64, 3, 0), 3u * 64 + 16);
  // 32 bytes: four rows share 128 bytes, so rows 4 to 7 are XORed with 1.
  EXPECT_EQ(element_offset(KvOrder::swizzled_rows, 1, 96, 5, 32), 64u * 32 + 5 * 32 + 16);
  // Transposed: tokens 0 1 8 9 2 3 10 11 ... of a sixteen; dimension 2 is XORed with 1.
  EXPECT_EQ(element_offset(KvOrder::swizzled_transpose, 1, 128, 8, 0), 2u);
  EXPECT_EQ(element_offset(KvOrder::swizzled_transpose, 1, 128, 2, 0), 4u);
  EXPECT_EQ(element_offset(KvOrder::swizzled_transpose, 1, 128, 15, 0), 15u);
  EXPECT_EQ(element_offset(KvOrder::swizzled_transpose, 1, 128, 16 + 9, 2), 2u * 64 + 0 + 3);
}

TEST(Convert, RefusesWhatHasNoOrderThere) {
  EXPECT_THROW(make_run_layout(policy_of("float32"), 128, KvTarget::sm90), Error);
  EXPECT_THROW(make_run_layout(policy_of("fp8"), 80, KvTarget::sm90), Error);
  EXPECT_NO_THROW(make_run_layout(policy_of("bfloat16"), 80, KvTarget::sm90));
  const KvRunLayout fp8 = make_run_layout(policy_of("fp8"), 64);
  const KvRunLayout other = make_run_layout(policy_of("fp8"), 128, KvTarget::sm90);
  EXPECT_THROW(convert_run(fp8, nullptr, other, nullptr), Error);
}

}  // namespace
}  // namespace octet
