#include "text/pre_tokenizer.h"

#include <utility>

namespace octet {
namespace {

void split_piece(PreTokenizer::PieceEnd step, std::string_view text, PreTokenizer::Piece piece,
                 std::vector<PreTokenizer::Piece>& pieces) {
  const std::string_view inside = text.substr(piece.begin, piece.end - piece.begin);
  for (std::size_t begin = 0; begin < inside.size();) {
    const std::size_t end = step(inside, begin);
    pieces.push_back({piece.begin + begin, piece.begin + end});
    begin = end;
  }
}

}  // namespace

PreTokenizer::PreTokenizer(std::vector<PieceEnd> steps) : steps_(std::move(steps)) {}

void PreTokenizer::split(std::string_view text, std::vector<Piece>& pieces) const {
  pieces.clear();
  if (text.empty()) return;
  pieces.push_back({0, text.size()});
  std::vector<Piece> before;
  for (const PieceEnd step : steps_) {
    std::swap(before, pieces);
    pieces.clear();
    for (const Piece piece : before) split_piece(step, text, piece, pieces);
  }
}

}  // namespace octet
