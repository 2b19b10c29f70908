# Writes the files of src/server/page/ into a C++ source, so that the program needs none of them:
#   cmake -DPAGE=<folder> -DOUTPUT=<file.cc> -P embed_page.cmake
set(text "// Made by cmake/embed_page.cmake from src/server/page/.
#include \"server/page_assets.h\"

#include \"core/error.h\"

namespace octet {

const PageAsset& page_asset(std::string_view path) {
")

function(append_file path name type)
  file(READ "${PAGE}/${name}" content)
  set(text "${text}  if (path == \"${path}\") {
    static const PageAsset asset{\"${type}; charset=utf-8\", R\"octet_page(${content})octet_page\"};
    return asset;
  }
" PARENT_SCOPE)
endfunction()
append_file(/ index.html text/html)
append_file(/page.css page.css text/css)
append_file(/page.js page.js text/javascript)

file(READ "${PAGE}/../openapi.json" content)
set(text "${text}  throw_error(ErrorKind::internal, \"the page has no file {}\", path);
}

const std::string& openapi_template() {
  static const std::string text = R\"octet_page(${content})octet_page\";
  return text;
}

}  // namespace octet
")
file(WRITE "${OUTPUT}" "${text}")
