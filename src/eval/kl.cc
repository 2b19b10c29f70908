#include "eval/kl.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "kv/block_table.h"

namespace octet {

namespace {

constexpr std::int64_t depth_parts = 8;

struct Position {
  double divergence = 0;
  bool same_top = false;
  double reference_loss = 0;  // -log P(next token)
  double candidate_loss = 0;
};

double log_sum_exp(std::span<const float> logits) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - highest);
  return highest + std::log(sum);
}

Position compare(std::span<const float> reference, std::span<const float> candidate, TokenId next) {
  const double reference_norm = log_sum_exp(reference);
  const double candidate_norm = log_sum_exp(candidate);
  Position position;
  for (std::size_t v = 0; v < reference.size(); ++v) {
    const double p = static_cast<double>(reference[v]) - reference_norm;
    const double q = static_cast<double>(candidate[v]) - candidate_norm;
    position.divergence += std::exp(p) * (p - q);
  }
  position.same_top = most_likely(reference) == most_likely(candidate);
  if (next >= 0) {
    position.reference_loss = reference_norm - reference[static_cast<std::size_t>(next)];
    position.candidate_loss = candidate_norm - candidate[static_cast<std::size_t>(next)];
  }
  return position;
}

// Nearest rank.
double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size())));
  return values[std::clamp<std::size_t>(rank, 1, values.size()) - 1];
}

KlReport summarize(const std::vector<Position>& positions) {
  KlReport report;
  report.tokens = static_cast<std::int64_t>(positions.size());
  const auto count = static_cast<double>(positions.size());
  std::vector<double> divergences;
  double same = 0;
  double reference_loss = 0;
  double candidate_loss = 0;
  for (const Position& position : positions) {
    divergences.push_back(position.divergence);
    report.mean += position.divergence / count;
    same += position.same_top ? 1 : 0;
    reference_loss += position.reference_loss;
    candidate_loss += position.candidate_loss;
  }
  report.median = quantile(divergences, 0.5);
  report.p99 = quantile(divergences, 0.99);
  report.top1_agreement = same / count;
  const double predicted = count - 1;  // the last position has no next token
  report.reference_perplexity = std::exp(reference_loss / predicted);
  report.candidate_perplexity = std::exp(candidate_loss / predicted);

  const std::int64_t parts = std::min(depth_parts, report.tokens);
  for (std::int64_t part = 0; part < parts; ++part) {
    KlDepth depth;
    depth.first = report.tokens * part / parts;
    depth.last = report.tokens * (part + 1) / parts;
    for (std::int64_t i = depth.first; i < depth.last; ++i) {
      const Position& position = positions[static_cast<std::size_t>(i)];
      depth.mean += position.divergence / static_cast<double>(depth.last - depth.first);
      depth.top1_agreement +=
          (position.same_top ? 1.0 : 0.0) / static_cast<double>(depth.last - depth.first);
    }
    report.by_depth.push_back(depth);
  }
  return report;
}

}  // namespace

KlReport evaluate_kl(EngineCore& reference, EngineCore& candidate, std::span<const TokenId> tokens,
                     const std::function<void(std::int64_t)>& progress, std::int64_t chunk) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  if (count < 2) {
    throw_bad_input("the text has {} tokens, expected at least two: one to read, one to predict",
                    count);
  }
  for (EngineCore* core : {&reference, &candidate}) {
    if (count > core->max_model_len()) {
      throw_bad_input("the text has {} tokens, and the context holds {}; lower --context", count,
                      core->max_model_len());
    }
  }
  BlockTable reference_blocks(reference.pool());
  BlockTable candidate_blocks(candidate.pool());
  std::vector<Position> positions(tokens.size());
  const auto vocabulary = static_cast<std::size_t>(reference.model().config().vocabulary_size);

  const auto run = [&](EngineCore& core, BlockTable& blocks, std::int64_t first,
                       std::int64_t rows) {
    if (!blocks.grow_to(first + rows)) {
      throw_error(ErrorKind::out_of_memory, "the KV cache has no room for {} tokens", first + rows);
    }
    RunnerRows request;
    request.blocks = &blocks;
    request.tokens =
        tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(rows));
    request.first_position = first;
    request.logits = WantedLogits::all;
    const std::span<const float> logits = core.runner().run({&request, 1});
    blocks.release_outside_windows(first + rows);
    return logits;
  };
  for (std::int64_t first = 0; first < count; first += chunk) {
    const std::int64_t rows = std::min(chunk, count - first);
    const std::span<const float> expected = run(reference, reference_blocks, first, rows);
    const std::span<const float> given = run(candidate, candidate_blocks, first, rows);
    reference.context().pool->parallel_for(rows, [&](std::int64_t row, int) {
      const auto offset = static_cast<std::size_t>(row) * vocabulary;
      const std::int64_t next = first + row + 1;
      positions[static_cast<std::size_t>(first + row)] =
          compare(expected.subspan(offset, vocabulary), given.subspan(offset, vocabulary),
                  next < count ? tokens[static_cast<std::size_t>(next)] : -1);
    });
    for (std::int64_t position = first; position < first + rows; ++position) {
      const Position& at = positions[static_cast<std::size_t>(position)];
      if (!std::isfinite(at.divergence + at.reference_loss + at.candidate_loss)) {
        throw_error(ErrorKind::internal,
                    "the model's logits at token {} of the text are not all finite, so there is no "
                    "divergence to report",
                    position);
      }
    }
    if (progress) progress(first + rows);
  }
  return summarize(positions);
}

}  // namespace octet
