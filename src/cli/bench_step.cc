// octet bench step: how long a model's steps take.
#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bench/step.h"
#include "cli/commands.h"
#include "cli/lists.h"
#include "cli/options.h"
#include "core/error.h"
#include "core/json.h"

namespace octet {

namespace {

constexpr std::int64_t most_context = std::int64_t{1} << 30;

struct StepFlags {
  std::string model;
  bool random_weights = false;
  std::string weight_dtype = "bfloat16";
  std::string contexts = "256";
  std::string caches = "auto";
  std::string scales = "auto";
  std::int64_t chunk = 8192;
  StepBench bench;
  MachineFlags machine;
  bool json = false;
};

// Means cost a subtraction and no time that could be measured, and random weights have none.
std::vector<KvPolicyOptions> parse_caches(const StepFlags& flags) {
  std::vector<KvPolicyOptions> caches;
  for (const std::string& dtype : split_list(flags.caches)) {
    KvPolicyOptions cache;
    cache.dtype = dtype;
    cache.scales = flags.scales;
    check_kv_policy_options(cache);
    caches.push_back(std::move(cache));
  }
  if (caches.size() > 2) {
    throw_bad_input("--kv-cache-dtype {}: expected one format, or two to compare", flags.caches);
  }
  return caches;
}

std::optional<DataType> parse_weight_dtype(const StepFlags& flags) {
  if (flags.weight_dtype != "bfloat16" && flags.weight_dtype != "fp8") {
    throw_bad_input("--weight-dtype {}: expected bfloat16 or fp8", flags.weight_dtype);
  }
  if (!flags.random_weights) {
    if (flags.weight_dtype != "bfloat16") {
      throw_bad_input(
          "--weight-dtype says how --random-weights are stored, and these are not given");
    }
    return std::nullopt;
  }
  return flags.weight_dtype == "fp8" ? DataType::float8_e4m3 : DataType::bfloat16;
}

Json as_json(const std::vector<OperationTime>& operations) {
  Json lines = Json::array();
  for (const OperationTime& time : operations) {
    Json line;
    line["operation"] = time.operation;
    line["launches"] = time.launches;
    line["us"] = time.microseconds;
    if (time.bytes > 0) line["tb_per_s"] = time.bytes / time.microseconds * 1e-6;
    if (time.operations > 0) line["tflops"] = time.operations / time.microseconds * 1e-6;
    lines.push_back(std::move(line));
  }
  return lines;
}

Json as_json(const StepFigure& figure) {
  Json object;
  object["kv_cache_dtype"] = figure.cache;
  object["kv_cache_scales"] = figure.scales;
  object["context"] = figure.context;
  object["ttft_ms"] = figure.first_token_ms;
  object["itl_ms"]["p50"] = figure.step_ms;
  object["itl_ms"]["min"] = figure.fastest_step_ms;
  object["itl_ms"]["p99"] = figure.p99_step_ms;
  object["attention"]["decode"] = figure.decode_kernel;
  object["attention"]["prefill"] = figure.prefill_kernel;
  object["weight_bytes"] = figure.weight_bytes;
  object["cache_bytes"] = figure.cache_bytes;
  object["operations"] = as_json(figure.operations);
  object["prompt_operations"] = as_json(figure.prompt_operations);
  return object;
}

Json as_json(const StepReport& report, const StepFlags& flags) {
  Json object;
  object["device"] = report.device;
  object["model"] = flags.model;
  object["weights"] = flags.random_weights ? "random " + flags.weight_dtype : "the model's";
  object["batch"] = flags.bench.batch;
  object["steps"] = flags.bench.steps;
  object["cuda_graphs"]["captured"] = report.graphs;
  object["cuda_graphs"]["bytes"] = report.graph_bytes;
  object["figures"] = Json::array();
  for (const StepFigure& figure : report.figures) object["figures"].push_back(as_json(figure));
  object["differences"] = Json::array();
  for (const StepDifference& difference : report.differences) {
    Json line;
    line["context"] = difference.context;
    line["mean_ms"] = difference.mean_ms;
    line["ci95_half_width_ms"] = difference.half_width_ms;
    line["pairs"] = difference.pairs;
    object["differences"].push_back(std::move(line));
  }
  return object;
}

// A step is told by what it reads, a prompt by its products.
std::string operations_text(const std::vector<OperationTime>& operations, bool prompt) {
  std::string text;
  double sum = 0;
  for (const OperationTime& time : operations) sum += time.microseconds;
  for (const OperationTime& time : operations) {
    text += fmt::format("    {:<18} {:>4} x  {:>9.1f} us {:>5.1f} %", time.operation, time.launches,
                        time.microseconds, 100 * time.microseconds / sum);
    if (!prompt && time.bytes > 0) {
      text += fmt::format("  {:.2f} TB/s", time.bytes / time.microseconds * 1e-6);
    }
    if (prompt && time.operations > 0) {
      text += fmt::format("  {:.0f} TFLOPS", time.operations / time.microseconds * 1e-6);
    }
    text += '\n';
  }
  return text;
}

std::string as_text(const StepReport& report, const StepFlags& flags) {
  std::string text = fmt::format("{} sequence{} on {}", flags.bench.batch,
                                 flags.bench.batch == 1 ? "" : "s", report.device);
  if (report.graphs > 0) {
    text += fmt::format(", {} graphs, {:.1f} MB", report.graphs,
                        static_cast<double>(report.graph_bytes) / 1e6);
  }
  text += '\n';
  for (const StepFigure& figure : report.figures) {
    const double bytes = figure.weight_bytes + figure.cache_bytes;
    text += fmt::format(
        "  {} at {}: step {:.3f} ms (fastest {:.3f}, p99 {:.3f}), first token after {:.1f} ms",
        figure.cache, figure.context, figure.step_ms, figure.fastest_step_ms, figure.p99_step_ms,
        figure.first_token_ms);
    if (figure.weight_bytes > 0) {
      text += fmt::format(", {:.2f} GB read at {:.2f} TB/s", bytes / 1e9,
                          bytes / figure.step_ms * 1e-9);
    }
    if (!figure.decode_kernel.empty()) {
      text += fmt::format("; {} decode attention, {} prefill", figure.decode_kernel,
                          figure.prefill_kernel);
    }
    text += '\n' + operations_text(figure.operations, false);
    if (!figure.prompt_operations.empty()) {
      text +=
          fmt::format("    the prompt's last {} tokens:\n", (figure.context - 1) % flags.chunk + 1);
      text += operations_text(figure.prompt_operations, true);
    }
  }
  for (const StepDifference& difference : report.differences) {
    text += fmt::format("  second less first at {}: {:+.4f} ms, 95 % within {:.4f} ({} pairs)\n",
                        difference.context, difference.mean_ms, difference.half_width_ms,
                        difference.pairs);
  }
  return text;
}

void run_bench_step(StepFlags flags) {
  StepBench& bench = flags.bench;
  LoadOptions load;
  load.device = flags.machine.apply_to(&bench.engine);
  load.random_weights = parse_weight_dtype(flags);
  bench.contexts = parse_numbers<std::int64_t>("--contexts", flags.contexts, 2, most_context);
  bench.caches = parse_caches(flags);
  bench.engine.limits.max_batched_tokens = flags.chunk;
  load.max_positions = *std::max_element(bench.contexts.begin(), bench.contexts.end());
  const Checkpoint checkpoint =
      flags.random_weights ? Checkpoint::open_geometry(flags.model) : Checkpoint::open(flags.model);
  const std::shared_ptr<Model> model = load_model(checkpoint, load);
  const StepReport report = bench_step(model, bench, [&](const std::string& what) {
    if (!flags.json) std::cerr << what << '\n';
  });
  if (flags.json) {
    std::cout << dump_json(as_json(report, flags)) << '\n';
  } else {
    std::cout << as_text(report, flags);
  }
}

}  // namespace

void add_bench_step(CLI::App& bench, CommandAction* run) {
  CLI::App* command = bench.add_subcommand(
      "step", "A model's decode step and first token by context, and what a step consists of");
  const auto flags = std::make_shared<StepFlags>();
  add_model_flag(*command, &flags->model);
  command->add_flag("--random-weights", flags->random_weights,
                    "Random weights of the geometry that the folder's config.json says, on a GPU");
  command->add_option("--weight-dtype", flags->weight_dtype, "Of these: bfloat16 or fp8")
      ->capture_default_str();
  command->add_option("--contexts", flags->contexts, "Keys of a sequence, separated by commas")
      ->capture_default_str();
  command
      ->add_option("--kv-cache-dtype", flags->caches,
                   "Cache format, K[:V]; two, separated by a comma, are compared step by step")
      ->capture_default_str();
  command
      ->add_option("--kv-cache-scales", flags->scales,
                   "Scales of fp8: auto, dynamic, unit, or FILE, as calibrate writes it")
      ->capture_default_str();
  add_number(*command, "--batch", &flags->bench.batch, "Sequences (default: 1)")
      ->check(CLI::Range(1, 4096));
  add_number(*command, "--steps", &flags->bench.steps, "Steps measured at a context (default: 200)")
      ->check(CLI::Range(2, 1 << 20));
  add_number(*command, "--max-num-batched-tokens", &flags->chunk,
             "Tokens of a prompt computed in one step (default: 8192)")
      ->check(CLI::Range(1, 1 << 20));
  flags->machine.add_to(*command);
  command->add_flag("--json", flags->json, "Print one JSON object and nothing else");
  command->callback([flags, run] { *run = [flags] { run_bench_step(*flags); }; });
}

}  // namespace octet
