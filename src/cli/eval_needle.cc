// octet eval needle: whether a model finds a number in a long text, by depth and length.
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/lists.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "core/error.h"
#include "core/json.h"
#include "engine/key_means.h"
#include "eval/needle.h"

namespace octet {

namespace {

struct NeedleFlags {
  std::string model;
  std::string lengths;
  std::string depths = "0,25,50,75,100";
  std::int64_t chunk = 0;  // 0: what suits the device
  NeedleOptions options;
  CacheFlags cache;
  MachineFlags machine;
  bool json = false;
};

Json as_json(const std::vector<NeedleCell>& cells, const EngineCore& core,
             const NeedleFlags& flags) {
  Json object;
  object["model"] = core.model().config().name.empty() ? flags.model : core.model().config().name;
  object["device"] = describe_device(core);
  object["cache"] = core.policy().summary();
  object["attention_accumulation"] = flags.cache.accumulation;
  object["samples"] = flags.options.samples;
  object["batch"] = flags.options.batch;
  object["seed"] = flags.options.seed;
  object["cells"] = Json::array();
  for (const NeedleCell& cell : cells) {
    Json entry;
    entry["length"] = cell.length;
    entry["depth"] = cell.depth;
    entry["asked"] = cell.asked;
    entry["right"] = cell.right;
    entry["probability"] = cell.probability;
    object["cells"].push_back(std::move(entry));
  }
  return object;
}

// A line a length, a column a depth: right answers in per cent.
std::string as_text(const std::vector<NeedleCell>& cells, const EngineCore& core,
                    const NeedleFlags& flags) {
  const NeedleOptions& options = flags.options;
  std::string text = fmt::format(
      "device        {}\n"
      "cache         {}\n"
      "accumulation  {}, {} questions a step\n"
      "right answers in per cent, {} questions for each depth\n\n  tokens ",
      describe_device(core), core.policy().summary(), flags.cache.accumulation, options.batch,
      options.samples);
  for (const double depth : options.depths)
    text += fmt::format("{:>7}", fmt::format("{:g} %", depth));
  text += "    all\n";
  for (std::size_t line = 0; line < options.lengths.size(); ++line) {
    text += fmt::format("{:>8} ", options.lengths[line]);
    std::int64_t right = 0;
    std::int64_t asked = 0;
    for (std::size_t i = 0; i < options.depths.size(); ++i) {
      const NeedleCell& cell = cells[line * options.depths.size() + i];
      right += cell.right;
      asked += cell.asked;
      text += fmt::format(
          "{:>7.0f}", 100.0 * static_cast<double>(cell.right) / static_cast<double>(cell.asked));
    }
    text +=
        fmt::format("{:>7.1f}\n", 100.0 * static_cast<double>(right) / static_cast<double>(asked));
  }
  return text;
}

void run_needle(NeedleFlags flags) {
  EngineOptions options;
  const Device device = flags.machine.apply_to(&options);
  if (flags.machine.dtype == "auto") options.arithmetic = Arithmetic::float32;
  options.cache = flags.cache.policy;
  options.accumulation = flags.cache.chosen_accumulation();
  check_kv_policy_options(options.cache);
  NeedleOptions& needle = flags.options;
  needle.lengths = parse_numbers<std::int64_t>("--lengths", flags.lengths, 1, 1 << 30);
  needle.depths = parse_numbers<double>("--depths", flags.depths, 0, 100);
  needle.chunk = flags.chunk;
  if (needle.chunk == 0) {
    needle.chunk = device == Device::cuda ? gpu_prefill_chunk : cpu_prefill_chunk;
  }
  // Questions share a text's pages, which are whole when a chunk ends.
  if (needle.chunk % page_tokens != 0) {
    throw_bad_input("--prefill-chunk {}: expected a multiple of {}, the tokens of a page",
                    needle.chunk, page_tokens);
  }
  const std::int64_t longest = *std::max_element(needle.lengths.begin(), needle.lengths.end());

  LoadedModel loaded = open_model(flags.model);
  load_weights(&loaded, longest, device);
  if (longest > loaded.model->config().max_positions) {
    throw_bad_input("--lengths {}: the model was made for {} tokens", longest,
                    loaded.model->config().max_positions);
  }
  options.max_model_len = longest;
  options.kv_cache_bytes = static_cast<std::size_t>(flags.cache.memory_bytes);
  if (options.kv_cache_bytes == 0) options.kv_cache_pages = needle_pages(needle);
  options.limits.max_sequences = needle.batch;
  options.limits.max_batched_tokens = std::max(needle.chunk, needle.batch);
  options.limits.prefill_chunk = needle.chunk;
  EngineCore core(loaded.model, with_key_means(options, loaded.model, *loaded.tokenizer));

  std::int64_t all = 0;
  for (const std::int64_t length : needle.lengths) all += length;
  Progress progress("eval needle", all);
  const std::vector<NeedleCell> cells = evaluate_needle(
      core, *loaded.tokenizer, needle, [&](std::int64_t done) { progress.update(done); });
  progress.clear();
  if (flags.json) {
    std::cout << dump_json(as_json(cells, core, flags)) << '\n';
  } else {
    std::cout << as_text(cells, core, flags);
  }
}

}  // namespace

void add_eval_needle(CLI::App& eval, CommandAction* run) {
  CLI::App* command = eval.add_subcommand(
      "needle", "Whether the model finds a number in a long text, by depth and length");
  const auto flags = std::make_shared<NeedleFlags>();
  NeedleOptions& options = flags->options;
  add_model_flag(*command, &flags->model);
  command->add_option("--lengths", flags->lengths, "Tokens of a text, separated by commas")
      ->required();
  command
      ->add_option("--depths", flags->depths,
                   "Where needles lie: per cent of the text before them, separated by commas")
      ->capture_default_str();
  add_number(*command, "--samples", &options.samples, "Questions for each depth (default: 8)")
      ->check(CLI::Range(1, 450));
  add_number(*command, "--batch", &options.batch,
             "Questions that a step of decoding answers side by side (default: 64)")
      ->check(CLI::Range(1, 450));
  add_number(*command, "--seed", &options.seed, "Of numbers and sentences (default: 1)");
  add_number(*command, "--prefill-chunk", &flags->chunk,
             "Tokens of the text computed in one step (default: what suits the device)")
      ->check(at_least_one);
  command->add_flag("--json", flags->json, "Print one JSON object");
  flags->cache.add_to(*command);
  flags->machine.add_to(*command);
  command->callback([flags, run] { *run = [flags] { run_needle(*flags); }; });
}

}  // namespace octet
