// Opens any bytes as a GGUF file and reads all that it then offers. The only way out other than
// success is an Error of the two kinds that GgufFile promises, with one line that names the file.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "files/block_decode.h"
#include "files/gguf.h"

namespace octet {
namespace {

constexpr std::string_view file_name = "fuzz.gguf";
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

void read_metadata(const GgufFile& file) {
  for (const std::string& key : file.keys()) {
    check(file.has(key));
    attempt([&] { file.find_uint(key); });
    attempt([&] { file.find_float(key); });
    attempt([&] { file.find_bool(key); });
    attempt([&] { file.find_string(key); });
    attempt([&] { file.find_strings(key); });
    attempt([&] { file.find_integers(key); });
    attempt([&] { file.find_floats(key); });
  }
}

void read_tensors(const GgufFile& file) {
  for (const TensorView& tensor : file.tensors()) {
    check(file.find_tensor(tensor.name) == &tensor);
    const DataTypeTraits traits = traits_of(tensor.dtype);
    check(tensor.elements() > 0);
    check(tensor.bytes == static_cast<std::uint64_t>(tensor.elements()) / traits.block_elements *
                              traits.block_bytes);
    std::vector<float> block(traits.block_elements);
    decode_blocks(tensor.dtype, tensor.data, block);
    // Every byte of the last block, so that the sanitizer sees the end of the tensor too.
    decode_blocks(tensor.dtype, tensor.data + tensor.bytes - traits.block_bytes, block);
  }
}

}  // namespace
}  // namespace octet

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto* first = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> bytes(first, first + size);
  octet::attempt([&] {
    const auto file = octet::GgufFile::from_bytes(std::move(bytes), std::string(octet::file_name));
    octet::read_metadata(*file);
    octet::read_tensors(*file);
  });
  return 0;
}
