// The tensors of a model in safetensors files: one file, or several that an index names;
// memory-mapped.
//
// Source of the format: the safetensors project (README.md and src/tensor.rs there), and the
// sharded index that transformers writes beside such files. Everything in them is hostile input;
// beyond what the format's own library checks, a name that occurs twice is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor_view.h"
#include "files/safetensors_header.h"

namespace octet {

class Safetensors {
 public:
  // Maps and checks one file. Throws Error{bad_input} with one sentence that names the file and the
  // tensor at fault; Error{unsupported} for a type that the format does not have.
  static std::shared_ptr<const Safetensors> open_file(const std::string& path);

  // The files that `path` ("model.safetensors.index.json") names in its "weight_map", from its own
  // folder: a name with a slash is refused. Links are followed, for the hub's cache consists of
  // them. Each tensor must be in the file that the map says and in no other; what the files hold
  // beyond the map belongs to the model too. "metadata" is not used: its total_size is often wrong.
  static std::shared_ptr<const Safetensors> open_index(const std::string& path);

  // A file that lies in memory; `name` stands for its path.
  static std::shared_ptr<const Safetensors> from_bytes(std::vector<std::byte> bytes,
                                                       const std::string& name);
  ~Safetensors();

  // Of the file or the index that was opened.
  const std::string& path() const;
  // All files together.
  std::uint64_t file_bytes() const;

  // In the order of the files' names and, within one, of its header.
  const std::vector<StoredTensor>& tensors() const;

  // "__metadata__": of the file, or of the first of several.
  const std::vector<std::pair<std::string, std::string>>& metadata() const;

  // Whatever the tensor's type; null where there is none of this name. Takes O(log n).
  const StoredTensor* find_stored(std::string_view name) const;

  // The same, for tensors whose values octet reads: throws Error{unsupported} that names the file,
  // the tensor and its type where it does not.
  const TensorView* find(std::string_view name) const;
  // The same; a missing tensor is an Error{bad_input}.
  const TensorView& require(std::string_view name) const;

  // The path of the file that holds a tensor of tensors().
  const std::string& file_of(const StoredTensor& tensor) const;

 private:
  Safetensors();
  struct Contents;
  std::unique_ptr<Contents> contents_;
};

}  // namespace octet
