// GGUF v3 files, whole or split: typed metadata and tensors, memory-mapped.
//
// Source of the format: the ggml project's GGUF specification (docs/gguf.md there). The whole file
// is hostile input: every count, size, offset and string is checked, with overflow in mind, before
// it is used, and no allocation is larger than the file could justify.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor_view.h"

namespace octet {

class GgufFile {
 public:
  // Maps and checks the file; of a model that is split over several, `path` names the first
  // ("m-00001-of-00003.gguf"), and the others lie beside it. Throws Error{bad_input} with one
  // sentence that names the file and the key or tensor at fault; Error{unsupported} for a version
  // or tensor type that octet does not read.
  static std::shared_ptr<const GgufFile> open(const std::string& path);

  // The same for a file that lies in memory; `name` stands for its path.
  static std::shared_ptr<const GgufFile> from_bytes(std::vector<std::byte> bytes,
                                                    const std::string& name);
  ~GgufFile();

  const std::string& path() const;   // of the first part
  std::uint64_t file_bytes() const;  // of all parts

  // Metadata by key. `find_*` give nothing where the key is missing and throw Error{bad_input} that
  // names file, key and expected type where it holds another type. find_uint takes any integer type
  // that is not negative; find_float takes f32 and f64.
  bool has(std::string_view key) const;
  std::vector<std::string> keys() const;  // in the file's order
  std::optional<std::uint64_t> find_uint(std::string_view key) const;
  std::optional<double> find_float(std::string_view key) const;
  std::optional<bool> find_bool(std::string_view key) const;
  std::optional<std::string> find_string(std::string_view key) const;
  std::optional<std::vector<std::string>> find_strings(std::string_view key) const;
  std::optional<std::vector<std::int64_t>> find_integers(std::string_view key) const;
  std::optional<std::vector<double>> find_floats(std::string_view key) const;

  // The same, but a missing key is an Error{bad_input} that names file and key.
  std::uint64_t require_uint(std::string_view key) const;
  double require_float(std::string_view key) const;
  std::string require_string(std::string_view key) const;
  std::vector<std::string> require_strings(std::string_view key) const;

  const std::vector<TensorView>& tensors() const;  // in the file's order
  const TensorView* find_tensor(std::string_view name) const;

 private:
  GgufFile();
  struct Contents;
  std::unique_ptr<Contents> contents_;
};

}  // namespace octet
