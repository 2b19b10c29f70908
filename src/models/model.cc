#include "models/model.h"

#include <map>
#include <utility>

#include <fmt/ranges.h>

#include "core/error.h"
#include "core/printable.h"
#include "files/content_hash.h"
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

std::unique_ptr<Model> load_model(std::shared_ptr<const GgufFile> file,
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

}  // namespace octet
