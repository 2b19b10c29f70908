#include "server/throughput_log.h"

#include <fmt/format.h>

namespace octet {

std::string ThroughputLog::line(const EngineStats& stats, std::chrono::duration<double> elapsed) {
  const auto prompt = stats.prompt_tokens - last_.prompt_tokens;
  const auto generated = stats.generated_tokens - last_.generated_tokens;
  const auto rows = stats.computed_rows - last_.computed_rows;
  last_ = stats;
  if (prompt == 0 && generated == 0 && rows == 0 && stats.running == 0 && stats.waiting == 0) {
    return {};
  }
  const double seconds = elapsed.count() > 0 ? elapsed.count() : 1;
  const double hit_rate = stats.prefix_queries == 0
                              ? 0
                              : 100.0 * static_cast<double>(stats.prefix_hits) /
                                    static_cast<double>(stats.prefix_queries);
  return fmt::format(
      "Avg prompt throughput: {:.1f} tokens/s, Avg generation throughput: {:.1f} tokens/s, "
      "Running: {} reqs, Waiting: {} reqs, GPU KV cache usage: {:.1f}%, Prefix cache hit rate: "
      "{:.1f}%",
      static_cast<double>(prompt) / seconds, static_cast<double>(generated) / seconds,
      stats.running, stats.waiting, 100 * stats.kv_usage, hit_rate);
}

}  // namespace octet
