// What a model computes on.
#pragma once

#include <cstdint>
#include <string_view>

namespace octet {

enum class Device : std::uint8_t { cpu, cuda };

constexpr std::string_view name_of(Device device) {
  return device == Device::cuda ? "cuda" : "cpu";
}

}  // namespace octet
