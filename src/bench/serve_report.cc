#include "bench/serve_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <fmt/format.h>

#include "core/json.h"

namespace octet {

namespace {

// Values of one metric over all requests, in milliseconds, sorted.
struct Series {
  const char* name;   // "ttft"
  const char* title;  // "Time to First Token"
  std::vector<double> values;

  double mean() const {
    if (values.empty()) return 0;
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  }
  double deviation() const {
    if (values.empty()) return 0;
    const double center = mean();
    double sum = 0;
    for (const double value : values) sum += (value - center) * (value - center);
    return std::sqrt(sum / static_cast<double>(values.size()));
  }
  // As numpy's: linear between the two nearest.
  double percentile(double percent) const {
    if (values.empty()) return 0;
    const double place = percent / 100 * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(std::floor(place));
    const std::size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (place - std::floor(place)) * (values[above] - values[below]);
  }
};

struct Summary {
  std::int64_t completed = 0;
  std::int64_t failed = 0;
  std::int64_t input_tokens = 0;
  std::int64_t output_tokens = 0;
  std::int64_t good = 0;  // that met every goal
  double peak_tokens_per_second = 0;
  std::vector<Series> series;
};

double time_per_token(const ServeRecord& record) {
  if (record.output_tokens < 2) return 0;
  return (record.latency - record.first_token) / static_cast<double>(record.output_tokens - 1);
}

double value_of(const ServeRecord& record, const std::string& metric) {
  if (metric == "ttft") return 1000 * record.first_token;
  if (metric == "tpot") return 1000 * time_per_token(record);
  return 1000 * record.latency;
}

// The most chunks that came within one second of the run.
double peak_rate(const ServeResult& result) {
  std::map<std::int64_t, std::int64_t> seconds;
  for (const ServeRecord& record : result.records) {
    for (const double time : record.times) ++seconds[static_cast<std::int64_t>(time)];
  }
  std::int64_t peak = 0;
  for (const auto& [second, count] : seconds) peak = std::max(peak, count);
  return static_cast<double>(peak);
}

Summary summarize(const ServeResult& result, const ServeReportOptions& options) {
  Summary summary;
  Series ttft{"ttft", "Time to First Token", {}};
  Series tpot{"tpot", "Time per Output Token (excl. 1st token)", {}};
  Series itl{"itl", "Inter-token Latency", {}};
  Series e2el{"e2el", "End-to-end Latency", {}};
  for (const ServeRecord& record : result.records) {
    if (!record.completed) {
      ++summary.failed;
      continue;
    }
    ++summary.completed;
    summary.input_tokens += record.input_tokens;
    summary.output_tokens += record.output_tokens;
    ttft.values.push_back(1000 * record.first_token);
    e2el.values.push_back(1000 * record.latency);
    if (record.output_tokens > 1) tpot.values.push_back(1000 * time_per_token(record));
    for (const double gap : record.gaps) itl.values.push_back(1000 * gap);
    if (std::all_of(options.goals.begin(), options.goals.end(), [&](const ServeGoal& goal) {
          return value_of(record, goal.metric) <= goal.milliseconds;
        })) {
      ++summary.good;
    }
  }
  summary.peak_tokens_per_second = peak_rate(result);
  for (Series* series : {&ttft, &tpot, &itl, &e2el}) {
    std::sort(series->values.begin(), series->values.end());
    const std::vector<std::string>& wanted = options.metrics;
    if (std::find(wanted.begin(), wanted.end(), series->name) == wanted.end()) continue;
    summary.series.push_back(std::move(*series));
  }
  return summary;
}

double per_second(double count, const ServeResult& result) {
  return result.duration > 0 ? count / result.duration : 0;
}

// 99 is "99", 99.9 is "99.9".
std::string percent_name(double percent) { return fmt::format("{:g}", percent); }

void add_row(std::string* text, const std::string& label, std::int64_t value) {
  *text += fmt::format("{:<40} {:<10}\n", label, value);
}
void add_row(std::string* text, const std::string& label, double value) {
  *text += fmt::format("{:<40} {:<10.2f}\n", label, value);
}

}  // namespace

std::string serve_report_text(const ServeLoad& load, const ServeResult& result,
                              const ServeReportOptions& options) {
  const Summary summary = summarize(result, options);
  std::string text = fmt::format("{:=^50}\n", " Serving Benchmark Result ");
  add_row(&text, "Successful requests:", summary.completed);
  add_row(&text, "Failed requests:", summary.failed);
  if (load.max_concurrency > 0) {
    add_row(&text, "Maximum request concurrency:", load.max_concurrency);
  }
  if (load.request_rate > 0) add_row(&text, "Request rate configured (RPS):", load.request_rate);
  add_row(&text, "Benchmark duration (s):", result.duration);
  add_row(&text, "Total input tokens:", summary.input_tokens);
  add_row(&text, "Total generated tokens:", summary.output_tokens);
  add_row(&text, "Request throughput (req/s):",
          per_second(static_cast<double>(summary.completed), result));
  if (!options.goals.empty()) {
    add_row(&text,
            "Request goodput (req/s):", per_second(static_cast<double>(summary.good), result));
  }
  add_row(&text, "Output token throughput (tok/s):",
          per_second(static_cast<double>(summary.output_tokens), result));
  add_row(&text, "Peak output token throughput (tok/s):", summary.peak_tokens_per_second);
  add_row(&text, "Peak concurrent requests:", result.most_at_once);
  add_row(&text, "Total token throughput (tok/s):",
          per_second(static_cast<double>(summary.input_tokens + summary.output_tokens), result));
  for (const Series& series : summary.series) {
    std::string upper = series.name;
    for (char& c : upper) c = c >= 'a' ? static_cast<char>(c - 'a' + 'A') : c;
    text += fmt::format("{:-^50}\n", series.title);
    add_row(&text, fmt::format("Mean {} (ms):", upper), series.mean());
    add_row(&text, fmt::format("Median {} (ms):", upper), series.percentile(50));
    for (const double percent : options.percentiles) {
      add_row(&text, fmt::format("P{} {} (ms):", percent_name(percent), upper),
              series.percentile(percent));
    }
  }
  text += std::string(50, '=') + "\n";
  for (const ServeRecord& record : result.records) {
    if (record.completed) continue;
    text += fmt::format("the first failure: {}\n", record.error);
    break;
  }
  return text;
}

std::string serve_report_json(const ServeLoad& load, const ServeResult& result,
                              const ServeReportOptions& options) {
  const Summary summary = summarize(result, options);
  Json json;
  json["date"] = options.date;
  json["backend"] = options.backend;
  json["model_id"] = result.model;
  json["num_prompts"] = load.prompts;
  json["request_rate"] = load.request_rate > 0 ? Json(load.request_rate) : Json("inf");
  json["max_concurrency"] = load.max_concurrency > 0 ? Json(load.max_concurrency) : Json();
  json["duration"] = result.duration;
  json["completed"] = summary.completed;
  json["failed"] = summary.failed;
  json["total_input_tokens"] = summary.input_tokens;
  json["total_output_tokens"] = summary.output_tokens;
  json["request_throughput"] = per_second(static_cast<double>(summary.completed), result);
  json["request_goodput"] =
      options.goals.empty() ? Json() : Json(per_second(static_cast<double>(summary.good), result));
  json["output_throughput"] = per_second(static_cast<double>(summary.output_tokens), result);
  json["total_token_throughput"] =
      per_second(static_cast<double>(summary.input_tokens + summary.output_tokens), result);
  json["max_output_tokens_per_s"] = summary.peak_tokens_per_second;
  json["max_concurrent_requests"] = result.most_at_once;
  for (const Series& series : summary.series) {
    const auto key = [&](const std::string& what) {
      return fmt::format("{}_{}_ms", what, series.name);
    };
    json[key("mean")] = series.mean();
    json[key("median")] = series.percentile(50);
    json[key("std")] = series.deviation();
    for (const double percent : options.percentiles) {
      json[key(fmt::format("p{}", percent_name(percent)))] = series.percentile(percent);
    }
  }
  if (options.detailed) {
    for (const char* name : {"input_lens", "output_lens", "ttfts", "itls", "errors"}) {
      json[name] = Json::array();
    }
    for (const ServeRecord& record : result.records) {
      json["input_lens"].push_back(record.input_tokens);
      json["output_lens"].push_back(record.output_tokens);
      json["ttfts"].push_back(record.first_token);
      json["itls"].push_back(record.gaps);
      json["errors"].push_back(record.error);
    }
  }
  return dump_json(json);
}

}  // namespace octet
