#include "bench/cpu_model.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "kv/block_table.h"

namespace octet {
namespace {

// Tokens of a chunk of the context that is only read so that it is there.
constexpr std::int64_t fill_chunk = 512;

// What the model's matrices hold. The head works for tokens whose logits are wanted alone.
struct MatrixSizes {
  double body_bytes = 0;
  double body_elements = 0;
  double head_bytes = 0;
  double head_elements = 0;
};

MatrixSizes matrix_sizes(const GgufFile& file) {
  MatrixSizes sizes;
  const bool tied = file.find_tensor("output.weight") == nullptr;
  for (const TensorView& tensor : file.tensors()) {
    if (tensor.shape.size() != 2) continue;
    const bool embedding = tensor.name == "token_embd.weight";
    const bool head = tensor.name == "output.weight" || (embedding && tied);
    if (embedding && !head) continue;
    (head ? sizes.head_bytes : sizes.body_bytes) += static_cast<double>(tensor.bytes);
    (head ? sizes.head_elements : sizes.body_elements) += static_cast<double>(tensor.elements());
  }
  return sizes;
}

// (query token, key) pairs of tokens at [depth, depth + tokens), over all layers and query heads,
// and the keys that they touch, over all layers.
struct AttentionWork {
  double head_pairs = 0;
  double layer_keys = 0;
};

AttentionWork attention_work(const ModelConfig& config, std::int64_t depth, std::int64_t tokens) {
  AttentionWork work;
  for (const KvLayerGeometry& layer : config.kv_geometry()) {
    double pairs = 0;
    for (std::int64_t position = depth; position < depth + tokens; ++position) {
      const std::int64_t seen = position + 1;
      pairs += static_cast<double>(layer.window == 0 ? seen
                                                     : std::min<std::int64_t>(seen, layer.window));
    }
    const std::int64_t first =
        layer.window == 0 ? 0 : std::max<std::int64_t>(depth - layer.window + 1, 0);
    work.head_pairs += pairs * config.query_heads;
    work.layer_keys += static_cast<double>(depth + tokens - first);
  }
  return work;
}

// A model with one cache and one text in it.
class Reader {
 public:
  Reader(const std::shared_ptr<Model>& model, const KvPolicyOptions& cache,
         const EngineOptions& engine, std::int64_t context)
      : core_(model, options_for(cache, engine, context)), blocks_(core_.pool()) {
    if (!blocks_.grow_to(context)) {
      throw_error(ErrorKind::out_of_memory, "the cache has no room for {} tokens", context);
    }
  }

  const KvPolicy& policy() const { return core_.policy(); }
  double bytes_per_token() const { return core_.pool().layout().bytes_per_token(); }

  // Seconds that `count` tokens at `position` take, as one batch.
  double read(std::int64_t position, std::int64_t count) {
    tokens_.resize(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
      tokens_[static_cast<std::size_t>(i)] =
          static_cast<TokenId>(((position + i) * 37 + 11) % core_.model().config().vocabulary_size);
    }
    RunnerRows rows;
    rows.blocks = &blocks_;
    rows.tokens = tokens_;
    rows.first_position = position;
    const auto start = std::chrono::steady_clock::now();
    core_.runner().run({&rows, 1});
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  void fill(std::int64_t tokens) {
    for (std::int64_t at = 0; at < tokens; at += fill_chunk) {
      read(at, std::min(fill_chunk, tokens - at));
    }
  }

 private:
  static EngineOptions options_for(const KvPolicyOptions& cache, const EngineOptions& engine,
                                   std::int64_t context) {
    EngineOptions options = engine;
    options.cache = cache;
    options.max_model_len = context;
    options.limits.max_sequences = 1;
    // Depths are come back to, so that windowed layers keep the whole text too: one chunk of all.
    options.limits.max_batched_tokens = context;
    options.limits.prefill_chunk = 0;
    return options;
  }

  EngineCore core_;
  BlockTable blocks_;
  std::vector<TokenId> tokens_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

CpuModelFigure figure_of(const Reader& reader, const ModelConfig& config, const MatrixSizes& sizes,
                         std::int64_t depth, std::int64_t tokens, bool prefill, double seconds) {
  const AttentionWork work = attention_work(config, depth, tokens);
  const auto count = static_cast<double>(tokens);
  const double bytes = sizes.body_bytes + sizes.head_bytes +
                       work.layer_keys * reader.bytes_per_token() / config.layers;
  const double operations = 2 * (sizes.body_elements * count + sizes.head_elements) +
                            4 * work.head_pairs * config.head_dim;
  return {.cache = reader.policy().dtype_name,
          .scales = reader.policy().scales_name,
          .phase = prefill ? "prefill" : "decode",
          .depth = depth,
          .tokens = tokens,
          .seconds = seconds,
          .tokens_per_s = count / seconds,
          .gb_per_s = bytes / seconds / 1e9,
          .gflops = operations / seconds / 1e9};
}

std::int64_t context_needed(const CpuModelBench& bench, const ModelConfig& config) {
  const std::int64_t deepest = *std::max_element(bench.depths.begin(), bench.depths.end());
  const std::int64_t measured = std::max({bench.prefill, bench.decode, std::int64_t{1}});
  if (deepest > config.max_positions - measured) {
    throw_bad_input("depth {} and {} tokens after it exceed the model's context of {}", deepest,
                    measured, config.max_positions);
  }
  return deepest + measured;
}

}  // namespace

std::vector<CpuModelFigure> bench_cpu_model(const std::shared_ptr<Model>& model,
                                            const GgufFile& file, const CpuModelBench& bench,
                                            const std::function<void(std::string)>& progress) {
  if (bench.depths.empty() || bench.caches.empty()) return {};
  const ModelConfig& config = model->config();
  const std::int64_t context = context_needed(bench, config);
  std::vector<std::unique_ptr<Reader>> readers;
  for (const KvPolicyOptions& cache : bench.caches) {
    readers.push_back(std::make_unique<Reader>(model, cache, bench.engine, context));
    progress(fmt::format("{}: reading {} tokens", readers.back()->policy().dtype_name, context));
    readers.back()->fill(context);
  }
  struct Place {
    std::size_t cache;
    std::int64_t depth;
    bool prefill;
    auto operator<=>(const Place&) const = default;
  };
  std::map<Place, std::vector<double>> seconds;
  for (int round = 0; round < bench.rounds; ++round) {
    for (const std::int64_t depth : bench.depths) {
      progress(fmt::format("round {} of {}, depth {}", round + 1, bench.rounds, depth));
      for (std::size_t cache = 0; cache < readers.size(); ++cache) {
        if (bench.prefill > 0) {
          seconds[{cache, depth, true}].push_back(readers[cache]->read(depth, bench.prefill));
        }
        for (std::int64_t token = 0; token < bench.decode; ++token) {
          seconds[{cache, depth, false}].push_back(readers[cache]->read(depth + token, 1));
        }
      }
    }
  }
  const MatrixSizes sizes = matrix_sizes(file);
  std::vector<CpuModelFigure> figures;
  for (const auto& [place, times] : seconds) {
    figures.push_back(figure_of(*readers[place.cache], config, sizes, place.depth,
                                place.prefill ? bench.prefill : 1, place.prefill, median(times)));
  }
  return figures;
}

}  // namespace octet
