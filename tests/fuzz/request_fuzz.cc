// Bodies of requests, and heads: whatever comes, the parser answers or throws its own error.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.h"
#include "server/api_error.h"
#include "server/api_request.h"
#include "server/http_head.h"

namespace {

using namespace octet;

const RequestLimits limits{
    .max_model_len = 512, .vocabulary_size = 300, .max_json_bytes = std::size_t{1} << 16};

void parse(std::uint8_t kind, std::string_view body) {
  switch (kind % 4) {
    case 0:
      parse_completion_request(body, limits).options.sampling.validate();
      break;
    case 1:
      parse_chat_request(body, limits);
      break;
    case 2:
      parse_tokenize_request(body, limits);
      break;
    default:
      parse_detokenize_request(body, limits);
      break;
  }
}

// Lines "name: value" behind a method, a target and a version digit.
void check_head(std::string_view text) {
  HttpHead head;
  const auto take = [&](char end) {
    const std::size_t at = text.find(end);
    const std::string part(text.substr(0, at));
    text.remove_prefix(at == text.npos ? text.size() : at + 1);
    return part;
  };
  head.method = take(' ');
  head.target = take(' ');
  head.version = take('\n') == "0" ? 10 : 11;
  while (!text.empty() && head.fields.size() < 200) {
    std::string name = take(':');
    head.fields.emplace_back(std::move(name), take('\n'));
  }
  if (find_head_fault(head)) return;
  // What passes names one length at most.
  int framings = 0;
  for (const auto& [name, value] : head.fields) {
    std::string lower;
    for (const char c : name) lower += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    framings += lower == "content-length" || lower == "transfer-encoding" ? 1 : 0;
  }
  if (framings > 1) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 'h') {
    check_head(text);
    return 0;
  }
  try {
    parse(data[0], text);
  } catch (const ApiError&) {
  } catch (const Error&) {
  }
  return 0;
}
