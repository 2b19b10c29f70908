// Finds an item by its name.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

namespace octet {

// Takes O(log n), whatever the names: a hash table would let a crafted file choose names that
// collide. The names must outlive the index.
class NameIndex {
 public:
  struct Slot {
    std::string_view name;
    std::size_t position;
  };

  void add(std::string_view name, std::size_t position) { slots_.push_back({name, position}); }
  // Call once, after the last add(). Gives a name that was added twice, if there is one.
  std::optional<std::string_view> sort();
  // The position of `name`, or npos.
  std::size_t find(std::string_view name) const;
  static constexpr std::size_t npos = static_cast<std::size_t>(-1);

  // Once sorted: in ascending order of the names.
  const std::vector<Slot>& slots() const { return slots_; }

 private:
  std::vector<Slot> slots_;
};

}  // namespace octet
