// What rounding to the cache's formats lost, for people.
#pragma once

#include <string>

#include "engine/engine.h"

namespace octet {

// Lines for standard error where values were beyond a format or no numbers, and where most of what
// a layer's keys or values are fell below it (scales or a format of another range than the
// model's);
// "" where all did fit.
std::string rounding_note(const Engine& engine);

// How many values of each layer were saturated, subnormal or no finite numbers.
std::string rounding_by_layer(const Engine& engine);

}  // namespace octet
