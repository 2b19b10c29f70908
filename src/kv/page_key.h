// The names under which full pages are shared: a chain of SHA-256 over all that their bytes depend
// on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

namespace octet {

// A page's keys and values depend on the model, on how the cache rounds, and on every token up to
// the page's last. A key is a hash of just that: key(page i) = SHA-256(key(page i - 1), the tokens
// of page i), where page 0 follows a seed of model, policy and salt. An attacker who can choose
// prompts must not be able to make two of them collide, hence a cryptographic hash.
struct PageKey {
  std::array<std::byte, 32> bytes{};
  bool operator==(const PageKey&) const = default;
};

struct PageKeyHash {
  std::size_t operator()(const PageKey& key) const {
    std::size_t hash;
    std::memcpy(&hash, key.bytes.data(), sizeof(hash));
    return hash;
  }
};

// Not thread-safe; one for each user. About a microsecond a page.
class PageHasher {
 public:
  PageHasher();
  ~PageHasher();
  PageHasher(const PageHasher&) = delete;
  PageHasher& operator=(const PageHasher&) = delete;

  // Where a chain starts. Only chains with the same three share pages.
  PageKey seed(std::string_view model, std::string_view policy, std::string_view salt);
  PageKey next(const PageKey& previous, std::span<const std::int32_t> tokens);

 private:
  struct Context;
  void begin();
  void add(const void* bytes, std::size_t size);
  PageKey finish();

  std::unique_ptr<Context> context_;
};

}  // namespace octet
