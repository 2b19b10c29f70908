#include <array>
#include <string_view>

#include "core/error.h"
#include "text/jinja/builtins.h"

namespace octet::jinja {
namespace {

// What Python takes from the C library, in its C locale; "%-d" and its like are glibc's flags.
constexpr std::string_view conversions = "aAbBcCdDeFgGhHIjklmMnprRStTuUVwWxXyYP";
constexpr std::string_view flags = "-_0^#";

std::string format_one(const std::string& conversion, const std::tm& time) {
  std::array<char, 128> buffer{};  // the longest, "%c", takes 24
  const std::size_t size = std::strftime(buffer.data(), buffer.size(), conversion.c_str(), &time);
  return {buffer.data(), size};
}

}  // namespace

Value format_time(Runtime& runtime, const MarkedText& format) {
  const std::string_view bytes = format.bytes();
  TextBuilder out(runtime.budget);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != '%') {
      out.append_slice(format, i, i + 1);
      continue;
    }
    std::string conversion = "%";
    while (++i < bytes.size() && conversion.size() < 4 &&
           flags.find(bytes[i]) != std::string_view::npos) {
      conversion += bytes[i];
    }
    if (i >= bytes.size()) throw_bad_input("the format of strftime_now() ends in '%'");
    if (bytes[i] == '%' && conversion.size() == 1) {
      out.append("%");
    } else if (bytes[i] == 'f') {
      out.append("000000");  // the clock is read in whole seconds
    } else if (bytes[i] == 'z' || bytes[i] == 'Z') {
      continue;  // Python's local time knows no zone
    } else if (conversions.find(bytes[i]) == std::string_view::npos) {
      throw_unsupported("strftime_now() does not support one of the conversions in its format");
    } else {
      out.append(format_one(conversion + bytes[i], runtime.now));
    }
  }
  return out.finish();
}

}  // namespace octet::jinja
