#include "text/normalizer.h"

#include <utility>

#include "core/error.h"
#include "text/unicode_normalization.h"

namespace octet {
namespace {

std::string prepended(std::string_view sign, std::string_view text) {
  std::string result(sign);
  result += text;
  return result;
}

std::string add_metaspaces(std::string_view text, const NormalizerStep& step, bool begins_text) {
  using Prepend = NormalizerStep::Prepend;
  const bool prepends =
      step.scheme == Prepend::always || (step.scheme == Prepend::first && begins_text);
  const bool has_sign = text.starts_with(' ') || text.starts_with(step.with);
  std::string result;
  if (prepends && !text.empty() && !has_sign) result = step.with;
  result += replace_all(text, " ", step.with);
  return result;
}

}  // namespace

std::string replace_all(std::string_view text, std::string_view what, std::string_view with) {
  std::string result;
  result.reserve(text.size());
  std::size_t begin = 0;
  for (;;) {
    const std::size_t found = what.empty() ? std::string_view::npos : text.find(what, begin);
    result += text.substr(begin, found - begin);
    if (found == std::string_view::npos) return result;
    result += with;
    begin = found + what.size();
  }
}

Normalizer::Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}

std::string_view Normalizer::apply(std::string_view text, bool begins_text,
                                   std::string& buffer) const {
  const std::size_t longest = text.size();
  for (const NormalizerStep& step : steps_) {
    switch (step.kind) {
      case NormalizerStep::Kind::nfc:
        if (is_plainly_nfc(text)) continue;
        buffer = normalize_nfc(text);
        break;
      case NormalizerStep::Kind::prepend:
        if (text.empty()) continue;
        buffer = prepended(step.with, text);
        break;
      case NormalizerStep::Kind::replace:
        buffer = replace_all(text, step.what, step.with);
        break;
      case NormalizerStep::Kind::metaspace:
        buffer = add_metaspaces(text, step, begins_text);
        break;
    }
    text = buffer;
    if (text.size() / 64 > longest) {
      throw_bad_input("the tokenizer's normalizer makes a text of {} bytes {} bytes long", longest,
                      text.size());
    }
  }
  return text;
}

}  // namespace octet
