// A model's text on its way to a person's terminal.
#pragma once

#include <string>
#include <string_view>

namespace octet {

// What would steer a terminal (all controls but newline and tab) is written as \xNN.
std::string terminal_text(std::string_view text);

}  // namespace octet
