#include "files/content_hash.h"

#include <algorithm>
#include <fstream>
#include <memory>
#include <new>

#include <fmt/format.h>
#include <xxhash.h>

#include "core/data_type.h"

namespace octet {

namespace {

class Hasher {
 public:
  Hasher() : state_(XXH3_createState(), XXH3_freeState) {
    if (state_ == nullptr) throw std::bad_alloc();
    XXH3_128bits_reset(state_.get());
  }

  void add(const void* bytes, std::size_t size) { XXH3_128bits_update(state_.get(), bytes, size); }
  // With its length, so that no two lists of texts run together to the same bytes.
  void add_text(std::string_view text) {
    add_number(text.size());
    add(text.data(), text.size());
  }
  void add_number(std::uint64_t number) { add(&number, sizeof(number)); }

  std::string digest() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  }

 private:
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

void add_head_of_file(const std::string& path, Hasher* hasher) {
  constexpr std::size_t most = std::size_t{1} << 20;
  std::ifstream file(path, std::ios::binary);
  std::string head(most, '\0');
  file.read(head.data(), static_cast<std::streamsize>(most));
  head.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  hasher->add_text(head);
}

}  // namespace

std::string model_content_hash(const std::string& header_file,
                               const std::vector<const TensorView*>& tensors) {
  constexpr std::size_t sample = 1024;
  Hasher hasher;
  add_head_of_file(header_file, &hasher);
  for (const TensorView* tensor : tensors) {
    hasher.add_text(tensor->name);
    hasher.add_number(static_cast<std::uint64_t>(tensor->dtype));
    hasher.add_number(tensor->shape.size());
    for (const std::int64_t extent : tensor->shape) {
      hasher.add_number(static_cast<std::uint64_t>(extent));
    }
    hasher.add_number(tensor->bytes);
    const std::size_t size = std::min(sample, tensor->bytes);
    hasher.add(tensor->data, size);
    hasher.add(tensor->data + (tensor->bytes - size) / 2, size);
  }
  return hasher.digest();
}

std::string content_hash(std::span<const std::byte> bytes) {
  Hasher hasher;
  hasher.add(bytes.data(), bytes.size());
  return hasher.digest();
}

}  // namespace octet
