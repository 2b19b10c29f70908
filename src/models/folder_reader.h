// Reads a Hugging Face folder for the families (models/model_reader.h): the keys of config.json,
// the tensors of its safetensors files.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_value.h"
#include "files/model_folder.h"
#include "files/weight_quantization.h"
#include "models/model.h"
#include "models/model_reader.h"

namespace octet {

class FolderModelReader final : public ModelReader {
 public:
  // `family` outlives the reader. Of a model of text and images the text's part is read.
  FolderModelReader(std::shared_ptr<const ModelFolder> folder, const ModelFamily& family);

  CheckpointFormat format() const override { return CheckpointFormat::hugging_face; }
  const std::string& path() const override { return folder_->tensors().path(); }
  std::string label(ConfigKey key) const override;
  std::string model_name() const override;

  bool has(ConfigKey key) override;
  std::optional<std::int64_t> find_integer(ConfigKey key) override;
  std::optional<double> find_number(ConfigKey key) override;

  Activation read_activation(Activation otherwise) override;
  RopeConfig read_rope(RopeUse use, int head_dim) override;
  std::optional<std::vector<bool>> find_windowed_layers(int layers) override;
  bool ties_embeddings() override;
  std::vector<std::int32_t> end_tokens() override;

  void refuse_unknown_keys() override;
  void refuse_unused_tensors() override;

  std::string tensor_name(TensorRole role, int layer) const override;
  std::optional<TensorView> find_tensor(const std::string& name) override;
  std::optional<DataType> made_up_weights() const override { return made_up_; }
  void make_up_weights(DataType dtype) { made_up_ = dtype; }
  std::shared_ptr<const void> storage() const override { return folder_; }

 private:
  // The value of a key of the text's part, noted as one that the reader knows.
  std::optional<JsonValue> find(std::string_view key);
  // What transformers' class of the configuration assumes where the key is missing.
  std::optional<double> default_of(std::string_view key) const;
  std::string find_prefix() const;
  void refuse_active_maths();
  void refuse_windows();
  void refuse_unknown_keys_of(const JsonValue& object) const;

  std::shared_ptr<const ModelFolder> folder_;
  const ModelFamily* family_;
  JsonValue root_;    // config.json
  JsonValue config_;  // its part that describes the text model: all of it, or "text_config"
  WeightQuantization quantization_;
  bool nested_ = false;
  std::string prefix_;  // of the names of tensors: "model.", in some folders more
  bool tied_ = false;
  std::optional<DataType> made_up_;
  std::set<std::string, std::less<>> asked_;  // names of tensors
  std::set<std::string, std::less<>> known_keys_;
};

}  // namespace octet
