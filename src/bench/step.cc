#include "bench/step.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <random>

#include <fmt/format.h>

#include "core/cuda/device.h"
#include "core/error.h"
#include "engine/sampler.h"
#include "kv/block_table.h"

namespace octet {

namespace {

constexpr int warm_steps = 3;
// A first prompt also measures algorithms and takes memory: a short one is read twice, and the
// second counts.
constexpr std::int64_t longest_repeated_prompt = 32768;
constexpr std::uint64_t token_seed = 5;

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// One cache with `batch` sequences of equal length.
class Runs {
 public:
  Runs(const std::shared_ptr<Model>& model, const KvPolicyOptions& cache, const StepBench& bench,
       std::int64_t longest)
      : core_(model, options_for(cache, bench, longest)),
        chunk_(core_options_chunk(bench)),
        model_(model.get()) {
    std::mt19937_64 random(token_seed);
    const std::int64_t vocabulary = model->config().vocabulary_size;
    std::uniform_int_distribution<TokenId> token(0, static_cast<TokenId>(vocabulary - 1));
    tokens_.resize(static_cast<std::size_t>(longest));
    for (TokenId& id : tokens_) id = token(random);
    for (std::int64_t i = 0; i < bench.batch; ++i) sequences_.emplace_back(core_.pool());
  }

  const KvPolicy& policy() const { return core_.policy(); }

  // Sequence `index` is read anew up to `tokens` tokens; the last chunk's token is drawn. Pages
  // come and go as in the engine: before a chunk its own are taken, and those given back that none
  // of its rows sees. What the last chunk sees is left, which read_last_chunk() and step() see
  // again.
  void read_prompt(std::size_t index, std::int64_t tokens) {
    BlockTable& blocks = sequences_[index];
    blocks.clear();
    for (std::int64_t first = 0; first < tokens; first += chunk_) {
      RunnerRows rows = rows_of(index, first, std::min(chunk_, tokens - first));
      rows.logits = first + chunk_ < tokens ? WantedLogits::none : WantedLogits::last;
      blocks.release_outside_windows(first);
      grow(&blocks, first + std::ssize(rows.tokens));
      run({&rows, 1});
    }
  }

  // Its last chunk once more.
  void read_last_chunk(std::int64_t tokens) {
    const std::int64_t first = first_of_last_chunk(tokens);
    RunnerRows rows = rows_of(0, first, tokens - first);
    run({&rows, 1});
  }
  // Of that chunk's attention, 2 a multiply-add.
  double attention_operations(std::int64_t tokens) const {
    const ModelConfig& config = model_->config();
    double keys = 0;
    for (const LayerAttention& layer : config.attention) {
      for (std::int64_t row = first_of_last_chunk(tokens); row < tokens; ++row) {
        const std::int64_t seen =
            layer.window > 0 ? std::min<std::int64_t>(layer.window, row + 1) : row + 1;
        keys += static_cast<double>(seen);
      }
    }
    return 4.0 * keys * config.query_heads * config.head_dim;
  }

  // Every sequence's token at the end of `context` keys is computed anew.
  void step(std::int64_t context) {
    rows_.clear();
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      rows_.push_back(rows_of(i, context - 1, 1));
      rows_.back().decodes = true;
    }
    run(rows_);
  }

  // Keys and values that a step over `context` keys reads.
  double cache_bytes(std::int64_t context) const {
    double bytes = 0;
    for (const KvGroup& group : core_.pool().layout().groups()) {
      const std::int64_t window = group.geometry.window;
      const std::int64_t keys = window > 0 ? std::min(window, context) : context;
      bytes += static_cast<double>(group.page_bytes) / page_tokens * static_cast<double>(keys);
    }
    return bytes * static_cast<double>(sequences_.size());
  }

 private:
  std::int64_t first_of_last_chunk(std::int64_t tokens) const {
    return (tokens - 1) / chunk_ * chunk_;
  }
  static std::int64_t core_options_chunk(const StepBench& bench) {
    return bench.engine.limits.max_batched_tokens;
  }
  static EngineOptions options_for(const KvPolicyOptions& cache, const StepBench& bench,
                                   std::int64_t longest) {
    EngineOptions options = bench.engine;
    options.cache = cache;
    options.max_model_len = longest;
    options.limits.max_sequences = bench.batch;
    options.limits.max_batched_tokens = std::max(core_options_chunk(bench), bench.batch);
    options.limits.prefill_chunk = options.limits.max_batched_tokens;
    return options;
  }

  static void grow(BlockTable* blocks, std::int64_t tokens) {
    if (!blocks->grow_to(tokens)) {
      throw_error(ErrorKind::out_of_memory, "the KV cache has no room for {} tokens", tokens);
    }
  }

  RunnerRows rows_of(std::size_t index, std::int64_t first, std::int64_t count) const {
    RunnerRows rows;
    rows.blocks = &sequences_[index];
    rows.tokens = std::span(tokens_).subspan(static_cast<std::size_t>(first),
                                             static_cast<std::size_t>(count));
    rows.first_position = first;
    return rows;
  }

  void run(std::span<const RunnerRows> rows) {
    if (!model_->draws()) {
      const std::span<const float> logits = core_.runner().run(rows);
      const auto vocabulary = static_cast<std::size_t>(model_->config().vocabulary_size);
      for (std::size_t at = 0; at < logits.size(); at += vocabulary) {
        most_likely(logits.subspan(at, vocabulary));
      }
      return;
    }
    const bool wanted = rows.front().logits != WantedLogits::none;
    draws_.resize(wanted ? rows.size() : 0);
    core_.runner().run_and_draw(rows, draws_, model_->config().vocabulary_size);
  }

  EngineCore core_;
  std::int64_t chunk_;
  Model* model_;
  std::vector<TokenId> tokens_;
  std::vector<BlockTable> sequences_;
  std::vector<RunnerRows> rows_;
  std::vector<DrawRow> draws_;
};

double share(std::vector<double> values, double quantile) {
  std::sort(values.begin(), values.end());
  const auto last = static_cast<double>(values.size() - 1);
  return values[static_cast<std::size_t>(std::lround(quantile * last))];
}

StepDifference difference_of(std::int64_t context, const std::vector<double>& first,
                             const std::vector<double>& second) {
  const auto count = static_cast<double>(first.size());
  double mean = 0;
  for (std::size_t i = 0; i < first.size(); ++i) mean += (second[i] - first[i]) / count;
  double variance = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const double deviation = second[i] - first[i] - mean;
    variance += deviation * deviation / std::max(count - 1, 1.0);
  }
  // 1.96 standard errors: with 30 pairs and more Student's t is within 5 % of it.
  return {context, 1e3 * mean, 1e3 * 1.96 * std::sqrt(variance / count),
          static_cast<std::int64_t>(first.size())};
}

void profile(Model& model, Runs& runs, StepFigure* figure) {
  figure->operations = profile_step(model, [&] { runs.step(figure->context); });
  figure->prompt_operations = profile_step(model, [&] { runs.read_last_chunk(figure->context); });
  for (OperationTime& time : figure->operations) {
    if (time.operation == "attention") time.bytes = figure->cache_bytes;
    if (time.operation != "attention") figure->weight_bytes += time.bytes;
  }
  for (OperationTime& time : figure->prompt_operations) {
    if (time.operation == "attention") time.operations = runs.attention_operations(figure->context);
  }
}

}  // namespace

StepReport bench_step(const std::shared_ptr<Model>& model, const StepBench& bench,
                      const std::function<void(const std::string&)>& progress) {
  const std::int64_t longest = *std::max_element(bench.contexts.begin(), bench.contexts.end());
  if (longest > model->config().max_positions) {
    throw_bad_input("--contexts {}: the model was made for {} tokens", longest,
                    model->config().max_positions);
  }
  std::vector<std::unique_ptr<Runs>> caches;
  for (const KvPolicyOptions& cache : bench.caches) {
    caches.push_back(std::make_unique<Runs>(model, cache, bench, longest));
  }
  StepReport report;
  report.device = model->device() == Device::cuda ? cuda_device_info().name : "cpu";
  for (const std::int64_t context : bench.contexts) {
    std::vector<StepFigure> figures(caches.size());
    std::vector<std::vector<double>> seconds(caches.size());
    for (std::size_t i = 0; i < caches.size(); ++i) {
      Runs& runs = *caches[i];
      progress(fmt::format("{}: {} x {} tokens", runs.policy().dtype_name, bench.batch, context));
      if (context <= longest_repeated_prompt) runs.read_prompt(0, context);
      figures[i].first_token_ms = 1e3 * seconds_of([&] { runs.read_prompt(0, context); });
      for (std::int64_t other = 1; other < bench.batch; ++other) {
        runs.read_prompt(static_cast<std::size_t>(other), context);
      }
      for (int step = 0; step < warm_steps; ++step) runs.step(context);
    }
    for (std::int64_t step = 0; step < bench.steps; ++step) {
      // Which of two comes first changes from pair to pair, so that neither gains by its place.
      for (std::size_t turn = 0; turn < caches.size(); ++turn) {
        const std::size_t i = step % 2 == 0 ? turn : caches.size() - 1 - turn;
        seconds[i].push_back(seconds_of([&] { caches[i]->step(context); }));
      }
    }
    for (std::size_t i = 0; i < caches.size(); ++i) {
      StepFigure& figure = figures[i];
      figure.cache = caches[i]->policy().dtype_name;
      figure.scales = caches[i]->policy().scales_name;
      figure.context = context;
      figure.step_ms = 1e3 * share(seconds[i], 0.5);
      figure.fastest_step_ms = 1e3 * share(seconds[i], 0);
      figure.p99_step_ms = 1e3 * share(seconds[i], 0.99);
      figure.cache_bytes = caches[i]->cache_bytes(context);
      profile(*model, *caches[i], &figure);
      const StepMachinery machinery = step_machinery(*model);  // of the cache that was used last
      figure.decode_kernel = machinery.decode_kernel;
      figure.prefill_kernel = machinery.prefill_kernel;
      report.graphs = machinery.graphs;
      report.graph_bytes = machinery.graph_bytes;
      report.figures.push_back(std::move(figure));
    }
    if (caches.size() == 2) {
      report.differences.push_back(difference_of(context, seconds[0], seconds[1]));
    }
  }
  return report;
}

}  // namespace octet
