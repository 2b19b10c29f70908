#include "server/openapi.h"

#include "core/json.h"
#include "server/page_assets.h"

namespace octet {

std::string openapi_document(const ApiOptions& options) {
  Json document = parse_json(openapi_template(), "openapi.json");
  document["info"]["version"] = options.version;
  Json& schemas = document["components"]["schemas"];
  schemas["TokenId"]["maximum"] = options.limits.vocabulary_size - 1;
  schemas["DetokenizeRequest"]["properties"]["tokens"]["maxItems"] = options.limits.max_model_len;
  Json names = Json::array();
  for (const std::string& name : options.model_names) names.push_back(name);
  names.push_back(nullptr);
  const auto set_names = [&](Json& schema) { schema["properties"]["model"]["enum"] = names; };
  for (const char* name : {"CompletionRequest", "ChatRequest", "DetokenizeRequest"}) {
    set_names(schemas[name]);
  }
  for (Json& form : schemas["TokenizeRequest"]["anyOf"]) set_names(form);
  return dump_json(document);
}

}  // namespace octet
