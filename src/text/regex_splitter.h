// Splitting by regular expressions that octet has no matcher of its own for: PCRE2 runs them,
// within limits. Debian 12's knows Unicode 14, the `tokenizers` package's engine Unicode 16:
// characters that came in between are letters to that one and nothing to this one.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace octet {

class RegexSplitter {
 public:
  struct Match {
    std::size_t begin;
    std::size_t end;
  };

  // `source` names the file and the place in it, for errors. Throws Error{unsupported} that names
  // the pattern where PCRE2 cannot compile it, and where it holds what PCRE2 would read otherwise
  // than the `tokenizers` package's engine (Oniguruma): classes inside classes, &&, \h, \w and \b.
  RegexSplitter(std::string_view pattern, std::string_view source);
  ~RegexSplitter();

  // The matches in valid UTF-8 from left to right; empty ones are passed over. Throws
  // Error{bad_input} that names the pattern where matching takes more steps than linear time
  // allows: a pattern that backtracks without end is refused, not waited for. Several threads may
  // call it at once.
  std::vector<Match> find_all(std::string_view text) const;

 private:
  struct Compiled;
  std::unique_ptr<const Compiled> compiled_;
};

}  // namespace octet
