#include "text/detokenizer.h"

#include <random>
#include <string>
#include <vector>

#include "text/tokenizer_fixtures.h"

namespace octet {
namespace {

TEST(Detokenizer, NeverEmitsHalfACharacter) {
  const BytePairTokenizer tokenizer(small_tables());
  Detokenizer detokenizer(tokenizer);
  EXPECT_EQ(detokenizer.push(259), "hello");
  EXPECT_EQ(detokenizer.push(0xF0), "");
  EXPECT_EQ(detokenizer.push(0x9F), "");
  EXPECT_EQ(detokenizer.push(0x98), "");
  EXPECT_EQ(detokenizer.push(0x80), "😀");
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(Detokenizer, ReplacesWhatIsProvedWrong) {
  const BytePairTokenizer tokenizer(small_tables());
  Detokenizer detokenizer(tokenizer);
  EXPECT_EQ(detokenizer.push(0xE2), "");
  EXPECT_EQ(detokenizer.push(0x82), "");
  EXPECT_EQ(detokenizer.push(256), "\uFFFDhe");
  EXPECT_EQ(detokenizer.push(0x80), "\uFFFD");
  EXPECT_EQ(detokenizer.push(0xC3), "");
  EXPECT_EQ(detokenizer.push(0xC3), "\uFFFD");
  EXPECT_EQ(detokenizer.push(0xA9), "é");
}

TEST(Detokenizer, EndsWithWhatItHoldsBack) {
  const BytePairTokenizer tokenizer(small_tables());
  Detokenizer detokenizer(tokenizer);
  EXPECT_EQ(detokenizer.push(0xF0), "");
  EXPECT_EQ(detokenizer.push(0x9F), "");
  EXPECT_EQ(detokenizer.finish(), "\uFFFD");
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(Detokenizer, GivesNoTextForSpecialTokens) {
  const BytePairTokenizer tokenizer(small_tables());
  Detokenizer detokenizer(tokenizer);
  EXPECT_EQ(detokenizer.push(261), "");
  EXPECT_EQ(detokenizer.push(0xC3), "");
  EXPECT_EQ(detokenizer.push(260), "");
  EXPECT_EQ(detokenizer.push(0xA9), "é");  // a special token between does not part a character
  EXPECT_EQ(detokenizer.push(262), "<tool>");
}

TEST(Detokenizer, EqualsDecodingAtOnceForRandomBytes) {
  const BytePairTokenizer tokenizer(small_tables());
  std::mt19937 generator(77);
  const std::vector<TokenId> likely = {0xE0, 0xED, 0xF0, 0xF4, 0xC2, 0x80,
                                       0x9F, 0xA0, 0xBF, 'x',  260};
  for (int round = 0; round < 5000; ++round) {
    std::vector<TokenId> tokens(generator() % 12);
    for (TokenId& token : tokens) {
      token = generator() % 3 == 0 ? static_cast<TokenId>(generator() % 256)
                                   : likely[generator() % likely.size()];
    }
    std::string bytes;
    std::string text;
    Detokenizer detokenizer(tokenizer);
    for (const TokenId token : tokens) {
      if (!tokenizer.is_special(token)) bytes += tokenizer.token_bytes(token);
      const std::string piece = detokenizer.push(token);
      ASSERT_EQ(find_invalid_utf8(piece), std::nullopt);
      text += piece;
    }
    text += detokenizer.finish();
    ASSERT_EQ(text, take_all_utf8(bytes));
    ASSERT_EQ(text, tokenizer.decode(tokens));
  }
}

}  // namespace
}  // namespace octet
