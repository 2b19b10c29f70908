#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex_splitter.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <new>

#include <pcre2.h>

#include "core/error.h"
#include "core/printable.h"
#include "core/utf8.h"

namespace octet {
namespace {

struct Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

constexpr std::size_t longest_pattern = 16 << 10;
// Steps (PCRE2's unit, about one for each way that is tried) that any match may take, and what all
// the dearer ones of a text may take together.
constexpr std::uint32_t cheap_steps = 1'000;
constexpr std::uint64_t budget_steps = 10'000'000;
constexpr std::uint64_t budget_steps_per_byte = 200;

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

// What Oniguruma reads otherwise than PCRE2, as far as a pattern could hold it unnoticed.
std::string_view find_ambiguity(std::string_view pattern) {
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\') {
      ++i;
      if (i < pattern.size() &&
          std::string_view("hHwWbB").find(pattern[i]) != std::string_view::npos) {
        return "\\h, \\w or \\b";
      }
    } else if (!in_class) {
      in_class = c == '[';
      // A bracket that comes first is a member, not the end.
      if (in_class && pattern.substr(i + 1, 1) == "^") ++i;
      if (in_class && pattern.substr(i + 1, 1) == "]") ++i;
    } else if (c == ']') {
      in_class = false;
    } else if (c == '[') {
      return "a class inside a class";
    } else if (c == '&' && pattern.substr(i + 1, 1) == "&") {
      return "&& inside a class";
    }
  }
  return {};
}

}  // namespace

struct RegexSplitter::Compiled {
  std::string name;  // for errors
  Owned<pcre2_code> code;
  bool jit = false;
};

RegexSplitter::RegexSplitter(std::string_view pattern, std::string_view source) {
  auto compiled = std::make_unique<Compiled>();
  compiled->name = fmt::format("{}: the pattern {}", source, printable(pattern));
  if (pattern.size() > longest_pattern) {
    throw_unsupported("{} has {} bytes, expected at most {}", compiled->name, pattern.size(),
                      longest_pattern);
  }
  if (const std::string_view what = find_ambiguity(pattern); !what.empty()) {
    throw_unsupported("{} holds {}, which octet does not know", compiled->name, what);
  }
  const Owned<pcre2_compile_context> context(pcre2_compile_context_create(nullptr));
  if (context == nullptr) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 100);
  int error = 0;
  PCRE2_SIZE offset = 0;
  // Oniguruma's ^ and $ hold at every line.
  compiled->code.reset(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                    &offset, context.get()));
  if (compiled->code == nullptr) {
    throw_unsupported("{} cannot be compiled: {} at byte {}", compiled->name, message_of(error),
                      offset);
  }
  compiled->jit = pcre2_jit_compile(compiled->code.get(), PCRE2_JIT_COMPLETE) == 0;
  compiled_ = std::move(compiled);
}

RegexSplitter::~RegexSplitter() = default;

namespace {

// One walk over one text.
class Walk {
 public:
  Walk(const pcre2_code* code, std::string_view name, std::string_view text)
      : code_(code),
        name_(name),
        text_(text),
        context_(pcre2_match_context_create(nullptr)),
        data_(pcre2_match_data_create_from_pattern(code, nullptr)),
        stack_(pcre2_jit_stack_create(32 << 10, 1 << 20, nullptr)),
        budget_(budget_steps + budget_steps_per_byte * text.size()) {
    if (context_ == nullptr || data_ == nullptr || stack_ == nullptr) throw std::bad_alloc();
    pcre2_set_heap_limit(context_.get(), 64 << 10);  // KiB
    pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
  }

  // The end of the match that begins exactly at `begin`, or npos. PCRE2 counts the steps of one
  // such attempt: a search of its own over all beginnings would count each anew, and take quadratic
  // time.
  std::size_t match_end(std::size_t begin) {
    std::uint64_t limit = cheap_steps;
    for (;;) {
      const int code = attempt(begin, static_cast<std::uint32_t>(limit));
      if (code == PCRE2_ERROR_NOMATCH) return std::string_view::npos;
      if (code >= 0) {
        const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data_.get());
        return ends[0] == begin ? ends[1] : std::string_view::npos;
      }
      if (code != PCRE2_ERROR_MATCHLIMIT) {
        throw_bad_input("{} cannot be matched at byte {} of the text: {}", name_, begin,
                        message_of(code));
      }
      limit = std::min<std::uint64_t>(limit * 10, 2'000'000'000);
      if (limit > budget_) {
        throw_bad_input("{} takes more steps than octet allows, at byte {} of the text", name_,
                        begin);
      }
      budget_ -= limit;
    }
  }

 private:
  int attempt(std::size_t begin, std::uint32_t limit) {
    pcre2_set_match_limit(context_.get(), limit);
    // The text is known to be valid, and `begin` the start of a character.
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(), begin,
                       PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK, data_.get(), context_.get());
  }

  const pcre2_code* code_;
  std::string_view name_;
  std::string_view text_;
  Owned<pcre2_match_context> context_;
  Owned<pcre2_match_data> data_;
  Owned<pcre2_jit_stack> stack_;
  std::uint64_t budget_;
};

}  // namespace

std::vector<RegexSplitter::Match> RegexSplitter::find_all(std::string_view text) const {
  std::vector<Match> matches;
  Walk walk(compiled_->code.get(), compiled_->name, text);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = walk.match_end(begin);
    if (end != std::string_view::npos && end > begin) {
      matches.push_back({begin, end});
      begin = end;
    } else {
      begin += character_at(text, begin).bytes;
    }
  }
  return matches;
}

}  // namespace octet
