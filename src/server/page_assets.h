// The files of src/server/page/, which CMake puts into the program.
#pragma once

#include <string>
#include <string_view>

namespace octet {

struct PageAsset {
  const char* content_type;
  std::string text;
};

// "/", "/page.css" or "/page.js". Throws Error{internal} for another path.
const PageAsset& page_asset(std::string_view path);

// The description that openapi.cc fills in.
const std::string& openapi_template();

}  // namespace octet
