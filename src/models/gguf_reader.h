// Reads a GGUF file for the families (models/model_reader.h).
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "files/gguf.h"
#include "models/model_reader.h"

namespace octet {

class GgufModelReader final : public ModelReader {
 public:
  // `architecture` is the prefix of the family's keys ("llama.block_count").
  GgufModelReader(std::shared_ptr<const GgufFile> file, std::string architecture)
      : file_(std::move(file)), architecture_(std::move(architecture)) {}

  CheckpointFormat format() const override { return CheckpointFormat::gguf; }
  const std::string& path() const override { return file_->path(); }
  std::string label(ConfigKey key) const override;
  std::string model_name() const override;

  bool has(ConfigKey key) override;
  std::optional<std::int64_t> find_integer(ConfigKey key) override;
  std::optional<double> find_number(ConfigKey key) override;

  Activation read_activation(Activation otherwise) override { return otherwise; }
  RopeConfig read_rope(RopeUse use, int head_dim) override;
  std::optional<std::vector<bool>> find_windowed_layers(int layers) override;
  bool ties_embeddings() override { return file_->find_tensor("output.weight") == nullptr; }
  // The tokenizer's keys name them.
  std::vector<std::int32_t> end_tokens() override { return {}; }

  void refuse_unknown_keys() override;
  void refuse_unused_tensors() override;

  std::string tensor_name(TensorRole role, int layer) const override;
  std::optional<TensorView> find_tensor(const std::string& name) override;
  std::shared_ptr<const void> storage() const override { return file_; }

 private:
  // The full key, noted as one that the reader knows.
  std::string key(std::string_view name);
  double read_theta(std::string_view name, double otherwise);
  void read_scaling(RopeConfig* rope, int head_dim);
  void refuse_active_maths();

  std::shared_ptr<const GgufFile> file_;
  std::string architecture_;
  std::set<std::string, std::less<>> asked_;  // names of tensors
  std::set<std::string, std::less<>> known_keys_;
};

}  // namespace octet
