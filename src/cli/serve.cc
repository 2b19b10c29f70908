// octet serve: OpenAI's API over HTTP.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/generation_report.h"
#include "cli/inspect_cache.h"
#include "cli/options.h"
#include "core/error.h"
#include "core/printable.h"
#include "engine/engine_thread.h"
#include "kv/kv_skip_layers.h"
#include "server/log.h"
#include "server/server.h"
#include "server/threaded_engine_client.h"

namespace octet {

namespace {

struct ServeFlags {
  std::string model;
  ServerOptions server;
  int port = 8000;
  std::vector<std::string> names;
  double request_timeout = 0;
  double grace_period = 30;
  double stuck_after = 60;
  std::int64_t max_request_bytes = std::int64_t{16} << 20;
  std::int64_t max_model_len = 0;
  std::int64_t max_queued_requests = 1024;
  std::int64_t cache_pages = 0;
  bool prefix_caching = true;
  // Not given: what suits the device.
  std::optional<std::int64_t> max_sequences;
  std::optional<std::int64_t> max_batched_tokens;
  std::optional<std::int64_t> prefill_beside_decodes;
  CacheFlags cache;
  MachineFlags machine;
  std::string log_level = "info";
};

std::chrono::milliseconds milliseconds(const char* flag, double seconds) {
  if (!(seconds >= 0 && seconds <= 1e9)) {
    throw_bad_input("{} {}: expected a number of seconds of at least 0", flag, seconds);
  }
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

ServerOptions server_options(const ServeFlags& flags) {
  ServerOptions options = flags.server;
  options.port = static_cast<std::uint16_t>(flags.port);
  options.connection.body_bytes = static_cast<std::size_t>(flags.max_request_bytes);
  options.connection.all_body_bytes = 4 * options.connection.body_bytes;
  options.api.limits.max_json_bytes = options.connection.body_bytes;
  options.api.request_timeout = milliseconds("--request-timeout", flags.request_timeout);
  options.api.stuck_after = milliseconds("--stuck-after", flags.stuck_after);
  options.grace_period = milliseconds("--grace-period", flags.grace_period);
  options.api.version = OCTET_VERSION;
  options.api.created = std::chrono::duration_cast<std::chrono::seconds>(
                            std::chrono::system_clock::now().time_since_epoch())
                            .count();
  for (const std::string& key : options.api.api_keys) {
    if (key.empty()) throw_bad_input("--api-key is empty, which every request would know");
  }
  return options;
}

// A CPU reads some hundred tokens a second: 512 beside answers would hold these up for seconds. A
// GPU reads tens of thousands, the faster the more at once: 2,048 rows of 8 billion weights take 40
// ms.
constexpr SchedulerLimits cpu_limits{.max_sequences = 32,
                                     .max_batched_tokens = cpu_prefill_chunk,
                                     .prefill_chunk = cpu_prefill_chunk,
                                     .prefill_beside_decodes = 128};
constexpr SchedulerLimits gpu_limits{.max_sequences = 256,
                                     .max_batched_tokens = gpu_prefill_chunk,
                                     .prefill_chunk = gpu_prefill_chunk,
                                     .prefill_beside_decodes = 2048};

SchedulerLimits limits_of(const ServeFlags& flags, Device device) {
  SchedulerLimits limits = device == Device::cuda ? gpu_limits : cpu_limits;
  limits.max_sequences = flags.max_sequences.value_or(limits.max_sequences);
  limits.max_batched_tokens = flags.max_batched_tokens.value_or(limits.max_batched_tokens);
  limits.prefill_beside_decodes =
      flags.prefill_beside_decodes.value_or(limits.prefill_beside_decodes);
  limits.prefill_chunk = limits.max_batched_tokens;
  return limits;
}

std::string default_text(std::int64_t on_cpu, std::int64_t on_gpu) {
  return fmt::format("{}, on a GPU {}", on_cpu, on_gpu);
}

EngineOptions engine_options(const ServeFlags& flags, Device* device) {
  EngineOptions options;
  *device = flags.machine.apply_to(&options);
  flags.cache.apply_to(&options, *device);
  if (flags.cache_pages > 0 && flags.cache.memory_bytes > 0) {
    throw_bad_input(
        "--num-gpu-blocks-override and --kv-cache-memory-bytes both size the cache, expected one");
  }
  options.kv_cache_pages = flags.cache_pages;
  options.prefix_caching = flags.prefix_caching;
  options.max_model_len = flags.max_model_len;
  options.limits = limits_of(flags, *device);
  return options;
}

std::vector<std::string> model_names(const ServeFlags& flags) {
  std::vector<std::string> names = flags.names;
  if (names.empty()) names.push_back(std::filesystem::path(flags.model).stem().string());
  for (const std::string& name : names) {
    require_utf8("--served-model-name", name);
    if (name.empty()) throw_bad_input("--served-model-name is empty, expected a name");
  }
  return names;
}

// Tokens that the whole arena holds, each in every group.
std::int64_t cache_tokens(const EngineCore& core) {
  return static_cast<std::int64_t>(static_cast<double>(core.pool().arena().size()) /
                                   core.pool().layout().bytes_per_token());
}

ServedModelFacts facts_of(const EngineCore& core, const std::string& name, bool prefix_caching) {
  const PagePool& pool = core.pool();
  const KvPolicy& policy = core.policy();
  ServedModelFacts facts;
  facts.model_name = name;
  facts.max_model_len = core.max_model_len();
  facts.cache_tokens = cache_tokens(core);
  facts.cache_config = {
      {"cache_dtype", policy.dtype_name},
      {"kv_cache_scales", policy.scales_name},
      {"layers", describe_layers(policy)},
      {"block_size", std::to_string(page_tokens)},
      {"enable_prefix_caching", prefix_caching ? "True" : "False"},
      {"num_gpu_blocks", std::to_string(facts.cache_tokens / page_tokens)},
      {"kv_cache_size_tokens", std::to_string(facts.cache_tokens)},
      {"kv_cache_memory_bytes", std::to_string(pool.arena().size())},
      {"kv_cache_max_concurrency",
       fmt::format("{:.2f}", static_cast<double>(facts.cache_tokens) /
                                 static_cast<double>(facts.max_model_len))},
  };
  return facts;
}

void log_start(const LoadedModel& loaded, const EngineCore& core, const ServedModelFacts& facts,
               const std::vector<std::string>& skip_layers) {
  const ModelConfig& config = loaded.model->config();
  log_info(fmt::format("model {} ({}, {} layers, {} KV heads of {}), read in {:.1f} s",
                       printable(loaded.checkpoint.path()), config.family, config.layers,
                       config.kv_heads, config.head_dim, loaded.load_seconds));
  log_info(fmt::format("device {}", describe_device(core)));
  log_info(fmt::format("KV cache {}: {}", core.policy().dtype_name, core.policy().summary()));
  const std::vector<KvLayerGeometry> geometry = config.kv_geometry();
  for (const std::string& group :
       cache_layer_groups(core.policy(), geometry, skipped_layers(skip_layers, geometry))) {
    log_info(fmt::format("KV cache of {}", group));
  }
  log_info(fmt::format(
      "GPU KV cache size: {} tokens, Maximum concurrency for {} tokens per request: {:.2f}x",
      facts.cache_tokens, facts.max_model_len,
      static_cast<double>(facts.cache_tokens) / static_cast<double>(facts.max_model_len)));
}

void run_serve(const ServeFlags& flags) {
  start_log(flags.log_level);
  ServerOptions options = server_options(flags);
  options.api.model_names = model_names(flags);
  Device device = Device::cpu;
  const EngineOptions for_engine = engine_options(flags, &device);
  check_kv_policy_options(flags.cache.policy);  // every flag is checked before the work starts

  LoadedModel loaded = open_model(flags.model);
  load_weights(&loaded, flags.max_model_len, device);
  std::optional<std::string> chat_template;
  if (loaded.chat_template) {
    chat_template = loaded.chat_template->text;
  } else {
    log_warning("the model has no chat template: /v1/chat/completions will refuse");
  }
  const auto engine = std::make_shared<EngineThread>(
      std::make_unique<Engine>(loaded.model, loaded.tokenizer, for_engine),
      EngineThreadOptions{.max_waiting = flags.max_queued_requests});
  const EngineCore& core = engine->core();
  options.facts = facts_of(core, options.api.model_names.front(), flags.prefix_caching);
  options.api.limits.max_model_len = core.max_model_len();
  options.api.limits.vocabulary_size = loaded.tokenizer->vocabulary_size();
  log_start(loaded, core, options.facts, flags.cache.policy.skip_layers);

  const ModelText text(loaded.tokenizer, chat_template, core.max_model_len());
  ThreadedEngineClient client(engine);
  const std::string host = options.host;
  Server server(std::move(options), client, text);
  log_info(fmt::format("listening on http://{}:{}/",
                       host.find(':') == host.npos ? host : "[" + host + "]", server.port()));
  if (!server.run()) {
    flush_log();
    // The engine's thread cannot be waited for.
    std::_Exit(1);
  }
  log_info("ended");
}

void add_server_flags(CLI::App& command, ServeFlags* flags) {
  const std::string group = "Server";
  ServerOptions& server = flags->server;
  command.add_option("--host", server.host, "Address to listen on (0.0.0.0: all of IPv4)")
      ->capture_default_str()
      ->group(group);
  add_number(command, "--port", &flags->port, "Port (0: any that is free; the log tells it)")
      ->check(CLI::Range(0, 65535))
      ->default_str("8000")
      ->group(group);
  command
      .add_option("--served-model-name", flags->names,
                  "What clients call the model; may be given more than once (default: the file's "
                  "name)")
      ->take_all()
      ->expected(1)
      ->allow_extra_args(false)
      ->group(group);
  command
      .add_option("--api-key", server.api.api_keys,
                  "Key that requests must bring; may be given more than once")
      ->take_all()
      ->expected(1)
      ->allow_extra_args(false)
      ->envname("OCTET_API_KEY")
      ->group(group);
  command
      .add_option("--allowed-origin", server.api.allowed_origins,
                  "Origin whose pages may ask (CORS), *: all; may be given more than once")
      ->take_all()
      ->expected(1)
      ->allow_extra_args(false)
      ->group(group);
  add_number(command, "--max-request-bytes", &flags->max_request_bytes, "Longest body of a request")
      ->check(at_least_one)
      ->default_str(std::to_string(flags->max_request_bytes))
      ->group(group);
  add_number(command, "--request-timeout", &flags->request_timeout,
             "Seconds that an answer may take (0: any)")
      ->default_str("0")
      ->group(group);
  add_number(command, "--grace-period", &flags->grace_period,
             "Seconds that running requests may go on after SIGTERM")
      ->default_str("30")
      ->group(group);
  add_number(command, "--stuck-after", &flags->stuck_after,
             "Seconds without a step after which /health says 503")
      ->default_str("60")
      ->group(group);
  command.add_option("--log-level", flags->log_level, "trace, debug, info, warning, error or off")
      ->capture_default_str()
      ->group(group);
}

void add_engine_flags(CLI::App& command, ServeFlags* flags) {
  const std::string group = "Scheduling";
  add_number(command, "--max-model-len", &flags->max_model_len,
             "Longest prompt and answer together (default: the model's context)")
      ->check(at_least_one)
      ->group(group);
  add_number(command, "--prefill-beside-decodes", &flags->prefill_beside_decodes,
             "Tokens of prompts in a step in which answers wait for a token (0: as many as fit)")
      ->default_str(
          default_text(cpu_limits.prefill_beside_decodes, gpu_limits.prefill_beside_decodes))
      ->group(group);
  add_number(command, "--max-num-seqs", &flags->max_sequences, "Requests that run at once")
      ->check(at_least_one)
      ->default_str(default_text(cpu_limits.max_sequences, gpu_limits.max_sequences))
      ->group(group);
  add_number(command, "--max-num-batched-tokens", &flags->max_batched_tokens,
             "Tokens computed in one step, and so of a prompt at a time")
      ->check(at_least_one)
      ->default_str(default_text(cpu_limits.max_batched_tokens, gpu_limits.max_batched_tokens))
      ->group(group);
  add_number(command, "--num-gpu-blocks-override", &flags->cache_pages,
             "Size of the cache, on any device: room for so many pages of 64 tokens in every group "
             "of layers")
      ->check(at_least_one)
      ->group(group);
  command
      .add_flag("!--no-enable-prefix-caching", flags->prefix_caching,
                "Let no two prompts that begin alike share cache pages")
      ->group(group);
  add_number(command, "--max-queued-requests", &flags->max_queued_requests,
             "Requests that may wait beside those that run; more get status 429")
      ->default_str(std::to_string(flags->max_queued_requests))
      ->group(group);
}

}  // namespace

void add_serve(CLI::App& program, CommandAction* run) {
  CLI::App* command = program.add_subcommand("serve", "Serve OpenAI's API over HTTP");
  const auto flags = std::make_shared<ServeFlags>();
  add_model_flag(*command, &flags->model);
  add_server_flags(*command, flags.get());
  add_engine_flags(*command, flags.get());
  flags->cache.add_to(*command);
  flags->machine.add_to(*command);
  command->callback([flags, run] { *run = [flags] { run_serve(*flags); }; });
}

}  // namespace octet
