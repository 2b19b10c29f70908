#include <utility>

#include "core/error.h"
#include "core/printable.h"
#include "files/gguf.h"
#include "text/byte_pair_tokenizer.h"
#include "text/tokenizer.h"

namespace octet {
namespace {

std::vector<double> require_scores(const GgufFile& file) {
  auto scores = file.find_floats("tokenizer.ggml.scores");
  if (!scores) {
    throw_bad_input("{}: tokenizer.ggml.scores is missing, which the model 'llama' needs.",
                    file.path());
  }
  return std::move(*scores);
}

BytePairTables byte_pair_tables(const GgufFile& file, const std::string& model) {
  BytePairTables tables;
  tables.source = file.path();
  // Without the name of its pattern a byte-level vocabulary fits several, and a wrong one shows in
  // no other way than worse answers: a file that lacks it is refused.
  tables.model = model;
  tables.pre_tokenizer = model == "gpt2" ? file.require_string("tokenizer.ggml.pre")
                                         : file.find_string("tokenizer.ggml.pre").value_or("");
  tables.tokens = file.require_strings("tokenizer.ggml.tokens");
  if (auto types = file.find_integers("tokenizer.ggml.token_type")) {
    if (types->empty()) {
      throw_bad_input("{}: tokenizer.ggml.token_type is empty, expected a type for each token.",
                      file.path());
    }
    tables.token_types = std::move(*types);
  }
  if (model == "llama") {
    tables.scores = require_scores(file);
  } else {
    tables.merges = file.require_strings("tokenizer.ggml.merges");
  }
  tables.bos_token_id = file.find_uint("tokenizer.ggml.bos_token_id");
  tables.eos_token_id = file.find_uint("tokenizer.ggml.eos_token_id");
  tables.eot_token_id = file.find_uint("tokenizer.ggml.eot_token_id");
  tables.eom_token_id = file.find_uint("tokenizer.ggml.eom_token_id");
  tables.add_bos_token = file.find_bool("tokenizer.ggml.add_bos_token");
  tables.add_space_prefix = file.find_bool("tokenizer.ggml.add_space_prefix");
  tables.unknown_token_id = file.find_uint("tokenizer.ggml.unknown_token_id");
  return tables;
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::from_gguf(const GgufFile& file) {
  const std::string model = file.require_string("tokenizer.ggml.model");
  if (model != "gpt2" && model != "llama" && model != "gemma4") {
    throw_unsupported(
        "{}: tokenizer.ggml.model is {}, but octet reads byte pair encoding ('gpt2', 'llama', "
        "'gemma4') only",
        file.path(), printable(model));
  }
  // Texts that SentencePiece changes first in ways that octet does not know.
  if (file.find_bool("tokenizer.ggml.remove_extra_whitespaces").value_or(false)) {
    throw_unsupported("{}: tokenizer.ggml.remove_extra_whitespaces is true, expected false",
                      file.path());
  }
  if (file.has("tokenizer.ggml.precompiled_charsmap")) {
    throw_unsupported("{}: octet does not know tokenizer.ggml.precompiled_charsmap", file.path());
  }
  return std::make_unique<BytePairTokenizer>(byte_pair_tables(file, model));
}

}  // namespace octet
