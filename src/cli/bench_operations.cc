// octet bench operations: what stands between a model's matrices, on an NVIDIA GPU.
#include <charconv>
#include <iostream>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bench/gpu_operations.h"
#include "cli/commands.h"
#include "core/error.h"
#include "core/json.h"

namespace octet {

namespace {

struct OperationsFlags {
  GpuOperationsBench bench;
  std::string heads = "32/8";
  bool json = false;
};

void parse_heads(const std::string& text, GpuOperationsBench* bench) {
  const char* end = text.data() + text.size();
  const auto query = std::from_chars(text.data(), end, bench->query_heads);
  const char* rest = query.ptr != end && *query.ptr == '/' ? query.ptr + 1 : end;
  const auto kv = std::from_chars(rest, end, bench->kv_heads);
  if (query.ec != std::errc() || kv.ec != std::errc() || kv.ptr != end || bench->kv_heads < 1 ||
      bench->query_heads < 1 || bench->query_heads > 4096 ||
      bench->query_heads % bench->kv_heads != 0) {
    throw_bad_input("--heads {}: expected query heads/KV heads, the former a multiple, as in 32/8",
                    text);
  }
}

std::string as_text(const GpuOperationsBench& bench, const GpuOperationsReport& report) {
  std::string text = fmt::format("{} rows, a cache of {}, contexts of {}, on {}\n", bench.rows,
                                 bench.cache, bench.context, report.device);
  for (const GpuOperationFigure& figure : report.figures) {
    text += fmt::format("{:<28} {:>10.2f} us", figure.name, figure.microseconds);
    if (figure.bytes > 0) {
      text += fmt::format("  {:.3f} TB/s", figure.bytes / figure.microseconds * 1e-6);
    }
    if (figure.multiply_adds > 0) {
      text += fmt::format("  {:.0f} TFLOPS", 2 * figure.multiply_adds / figure.microseconds * 1e-6);
    }
    text += '\n';
  }
  return text;
}

Json as_json(const GpuOperationsBench& bench, const GpuOperationsReport& report) {
  Json object;
  object["device"] = report.device;
  object["head_dim"] = bench.head_dim;
  object["query_heads"] = bench.query_heads;
  object["kv_heads"] = bench.kv_heads;
  object["cache"] = bench.cache;
  object["rows"] = bench.rows;
  object["context"] = bench.context;
  object["prefill"] = bench.prefill;
  for (const GpuOperationFigure& figure : report.figures) {
    object["operations"].push_back({{"name", figure.name},
                                    {"us", figure.microseconds},
                                    {"bytes", figure.bytes},
                                    {"multiply_adds", figure.multiply_adds}});
  }
  return object;
}

void run_operations(const OperationsFlags& flags) {
  GpuOperationsBench bench = flags.bench;
  parse_heads(flags.heads, &bench);
  const GpuOperationsReport report = bench_gpu_operations(bench);
  if (flags.json) {
    std::cout << dump_json(as_json(bench, report)) << '\n';
  } else {
    std::cout << as_text(bench, report);
  }
}

}  // namespace

void add_bench_operations(CLI::App& bench, CommandAction* run) {
  CLI::App* command = bench.add_subcommand(
      "operations", "Norms, activations, cache writes, portable attention and sampling on a GPU");
  const auto flags = std::make_shared<OperationsFlags>();
  GpuOperationsBench& options = flags->bench;
  const auto number = [command](const char* name, int* value, const char* help, int least,
                                int most) {
    command->add_option(name, *value, help)->check(CLI::Range(least, most))->capture_default_str();
  };
  number("--rows", &options.rows, "Sequences of the step, a row each", 1, 4096);
  number("--context", &options.context, "Keys of each sequence", 1, 1 << 22);
  number("--prefill", &options.prefill, "Tokens of one sequence's prefill; 0: none", 0, 1 << 20);
  number("--head-dim", &options.head_dim, "Elements of a head", 1, 512);
  command->add_option("--heads", flags->heads, "Query heads/KV heads")->capture_default_str();
  number("--hidden", &options.hidden, "Elements of a row", 1, 49152);
  number("--intermediate", &options.intermediate, "Elements of its feed-forward", 1, 1 << 20);
  number("--vocabulary", &options.vocabulary, "Tokens", 1, 1 << 18);
  command->add_option("--kv-cache-dtype", options.cache, "Cache format, K[:V] as in generate")
      ->capture_default_str();
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback([flags, run] { *run = [flags] { run_operations(*flags); }; });
}

}  // namespace octet
