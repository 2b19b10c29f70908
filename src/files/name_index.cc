#include "files/name_index.h"

#include <algorithm>

namespace octet {

std::optional<std::string_view> NameIndex::sort() {
  std::sort(slots_.begin(), slots_.end(),
            [](const Slot& left, const Slot& right) { return left.name < right.name; });
  const auto twice = std::adjacent_find(
      slots_.begin(), slots_.end(),
      [](const Slot& left, const Slot& right) { return left.name == right.name; });
  if (twice == slots_.end()) return std::nullopt;
  return twice->name;
}

std::size_t NameIndex::find(std::string_view name) const {
  const auto slot =
      std::lower_bound(slots_.begin(), slots_.end(), name,
                       [](const Slot& left, std::string_view right) { return left.name < right; });
  return slot != slots_.end() && slot->name == name ? slot->position : npos;
}

}  // namespace octet
