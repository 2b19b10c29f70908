// octet generate: one prompt, one answer.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/generation_report.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/rounding_report.h"
#include "cli/terminal_text.h"
#include "core/error.h"
#include "core/printable.h"
#include "text/chat_template.h"

namespace octet {

namespace {

constexpr std::size_t most_prompt_bytes = std::size_t{1} << 28;

struct GenerateFlags {
  std::string model;
  std::optional<std::string> prompt;
  std::optional<std::string> prompt_file;
  bool chat = false;
  std::optional<std::string> system;
  SamplingParams sampling;
  std::int64_t max_model_len = 0;
  std::string prefill_chunk;  // empty: what suits the device
  CacheFlags cache;
  MachineFlags machine;
  bool json = false;
  bool verbose = false;
};

std::int64_t parse_prefill_chunk(const std::string& text, Device device) {
  if (text.empty()) return device == Device::cuda ? gpu_prefill_chunk : cpu_prefill_chunk;
  if (text == "whole") return 0;
  std::int64_t chunk = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), chunk);
  if (error != std::errc() || stop != text.data() + text.size() || chunk < 1) {
    throw_bad_input("--prefill-chunk {}: expected a number of tokens of at least 1, or whole",
                    text);
  }
  return chunk;
}

std::string read_prompt(const GenerateFlags& flags) {
  if (flags.prompt) {
    require_utf8("--prompt", *flags.prompt);
    return *flags.prompt;
  }
  if (flags.prompt_file) {
    return read_text("--prompt-file", *flags.prompt_file, most_prompt_bytes);
  }
  throw_bad_input("--prompt TEXT or --prompt-file FILE is missing (- reads standard input)");
}

// The pieces that the template wrote may hold special tokens; what the user wrote stays text.
std::vector<TokenId> encode_chat(const LoadedModel& loaded, const GenerateFlags& flags,
                                 const std::string& prompt) {
  const FolderText& chat_template = require_chat_template(loaded);
  const Tokenizer& tokenizer = *loaded.tokenizer;
  const auto text_of = [&](std::optional<TokenId> token) {
    return token ? std::string(tokenizer.token_text(*token)) : std::string();
  };
  ChatTemplateInput input;
  if (flags.system) {
    require_utf8("--system", *flags.system);
    input.messages.push_back({"system", *flags.system});
  }
  input.messages.push_back({"user", prompt});
  input.beginning_of_text = text_of(tokenizer.beginning_of_text());
  const std::vector<TokenId>& ends = tokenizer.end_tokens();
  if (!ends.empty()) input.end_of_text = text_of(ends.front());

  std::vector<PromptPiece> pieces;
  try {
    pieces = ChatTemplate::parse(chat_template.text).render(input);
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}", chat_template.file, error.what()));
  }
  return tokenizer.encode(pieces);
}

std::vector<TokenId> encode_prompt(const LoadedModel& loaded, const GenerateFlags& flags) {
  if (flags.system && !flags.chat) {
    throw_bad_input("--system needs --chat: a raw prompt has no system turn");
  }
  const std::string prompt = read_prompt(flags);
  if (prompt.empty()) throw_bad_input("the prompt is empty; expected some text");
  std::vector<TokenId> tokens =
      flags.chat ? encode_chat(loaded, flags, prompt) : encode_raw(*loaded.tokenizer, prompt);
  if (tokens.empty()) throw_bad_input("the prompt has no text that the model's vocabulary knows");
  return tokens;
}

EngineOptions make_options(const GenerateFlags& flags, std::int64_t context,
                           std::int64_t prompt_tokens) {
  EngineOptions options;
  const Device device = flags.machine.apply_to(&options);
  flags.cache.apply_to(&options, device);
  if (prompt_tokens >= context) {
    throw_bad_input(
        "the prompt is {} tokens long, and the context of {} tokens must hold it and at "
        "least one token of the answer",
        prompt_tokens, context);
  }
  // The cache holds this request and no more.
  options.max_model_len =
      prompt_tokens + std::min(flags.sampling.max_tokens, context - prompt_tokens);
  options.limits.max_sequences = 1;
  const std::int64_t chunk = parse_prefill_chunk(flags.prefill_chunk, device);
  options.limits.prefill_chunk = chunk;
  options.limits.max_batched_tokens = chunk == 0 ? prompt_tokens : std::min(chunk, prompt_tokens);
  return options;
}

void run_generate(const GenerateFlags& flags) {
  flags.sampling.validate();
  for (const std::string& stop : flags.sampling.stop) require_utf8("--stop", stop);
  if (flags.sampling.logprobs >= 0 && !flags.json) {
    throw_bad_input("--logprobs needs --json, which reports them");
  }
  // Every flag is checked before the work starts.
  EngineOptions probe;
  const Device device = flags.machine.apply_to(&probe);
  flags.cache.apply_to(&probe, device);
  parse_prefill_chunk(flags.prefill_chunk, device);
  check_kv_policy_options(flags.cache.policy);

  LoadedModel loaded = open_model(flags.model);
  GenerateRequest request;
  request.prompt = encode_prompt(loaded, flags);
  request.sampling = flags.sampling;
  const auto prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  load_weights(&loaded, prompt_tokens + std::min(flags.sampling.max_tokens, most - prompt_tokens),
               device);
  const std::int64_t made_for = loaded.model->config().max_positions;
  if (flags.max_model_len > made_for) {
    throw_bad_input("--max-model-len is {}, and the model was made for {} tokens",
                    flags.max_model_len, made_for);
  }
  const std::int64_t context = flags.max_model_len > 0 ? flags.max_model_len : made_for;

  GenerationReport report;
  report.load_seconds = loaded.load_seconds;
  report.prompt = request.prompt;
  report.wants_logprobs = flags.sampling.logprobs >= 0;
  Engine engine(loaded.model, loaded.tokenizer, make_options(flags, context, prompt_tokens));
  if (!flags.json) {
    std::cerr << "cache  " << single_line(engine.core().policy().summary()) << '\n';
  }
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  Progress progress("prefill", prompt_tokens);
  const auto start = GenerationReport::Clock::now();
  const RequestId id = engine.submit(std::move(request));
  while (!engine.idle()) {
    if (const Sequence* sequence = engine.scheduler().find(id);
        sequence != nullptr && sequence->generated() == 0) {
      progress.update(sequence->computed_tokens);
    }
    for (TokenEvent& event : engine.step()) {
      progress.clear();
      if (event.finished == FinishReason::error) {
        throw_error(ErrorKind::internal, "{}", event.message);
      }
      if (!flags.json)
        std::cout << (terminal ? terminal_text(event.text) : event.text) << std::flush;
      report.add(std::move(event));
      if (!std::cout) throw_error(ErrorKind::device, "standard output could not be written");
    }
  }
  report.measure(start);
  if (flags.json) {
    std::cout << report.as_json(engine) << '\n';
  } else {
    std::cout << '\n';
    std::cerr << report.as_text(engine);
  }
  std::cerr << rounding_note(engine);
  if (flags.verbose) std::cerr << rounding_by_layer(engine);
}

void add_sampling_flags(CLI::App& command, SamplingParams* sampling) {
  const std::string group = "Sampling";
  add_number(command, "--max-tokens", &sampling->max_tokens, "Most tokens of the answer")
      ->default_str(std::to_string(sampling->max_tokens))
      ->group(group);
  add_number(command, "--temperature", &sampling->temperature, "0: always the most likely token")
      ->default_str("0")
      ->group(group);
  add_number(command, "--top-k", &sampling->top_k, "Keep the K most likely tokens (0: all)")
      ->default_str("0")
      ->group(group);
  add_number(command, "--top-p", &sampling->top_p,
             "Keep the most likely tokens that reach probability P")
      ->default_str("1")
      ->group(group);
  add_number(command, "--min-p", &sampling->min_p,
             "Keep tokens at least P times as likely as the best")
      ->default_str("0")
      ->group(group);
  add_number(command, "--seed", &sampling->seed, "Seed of the draws (default: a new one each time)")
      ->group(group);
  command.add_option("--stop", sampling->stop, "End before this text; may be given more than once")
      ->take_all()
      ->expected(1)
      ->allow_extra_args(false)
      ->group(group);
  command.add_flag("--ignore-eos", sampling->ignore_eos, "Do not end at the model's end tokens")
      ->group(group);
  add_number(command, "--logprobs", &sampling->logprobs,
             "Report each token's log-probability and the K most likely (with --json)")
      ->group(group);
}

}  // namespace

void add_generate(CLI::App& program, CommandAction* run) {
  CLI::App* command = program.add_subcommand("generate", "Answer one prompt");
  const auto flags = std::make_shared<GenerateFlags>();
  add_model_flag(*command, &flags->model);
  CLI::Option* prompt = command->add_option("--prompt", flags->prompt, "The prompt's text");
  command->add_option("--prompt-file", flags->prompt_file, "File of the prompt (-: standard input)")
      ->excludes(prompt);
  command->add_flag("--chat", flags->chat,
                    "The prompt is a user's turn in the model's chat template");
  command->add_option("--system", flags->system, "System turn before it (with --chat)");
  add_number(*command, "--max-model-len", &flags->max_model_len,
             "Longest prompt and answer together (default: the model's context)")
      ->check(at_least_one);
  command
      ->add_option("--prefill-chunk,--max-num-batched-tokens", flags->prefill_chunk,
                   "Tokens of the prompt computed in one step, or whole")
      ->default_str(fmt::format("{}, on a GPU {}", cpu_prefill_chunk, gpu_prefill_chunk));
  command->add_flag("--json", flags->json, "Print one JSON object and nothing else");
  command->add_flag("--verbose", flags->verbose,
                    "Tell on standard error what each layer's cache could not hold");
  add_sampling_flags(*command, &flags->sampling);
  flags->cache.add_to(*command);
  flags->machine.add_to(*command);
  command->callback([flags, run] { *run = [flags] { run_generate(*flags); }; });
}

}  // namespace octet
