#include "models/model.h"

#include <map>
#include <utility>

#include <fmt/ranges.h>

#include "core/error.h"
#include "core/printable.h"

namespace octet {

namespace {

// A function's static, because families register before main() in no fixed order.
std::map<std::string, ModelFactory>& families() {
  static std::map<std::string, ModelFactory> registry;
  return registry;
}

}  // namespace

FamilyRegistration::FamilyRegistration(std::string architecture, ModelFactory factory) {
  families().emplace(std::move(architecture), std::move(factory));
}

std::vector<std::string> model_families() {
  std::vector<std::string> names;
  for (const auto& [name, factory] : families()) names.push_back(name);
  return names;
}

std::unique_ptr<Model> load_model(std::shared_ptr<const GgufFile> file,
                                  std::int64_t max_positions) {
  const std::string architecture = file->require_string("general.architecture");
  const auto found = families().find(architecture);
  if (found == families().end()) {
    throw_unsupported("{}: general.architecture {} is not a model family octet runs; it runs {}",
                      file->path(), printable(architecture), fmt::join(model_families(), ", "));
  }
  return found->second(std::move(file), max_positions);
}

}  // namespace octet
