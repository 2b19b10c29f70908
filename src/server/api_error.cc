#include "server/api_error.h"

#include "core/json.h"

namespace octet {

namespace {

// The names that OpenAI's clients know.
const char* type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "service_unavailable_error";
    case 504:
      return "timeout_error";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

Json text_or_null(std::string_view text) { return text.empty() ? Json() : Json(std::string(text)); }

}  // namespace

std::string error_body(int status, std::string_view message, std::string_view param,
                       std::string_view code) {
  Json body;
  Json& error = body["error"];
  error["message"] = std::string(message);
  error["type"] = type_of(status);
  error["param"] = text_or_null(param);
  error["code"] = text_or_null(code);
  return dump_json(body);
}

std::string error_body(const ApiError& error) {
  return error_body(error.status(), error.what(), error.param(), error.code());
}

HttpResponse error_response(const ApiError& error) {
  HttpResponse response;
  response.status = error.status();
  response.body = error_body(error);
  if (error.status() == 429 || error.status() == 503) {
    response.headers.emplace_back("Retry-After", "1");
  }
  if (error.status() == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

ApiError to_api_error(const Error& error) {
  switch (error.kind()) {
    case ErrorKind::bad_input:
    case ErrorKind::unsupported:
      return ApiError(400, error.what());
    case ErrorKind::out_of_memory:
      return ApiError(503, error.what());
    case ErrorKind::device:
    case ErrorKind::internal:
      return ApiError(500, error.what());
  }
  return ApiError(500, error.what());
}

}  // namespace octet
