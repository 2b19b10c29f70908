// Opens any bytes as a safetensors file and reads all that it then offers. The only way out other
// than success is an Error of the two kinds that Safetensors promises, with one line that names the
// file.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "files/block_decode.h"
#include "files/safetensors.h"

namespace octet {
namespace {

constexpr std::string_view file_name = "fuzz.safetensors";
constexpr std::size_t longest_message = 1000;

void check(bool holds) {
  if (!holds) __builtin_trap();
}

template <typename Call>
void attempt(Call call) {
  try {
    call();
  } catch (const Error& error) {
    check(error.kind() == ErrorKind::bad_input || error.kind() == ErrorKind::unsupported);
    const std::string_view message = error.what();
    check(message.starts_with(file_name));
    check(message.find('\n') == std::string_view::npos);
    check(message.size() < longest_message);
  }
}

void read_tensors(const Safetensors& file) {
  std::size_t bytes = 0;
  for (const StoredTensor& tensor : file.tensors()) {
    check(file.find_stored(tensor.view.name) == &tensor);
    check(file.file_of(tensor) == file_name);
    bytes += tensor.view.bytes;
    unsigned sum = 0;  // reads every byte, for the sanitizer to see
    for (std::size_t i = 0; i < tensor.view.bytes; ++i) {
      sum += std::to_integer<unsigned>(tensor.view.data[i]);
    }
    check(sum <= 255u * tensor.view.bytes);
    if (!tensor.dtype) {
      attempt([&] { file.find(tensor.view.name); });
      continue;
    }
    check(file.find(tensor.view.name) == &tensor.view);
    std::vector<float> values(static_cast<std::size_t>(tensor.view.elements()));
    decode_blocks(*tensor.dtype, tensor.view.data, values);
  }
  check(bytes < file.file_bytes());
}

}  // namespace
}  // namespace octet

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto* first = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> bytes(first, first + size);
  octet::attempt([&] {
    const auto file =
        octet::Safetensors::from_bytes(std::move(bytes), std::string(octet::file_name));
    octet::read_tensors(*file);
  });
  return 0;
}
