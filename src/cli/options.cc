#include "cli/options.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>

#include <CLI/CLI.hpp>

#include "cli/progress.h"
#include "core/cuda/device.h"
#include "core/error.h"
#include "engine/key_means.h"
#include "ops/linear/linear.h"
#include "text/tokenizer_json.h"
#include "text/unicode.h"

namespace octet {

Arithmetic parse_arithmetic(const std::string& flag, const std::string& dtype, InstructionSet set) {
  if (dtype == "auto") return fastest_arithmetic(set);
  for (const Arithmetic arithmetic :
       {Arithmetic::float32, Arithmetic::bfloat16, Arithmetic::int16, Arithmetic::int8}) {
    if (dtype == name_of(arithmetic)) return arithmetic;
  }
  throw_bad_input("{} {}: expected auto, float32, bfloat16, int16 or int8", flag, dtype);
}

void CacheFlags::add_to(CLI::App& command) {
  const std::string group = cache_group;
  command
      .add_option("--kv-cache-dtype", policy.dtype,
                  "Cache format, K[:V]: auto, float32, float16, bfloat16, fp8 (= fp8_e4m3), int8")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--kv-cache-scales", policy.scales,
                  "Scales of fp8: auto (the checkpoint's, else dynamic), dynamic (per token and KV "
                  "head), unit (1.0), or a file or folder from octet calibrate")
      ->capture_default_str()
      ->group(group);
  command
      .add_option(
          "--kv-cache-dtype-skip-layers", policy.skip_layers,
          "Layers that keep bfloat16: indices and/or sliding_window, separated by spaces or "
          "commas; may be given more than once")
      ->take_all()
      ->group(group);
  policy.key_mean = "auto";
  command
      .add_option("--kv-cache-key-mean", policy.key_mean,
                  "Vectors taken from 8-bit keys before rounding: auto (with dynamic scales), off, "
                  "or a file or folder that holds them")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--attention-accumulation", accumulation,
                  "How Hopper's FP8 tensor cores add up long contexts in decode: two-level, or "
                  "single (loses them; to compare with)")
      ->check(CLI::IsMember({"two-level", "single"}))
      ->capture_default_str()
      ->group(group);
  add_number(command, "--kv-cache-memory-bytes", &memory_bytes,
             "Bytes of the cache (default: what the context needs)")
      ->check(at_least_one)
      ->group(group);
}

AttentionAccumulation CacheFlags::chosen_accumulation() const {
  return accumulation == "single" ? AttentionAccumulation::single_level
                                  : AttentionAccumulation::two_level;
}

// The CPU adds in float32 and has no second level to leave out.
void CacheFlags::apply_to(EngineOptions* options, Device device) const {
  options->cache = policy;
  options->kv_cache_bytes = static_cast<std::size_t>(memory_bytes);
  options->accumulation = chosen_accumulation();
  if (options->accumulation == AttentionAccumulation::single_level && device == Device::cpu) {
    throw_unsupported(
        "--attention-accumulation single: the CPU adds up in float32; expected two-level, or "
        "--device cuda (octet eval needle and octet eval accumulation emulate a Hopper GPU)");
  }
}

void MachineFlags::add_to(CLI::App& command) {
  const std::string group = "Machine";
  command
      .add_option("--dtype", dtype,
                  "Arithmetic of matrices and activations: auto (the fastest here; float32 in "
                  "eval), float32, bfloat16, "
                  "int16 (activations as 16-bit integers, for quantised weights), int8 (as int16, "
                  "but 8 bits where weights have at most 5)")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--device", device,
                  "auto (a GPU where one can be had, else the CPU), cpu or cuda")
      ->capture_default_str()
      ->group(group);
  add_number(command, "--gpu-memory-utilization", &gpu_memory_utilization,
             "Share of the GPU's memory, free beside weights and scratch, that the cache may take")
      ->default_str("0.9")
      ->group(group);
  command.add_option("--cuda-graphs", cuda_graphs, "Replay decode steps as CUDA graphs: on or off")
      ->capture_default_str()
      ->group(group);
  add_cpu_to(command);
}

void MachineFlags::add_cpu_to(CLI::App& command) {
  const std::string group = "Machine";
  command.add_option("--instruction-set", instruction_set, "auto, or one that --version lists")
      ->capture_default_str()
      ->group(group);
  add_number(command, "--threads", &threads, "CPU threads (default: all that the process may use)")
      ->check(CLI::Range(1, 1024))
      ->group(group);
}

Device MachineFlags::chosen_device() const {
  if (device == "cpu") return Device::cpu;
  if (device != "auto" && device != "cuda") {
    throw_bad_input("--device {}: expected auto, cpu or cuda", device);
  }
  const std::string reason = cuda_unavailable_reason();
  if (reason.empty()) return Device::cuda;
  if (device == "cuda") throw_error(ErrorKind::device, "--device cuda: {}", reason);
  return Device::cpu;
}

Device MachineFlags::apply_to(EngineOptions* options) const {
  if (!(gpu_memory_utilization > 0 && gpu_memory_utilization <= 1)) {
    throw_bad_input("--gpu-memory-utilization {}: expected a number above 0 and at most 1",
                    gpu_memory_utilization);
  }
  if (cuda_graphs != "on" && cuda_graphs != "off") {
    throw_bad_input("--cuda-graphs {}: expected on or off", cuda_graphs);
  }
  // Activations of a GPU are bfloat16: another arithmetic is the CPU's.
  const bool wants_cpu = dtype != "auto" && dtype != "bfloat16";
  const Device chosen = wants_cpu && device == "auto" ? Device::cpu : chosen_device();
  if (chosen == Device::cuda && wants_cpu) {
    throw_unsupported(
        "--dtype {}: on a GPU activations are bfloat16; expected auto or bfloat16, or --device cpu",
        dtype);
  }
  options->gpu_memory_utilization = gpu_memory_utilization;
  options->cuda_graphs = cuda_graphs == "on";
  options->instruction_set = parse_instruction_set(instruction_set);
  options->arithmetic = parse_arithmetic("--dtype", dtype, options->instruction_set);
  options->threads = threads;
  return chosen;
}

std::string describe_device(const EngineCore& core) {
  if (core.model().device() == Device::cuda) {
    return fmt::format("cuda, {}, bfloat16 arithmetic", cuda_device_info().name);
  }
  return fmt::format("cpu, {} threads, {} kernels, {} arithmetic", core.context().pool->size(),
                     name_of(core.context().instruction_set), name_of(core.context().arithmetic));
}

void add_model_flag(CLI::App& command, std::string* path) {
  command.add_option("-m,--model", *path, "Model: a GGUF file, or a Hugging Face folder")
      ->required();
}

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

LoadedModel open_model(const std::string& path) {
  const auto start = std::chrono::steady_clock::now();
  LoadedModel loaded;
  loaded.checkpoint = Checkpoint::open(path);
  if (const auto& file = loaded.checkpoint.gguf) {
    loaded.tokenizer = Tokenizer::from_gguf(*file);
    if (const auto text = file->find_string("tokenizer.chat_template")) {
      loaded.chat_template = {file->path() + ": tokenizer.chat_template", std::string(*text)};
    }
  } else {
    const ModelFolder& folder = *loaded.checkpoint.folder;
    loaded.tokenizer = tokenizer_from_folder(folder);
    loaded.chat_template = find_chat_template(folder.chat_template(), folder.tokenizer_config());
  }
  loaded.load_seconds = seconds_since(start);
  return loaded;
}

const FolderText& require_chat_template(const LoadedModel& loaded) {
  if (loaded.chat_template) return *loaded.chat_template;
  throw_bad_input("{} holds no chat template ({}); octet generate without --chat needs none",
                  loaded.checkpoint.path(),
                  loaded.checkpoint.gguf ? "key tokenizer.chat_template"
                                         : "chat_template.jinja, or chat_template in "
                                           "tokenizer_config.json");
}

void load_weights(LoadedModel* loaded, std::int64_t positions, Device device) {
  const auto start = std::chrono::steady_clock::now();
  LoadOptions options;
  options.device = device;
  // Key means are taken over a text of their own, however short the user's is.
  options.max_positions =
      positions > 0 ? std::max<std::int64_t>(positions, key_mean_tokens) : positions;
  std::optional<Progress> progress;
  options.progress = [&](std::uint64_t done, std::uint64_t all) {
    if (!progress) progress.emplace("loading", static_cast<std::int64_t>(all));
    progress->update(static_cast<std::int64_t>(done));
  };
  loaded->model = load_model(loaded->checkpoint, options);
  if (progress) progress->clear();
  const std::int64_t rows = loaded->model->config().vocabulary_size;
  const std::int64_t tokens = loaded->tokenizer->vocabulary_size();
  // More rows than tokens are padding; fewer would leave tokens that the model cannot read.
  if (rows < tokens) {
    throw_bad_input("{}: {} has {} rows, expected one for each of the {} tokens of {}",
                    loaded->checkpoint.path(),
                    loaded->checkpoint.gguf ? "token_embd.weight" : "the embedding", rows, tokens,
                    loaded->checkpoint.gguf ? "tokenizer.ggml.tokens" : "tokenizer.json");
  }
  loaded->load_seconds += seconds_since(start);
}

void require_utf8(std::string_view name, std::string_view text) {
  if (const auto offset = find_invalid_utf8(text)) {
    throw_bad_input("{}: is not valid UTF-8 from byte {} on", name, *offset);
  }
}

std::string text_name(const std::string& path) { return path == "-" ? "standard input" : path; }

std::string read_text(std::string_view flag, const std::string& path, std::size_t limit) {
  if (path.empty()) throw_bad_input("{}: expected a file, or - for standard input", flag);
  const auto close = [](std::FILE* file) {
    if (file != nullptr && file != stdin) std::fclose(file);
  };
  const std::unique_ptr<std::FILE, decltype(close)> file(
      path == "-" ? stdin : std::fopen(path.c_str(), "rb"), close);
  const std::string name = text_name(path);
  if (file == nullptr) throw_bad_input("{}: {}", name, std::strerror(errno));
  std::string text;
  char buffer[65536];
  for (;;) {
    const std::size_t got = std::fread(buffer, 1, sizeof(buffer), file.get());
    text.append(buffer, got);
    if (text.size() > limit) throw_bad_input("{}: longer than the limit of {} bytes", name, limit);
    if (got < sizeof(buffer)) break;
  }
  if (std::ferror(file.get()) != 0) throw_bad_input("{}: {}", name, std::strerror(errno));
  require_utf8(name, text);
  return text;
}

std::vector<TokenId> encode_raw(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<TokenId> tokens = tokenizer.encode(text, SpecialText::literal);
  if (tokenizer.adds_beginning_of_text() && tokenizer.beginning_of_text()) {
    tokens.insert(tokens.begin(), *tokenizer.beginning_of_text());
  }
  return tokens;
}

std::vector<TokenId> read_tokens(const Tokenizer& tokenizer, std::string_view flag,
                                 const std::string& path) {
  constexpr std::size_t most_bytes = std::size_t{1} << 30;
  const std::string text = read_text(flag, path, most_bytes);
  std::vector<TokenId> tokens;
  if (!text.empty()) tokens = encode_raw(tokenizer, text);
  if (tokens.empty()) throw_bad_input("{}: holds no text", text_name(path));
  return tokens;
}

}  // namespace octet
