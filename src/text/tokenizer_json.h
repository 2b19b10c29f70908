// Tokenizers of Hugging Face folders: tokenizer.json and tokenizer_config.json.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "files/model_folder.h"
#include "text/tokenizer.h"

namespace octet {

struct TokenizerTexts {
  FolderText tokenizer;              // tokenizer.json
  std::optional<FolderText> config;  // tokenizer_config.json
  // Ids that end an answer beside eos_token of the configuration: generation_config.json's.
  std::vector<TokenId> end_tokens;
};

// Byte pair encoding (over bytes or characters) with the components that models of it have. Throws
// Error{unsupported} that names file, place and component for any other, Error{bad_input} for
// broken tables. Where the two files differ, the configuration's add_bos_token counts, and
// tokenizer.json's flags of an added token.
std::unique_ptr<Tokenizer> tokenizer_from_json(const TokenizerTexts& texts);

// The folder's tokenizer, and the end tokens of its generation_config.json.
std::unique_ptr<Tokenizer> tokenizer_from_folder(const ModelFolder& folder);

// The chat template of a folder: chat_template.jinja, or else "chat_template" of
// tokenizer_config.json, which may be one text or a list of named ones. Nothing where there is
// none; for a name other than "default", nothing where no template is so called.
std::optional<FolderText> find_chat_template(const std::optional<FolderText>& jinja,
                                             const std::optional<FolderText>& tokenizer_config,
                                             std::string_view name = "default");

}  // namespace octet
