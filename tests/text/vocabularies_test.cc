// Ids and texts of whole corpora, compared with the `tokenizers` package's by their hashes, for the
// vocabularies that `make models` fetches. tools/oracle/vocabulary_cases.py made the hashes.
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "files/gguf.h"
#include "support/test_models.h"
#include "text/byte_pair_tokenizer.h"
#include "text/corpus.h"
#include "text/frozen_cases.h"

namespace octet {
namespace {

std::string path_of(const std::string& file) {
  return real_model_path(file.starts_with("ggml-vocab") ? "vocabularies/" + file : file);
}

const Json& frozen_vocabularies() {
  static const Json data = read_frozen_cases("vocabularies.json");
  return data;
}

class VocabularyCase : public testing::TestWithParam<std::size_t> {
 protected:
  void SetUp() override {
    const auto file = GgufFile::open(path_of(data().at("file")));
    const std::string family = data().at("family");
    tokenizer_ = family.empty()
                     ? Tokenizer::from_gguf(*file)
                     : std::make_unique<BytePairTokenizer>(gguf_tables_of_family(*file, family));
  }
  // Another family's pattern over the vocabulary.
  static BytePairTables gguf_tables_of_family(const GgufFile& file, const std::string& family) {
    BytePairTables tables;
    tables.source = file.path();
    tables.pre_tokenizer = family;
    tables.tokens = file.require_strings("tokenizer.ggml.tokens");
    tables.token_types = file.find_integers("tokenizer.ggml.token_type").value();
    tables.merges = file.require_strings("tokenizer.ggml.merges");
    return tables;
  }
  static const Json& data() { return frozen_vocabularies().at("cases").at(GetParam()); }

  std::unique_ptr<Tokenizer> tokenizer_;
};

void add_counted(Hash& hash, const std::vector<TokenId>& ids) {
  hash.add_number(static_cast<std::uint32_t>(ids.size()));
  hash.add_ids(ids);
}

// Each block has the hashes of a thousand texts: ids of a user's text, ids with special tokens,
// what decoding gives; and how many texts decoding does not give back.
TEST_P(VocabularyCase, TwentyThousandTextsEqualThePackages) {
  CorpusGenerator generator(1);
  ASSERT_EQ(data().at("blocks").size(), 20u);
  for (const Json& block : data().at("blocks")) {
    Hash ids_hash;
    Hash special_hash;
    Hash decoded_hash;
    int changed = 0;
    for (int i = 0; i < 1000; ++i) {
      const std::string text = generator.text();
      const std::vector<TokenId> ids = tokenizer_->encode(text, SpecialText::literal);
      add_counted(ids_hash, ids);
      add_counted(special_hash, tokenizer_->encode(text, SpecialText::parse));
      const std::string decoded = tokenizer_->decode(ids, true);
      decoded_hash.add_bytes(decoded + "\n");
      if (decoded != text) ++changed;
    }
    EXPECT_EQ(ids_hash.text(), block.at(0));
    EXPECT_EQ(special_hash.text(), block.at(1));
    EXPECT_EQ(decoded_hash.text(), block.at(2));
    EXPECT_EQ(changed, block.at(3));
  }
}

TEST_P(VocabularyCase, EveryAddedTokenInsideTextEqualsThePackages) {
  const auto file = GgufFile::open(path_of(data().at("file")));
  const auto types = file->find_integers("tokenizer.ggml.token_type").value();
  Hash hash;
  for (TokenId id = 0; id < tokenizer_->vocabulary_size(); ++id) {
    const std::int64_t type = types[static_cast<std::size_t>(id)];
    if (type < 2 || type > 4) continue;
    const std::string text = added_text(tokenizer_->token_text(id));
    add_counted(hash, tokenizer_->encode(text, SpecialText::parse));
  }
  EXPECT_EQ(hash.text(), data().at("added"));
}

TEST_P(VocabularyCase, MegabyteLinesEqualThePackages) {
  const std::vector<std::string> texts = long_texts();
  ASSERT_EQ(texts.size(), data().at("long").size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto start = std::chrono::steady_clock::now();
    Hash hash;
    hash.add_ids(tokenizer_->encode(texts[i], SpecialText::literal));
    EXPECT_EQ(hash.text(), data().at("long").at(i)) << "text " << i;
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    // A second a megabyte on an idle machine; a rescanning or all-pairs way would take hours.
    EXPECT_LT(took.count(), 20.0 * static_cast<double>(texts[i].size()) / 1e6) << "text " << i;
  }
}

std::string name_of_case(const testing::TestParamInfo<std::size_t>& info) {
  const Json& one = frozen_vocabularies().at("cases").at(info.param);
  std::string name = one.at("file");
  name = name.substr(0, name.rfind('.'));
  if (one.at("family") != "") name.append(1, '_').append(one.at("family").get<std::string>());
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, VocabularyCase,
                         testing::Range(std::size_t{0}, frozen_vocabularies().at("cases").size()),
                         name_of_case);

}  // namespace
}  // namespace octet
