#include "models/model.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/ranges.h>

#include "core/error.h"
#include "core/printable.h"
#include "files/content_hash.h"
#include "kv/kv_checkpoint.h"
#include "models/folder_reader.h"
#include "models/gguf_reader.h"

namespace octet {

namespace {

// A function's static, because families register before main() in no fixed order.
std::map<std::string, ModelFamily>& families() {
  static std::map<std::string, ModelFamily> registry;
  return registry;
}

}  // namespace

FamilyRegistration::FamilyRegistration(ModelFamily family) {
  std::string name = family.name;
  families().emplace(std::move(name), std::move(family));
}

std::vector<std::string> model_families() {
  std::vector<std::string> names;
  for (const auto& [name, family] : families()) names.push_back(name);
  return names;
}

namespace {

std::unique_ptr<Model> load_gguf(const std::shared_ptr<const GgufFile>& file,
                                 std::int64_t max_positions) {
  const std::string architecture = file->require_string("general.architecture");
  for (const auto& [name, family] : families()) {
    if (family.gguf_architecture != architecture) continue;
    GgufModelReader reader(file, architecture);
    std::unique_ptr<Model> model = family.load(reader, max_positions);
    std::vector<const TensorView*> tensors;
    for (const TensorView& tensor : file->tensors()) tensors.push_back(&tensor);
    model->set_content_hash(model_content_hash(file->path(), tensors));
    return model;
  }
  throw_unsupported("{}: general.architecture {} is not a model family octet runs; it runs {}",
                    file->path(), printable(architecture), fmt::join(model_families(), ", "));
}

std::unique_ptr<Model> load_folder(const std::shared_ptr<const ModelFolder>& folder,
                                   std::int64_t max_positions) {
  const JsonValue type = folder->config().require("model_type");
  const std::string name = type.as_string();
  for (const auto& [family_name, family] : families()) {
    const auto& types = family.model_types;
    if (std::find(types.begin(), types.end(), name) == types.end()) continue;
    FolderModelReader reader(folder, family);
    std::unique_ptr<Model> model = family.load(reader, max_positions);
    std::vector<const TensorView*> tensors;
    for (const StoredTensor& tensor : folder->tensors().tensors()) tensors.push_back(&tensor.view);
    model->set_content_hash(model_content_hash(folder->config().file(), tensors));
    model->set_kv_checkpoint(read_kv_checkpoint(*folder));
    return model;
  }
  throw_unsupported("{}: {} is not a model family octet runs; it runs {}", type.where(),
                    printable(name), fmt::join(model_families(), ", "));
}

}  // namespace

Checkpoint Checkpoint::open(const std::string& path) {
  if (ModelFolder::is_folder(path)) return ModelFolder::open(path);
  return GgufFile::open(path);
}

std::unique_ptr<Model> load_model(const Checkpoint& checkpoint, std::int64_t max_positions) {
  return checkpoint.gguf ? load_gguf(checkpoint.gguf, max_positions)
                         : load_folder(checkpoint.folder, max_positions);
}

}  // namespace octet
