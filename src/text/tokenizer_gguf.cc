#include <utility>

#include "core/error.h"
#include "core/printable.h"
#include "files/gguf.h"
#include "text/byte_pair_tokenizer.h"
#include "text/tokenizer.h"

namespace octet {
namespace {

BytePairTables byte_pair_tables(const GgufFile& file) {
  BytePairTables tables;
  tables.source = file.path();
  // Without the name of its pattern a vocabulary fits several, and a wrong one shows in no other
  // way than worse answers: a file that lacks it is refused.
  tables.pre_tokenizer = file.require_string("tokenizer.ggml.pre");
  tables.tokens = file.require_strings("tokenizer.ggml.tokens");
  if (auto types = file.find_integers("tokenizer.ggml.token_type")) {
    if (types->empty()) {
      throw_bad_input("{}: tokenizer.ggml.token_type is empty, expected a type for each token.",
                      file.path());
    }
    tables.token_types = std::move(*types);
  }
  tables.merges = file.require_strings("tokenizer.ggml.merges");
  tables.bos_token_id = file.find_uint("tokenizer.ggml.bos_token_id");
  tables.eos_token_id = file.find_uint("tokenizer.ggml.eos_token_id");
  tables.eot_token_id = file.find_uint("tokenizer.ggml.eot_token_id");
  tables.eom_token_id = file.find_uint("tokenizer.ggml.eom_token_id");
  tables.add_bos_token = file.find_bool("tokenizer.ggml.add_bos_token").value_or(false);
  return tables;
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::from_gguf(const GgufFile& file) {
  const std::string model = file.require_string("tokenizer.ggml.model");
  if (model == "gpt2") return std::make_unique<BytePairTokenizer>(byte_pair_tables(file));
  throw_unsupported("{}: tokenizer.ggml.model is {}, but octet reads byte-level BPE ('gpt2') only",
                    file.path(), printable(model));
}

}  // namespace octet
