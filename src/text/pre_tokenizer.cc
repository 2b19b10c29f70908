#include "text/pre_tokenizer.h"

#include <utility>

namespace octet {
namespace {

using Piece = PreTokenizer::Piece;
using Step = PreTokenizer::Step;

struct Segment {
  Piece piece;
  bool is_match;
};

// Matches and what lies between them, which together are the whole text.
std::vector<Segment> find_segments(const Step& step, std::string_view text) {
  std::vector<Segment> segments;
  std::size_t done = 0;
  for (const RegexSplitter::Match& match : step.regex->find_all(text)) {
    if (done < match.begin) segments.push_back({{done, match.begin}, step.invert});
    segments.push_back({{match.begin, match.end}, !step.invert});
    done = match.end;
  }
  if (done < text.size()) segments.push_back({{done, text.size()}, step.invert});
  return segments;
}

// As the `tokenizers` package's NormalizedString::split().
std::vector<Piece> arrange(const std::vector<Segment>& segments, SplitBehavior behavior) {
  std::vector<Piece> pieces;
  bool previous_match = false;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const auto& [piece, is_match] = segments[i];
    const bool joins =
        !pieces.empty() &&
        ((behavior == SplitBehavior::contiguous && is_match == previous_match) ||
         (behavior == SplitBehavior::merged_with_previous && is_match && !previous_match) ||
         (behavior == SplitBehavior::merged_with_next && !is_match && previous_match));
    previous_match = is_match;
    if (behavior == SplitBehavior::removed && is_match) continue;
    if (joins) {
      pieces.back().end = piece.end;
    } else {
      pieces.push_back(piece);
    }
  }
  return pieces;
}

void split_piece(const Step& step, std::string_view text, Piece piece, std::vector<Piece>& pieces) {
  const std::string_view inside = text.substr(piece.begin, piece.end - piece.begin);
  if (step.piece_end == nullptr) {
    for (const Piece& part : arrange(find_segments(step, inside), step.behavior)) {
      pieces.push_back({piece.begin + part.begin, piece.begin + part.end});
    }
    return;
  }
  for (std::size_t begin = 0; begin < inside.size();) {
    const std::size_t end = step.piece_end(inside, begin);
    pieces.push_back({piece.begin + begin, piece.begin + end});
    begin = end;
  }
}

}  // namespace

PreTokenizer::PreTokenizer(std::vector<Step> steps) : steps_(std::move(steps)) {}

void PreTokenizer::split(std::string_view text, std::vector<Piece>& pieces) const {
  pieces.clear();
  if (text.empty()) return;
  pieces.push_back({0, text.size()});
  std::vector<Piece> before;
  for (const Step& step : steps_) {
    std::swap(before, pieces);
    pieces.clear();
    for (const Piece piece : before) split_piece(step, text, piece, pieces);
  }
}

}  // namespace octet
