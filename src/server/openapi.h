// The API's description in OpenAPI 3.1, with the served model's figures in it.
#pragma once

#include <string>

#include "server/api_options.h"

namespace octet {

std::string openapi_document(const ApiOptions& options);

}  // namespace octet
