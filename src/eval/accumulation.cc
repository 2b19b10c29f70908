#include "eval/accumulation.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <random>

#include <fmt/format.h>

#include "core/float8_e4m3.h"

namespace octet {

namespace {

struct Data {
  std::vector<float> scores;  // [keys]
  std::vector<float> values;  // [keys, head_dim]
};

// The first `context` keys of a longer text are those of a shorter one.
Data make_data(const AccumulationOptions& options, std::int64_t context, bool sink,
               double value_mean) {
  std::mt19937 score_random(options.seed);
  std::mt19937 value_random(options.seed + 1);
  std::normal_distribution<float> score(0.0f, 1.0f);
  std::normal_distribution<float> value(static_cast<float>(value_mean), 1.0f);
  Data data;
  data.scores.resize(static_cast<std::size_t>(context));
  for (float& x : data.scores) x = score(score_random);
  if (sink) data.scores[0] = 16.0f;
  data.values.resize(static_cast<std::size_t>(context * options.head_dim));
  for (float& x : data.values) {
    x = float8_e4m3_to_float(float_to_float8_e4m3(value(value_random)));
  }
  return data;
}

std::vector<double> exact_output(const Data& data, int head_dim) {
  const float highest = *std::max_element(data.scores.begin(), data.scores.end());
  const auto width = static_cast<std::size_t>(head_dim);
  std::vector<double> output(width, 0.0);
  double sum = 0;
  for (std::size_t key = 0; key < data.scores.size(); ++key) {
    const double weight = std::exp(static_cast<double>(data.scores[key]) - highest);
    sum += weight;
    for (std::size_t d = 0; d < width; ++d) output[d] += weight * data.values[key * width + d];
  }
  for (double& x : output) x /= sum;
  return output;
}

double relative_error(const std::vector<float>& got, const std::vector<double>& wanted) {
  double difference = 0;
  double norm = 0;
  for (std::size_t d = 0; d < wanted.size(); ++d) {
    difference += (got[d] - wanted[d]) * (got[d] - wanted[d]);
    norm += wanted[d] * wanted[d];
  }
  return std::sqrt(difference / norm);
}

std::vector<AccumulationCurve> make_curves(std::size_t contexts) {
  std::vector<AccumulationCurve> curves;
  for (const bool sink : {false, true}) {
    for (const double value_mean : {0.0, 0.5}) {
      for (const bool tile_local : {true, false}) {
        for (const int promote_every : {1, 4, 64, 0}) {
          AccumulationCurve curve;
          curve.accumulation.promote_every = promote_every;
          curve.accumulation.tile_local_scale = tile_local;
          curve.sink = sink;
          curve.value_mean = value_mean;
          curve.errors.resize(contexts);
          curves.push_back(std::move(curve));
        }
      }
    }
  }
  return curves;
}

}  // namespace

std::string AccumulationCurve::name() const {
  const int every = accumulation.promote_every;
  return fmt::format("{}, {}",
                     every == 0   ? std::string("never")
                     : every == 1 ? std::string("every tile")
                                  : fmt::format("every {} tiles", every),
                     accumulation.tile_local_scale ? "tile-local" : "running max");
}

AccumulationReport evaluate_accumulation(ThreadPool& pool, const AccumulationOptions& options,
                                         const std::function<void(std::int64_t)>& progress) {
  AccumulationReport report;
  for (std::int64_t context = 1024; context < options.longest_context; context *= 2) {
    report.contexts.push_back(context);
  }
  report.contexts.push_back(options.longest_context);
  report.curves = make_curves(report.contexts.size());
  const auto curves = static_cast<std::int64_t>(report.curves.size());
  std::int64_t total = 0;
  for (const std::int64_t context : report.contexts) total += context * curves;
  std::atomic<std::int64_t> done{0};
  std::mutex progress_mutex;
  pool.parallel_for(curves, [&](std::int64_t index, int) {
    AccumulationCurve& curve = report.curves[static_cast<std::size_t>(index)];
    // Longest first: what is left at the end is short.
    for (std::size_t i = report.contexts.size(); i-- > 0;) {
      const Data data = make_data(options, report.contexts[i], curve.sink, curve.value_mean);
      HopperRow row;
      row.scores = data.scores;
      row.values = data.values.data();
      row.head_dim = options.head_dim;
      std::vector<float> output(static_cast<std::size_t>(options.head_dim));
      hopper_weighted_values(curve.accumulation, row, output.data());
      curve.errors[i] = relative_error(output, exact_output(data, options.head_dim));
      const std::int64_t now = done += report.contexts[i];
      const std::lock_guard lock(progress_mutex);
      if (progress) progress(now * 1000 / total);
    }
  });
  return report;
}

}  // namespace octet
