// Reads a family's configuration and weights from a GGUF file, with errors that name the culprit.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor_view.h"
#include "files/gguf.h"
#include "models/model_config.h"

namespace octet {

class GgufModelReader {
 public:
  // `architecture` is the prefix of the family's keys ("llama.block_count").
  GgufModelReader(std::shared_ptr<const GgufFile> file, std::string architecture)
      : file_(std::move(file)), architecture_(std::move(architecture)) {}

  // The geometry that the families of dense decoders share. Every value is checked: heads that
  // divide, a head_dim that the ops take, finite positive constants.
  ModelConfig read_config() const;

  // The tensor `name` with exactly this shape, outermost dimension first.
  const TensorView& tensor(std::string_view name, const std::vector<std::int64_t>& shape) const;
  const TensorView* find_tensor(std::string_view name,
                                const std::vector<std::int64_t>& shape) const;
  // A vector, decoded: norms and biases.
  std::vector<float> vector(std::string_view name, std::int64_t length) const;

  // Throws Error{unsupported} that names a tensor which nothing above asked for: a weight that the
  // family does not apply would be silently wrong answers.
  void refuse_unused_tensors() const;

  const GgufFile& file() const { return *file_; }
  const std::shared_ptr<const GgufFile>& shared_file() const { return file_; }

 private:
  // The full key, noted as one that the reader knows.
  std::string key(std::string_view name) const;
  void refuse_unknown_keys() const;
  int read_count(std::string_view name, std::int64_t largest) const;
  void refuse_unknown_rope() const;
  void refuse_unknown_geometry() const;

  std::shared_ptr<const GgufFile> file_;
  std::string architecture_;
  mutable std::set<std::string, std::less<>> asked_;  // names of tensors
  mutable std::set<std::string, std::less<>> known_keys_;
};

}  // namespace octet
