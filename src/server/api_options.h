// How the API is served.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "server/api_request.h"

namespace octet {

struct ApiOptions {
  // Names that requests may call the model by; answers to /v1/models list them all.
  std::vector<std::string> model_names;
  std::vector<std::string> api_keys;         // none: everyone may ask
  std::vector<std::string> allowed_origins;  // of pages in browsers; "*": all
  RequestLimits limits;
  std::chrono::milliseconds request_timeout{0};  // 0: none
  // Without a step for so long while there is work the engine counts as stuck.
  std::chrono::milliseconds stuck_after{60'000};
  std::string version;
  std::int64_t created = 0;  // when the server started, seconds since 1970
};

}  // namespace octet
