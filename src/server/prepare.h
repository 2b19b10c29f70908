// From a request's body to what the engine takes: parsing, templates, tokenizing, and the checks
// that need to know the model. Slow where prompts are long, so it is for the worker's threads.
#pragma once

#include <string>
#include <string_view>

#include "server/api_options.h"
#include "server/generation.h"
#include "server/model_text.h"

namespace octet {

// All throw ApiError, and Error for faults that are not the request's.
PreparedGeneration prepare_completion(std::string_view body, const ModelText& text,
                                      const ApiOptions& options);
PreparedGeneration prepare_chat(std::string_view body, const ModelText& text,
                                const ApiOptions& options);

// The bodies of the answers to /tokenize and /detokenize.
std::string answer_tokenize(std::string_view body, const ModelText& text,
                            const ApiOptions& options);
std::string answer_detokenize(std::string_view body, const ModelText& text,
                              const ApiOptions& options);

}  // namespace octet
