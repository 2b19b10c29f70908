// A model without weights, whose answers depend on everything that its cache should hold.
//
// For each row it writes the token and its position into the pages that the row's position lies in,
// then reads back what every layer sees of the context and takes the next token from a hash of
// that. So a page that is missing, stale, shared by mistake, written twice or given back too early
// changes the answer. The right answer needs no cache: next_token() computes it from the text.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "models/model.h"

namespace octet {
// A namespace of its own: a helper must never stand in for a function of the library that happens
// to have its name, which no compiler or linker would notice.
inline namespace test_support {

class ContextModel : public Model {
 public:
  // One window per layer; 0: all keys.
  explicit ContextModel(std::int64_t vocabulary, const std::vector<int>& windows = {0, 0},
                        std::int64_t max_positions = 1 << 20) {
    config_.family = "context";
    config_.layers = static_cast<int>(windows.size());
    for (const int window : windows) config_.attention.push_back({.window = window});
    config_.query_heads = 1;
    config_.kv_heads = 1;
    config_.head_dim = 8;
    config_.hidden_size = 8;
    config_.intermediate_size = 8;
    config_.vocabulary_size = vocabulary;
    config_.max_positions = max_positions;
  }

  const ModelConfig& config() const override { return config_; }

  // What the model says after `tokens`, from the text alone.
  TokenId next_token(std::span<const TokenId> tokens) const {
    std::uint64_t hash = 0;
    const std::vector<KvLayerGeometry> geometry = config_.kv_geometry();
    for (const KvLayerGeometry& layer : geometry) {
      const auto count = static_cast<std::int64_t>(tokens.size());
      for (std::int64_t p = first_seen(layer.window, count - 1); p < count; ++p) {
        hash = mix(hash, tokens[static_cast<std::size_t>(p)], static_cast<std::int32_t>(p));
      }
    }
    return token_of(hash);
  }
  // The greedy answer of `count` tokens.
  std::vector<TokenId> answer(std::vector<TokenId> prompt, std::int64_t count) const {
    std::vector<TokenId> answer;
    for (std::int64_t i = 0; i < count; ++i) {
      answer.push_back(next_token(prompt));
      prompt.push_back(answer.back());
    }
    return answer;
  }

  void forward(const OpContext&, const ForwardBatch& batch, float* logits) override {
    ++steps;
    if (before_step) before_step(batch);
    for (const SequenceRows& sequence : batch.sequences) {
      rows += sequence.rows;
      rows_written += sequence.rows - sequence.rows_in_cache;
      write(batch, sequence);
    }
    for (const std::int32_t row : batch.logit_rows) {
      const auto owner = std::find_if(
          batch.sequences.begin(), batch.sequences.end(), [row](const SequenceRows& sequence) {
            return row >= sequence.first_row && row < sequence.first_row + sequence.rows;
          });
      write_logits(read(batch, *owner, batch.positions[static_cast<std::size_t>(row)]),
                   batch.tokens[static_cast<std::size_t>(row)], logits);
      logits += config_.vocabulary_size;
    }
  }

  // Called before each step; what it throws is a fault of the device.
  std::function<void(const ForwardBatch&)> before_step;
  // A row of this token gets logits that are no numbers.
  std::atomic<TokenId> poisonous_token{-1};
  std::atomic<std::int64_t> steps{0};
  std::atomic<std::int64_t> rows{0};
  std::atomic<std::int64_t> rows_written{0};

 private:
  struct Entry {
    TokenId token;
    std::int32_t position;
  };

  static std::int64_t first_seen(int window, std::int64_t position) {
    return window == 0 ? 0 : std::max<std::int64_t>(position - window + 1, 0);
  }
  static std::uint64_t mix(std::uint64_t hash, TokenId token, std::int32_t position) {
    hash ^= (static_cast<std::uint64_t>(static_cast<std::uint32_t>(token)) << 32) |
            static_cast<std::uint32_t>(position);
    hash *= 0x9E3779B97F4A7C15u;
    return hash ^ (hash >> 29);
  }
  TokenId token_of(std::uint64_t hash) const {
    return static_cast<TokenId>(hash % static_cast<std::uint64_t>(config_.vocabulary_size));
  }

  std::byte* place(const ForwardBatch& batch, const SequenceRows& sequence, int layer,
                   std::int64_t position) const {
    const int group = batch.pool->layout().group_of(layer);
    const PageId page = sequence.pages[static_cast<std::size_t>(group)][position / page_tokens];
    if (page == no_page) throw std::logic_error("a page that is seen was given back");
    if (batch.pool->references(group, page) < 1) throw std::logic_error("a page is not in use");
    return batch.pool->layer_view(layer).run(page, 0) +
           static_cast<std::size_t>(position % page_tokens) * sizeof(Entry);
  }

  // A page with two owners is not written, but for the step that fills it, in which it is shared.
  static void check_owner(const ForwardBatch& batch, const SequenceRows& sequence, int layer,
                          std::int64_t position) {
    const int group = batch.pool->layout().group_of(layer);
    const PageId page = sequence.pages[static_cast<std::size_t>(group)][position / page_tokens];
    const std::int64_t page_end = (position / page_tokens + 1) * page_tokens;
    const bool fills = sequence.first_position + sequence.rows >= page_end;
    if (batch.pool->references(group, page) != 1 && !fills) {
      throw std::logic_error("a page with two owners is written");
    }
  }

  void write(const ForwardBatch& batch, const SequenceRows& sequence) const {
    for (std::int32_t row = sequence.rows_in_cache; row < sequence.rows; ++row) {
      const std::int32_t position = sequence.first_position + row;
      const Entry entry{batch.tokens[static_cast<std::size_t>(sequence.first_row + row)], position};
      for (int layer = 0; layer < config_.layers; ++layer) {
        check_owner(batch, sequence, layer, position);
        std::memcpy(place(batch, sequence, layer, position), &entry, sizeof(entry));
      }
    }
  }

  std::uint64_t read(const ForwardBatch& batch, const SequenceRows& sequence,
                     std::int64_t position) const {
    std::uint64_t hash = 0;
    const std::vector<KvLayerGeometry> geometry = config_.kv_geometry();
    for (int layer = 0; layer < config_.layers; ++layer) {
      const int window = geometry[static_cast<std::size_t>(layer)].window;
      for (std::int64_t p = first_seen(window, position); p <= position; ++p) {
        Entry entry;
        std::memcpy(&entry, place(batch, sequence, layer, p), sizeof(entry));
        hash = mix(hash, entry.token, entry.position);
      }
    }
    return hash;
  }

  void write_logits(std::uint64_t hash, TokenId token, float* logits) const {
    std::fill_n(logits, config_.vocabulary_size, 0.0f);
    logits[token_of(hash)] = 5.0f;
    if (token == poisonous_token) logits[0] = std::numeric_limits<float>::quiet_NaN();
  }

  ModelConfig config_;
};

}  // namespace test_support
}  // namespace octet
