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

void Model::forward_and_draw(const OpContext&, const ForwardBatch&, std::span<const DrawRow>,
                             std::int64_t, std::span<std::int32_t>) {
  throw_error(ErrorKind::internal, "a model that draws no tokens was asked for some");
}

void Model::read_logits(std::int64_t, std::span<float>) {
  throw_error(ErrorKind::internal, "a model that draws no tokens was asked for its logits");
}

std::shared_ptr<Model> model_on_cpu(const std::shared_ptr<Model>& model) {
  std::shared_ptr<Model> twin = model->make_cpu_model();
  if (twin == nullptr) return model;
  twin->set_content_hash(model->content_hash());
  twin->set_kv_checkpoint(model->kv_checkpoint());
  return twin;
}

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
                                 const LoadOptions& options) {
  const std::string architecture = file->require_string("general.architecture");
  for (const auto& [name, family] : families()) {
    if (family.gguf_architecture != architecture) continue;
    GgufModelReader reader(file, architecture);
    std::unique_ptr<Model> model = family.load(reader, options);
    std::vector<const TensorView*> tensors;
    for (const TensorView& tensor : file->tensors()) tensors.push_back(&tensor);
    model->set_content_hash(model_content_hash(file->path(), tensors));
    return model;
  }
  throw_unsupported("{}: general.architecture {} is not a model family octet runs; it runs {}",
                    file->path(), printable(architecture), fmt::join(model_families(), ", "));
}

std::unique_ptr<Model> load_folder(const std::shared_ptr<const ModelFolder>& folder,
                                   const LoadOptions& options) {
  const JsonValue type = folder->config().require("model_type");
  const std::string name = type.as_string();
  for (const auto& [family_name, family] : families()) {
    const auto& types = family.model_types;
    if (std::find(types.begin(), types.end(), name) == types.end()) continue;
    FolderModelReader reader(folder, family);
    if (options.random_weights) {
      reader.make_up_weights(*options.random_weights);
      return family.load(reader, options);
    }
    std::unique_ptr<Model> model = family.load(reader, options);
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

Checkpoint Checkpoint::open_geometry(const std::string& path) {
  return ModelFolder::open_geometry(path);
}

std::unique_ptr<Model> load_model(const Checkpoint& checkpoint, const LoadOptions& options) {
  if (options.random_weights && options.device == Device::cpu) {
    throw_unsupported("random weights are made on a GPU, and the model was to run on the CPU");
  }
  return checkpoint.gguf ? load_gguf(checkpoint.gguf, options)
                         : load_folder(checkpoint.folder, options);
}

}  // namespace octet
