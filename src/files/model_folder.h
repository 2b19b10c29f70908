// A model as Hugging Face's tools keep it: a folder of configuration, tokenizer and safetensors
// files.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/json_value.h"
#include "files/safetensors.h"
#include "files/weight_quantization.h"

namespace octet {

// A text file of the folder; `file` is its path, for errors.
struct FolderText {
  std::string file;
  std::string text;
};

// Which file counts where several say the same:
//   weights: "model.safetensors", else "model.safetensors.index.json" and the files that it names,
//     as transformers chooses; "consolidated.safetensors", pickles (*.bin) and GGUF files are never
//     read;
//   chat template: "chat_template.jinja" before the "chat_template" of tokenizer_config.json, as in
//     transformers: that choice is the text layer's;
//   quantisation: "quantization_config" of config.json before hf_quant_config.json.
class ModelFolder {
 public:
  // Whether `path` is a directory, which only open() can say more about.
  static bool is_folder(const std::string& path);

  // Needs config.json and weights; all else may be missing. Checks config.json,
  // generation_config.json, hf_quant_config.json and the headers of the weights. Throws
  // Error{bad_input} with one sentence that names the file at fault, or Error{unsupported} for
  // weights that are quantised in a way that octet does not read.
  static std::shared_ptr<const ModelFolder> open(const std::string& path);
  // The same without the weights, which need not be there: tensors() is empty.
  static std::shared_ptr<const ModelFolder> open_geometry(const std::string& path);

  const std::string& path() const { return path_; }
  const JsonValue& config() const { return config_; }
  const std::optional<JsonValue>& generation_config() const { return generation_config_; }
  // ModelOpt's own file.
  const std::optional<JsonValue>& quantization_file() const { return quantization_file_; }
  const Safetensors& tensors() const { return *tensors_; }
  const WeightQuantization& quantization() const { return quantization_; }

  // A tensor by name, an FP8 weight with its scales (files/weight_quantization.h); a missing one is
  // nothing, or an Error{bad_input}.
  std::optional<StoredWeight> find_weight(std::string_view name) const;
  StoredWeight require_weight(std::string_view name) const;

  // Read anew at each call; nothing where the folder has no such file. Throws Error{bad_input} for
  // a text that is larger than any real one or not valid UTF-8.
  std::optional<FolderText> tokenizer() const;         // tokenizer.json
  std::optional<FolderText> tokenizer_config() const;  // tokenizer_config.json
  std::optional<FolderText> chat_template() const;     // chat_template.jinja

 private:
  ModelFolder(std::string path, JsonValue config);
  static std::shared_ptr<ModelFolder> read_configuration(const std::string& path);

  std::string path_;
  JsonValue config_;
  std::optional<JsonValue> generation_config_;
  std::optional<JsonValue> quantization_file_;
  WeightQuantization quantization_;
  std::shared_ptr<const Safetensors> tensors_;
};

}  // namespace octet
