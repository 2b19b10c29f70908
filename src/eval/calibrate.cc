#include "eval/calibrate.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/error.h"
#include "core/float8_e4m3.h"
#include "core/json.h"
#include "engine/key_mean_sums.h"
#include "kv/block_table.h"
#include "ops/attention/attention.h"
#include "ops/attention_observer.h"
#include "ops/quantize/kv_write.h"

namespace octet {

namespace {

class RangeObserver : public AttentionObserver {
 public:
  RangeObserver(std::span<const KvLayerGeometry> geometry, int query_heads)
      : ranges_(geometry.size()), key_sums_(geometry) {
    for (std::size_t layer = 0; layer < geometry.size(); ++layer) {
      const auto heads = static_cast<std::size_t>(geometry[layer].kv_heads);
      ranges_[layer].key.resize(heads, 0.0f);
      ranges_[layer].value.resize(heads, 0.0f);
      ranges_[layer].query.resize(heads == 0 ? 0 : static_cast<std::size_t>(query_heads), 0.0f);
    }
  }

  void on_write(const KvWriteArgs& args) override {
    key_sums_.add(args);
    LayerRanges& ranges = ranges_[static_cast<std::size_t>(args.layer.layer)];
    const auto head_dim = static_cast<std::size_t>(args.layer.group->geometry.head_dim);
    for (const SequenceRows& sequence : args.sequences) {
      for (std::int64_t row = sequence.first_row; row < sequence.first_row + sequence.rows; ++row) {
        widen(args.key + row * args.key_stride, head_dim, &ranges.key);
        widen(args.value + row * args.value_stride, head_dim, &ranges.value);
      }
      ranges.rows += sequence.rows;
    }
  }

  void on_attend(const AttentionArgs& args) override {
    LayerRanges& ranges = ranges_[static_cast<std::size_t>(args.layer.layer)];
    const auto head_dim = static_cast<std::size_t>(args.layer.group->geometry.head_dim);
    for (const SequenceRows& sequence : args.sequences) {
      for (std::int64_t row = sequence.first_row; row < sequence.first_row + sequence.rows; ++row) {
        widen(args.query + row * args.query_stride, head_dim, &ranges.query);
      }
    }
  }

  std::vector<LayerRanges> take() { return std::move(ranges_); }
  const KeyMeanSums& key_sums() const { return key_sums_; }

 private:
  // A NaN stays: it is reported, not passed over.
  static void widen(const float* row, std::size_t head_dim, std::vector<float>* largest) {
    for (float& at : *largest) {
      for (std::size_t i = 0; i < head_dim; ++i) {
        const float magnitude = std::fabs(row[i]);
        if (!(magnitude <= at)) at = magnitude;
      }
      row += head_dim;
    }
  }

  std::vector<LayerRanges> ranges_;
  KeyMeanSums key_sums_;
};

void check_observed(const std::vector<LayerRanges>& layers) {
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    const LayerRanges& ranges = layers[layer];
    if (ranges.key.empty()) continue;  // no attention layer
    if (ranges.rows == 0) {
      throw_error(ErrorKind::internal, "layer {} wrote nothing into the cache, so it has no scale",
                  layer);
    }
    for (const std::vector<float>* side : {&ranges.key, &ranges.value, &ranges.query}) {
      for (const float largest : *side) {
        if (std::isfinite(largest)) continue;
        throw_error(ErrorKind::internal,
                    "layer {} gave a key, value or query that is no finite number, so it has no "
                    "scale",
                    layer);
      }
    }
  }
}

void read_piece(EngineCore& core, std::span<const TokenId> piece,
                const std::function<void(std::int64_t)>& progress) {
  constexpr std::size_t chunk = 512;
  BlockTable blocks(core.pool());
  for (std::size_t first = 0; first < piece.size(); first += chunk) {
    RunnerRows rows;
    rows.blocks = &blocks;
    rows.tokens = piece.subspan(first, std::min(chunk, piece.size() - first));
    rows.first_position = static_cast<std::int64_t>(first);
    rows.logits = WantedLogits::none;
    const auto end = static_cast<std::int64_t>(first + rows.tokens.size());
    if (!blocks.grow_to(end)) {
      throw_error(ErrorKind::out_of_memory, "the KV cache has no room for {} tokens", end);
    }
    core.runner().run({&rows, 1});
    blocks.release_outside_windows(end);
    if (progress) progress(static_cast<std::int64_t>(rows.tokens.size()));
  }
}

void append_scale(const std::string& name, const std::vector<float>& largest, bool per_head,
                  std::vector<FloatTensor>* tensors) {
  FloatTensor tensor;
  tensor.name = name;
  if (per_head) {
    tensor.shape = {static_cast<std::int64_t>(largest.size()), 1, 1};
    for (const float head : largest) tensor.values.push_back(scale_of(head));
  } else {
    tensor.shape = {1};
    tensor.values = {scale_of(*std::max_element(largest.begin(), largest.end()))};
  }
  tensors->push_back(std::move(tensor));
}

Json quantization_args(bool per_head) {
  Json args;
  args["num_bits"] = 8;
  args["type"] = "float";
  args["symmetric"] = true;
  args["group_size"] = nullptr;
  args["strategy"] = per_head ? "attn_head" : "tensor";
  args["dynamic"] = false;
  return args;
}

}  // namespace

Calibration calibrate(const std::shared_ptr<Model>& model, const EngineOptions& machine,
                      std::span<const std::vector<TokenId>> texts,
                      const CalibrationOptions& options,
                      const std::function<void(std::int64_t)>& progress) {
  const ModelConfig& config = model->config();
  RangeObserver observer(config.kv_geometry(), config.query_heads);
  const std::int64_t window = std::min(options.window_tokens, config.max_positions);
  EngineOptions exact;
  exact.cache.dtype = "float32";
  exact.max_model_len = window;
  exact.limits.max_sequences = 1;
  exact.arithmetic = machine.arithmetic;
  exact.instruction_set = machine.instruction_set;
  exact.threads = machine.threads;
  exact.observer = &observer;
  EngineCore core(model, exact);

  Calibration calibration;
  for (const std::vector<TokenId>& text : texts) {
    for (std::size_t first = 0; first < text.size(); first += static_cast<std::size_t>(window)) {
      std::size_t count = std::min(static_cast<std::size_t>(window), text.size() - first);
      if (options.max_tokens > 0) {
        count = std::min(count, static_cast<std::size_t>(options.max_tokens - calibration.tokens));
      }
      if (count == 0) break;
      const std::int64_t before = calibration.tokens;
      std::int64_t in_piece = 0;
      read_piece(core, std::span(text).subspan(first, count), [&](std::int64_t more) {
        in_piece += more;
        if (progress) progress(before + in_piece);
      });
      calibration.tokens += static_cast<std::int64_t>(count);
    }
  }
  if (calibration.tokens == 0) throw_bad_input("the texts hold no token to calibrate on");
  calibration.layers = observer.take();
  check_observed(calibration.layers);
  calibration.key_means = observer.key_sums().means();
  return calibration;
}

float scale_of(float largest) { return largest > 0 ? largest / float8_e4m3_max : 1.0f; }

std::vector<FloatTensor> scale_tensors(const Calibration& calibration,
                                       const CalibrationOptions& options) {
  std::vector<FloatTensor> tensors;
  for (std::size_t layer = 0; layer < calibration.layers.size(); ++layer) {
    const LayerRanges& ranges = calibration.layers[layer];
    if (ranges.key.empty()) continue;
    const std::string prefix = fmt::format("model.layers.{}.self_attn.", layer);
    append_scale(prefix + "k_scale", ranges.key, options.per_head, &tensors);
    append_scale(prefix + "v_scale", ranges.value, options.per_head, &tensors);
    if (options.includes_query) {
      append_scale(prefix + "q_scale", ranges.query, options.per_head, &tensors);
    }
  }
  return tensors;
}

std::string quantization_config_json(const CalibrationOptions& options,
                                     const std::string& attention_class) {
  Json config;
  config["quant_method"] = "compressed-tensors";
  config["format"] = "dense";
  config["quantization_status"] = "compressed";
  config["config_groups"] = Json::object();
  if (options.includes_query) {
    Json& group = config["config_groups"]["group_0"];
    group["targets"] = {attention_class};
    group["weights"] = nullptr;
    group["input_activations"] = quantization_args(options.per_head);
    group["output_activations"] = nullptr;
    group["format"] = nullptr;
  }
  config["kv_cache_scheme"] = quantization_args(options.per_head);
  config["ignore"] = Json::array();
  config["global_compression_ratio"] = nullptr;
  Json holder;
  holder["quantization_config"] = std::move(config);
  return dump_json(holder, 2) + "\n";
}

}  // namespace octet
