#include "kv/page_key.h"

#include <bit>

#include <openssl/evp.h>

#include "core/error.h"

namespace octet {

// Fetched and allocated once: OpenSSL 3 takes longer to look SHA-256 up than to hash a page.
struct PageHasher::Context {
  EVP_MD* algorithm = nullptr;
  EVP_MD_CTX* state = nullptr;
  ~Context() {
    EVP_MD_CTX_free(state);
    EVP_MD_free(algorithm);
  }
};

namespace {

void require(bool worked) {
  if (!worked) throw_error(ErrorKind::internal, "OpenSSL cannot compute SHA-256");
}

}  // namespace

PageHasher::PageHasher() : context_(std::make_unique<Context>()) {
  context_->algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  context_->state = EVP_MD_CTX_new();
  require(context_->algorithm != nullptr && context_->state != nullptr);
}

PageHasher::~PageHasher() = default;

void PageHasher::begin() {
  require(EVP_DigestInit_ex2(context_->state, context_->algorithm, nullptr) == 1);
}

void PageHasher::add(const void* bytes, std::size_t size) {
  require(EVP_DigestUpdate(context_->state, bytes, size) == 1);
}

PageKey PageHasher::finish() {
  PageKey key;
  unsigned size = 0;
  require(EVP_DigestFinal_ex(context_->state, reinterpret_cast<unsigned char*>(key.bytes.data()),
                             &size) == 1 &&
          size == key.bytes.size());
  return key;
}

PageKey PageHasher::seed(std::string_view model, std::string_view policy, std::string_view salt) {
  begin();
  for (const std::string_view part : {model, policy, salt}) {
    // Its length first, so that no two triples give the same bytes.
    const std::uint64_t size = part.size();
    add(&size, sizeof(size));
    add(part.data(), part.size());
  }
  return finish();
}

PageKey PageHasher::next(const PageKey& previous, std::span<const std::int32_t> tokens) {
  static_assert(std::endian::native == std::endian::little, "keys may be compared across machines");
  begin();
  add(previous.bytes.data(), previous.bytes.size());
  add(tokens.data(), tokens.size_bytes());
  return finish();
}

}  // namespace octet
