// Takes any bytes for a model: a GGUF file where they begin as one, else the config.json of a
// Hugging Face folder, behind a letter that picks one of three folders of good weights. What loads
// reads a few tokens. The only other way out is an Error of the two kinds that load_model promises,
// with one line that names the file.
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <unistd.h>

#include "core/error.h"
#include "engine/engine.h"
#include "models/model.h"
#include "support/safetensors_writer.h"

namespace octet {
namespace {

constexpr std::size_t longest_message = 1500;
constexpr std::string_view gguf_name = "fuzz.gguf";

void check(bool holds) {
  if (!holds) __builtin_trap();
}

void check_error(const Error& error) {
  check(error.kind() == ErrorKind::bad_input || error.kind() == ErrorKind::unsupported);
  const std::string_view message = error.what();
  check(message.find('\n') == std::string_view::npos);
  check(message.size() < longest_message);
}

template <typename Call>
void attempt(std::string_view file, Call call) {
  try {
    call();
  } catch (const Error& error) {
    check_error(error);
    check(std::string_view(error.what()).starts_with(file));
  }
}

// Logits may be any numbers, and infinite: the sanitizer watches how they are made.
void read_tokens(std::shared_ptr<Model> model) {
  const std::array<TokenId, 5> tokens = {0, 0, 0, 0, 0};
  EngineOptions options;
  options.cache.dtype = "int8:fp8";
  options.max_model_len = tokens.size();
  options.threads = 1;
  EngineCore core(std::move(model), options);
  BlockTable blocks(core.pool());
  check(blocks.grow_to(tokens.size()));
  RunnerRows rows;
  rows.blocks = &blocks;
  rows.tokens = tokens;
  core.runner().run({&rows, 1});
}

void use(const Checkpoint& checkpoint) {
  LoadOptions options;
  options.max_positions = 64;
  std::shared_ptr<Model> model;
  attempt(checkpoint.path(), [&] { model = load_model(checkpoint, options); });
  if (model == nullptr) return;
  try {
    read_tokens(std::move(model));
  } catch (const Error& error) {
    check_error(error);  // a context too short for the tokens
  }
}

// One layer, two query heads and one KV head of 8, in the names of transformers.
SafetensorsWriter weights(char family) {
  constexpr std::int64_t hidden = 16;
  constexpr std::int64_t head_dim = 8;
  SafetensorsWriter writer;
  const auto add = [&](const std::string& name, const std::vector<std::int64_t>& shape) {
    std::size_t elements = 1;
    for (const std::int64_t extent : shape) elements *= static_cast<std::size_t>(extent);
    writer.add("model." + name + ".weight", "F32", shape,
               bytes_of(std::vector<float>(elements, 0.25f)));
  };
  const std::string layer = "layers.0.";
  add("embed_tokens", {4, hidden});
  add("norm", {hidden});
  for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
    add(layer + norm, {hidden});
  add(layer + "self_attn.q_proj", {2 * head_dim, hidden});
  add(layer + "self_attn.k_proj", {head_dim, hidden});
  add(layer + "self_attn.v_proj", {head_dim, hidden});
  add(layer + "self_attn.o_proj", {hidden, 2 * head_dim});
  add(layer + "mlp.gate_proj", {hidden, hidden});
  add(layer + "mlp.up_proj", {hidden, hidden});
  add(layer + "mlp.down_proj", {hidden, hidden});
  if (family == 'g') {
    for (const char* norm : {"pre_feedforward_layernorm", "post_feedforward_layernorm"}) {
      add(layer + norm, {hidden});
    }
    for (const char* norm : {"q_norm", "k_norm"}) add(layer + "self_attn." + norm, {head_dim});
  }
  if (family == 'q') {
    for (const auto& [name, width] :
         {std::pair("q", 2 * head_dim), {"k", head_dim}, {"v", head_dim}}) {
      writer.add("model.layers.0.self_attn." + std::string(name) + "_proj.bias", "F32", {width},
                 bytes_of(std::vector<float>(static_cast<std::size_t>(width), 0.25f)));
    }
  }
  return writer;
}

// A folder of the family for each process, for several may run at once; removed at its end.
class Folder {
 public:
  explicit Folder(char family)
      : path_(std::filesystem::temp_directory_path() /
              ("octet_model_fuzz." + std::to_string(::getpid()) + "." + family)) {
    std::filesystem::create_directories(path_);
    weights(family).write(path_ + "/model.safetensors");
  }
  ~Folder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  void try_config(std::string_view text) const {
    write_file(path_ + "/config.json", text);
    Checkpoint checkpoint;
    attempt(path_, [&] { checkpoint = Checkpoint::open(path_); });
    if (checkpoint.folder != nullptr) use(checkpoint);
  }

 private:
  std::string path_;
};

}  // namespace
}  // namespace octet

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const octet::Folder llama('l');
  static const octet::Folder qwen2('q');
  static const octet::Folder gemma3('g');
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (text.starts_with("GGUF")) {
    const auto* first = reinterpret_cast<const std::byte*>(data);
    octet::Checkpoint checkpoint;
    octet::attempt(octet::gguf_name, [&] {
      checkpoint =
          octet::GgufFile::from_bytes({first, first + size}, std::string(octet::gguf_name));
    });
    if (checkpoint.gguf != nullptr) octet::use(checkpoint);
  } else if (!text.empty()) {
    const octet::Folder& folder = text[0] == 'q' ? qwen2 : text[0] == 'g' ? gemma3 : llama;
    folder.try_config(text.substr(1));
  }
  return 0;
}
