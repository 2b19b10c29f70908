// Flags that several subcommands share, and what they build.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <CLI/App.hpp>

#include "engine/engine.h"
#include "files/gguf.h"
#include "models/model.h"
#include "text/tokenizer.h"

namespace octet {

// --kv-cache-*: one group, the same in every subcommand that has a cache.
struct CacheFlags {
  KvPolicyOptions policy;
  std::int64_t memory_bytes = 0;
  void add_to(CLI::App& command);
};

// Where and how the model runs.
struct MachineFlags {
  std::string dtype = "auto";
  std::string device = "auto";
  std::string instruction_set = "auto";
  int threads = 0;
  void add_to(CLI::App& command);

  // Throws Error{bad_input} for unknown values and Error{unsupported} for what this build lacks.
  void apply_to(EngineOptions* options) const;
};

void add_model_flag(CLI::App& command, std::string* path);

struct LoadedModel {
  std::shared_ptr<const GgufFile> file;
  std::shared_ptr<Model> model;
  std::shared_ptr<const Tokenizer> tokenizer;
  double load_seconds = 0;
};
// max_model_len: positions that will be asked for; 0: what the model was made for.
LoadedModel load_model_and_tokenizer(const std::string& path, std::int64_t max_model_len);

// The whole of a file, or of standard input for "-". Throws Error{bad_input} that names the file;
// `limit` bounds what is read.
std::string read_text(const std::string& path, std::size_t limit);

// How text is to be tokenized for the model: with its beginning-of-text token where it wants one.
std::vector<TokenId> encode_raw(const Tokenizer& tokenizer, std::string_view text);

}  // namespace octet
