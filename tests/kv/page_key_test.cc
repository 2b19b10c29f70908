#include "kv/page_key.h"

#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace octet {
namespace {

std::string hex(const PageKey& key) {
  std::string text;
  for (const std::byte byte : key.bytes) {
    fmt::format_to(std::back_inserter(text), "{:02x}", static_cast<unsigned>(byte));
  }
  return text;
}

// By Python's hashlib: sha256 of each part's length (u64, little-endian) and bytes; then of that
// and the tokens 0 to 63 (i32, little-endian).
TEST(PageKey, IsTheSha256OfItsDefinition) {
  PageHasher hasher;
  const PageKey seed = hasher.seed("model", "policy", "salt");
  EXPECT_EQ(hex(seed), "cef1e1163f0a350392a000cd3bb0f2338bf1fb844c1a06833f85ca2341e37eda");
  std::vector<std::int32_t> tokens(64);
  std::iota(tokens.begin(), tokens.end(), 0);
  EXPECT_EQ(hex(hasher.next(seed, tokens)),
            "967530d89664ae12a7cc65c149a43bdcc6c4caa35e2745199cbe654157de8751");
}

TEST(PageKey, EveryPartOfTheSeedMattersAndNoneRunsIntoAnother) {
  PageHasher hasher;
  const std::vector<PageKey> seeds = {
      hasher.seed("model", "fp8", ""),       hasher.seed("model", "int8", ""),
      hasher.seed("other", "fp8", ""),       hasher.seed("model", "fp8", "tenant"),
      hasher.seed("model", "fp", "8tenant"), hasher.seed("modelfp8", "", "")};
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(seeds[i], seeds[j]) << i << ", " << j;
  }
}

TEST(PageKey, DependsOnAllTokensBefore) {
  PageHasher hasher;
  const std::vector<std::int32_t> first(64, 1), other(64, 2), second(64, 3);
  const PageKey seed = hasher.seed("model", "fp8", "");
  EXPECT_EQ(hasher.next(hasher.next(seed, first), second),
            hasher.next(hasher.next(seed, first), second));
  EXPECT_NE(hasher.next(hasher.next(seed, first), second),
            hasher.next(hasher.next(seed, other), second));
}

}  // namespace
}  // namespace octet
