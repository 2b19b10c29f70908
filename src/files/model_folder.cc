#include "files/model_folder.h"

#include <array>
#include <cstddef>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/printable.h"
#include "files/mapped_file.h"

namespace octet {

namespace {

namespace fs = std::filesystem;

// Several times the largest real ones: gemma-3's tokenizer.json has 33 MB.
constexpr std::size_t max_tokenizer_bytes = std::size_t{256} << 20;
constexpr std::size_t max_configuration_bytes = std::size_t{16} << 20;
constexpr std::size_t max_template_bytes = std::size_t{4} << 20;

constexpr const char* single_file = "model.safetensors";
constexpr const char* index_file = "model.safetensors.index.json";

std::string in_folder(const std::string& folder, const std::string& name) {
  return folder.ends_with('/') ? folder + name : folder + "/" + name;
}

// A link that leads nowhere exists, so that opening it names it.
bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

std::optional<FolderText> find_text(const std::string& folder, const std::string& name,
                                    std::size_t max_bytes) {
  const std::string path = in_folder(folder, name);
  if (!exists(path)) return std::nullopt;
  const MappedFile mapping(path);
  const std::span<const std::byte> bytes = mapping.bytes();
  if (bytes.size() > max_bytes) {
    throw_bad_input("{}: has {} bytes, expected at most {}", path, bytes.size(), max_bytes);
  }
  FolderText text = {path, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())};
  if (!is_valid_utf8(text.text)) throw_bad_input("{}: is not valid UTF-8", path);
  return text;
}

std::optional<JsonValue> find_json(const std::string& folder, const std::string& name) {
  const std::optional<FolderText> text = find_text(folder, name, max_configuration_bytes);
  if (!text) return std::nullopt;
  JsonValue value = JsonValue::parse(text->text, text->file);
  if (value.kind() != JsonKind::object) throw_bad_input("{}: expected a JSON object", text->file);
  return value;
}

bool has_file_ending(const std::string& folder, std::string_view ending) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().native().ends_with(ending)) return true;
  }
  return false;
}

[[noreturn]] void fail_without_weights(const std::string& folder) {
  std::string_view hint;
  if (has_file_ending(folder, ".gguf")) {
    hint = " (it holds GGUF files: name one of these instead)";
  } else if (has_file_ending(folder, ".bin") || has_file_ending(folder, ".pth")) {
    hint = " (its *.bin and *.pth files are pickles, which can run code: convert them)";
  }
  throw_bad_input("{}: holds neither {} nor {}{}", folder, single_file, index_file, hint);
}

std::shared_ptr<const Safetensors> open_weights(const std::string& folder) {
  if (const std::string path = in_folder(folder, single_file); exists(path)) {
    return Safetensors::open_file(path);
  }
  if (const std::string path = in_folder(folder, index_file); exists(path)) {
    return Safetensors::open_index(path);
  }
  fail_without_weights(folder);
}

}  // namespace

ModelFolder::ModelFolder(std::string path, JsonValue config)
    : path_(std::move(path)), config_(std::move(config)) {}

bool ModelFolder::is_folder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

std::shared_ptr<ModelFolder> ModelFolder::read_configuration(const std::string& path) {
  if (!is_folder(path)) throw_bad_input("{}: is no folder, expected one with a model", path);
  std::optional<JsonValue> config = find_json(path, "config.json");
  if (!config) throw_bad_input("{}: holds no config.json, expected a model", path);
  std::shared_ptr<ModelFolder> folder(new ModelFolder(path, *std::move(config)));
  folder->generation_config_ = find_json(path, "generation_config.json");
  folder->quantization_file_ = find_json(path, "hf_quant_config.json");
  folder->quantization_ = WeightQuantization::read(folder->config_, folder->quantization_file_);
  return folder;
}

std::shared_ptr<const ModelFolder> ModelFolder::open(const std::string& path) {
  std::shared_ptr<ModelFolder> folder = read_configuration(path);
  folder->tensors_ = open_weights(path);
  return folder;
}

std::shared_ptr<const ModelFolder> ModelFolder::open_geometry(const std::string& path) {
  std::shared_ptr<ModelFolder> folder = read_configuration(path);
  // A safetensors file without tensors: the header's length, and an empty header.
  constexpr std::array<unsigned char, 10> no_tensors = {2, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
  const std::span<const std::byte> bytes = std::as_bytes(std::span(no_tensors));
  folder->tensors_ = Safetensors::from_bytes({bytes.begin(), bytes.end()}, folder->config_.file());
  return folder;
}

std::optional<StoredWeight> ModelFolder::find_weight(std::string_view name) const {
  return quantization_.find(*tensors_, name);
}

StoredWeight ModelFolder::require_weight(std::string_view name) const {
  std::optional<StoredWeight> weight = find_weight(name);
  if (!weight) throw_bad_input("{}: tensor {} is missing", tensors_->path(), printable(name));
  return *std::move(weight);
}

std::optional<FolderText> ModelFolder::tokenizer() const {
  return find_text(path_, "tokenizer.json", max_tokenizer_bytes);
}

std::optional<FolderText> ModelFolder::tokenizer_config() const {
  return find_text(path_, "tokenizer_config.json", max_configuration_bytes);
}

std::optional<FolderText> ModelFolder::chat_template() const {
  return find_text(path_, "chat_template.jinja", max_template_bytes);
}

}  // namespace octet
