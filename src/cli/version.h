// What --version says.
#pragma once

#include <string>

namespace octet {

// Version, devices, instruction sets and model families, a line each.
std::string version_text();

}  // namespace octet
