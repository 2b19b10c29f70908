// What is done to a text before it is split: a list of steps, as tokenizer.json's "normalizer".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace octet {

struct NormalizerStep {
  enum class Kind {
    nfc,
    prepend,    // `with` before a text that is not empty
    replace,    // each `what` by `with`
    metaspace,  // each space by `with`, and `with` before a text that does not begin with it
  };
  // Where metaspace puts its sign before a text.
  enum class Prepend { always, first, never };

  Kind kind;
  std::string what = {};
  std::string with = {};
  Prepend scheme = Prepend::never;  // first: only before what begins the whole text
};

// Each `what` (not empty) in the text by `with`.
std::string replace_all(std::string_view text, std::string_view what, std::string_view with);

class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(std::vector<NormalizerStep> steps);

  // `text` (valid UTF-8) normalised; `buffer` holds the result where it differs from the text.
  // `begins_text`: nothing stands before it, not even a special token. Linear time;
  // throws Error{bad_input} where the text grows more than 64 times longer.
  std::string_view apply(std::string_view text, bool begins_text, std::string& buffer) const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace octet
