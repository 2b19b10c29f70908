// octet tokenize: text to token ids, and back.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/terminal_text.h"
#include "core/error.h"
#include "core/json.h"
#include "core/printable.h"
#include "files/model_folder.h"
#include "text/tokenizer_json.h"

namespace octet {

namespace {

constexpr std::size_t most_text_bytes = std::size_t{1} << 30;

struct TokenizeFlags {
  std::string model;
  bool decode = false;
  bool special = false;
  bool json = false;
  bool time = false;
  std::string text;
  bool has_text = false;
};

// Ids between white space, commas and brackets, as other programs print lists of them.
std::vector<TokenId> parse_ids(std::string_view text, const Tokenizer& tokenizer) {
  constexpr std::string_view separators = " \t\r\n,[]";
  std::vector<TokenId> ids;
  std::size_t at = 0;
  while ((at = text.find_first_not_of(separators, at)) != std::string_view::npos) {
    const std::size_t end = std::min(text.find_first_of(separators, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    TokenId id = -1;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || stop != word.data() + word.size() || id < 0 ||
        id >= tokenizer.vocabulary_size()) {
      throw_bad_input("--decode: {} is no token id; expected 0 to {}", printable(word, 40),
                      tokenizer.vocabulary_size() - 1);
    }
    ids.push_back(id);
    at = end;
  }
  return ids;
}

Json tokens_as_json(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  Json tokens = Json::array();
  for (const TokenId id : ids) tokens.push_back(std::string(tokenizer.token_text(id)));
  return tokens;
}

// With --time, what the work itself took: on standard error, and in the JSON object.
class Timer {
 public:
  void report(const TokenizeFlags& flags, std::size_t tokens, std::size_t bytes, Json* object) {
    if (!flags.time) return;
    if (flags.json) {
      (*object)["seconds"] = seconds_;
      return;
    }
    std::cerr << fmt::format("{} tokens, {} bytes, {:.3f} s, {:.1f} MB/s\n", tokens, bytes,
                             seconds_, static_cast<double>(bytes) / 1e6 / std::max(seconds_, 1e-9));
  }

  template <typename Work>
  auto run(Work&& work) {
    const auto start = std::chrono::steady_clock::now();
    auto result = work();
    seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return result;
  }

 private:
  double seconds_ = 0;
};

void decode(const TokenizeFlags& flags, const Tokenizer& tokenizer, const std::string& text) {
  const std::vector<TokenId> ids = parse_ids(text, tokenizer);
  Timer timer;
  const std::string decoded = timer.run([&] { return tokenizer.decode(ids, flags.special); });
  Json object;
  timer.report(flags, ids.size(), decoded.size(), &object);
  if (flags.json) {
    object["token_ids"] = ids;
    object["tokens"] = tokens_as_json(tokenizer, ids);
    object["text"] = decoded;
    std::cout << dump_json(object) << '\n';
    return;
  }
  std::cout << (isatty(STDOUT_FILENO) != 0 ? terminal_text(decoded) : decoded);
  if (flags.has_text) std::cout << '\n';
}

void encode(const TokenizeFlags& flags, const Tokenizer& tokenizer, const std::string& text) {
  Timer timer;
  const std::vector<TokenId> ids = timer.run([&] {
    return tokenizer.encode(text, flags.special ? SpecialText::parse : SpecialText::literal);
  });
  Json object;
  timer.report(flags, ids.size(), text.size(), &object);
  if (flags.json) {
    object["token_ids"] = ids;
    object["tokens"] = tokens_as_json(tokenizer, ids);
    std::cout << dump_json(object) << '\n';
    return;
  }
  for (const TokenId id : ids) {
    std::cout << id << '\t' << single_line(tokenizer.token_text(id)) << '\n';
  }
}

void run_tokenize(const TokenizeFlags& flags) {
  const std::unique_ptr<Tokenizer> tokenizer =
      ModelFolder::is_folder(flags.model) ? tokenizer_from_folder(*ModelFolder::open(flags.model))
                                          : Tokenizer::from_gguf(*GgufFile::open(flags.model));
  const std::string text = flags.has_text ? flags.text : read_text("TEXT", "-", most_text_bytes);
  require_utf8("the text", text);
  flags.decode ? decode(flags, *tokenizer, text) : encode(flags, *tokenizer, text);
}

}  // namespace

void add_tokenize(CLI::App& program, CommandAction* run) {
  CLI::App* command = program.add_subcommand("tokenize", "Turn text into token ids, or back");
  const auto flags = std::make_shared<TokenizeFlags>();
  add_model_flag(*command, &flags->model);
  command->add_flag("--decode", flags->decode, "Read ids (between spaces or commas), print text");
  command->add_flag("--special", flags->special,
                    "Special-token text means the special token (with --decode: print them)");
  command->add_flag("--json", flags->json, "Print one JSON object: token_ids, tokens");
  command->add_flag("--time", flags->time, "Say how long it took, the model's opening aside");
  CLI::Option* text =
      command->add_option("text", flags->text, "The text (standard input where it is missing)");
  command->callback([flags, run, text] {
    flags->has_text = text->count() > 0;
    *run = [flags] { run_tokenize(*flags); };
  });
}

}  // namespace octet
