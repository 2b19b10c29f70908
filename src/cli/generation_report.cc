#include "cli/generation_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/json.h"

namespace octet {

namespace {

double milliseconds(GenerationReport::Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

// Nearest rank; 0 where there are no values.
double quantile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(rank, 1, sorted.size()) - 1];
}

std::map<std::string, int> count_layers(const KvPolicy& policy) {
  std::map<std::string, int> counts;
  for (const KvLayerPolicy& layer : policy.layers) ++counts[describe(layer)];
  return counts;
}

}  // namespace

std::string describe_layers(const KvPolicy& policy) {
  std::vector<std::string> parts;
  for (const auto& [formats, layers] : count_layers(policy)) {
    parts.push_back(fmt::format("{} x {}", formats, layers));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

void GenerationReport::add(TokenEvent event) {
  text_ += event.text;
  if (event.finished != FinishReason::none) finished_ = event.finished;
  if (event.token < 0) return;
  times_.push_back(Clock::now());
  tokens_.push_back(std::move(event));
}

void GenerationReport::measure(Clock::time_point start) {
  if (times_.empty()) return;
  timing_.ttft_ms = milliseconds(times_.front() - start);
  timing_.prefill_tokens_per_s = static_cast<double>(prompt.size()) / timing_.ttft_ms * 1000;
  std::vector<double> gaps;
  for (std::size_t i = 1; i < times_.size(); ++i) {
    gaps.push_back(milliseconds(times_[i] - times_[i - 1]));
    timing_.itl_mean_ms += gaps.back() / static_cast<double>(times_.size() - 1);
  }
  std::sort(gaps.begin(), gaps.end());
  timing_.itl_p50_ms = quantile(gaps, 0.50);
  timing_.itl_p99_ms = quantile(gaps, 0.99);
  if (timing_.itl_mean_ms > 0) timing_.decode_tokens_per_s = 1000 / timing_.itl_mean_ms;
}

std::string GenerationReport::as_json(const Engine& engine) const {
  Json object;
  object["text"] = text_;
  object["token_ids"] = Json::array();
  for (const TokenEvent& event : tokens_) object["token_ids"].push_back(event.token);
  object["prompt_token_ids"] = prompt;
  object["prompt_tokens"] = prompt.size();
  object["completion_tokens"] = tokens_.size();
  object["finish_reason"] = name_of(finished_);
  object["logprobs"] = nullptr;
  if (wants_logprobs) {
    object["logprobs"] = Json::array();
    for (const TokenEvent& event : tokens_) {
      Json entry;
      entry["token_id"] = event.token;
      entry["logprob"] = event.logprobs->logprob;
      entry["top"] = Json::array();
      for (const auto& [id, logprob] : event.logprobs->top) entry["top"].push_back({id, logprob});
      object["logprobs"].push_back(std::move(entry));
    }
  }
  Json& timing = object["timing"];
  timing["load_s"] = load_seconds;
  timing["ttft_ms"] = timing_.ttft_ms;
  timing["itl_ms"]["mean"] = timing_.itl_mean_ms;
  timing["itl_ms"]["p50"] = timing_.itl_p50_ms;
  timing["itl_ms"]["p99"] = timing_.itl_p99_ms;
  timing["prefill_tokens_per_s"] = timing_.prefill_tokens_per_s;
  timing["decode_tokens_per_s"] = timing_.decode_tokens_per_s;

  const EngineCore& core = engine.core();
  Json& cache = object["kv_cache"];
  cache["dtype"] = core.policy().dtype_name;
  cache["scales"] = core.policy().scales_name;
  cache["key_mean"] = core.policy().key_mean_name;
  cache["page_tokens"] = page_tokens;
  cache["bytes_per_token"] = core.pool().layout().bytes_per_token();
  cache["bytes_used"] = core.pool().peak_held_bytes();
  cache["pages_used"] = core.pool().peak_held_pages();
  cache["layers"] = Json::object();
  for (const auto& [formats, layers] : count_layers(core.policy())) {
    cache["layers"][formats] = layers;
  }
  object["device"] = name_of(core.model().device());
  object["threads"] = core.context().pool->size();
  object["instruction_set"] = name_of(core.context().instruction_set);
  return dump_json(object);
}

std::string GenerationReport::as_text(const Engine& engine) const {
  const EngineCore& core = engine.core();
  return fmt::format(
      "prompt {} tokens, {:.0f} tokens/s, first token after {:.0f} ms\n"
      "answer {} tokens ({}), {:.1f} tokens/s, {:.1f} ms between tokens (p99 {:.1f})\n"
      "cache  {} (scales {}), {:.1f} MB in {} pages of {} tokens\n",
      prompt.size(), timing_.prefill_tokens_per_s, timing_.ttft_ms, tokens_.size(),
      name_of(finished_), timing_.decode_tokens_per_s, timing_.itl_p50_ms, timing_.itl_p99_ms,
      describe_layers(core.policy()), core.policy().scales_name,
      static_cast<double>(core.pool().peak_held_bytes()) / 1e6, core.pool().peak_held_pages(),
      page_tokens);
}

}  // namespace octet
