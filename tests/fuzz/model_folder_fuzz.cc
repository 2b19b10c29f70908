// Takes any bytes for the texts of a Hugging Face folder: config.json, generation_config.json,
// hf_quant_config.json and the index of the weights, parted by bytes of 0xFF. The weights are two
// small good files. The only way out other than success is an Error of the two kinds that
// ModelFolder promises, with one line that names a file of the folder.
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <unistd.h>

#include "core/error.h"
#include "files/block_decode.h"
#include "files/model_folder.h"

namespace octet {
namespace {

constexpr std::size_t longest_message = 1500;
constexpr std::array<const char*, 4> text_files = {"config.json", "generation_config.json",
                                                   "hf_quant_config.json",
                                                   "model.safetensors.index.json"};

void check(bool holds) {
  if (!holds) __builtin_trap();
}

void write_file(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  check(static_cast<bool>(file.flush()));
}

std::string safetensors_file(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
  return file + header + std::string(data_bytes, '\x38');
}

// A folder for each process, for several may run at once; removed at its end.
class Folder {
 public:
  Folder()
      : path_(std::filesystem::temp_directory_path() /
              ("octet_model_folder_fuzz." + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path_);
    write_file(path_ + "/1.safetensors",
               safetensors_file(
                   R"({"a.weight":{"dtype":"F8_E4M3","shape":[4,64],"data_offsets":[0,256]},)"
                   R"("a.weight_scale":{"dtype":"F32","shape":[1],"data_offsets":[256,260]},)"
                   R"("b.weight":{"dtype":"F8_E4M3","shape":[2,32],"data_offsets":[260,324]},)"
                   R"("b.weight_scale":{"dtype":"BF16","shape":[2,1],"data_offsets":[324,328]}})",
                   328));
    write_file(
        path_ + "/2.safetensors",
        safetensors_file(R"({"c.weight":{"dtype":"F8_E4M3","shape":[3,64],"data_offsets":[0,192]},)"
                         R"("c.weight_scale_inv":{"dtype":"F8_E8M0","shape":[2,2],)"
                         R"("data_offsets":[192,196]},)"
                         R"("d":{"dtype":"I64","shape":[],"data_offsets":[196,204]}})",
                         204));
  }
  ~Folder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

template <typename Call>
void attempt(const std::string& folder, Call call) {
  try {
    call();
  } catch (const Error& error) {
    check(error.kind() == ErrorKind::bad_input || error.kind() == ErrorKind::unsupported);
    const std::string_view message = error.what();
    check(message.starts_with(folder));
    check(message.find('\n') == std::string_view::npos);
    check(message.size() < longest_message);
  }
}

// Reads each value as everything that it may be taken for.
void read_value(const std::string& folder, const JsonValue& value) {
  attempt(folder, [&] { value.as_bool(); });
  attempt(folder, [&] { value.as_integer(); });
  attempt(folder, [&] { value.as_uint(); });
  attempt(folder, [&] { value.as_float(); });
  attempt(folder, [&] { value.as_strings(); });
  attempt(folder, [&] { value.as_integers(); });
  attempt(folder, [&] { value.as_floats(); });
  attempt(folder, [&] { value.refuse_keys_other_than({"a"}); });
  if (value.kind() == JsonKind::array) {
    for (std::size_t i = 0; i < value.size(); ++i) read_value(folder, value.at(i));
  }
  if (value.kind() == JsonKind::object) {
    for (const std::string& key : value.keys()) {
      if (const auto member = value.find(key)) read_value(folder, *member);
    }
  }
}

void read_folder(const std::string& path) {
  const auto folder = ModelFolder::open(path);
  read_value(path, folder->config());
  if (folder->generation_config()) read_value(path, *folder->generation_config());
  for (const StoredTensor& tensor : folder->tensors().tensors()) {
    attempt(path, [&] {
      const StoredWeight weight = folder->require_weight(tensor.view.name);
      if (weight.tensor.shape.size() != 2) return;
      std::vector<float> row(static_cast<std::size_t>(weight.tensor.shape[1]));
      decode_row(weight.tensor, weight.tensor.shape[0] - 1, row);
    });
  }
}

}  // namespace
}  // namespace octet

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const octet::Folder own_folder;
  const std::string& folder = own_folder.path();
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  for (const char* name : octet::text_files) {
    const std::string path = folder + "/" + name;
    const std::size_t end = rest.find('\xFF');
    const std::string_view text = rest.substr(0, end);
    rest = end == rest.npos ? std::string_view() : rest.substr(end + 1);
    if (text.empty()) {
      std::filesystem::remove(path);
    } else {
      octet::write_file(path, text);
    }
  }
  octet::attempt(folder, [&] { octet::read_folder(folder); });
  return 0;
}
