// octet eval: what a cache policy costs in accuracy.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "core/error.h"
#include "core/json.h"
#include "engine/key_means.h"
#include "eval/kl.h"

namespace octet {

namespace {

struct KlFlags {
  std::string model;
  std::string text;
  std::int64_t context = 0;
  std::int64_t chunk = most_kl_chunk_tokens;
  std::string reference = "float32";
  std::optional<std::string> reference_dtype;  // that of --dtype unless told
  CacheFlags cache;
  // On the CPU float32 arithmetic unless told, so that only the cache differs.
  MachineFlags machine;
  bool json = false;
};

// Of activations.
std::string_view arithmetic_of(const EngineCore& core) {
  return core.model().device() == Device::cuda ? "bfloat16" : name_of(core.context().arithmetic);
}

Json as_json(const KlReport& report, const EngineCore& candidate, const EngineCore& reference) {
  Json object;
  object["cache"] = candidate.policy().summary();
  object["dtype"] = arithmetic_of(candidate);
  object["reference"] = reference.policy().dtype_name;
  object["reference_dtype"] = arithmetic_of(reference);
  object["tokens"] = report.tokens;
  object["mean"] = report.mean;
  object["median"] = report.median;
  object["p99"] = report.p99;
  object["top1_agreement"] = report.top1_agreement;
  object["perplexity"]["reference"] = report.reference_perplexity;
  object["perplexity"]["candidate"] = report.candidate_perplexity;
  object["by_depth"] = Json::array();
  for (const KlDepth& depth : report.by_depth) {
    Json part;
    part["first"] = depth.first;
    part["last"] = depth.last;
    part["mean"] = depth.mean;
    part["top1_agreement"] = depth.top1_agreement;
    object["by_depth"].push_back(std::move(part));
  }
  return object;
}

std::string as_text(const KlReport& report, const EngineCore& candidate,
                    const EngineCore& reference) {
  std::string text = fmt::format(
      "cache           {}, {} arithmetic\n"
      "against         {}, {} arithmetic, {} tokens\n"
      "KL divergence   mean {:.3e}  median {:.3e}  p99 {:.3e} nats\n"
      "same top token  {:.2f} %\n"
      "perplexity      {:.4f} (reference {:.4f})\n",
      candidate.policy().summary(), arithmetic_of(candidate), reference.policy().dtype_name,
      arithmetic_of(reference), report.tokens, report.mean, report.median, report.p99,
      100 * report.top1_agreement, report.candidate_perplexity, report.reference_perplexity);
  double highest = 0;
  for (const KlDepth& depth : report.by_depth) highest = std::max(highest, depth.mean);
  for (const KlDepth& depth : report.by_depth) {
    constexpr double bar = 40;
    const auto length =
        highest > 0 ? static_cast<std::size_t>(std::max(bar * depth.mean / highest, 0.0)) : 0;
    text += fmt::format("  {:>6} to {:<6} {:.3e} {}\n", depth.first, depth.last, depth.mean,
                        std::string(length, '#'));
  }
  return text;
}

void run_kl(const KlFlags& flags) {
  EngineOptions options;
  const Device device = flags.machine.apply_to(&options);
  if (flags.machine.dtype == "auto") options.arithmetic = Arithmetic::float32;
  flags.cache.apply_to(&options, device);
  options.limits.max_sequences = 1;
  EngineOptions reference_options = options;
  reference_options.cache = {};
  reference_options.accumulation = AttentionAccumulation::two_level;
  reference_options.cache.dtype = flags.reference;
  reference_options.cache.dtype_flag = "--reference";
  // A GPU keeps no float32: that reference is the CPU's, in float32 throughout.
  const bool exact = flags.reference == "float32";
  if (flags.reference_dtype) {
    if (device == Device::cuda && !exact) {
      throw_unsupported(
          "--reference-dtype {}: on a GPU activations are bfloat16; expected --reference float32, "
          "which the CPU computes, or --device cpu",
          *flags.reference_dtype);
    }
    reference_options.arithmetic = parse_arithmetic("--reference-dtype", *flags.reference_dtype,
                                                    reference_options.instruction_set);
  }
  // Every flag is checked before the work starts.
  check_kv_policy_options(options.cache);
  check_kv_policy_options(reference_options.cache);

  LoadedModel loaded = open_model(flags.model);
  std::vector<TokenId> tokens = read_tokens(*loaded.tokenizer, "--text", flags.text);
  const auto text_tokens = static_cast<std::int64_t>(tokens.size());
  load_weights(&loaded, flags.context > 0 ? std::min(flags.context, text_tokens) : text_tokens,
               device);
  const std::int64_t most = loaded.model->config().max_positions;
  if (flags.context > most) {
    throw_bad_input("--context is {}, and the model was made for {} tokens", flags.context, most);
  }
  const std::int64_t count = std::min(text_tokens, flags.context > 0 ? flags.context : most);
  tokens.resize(static_cast<std::size_t>(count));
  options.max_model_len = count;
  reference_options.max_model_len = count;

  EngineCore reference(exact ? model_on_cpu(loaded.model) : loaded.model, reference_options);
  EngineCore candidate(loaded.model, with_key_means(options, loaded.model, *loaded.tokenizer));
  Progress progress("eval kl", count);
  const KlReport report = evaluate_kl(
      reference, candidate, tokens, [&](std::int64_t done) { progress.update(done); }, flags.chunk);
  progress.clear();
  std::cout << (flags.json ? dump_json(as_json(report, candidate, reference)) + "\n"
                           : as_text(report, candidate, reference));
}

}  // namespace

void add_eval(CLI::App& program, CommandAction* run) {
  CLI::App* eval = program.add_subcommand("eval", "Measure what a cache policy costs in accuracy");
  eval->callback([eval] {
    if (eval->get_subcommands().empty())
      throw CLI::RequiredError("eval: a subcommand (kl, needle, accumulation)");
  });
  CLI::App* command = eval->add_subcommand(
      "kl", "KL divergence of the model's predictions to those with another cache");
  const auto flags = std::make_shared<KlFlags>();
  add_model_flag(*command, &flags->model);
  command->add_option("--text", flags->text, "File to read, teacher-forced (-: standard input)")
      ->required();
  add_number(*command, "--context", &flags->context,
             "Tokens of the text to read (default: all that the model's context holds)")
      ->check(at_least_one);
  add_number(*command, "--prefill-chunk", &flags->chunk,
             "Tokens of the text computed in one step; 1 goes the way of decoding")
      ->check(CLI::Range(std::int64_t{1}, most_kl_chunk_tokens))
      ->default_str(std::to_string(most_kl_chunk_tokens));
  command->add_option("--reference", flags->reference, "Cache format to compare with")
      ->capture_default_str();
  command->add_option("--reference-dtype", flags->reference_dtype,
                      "Arithmetic of the reference, as --dtype (default: that of --dtype, so that "
                      "only the cache differs)");
  command->add_flag("--json", flags->json, "Print one JSON object");
  flags->cache.add_to(*command);
  flags->machine.add_to(*command);
  command->callback([flags, run] { *run = [flags] { run_kl(*flags); }; });
  add_eval_needle(*eval, run);
  add_eval_accumulation(*eval, run);
}

}  // namespace octet
