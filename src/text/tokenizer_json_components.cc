#include "text/tokenizer_json_components.h"

#include <memory>

#include "core/error.h"
#include "core/printable.h"
#include "text/pre_tokenizer_patterns.h"

namespace octet {
namespace {

// Real tokenizers have at most ten; each costs time for every byte of every text.
constexpr std::size_t most_parts = 64;

// Components of one list, with sequences in it taken apart. Depth is bounded by the JSON's own.
void flatten(const JsonNode& node, std::string_view list_key, std::vector<JsonNode>& parts) {
  if (node.require_string("type") != "Sequence") {
    if (parts.size() == most_parts) {
      throw_unsupported("{}: octet takes {} steps at most", node.where(), most_parts);
    }
    parts.push_back(node);
    return;
  }
  const JsonNode list = node.require(list_key);
  for (std::size_t i = 0; i < list.array().size(); ++i) flatten(list.item(i), list_key, parts);
}

std::vector<JsonNode> parts_of(const std::optional<JsonNode>& node, std::string_view list_key) {
  std::vector<JsonNode> parts;
  if (node) flatten(*node, list_key, parts);
  return parts;
}

// {"String": "..."}: the string.
std::string literal_pattern(const JsonNode& node) {
  const JsonNode pattern = node.require("pattern");
  if (const auto text = pattern.find_string("String"); text && !text->empty()) return *text;
  throw_unsupported("{}: octet knows a String that is not empty only", pattern.where());
}

// What text is replaced by, or gets before it: a few bytes, so that no step makes it much longer.
std::string short_text(const JsonNode& node, std::string_view key) {
  constexpr std::size_t longest = 16;
  std::string text = node.require_string(key);
  if (text.size() > longest) {
    throw_unsupported("{}: {} has {} bytes, expected at most {}", node.where(), key, text.size(),
                      longest);
  }
  return text;
}

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (std::string_view("\\^$.|?*+()[]{}-").find(c) != std::string_view::npos) result += '\\';
    result += c;
  }
  return result;
}

SplitBehavior read_behavior(const JsonNode& node) {
  const std::string name = node.require_string("behavior");
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  throw_unsupported("{}: octet does not know the behavior {}", node.where(), printable(name));
}

PreTokenizer::Step read_split(const JsonNode& node) {
  const JsonNode pattern = node.require("pattern");
  const auto regex = pattern.find_string("Regex");
  const std::string text = regex ? *regex : escaped(literal_pattern(node));
  const SplitBehavior behavior = read_behavior(node);
  const bool invert = node.flag("invert");
  // The matchers take all of a text, so that what is between matches, and removed, is nothing.
  const bool isolates = (behavior == SplitBehavior::isolated && !invert) ||
                        (behavior == SplitBehavior::removed && invert);
  PreTokenizer::Step step;
  if (isolates) step = make_split_step(text, pattern.where());
  if (step.piece_end != nullptr) return step;
  if (step.regex == nullptr) step.regex = std::make_shared<RegexSplitter>(text, pattern.where());
  step.behavior = behavior;
  step.invert = invert;
  return step;
}

NormalizerStep read_metaspace(const JsonNode& node) {
  NormalizerStep step{NormalizerStep::Kind::metaspace};
  step.with = short_text(node, "replacement");
  if (step.with.empty()) node.refuse("the replacement is empty");
  std::string scheme = node.flag("add_prefix_space", true) ? "always" : "never";
  scheme = node.find_string("prepend_scheme").value_or(scheme);
  using Prepend = NormalizerStep::Prepend;
  if (scheme == "always") {
    step.scheme = Prepend::always;
  } else if (scheme == "first") {
    step.scheme = Prepend::first;
  } else if (scheme != "never") {
    throw_unsupported("{}: octet does not know the prepend_scheme {}", node.where(),
                      printable(scheme));
  }
  return step;
}

}  // namespace

Normalizer read_normalizer(const std::optional<JsonNode>& node) {
  std::vector<NormalizerStep> steps;
  for (const JsonNode& part : parts_of(node, "normalizers")) {
    const std::string type = part.require_string("type");
    if (type == "NFC") {
      steps.push_back({NormalizerStep::Kind::nfc});
    } else if (type == "Prepend") {
      steps.push_back({NormalizerStep::Kind::prepend, {}, short_text(part, "prepend")});
    } else if (type == "Replace") {
      steps.push_back(
          {NormalizerStep::Kind::replace, literal_pattern(part), short_text(part, "content")});
    } else {
      part.refuse_type("the normalizer");
    }
  }
  return Normalizer(std::move(steps));
}

SplittingComponent read_pre_tokenizer(const std::optional<JsonNode>& node) {
  SplittingComponent result;
  std::vector<NormalizerStep> spacing;
  std::vector<PreTokenizer::Step> steps;
  const std::vector<JsonNode> parts = parts_of(node, "pretokenizers");
  for (const JsonNode& part : parts) {
    const std::string type = part.require_string("type");
    const bool first = steps.empty() && spacing.empty();
    if (result.byte_level) part.refuse("nothing can follow ByteLevel");
    if (type == "Split") {
      steps.push_back(read_split(part));
    } else if (type == "Digits") {
      const bool single = part.flag("individual_digits");
      steps.push_back({.piece_end = single ? single_digit_piece_end : digits_piece_end});
    } else if (type == "ByteLevel") {
      result.byte_level = true;
      if (part.flag("add_prefix_space", true)) {
        if (!first) {
          throw_unsupported("{}: octet knows add_prefix_space in a first step only", part.where());
        }
        // A space before what does not begin with one.
        spacing.push_back(
            {NormalizerStep::Kind::metaspace, {}, " ", NormalizerStep::Prepend::always});
      }
      if (part.flag("use_regex", true)) steps.push_back({.piece_end = gpt2_piece_end});
    } else if (type == "Metaspace" && first) {
      spacing.push_back(read_metaspace(part));
      if (part.flag("split", true)) {
        PreTokenizer::Step step;
        step.regex = std::make_shared<RegexSplitter>(escaped(spacing.back().with), part.where());
        step.behavior = SplitBehavior::merged_with_next;
        steps.push_back(std::move(step));
      }
    } else {
      part.refuse_type("in this place the pre-tokenizer");
    }
  }
  result.spacing = Normalizer(std::move(spacing));
  result.pre_tokenizer = PreTokenizer(std::move(steps));
  return result;
}

DecodingComponent read_decoder(const std::optional<JsonNode>& node) {
  DecodingComponent result;
  bool fused = false;
  for (const JsonNode& part : parts_of(node, "decoders")) {
    const std::string type = part.require_string("type");
    if (type == "ByteLevel") {
      result.byte_level = true;
    } else if (type == "ByteFallback") {
      result.byte_fallback = true;
    } else if (type == "Fuse") {
      fused = true;
    } else if (type == "Replace" && !fused) {
      result.replacements.emplace_back(literal_pattern(part), short_text(part, "content"));
    } else if (type == "Strip" && fused && part.require_string("content") == " " &&
               part.require("start").json() == 1 && part.require("stop").json() == 0) {
      result.strips_leading_space = true;
    } else {
      part.refuse_type("with these settings the decoder");
    }
  }
  return result;
}

std::optional<std::string> read_post_processor(const std::optional<JsonNode>& node) {
  std::optional<std::string> before;
  for (const JsonNode& part : parts_of(node, "processors")) {
    const std::string type = part.require_string("type");
    if (type == "ByteLevel") continue;  // tells where tokens lie in the text, and no more
    if (type != "TemplateProcessing") part.refuse_type("the post-processor");
    const JsonNode single = part.require("single");
    bool seen_text = false;
    for (std::size_t i = 0; i < single.array().size(); ++i) {
      const JsonNode item = single.item(i);
      if (item.find("Sequence")) {
        seen_text = true;
      } else if (!seen_text && !before) {
        before = item.require("SpecialToken").require_string("id");
      } else {
        throw_unsupported("{}: octet knows one token before a text, and none behind it",
                          item.where());
      }
    }
  }
  return before;
}

}  // namespace octet
