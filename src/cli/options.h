// Flags that several subcommands share, and what they build.
#pragma once

#include <charconv>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <type_traits>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "engine/engine.h"
#include "models/checkpoint.h"
#include "models/model.h"
#include "text/tokenizer.h"

namespace octet {

template <typename T>
struct NumberOf {
  using type = T;
};
template <typename T>
struct NumberOf<std::optional<T>> {
  using type = T;
};

// A flag whose whole text must be a number of the target's type: CLI11 itself lets too large
// integers saturate and negative ones wrap.
template <typename Target>
CLI::Option* add_number(CLI::App& command, const std::string& names, Target* target,
                        const std::string& help) {
  using T = typename NumberOf<Target>::type;
  const std::string flag = names.substr(0, names.find(','));
  return command
      .add_option_function<std::string>(
          names,
          [target, flag](const std::string& text) {
            T value{};
            const auto [stop, error] =
                std::from_chars(text.data(), text.data() + text.size(), value);
            if (error != std::errc() || stop != text.data() + text.size()) {
              throw CLI::ValidationError(
                  flag, fmt::format("{} is not {} that it can take", text,
                                    std::is_integral_v<T> ? "an integer" : "a number"));
            }
            *target = value;
          },
          help)
      ->type_name(std::is_integral_v<T> ? "INT" : "FLOAT");
}

// For add_number: refuses 0 and less. What is no number at all is left to add_number's own message.
inline const CLI::Validator at_least_one(
    [](const std::string& text) {
      std::int64_t value = 1;
      std::from_chars(text.data(), text.data() + text.size(), value);
      return value < 1 ? fmt::format("{} is too few, expected at least 1", text) : std::string();
    },
    "POSITIVE");

inline constexpr const char* cache_group = "KV cache";  // in --help

// --kv-cache-*: one group, the same in every subcommand that has a cache.
struct CacheFlags {
  KvPolicyOptions policy;
  std::string accumulation = "two-level";
  std::int64_t memory_bytes = 0;
  void add_to(CLI::App& command);
  // Throws Error{unsupported} for what models that run on `device` do not do.
  void apply_to(EngineOptions* options, Device device) const;
  AttentionAccumulation chosen_accumulation() const;
};

// `flag` is what an error calls it. Throws Error{bad_input} for an unknown name.
Arithmetic parse_arithmetic(const std::string& flag, const std::string& dtype, InstructionSet set);

// Where and how the model runs.
struct MachineFlags {
  std::string dtype = "auto";
  std::string device = "auto";
  std::string instruction_set = "auto";
  int threads = 0;
  double gpu_memory_utilization = 0.9;
  std::string cuda_graphs = "on";
  void add_to(CLI::App& command);
  // Without those of a GPU, for what runs on the CPU alone.
  void add_cpu_to(CLI::App& command);

  // Throws Error{bad_input} for unknown values and Error{device} for a GPU that cannot be had.
  // Returns where the model is to run.
  Device apply_to(EngineOptions* options) const;

 private:
  Device chosen_device() const;
};

// Rows of a prompt that a step computes unless told: a GPU is the faster the more there are.
inline constexpr std::int64_t cpu_prefill_chunk = 512;
inline constexpr std::int64_t gpu_prefill_chunk = 8192;

// "cpu, 8 threads, avx2 kernels, float32 arithmetic", "cuda, NVIDIA H200, bfloat16 arithmetic".
std::string describe_device(const EngineCore& core);

void add_model_flag(CLI::App& command, std::string* path);

struct LoadedModel {
  Checkpoint checkpoint;
  std::optional<FolderText> chat_template;  // `file` is what errors call it
  std::shared_ptr<Model> model;
  std::shared_ptr<const Tokenizer> tokenizer;
  double load_seconds = 0;
};
// Opens a GGUF file or a Hugging Face folder, and its tokenizer; `model` is still missing.
LoadedModel open_model(const std::string& path);
// Its template. Throws Error{bad_input} that says where one was looked for.
const FolderText& require_chat_template(const LoadedModel& loaded);
// Adds the model, with tables for `positions` positions or for its whole context, whichever is
// less: a file may claim a context of any length.
void load_weights(LoadedModel* loaded, std::int64_t positions, Device device = Device::cpu);

// The whole of a file that `flag` names, or of standard input for "-". Throws Error{bad_input} that
// names the file (the flag, where it names none), for what is not UTF-8 too; `limit` bounds what is
// read.
std::string read_text(std::string_view flag, const std::string& path, std::size_t limit);

// Throws Error{bad_input} that says what `name` is where `text` is not UTF-8.
void require_utf8(std::string_view name, std::string_view text);

// What errors call the file that read_text reads.
std::string text_name(const std::string& path);

// How text is to be tokenized for the model: with its beginning-of-text token where it wants one.
std::vector<TokenId> encode_raw(const Tokenizer& tokenizer, std::string_view text);

// The tokens of a text to be read as a whole. Throws Error{bad_input} that names the file where it
// holds no text.
std::vector<TokenId> read_tokens(const Tokenizer& tokenizer, std::string_view flag,
                                 const std::string& path);

}  // namespace octet
