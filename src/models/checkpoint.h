// A model's files, in either of the formats that octet reads.
#pragma once

#include <memory>
#include <string>

#include "files/gguf.h"
#include "files/model_folder.h"

namespace octet {

// One of the two is set.
struct Checkpoint {
  std::shared_ptr<const GgufFile> gguf;
  std::shared_ptr<const ModelFolder> folder;

  Checkpoint() = default;
  Checkpoint(std::shared_ptr<const GgufFile> file) : gguf(std::move(file)) {}
  Checkpoint(std::shared_ptr<const ModelFolder> opened) : folder(std::move(opened)) {}

  // A Hugging Face folder, or a GGUF file (the first part of a split one). Throws as the two's
  // open() do.
  static Checkpoint open(const std::string& path);

  // The configuration of a Hugging Face folder, whose weights, if any, are not looked at.
  static Checkpoint open_geometry(const std::string& path);

  const std::string& path() const { return gguf ? gguf->path() : folder->path(); }
  std::uint64_t file_bytes() const {
    return gguf ? gguf->file_bytes() : folder->tensors().file_bytes();
  }
};

}  // namespace octet
