// The fields that completions and chat completions share.
#pragma once

#include "server/api_request.h"
#include "server/json_fields.h"

namespace octet {

// Parses a body; throws ApiError{400} for what is no JSON within the limits.
Json parse_body(std::string_view body, const RequestLimits& limits);

GenerationOptions read_generation_options(JsonFields& fields, const RequestLimits& limits);

std::vector<ChatMessage> read_messages(const Json& messages);

std::vector<TokenId> read_token_ids(const Json& tokens, const std::string& path,
                                    const RequestLimits& limits);

}  // namespace octet
