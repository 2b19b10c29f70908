// What a request gets that cannot be served: OpenAI's error object and a status.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "core/error.h"
#include "server/http_message.h"

namespace octet {

// The message is one sentence that names the field and what was expected of it.
class ApiError : public std::runtime_error {
 public:
  ApiError(int status, std::string message, std::string param = {}, std::string code = {})
      : std::runtime_error(message),
        status_(status),
        param_(std::move(param)),
        code_(std::move(code)) {}

  int status() const { return status_; }
  const std::string& param() const { return param_; }  // the field, "" for none
  const std::string& code() const { return code_; }    // "model_not_found", "" for none

 private:
  int status_;
  std::string param_;
  std::string code_;
};

// {"error": {"message", "type", "param", "code"}}; `type` follows from the status.
std::string error_body(int status, std::string_view message, std::string_view param = {},
                       std::string_view code = {});
std::string error_body(const ApiError& error);

HttpResponse error_response(const ApiError& error);

// The status of an error from below the server, and what its client is told.
ApiError to_api_error(const Error& error);

}  // namespace octet
