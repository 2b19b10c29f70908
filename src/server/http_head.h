// The rules for a request's head that keep two readers of one connection from cutting it at
// different places (request smuggling), beyond those that Boost.Beast's parser keeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace octet {

struct HttpHead {
  std::string method;
  std::string target;
  int version = 11;  // 10 or 11
  std::vector<std::pair<std::string, std::string>> fields;
};

struct HeadFault {
  int status = 400;
  std::string message;  // one sentence that names the field
};

// What is wrong with a head, if anything. Beast has checked the syntax of names, values and line
// ends, and that Content-Length is a number.
std::optional<HeadFault> find_head_fault(const HttpHead& head);

// The value of the first field with that name (lower case), "" where there is none.
std::string_view field_of(const HttpHead& head, std::string_view name);

}  // namespace octet
