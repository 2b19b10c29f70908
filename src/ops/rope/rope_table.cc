#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <numbers>
#include <utility>

#include "core/error.h"
#include "ops/rope/rope.h"

namespace octet {
namespace {

bool is_positive(double value) { return std::isfinite(value) && value > 0; }

void validate(double theta, int rotary_dim, const std::optional<Llama3RopeScaling>& scaling) {
  if (!is_positive(theta)) {
    throw_bad_input("rope: the base is {}, expected a positive finite number", theta);
  }
  if (rotary_dim <= 0 || rotary_dim % 2 != 0) {
    throw_bad_input("rope: {} rotated elements per head, expected a positive even number",
                    rotary_dim);
  }
  if (!scaling) return;
  if (!is_positive(scaling->factor) || !is_positive(scaling->low_freq_factor) ||
      !is_positive(scaling->high_freq_factor) || !is_positive(scaling->original_context)) {
    throw_bad_input(
        "rope: llama3 scaling has factor {}, low_freq_factor {}, high_freq_factor {} and "
        "original context {}, expected positive finite numbers",
        scaling->factor, scaling->low_freq_factor, scaling->high_freq_factor,
        scaling->original_context);
  }
  if (scaling->high_freq_factor <= scaling->low_freq_factor) {
    throw_bad_input(
        "rope: llama3 scaling has high_freq_factor {}, expected more than the {} of "
        "low_freq_factor",
        scaling->high_freq_factor, scaling->low_freq_factor);
  }
}

double scale(double inverse, const Llama3RopeScaling& scaling) {
  const double wavelength = 2 * std::numbers::pi / inverse;
  const double longest = scaling.original_context / scaling.low_freq_factor;
  const double shortest = scaling.original_context / scaling.high_freq_factor;
  if (wavelength < shortest) return inverse;
  if (wavelength > longest) return inverse / scaling.factor;
  const double smooth = (scaling.original_context / wavelength - scaling.low_freq_factor) /
                        (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - smooth) * inverse / scaling.factor + smooth * inverse;
}

}  // namespace

RopeFrequencies rope_frequencies(double theta, int rotary_dim,
                                 const std::optional<Llama3RopeScaling>& scaling) {
  validate(theta, rotary_dim, scaling);
  RopeFrequencies frequencies;
  frequencies.inverse.reserve(static_cast<std::size_t>(rotary_dim / 2));
  for (int i = 0; i < rotary_dim / 2; ++i) {
    const double inverse = std::pow(theta, -2.0 * i / rotary_dim);
    frequencies.inverse.push_back(scaling ? scale(inverse, *scaling) : inverse);
  }
  return frequencies;
}

RopeTable::RopeTable(RopeFrequencies frequencies, std::int64_t max_positions)
    : frequencies_(std::move(frequencies)),
      pairs_(static_cast<int>(frequencies_.inverse.size())),
      max_positions_(max_positions) {
  if (max_positions < 0 || max_positions > std::numeric_limits<std::int32_t>::max()) {
    throw_error(ErrorKind::internal, "rope: a table of {} positions was asked for", max_positions);
  }
  const std::size_t count = static_cast<std::size_t>(max_positions) * frequencies_.inverse.size();
  try {
    cosines_.reserve(count);
    sines_.reserve(count);
  } catch (const std::exception&) {
    throw_error(ErrorKind::out_of_memory, "rope: no memory for a table of {} positions",
                max_positions);
  }
}

void RopeTable::extend(std::int64_t end) {
  // A page's positions at once, so that a step of decoding seldom makes any.
  constexpr std::int64_t step = 64;
  end = std::min((std::min(end, max_positions_) + step - 1) / step * step, max_positions_);
  for (; positions_ < end; ++positions_) {
    for (const double inverse : frequencies_.inverse) {
      const double angle = static_cast<double>(positions_) * inverse;
      cosines_.push_back(static_cast<float>(std::cos(angle)));
      sines_.push_back(static_cast<float>(std::sin(angle)));
    }
  }
}

}  // namespace octet
