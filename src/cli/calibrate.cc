// octet calibrate: static scales and key means from a user's own texts.
#include "eval/calibrate.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <filesystem>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "core/error.h"
#include "core/float8_e4m3.h"
#include "core/printable.h"
#include "files/safetensors_checksum.h"
#include "files/write_file.h"
#include "kv/kv_key_means.h"

namespace octet {

namespace {

struct CalibrateFlags {
  std::string model;
  std::vector<std::string> texts;
  std::string output;
  std::string granularity = "tensor";
  CalibrationOptions options;
  // Float32 arithmetic unless told: ranges of the model, not of a device's rounding.
  MachineFlags machine{
      .dtype = "float32", .device = "auto", .instruction_set = "auto", .threads = 0};
};

// transformers names a model's attention after its family: "LlamaAttention".
std::string attention_class(const ModelConfig& config) {
  std::string name = config.family;
  if (!name.empty()) {
    name.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(name.front())));
  }
  return name + "Attention";
}

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// All of them or none: scales of one run beside a configuration of another would be loaded. The
// scales say "pt" (of PyTorch), for transformers opens no file that says nothing of the kind.
void write_results(const CalibrateFlags& flags, const ModelConfig& config,
                   const Calibration& calibration) {
  const std::string configuration =
      quantization_config_json(flags.options, attention_class(config));
  std::vector<FileContents> files = {
      {flags.output + "/kv_scales.safetensors",
       encode_checked_safetensors(scale_tensors(calibration, flags.options), {{"format", "pt"}})},
      {flags.output + "/quantization_config.json", bytes_of(configuration)}};
  if (flags.options.takes_means) {
    KvKeyMeans means;
    means.layers = calibration.key_means;
    files.push_back(
        {flags.output + "/key_means.safetensors", encode_key_means(means, config.kv_geometry())});
  }
  std::error_code error;
  std::filesystem::create_directories(flags.output, error);
  if (error) throw_bad_input("--output {}: {}", flags.output, error.message());
  write_files_atomically(files);
}

struct Range {
  float smallest = 0;  // of the heads
  float largest = 0;
};

Range range_of(const std::vector<float>& heads) {
  const auto [smallest, largest] = std::minmax_element(heads.begin(), heads.end());
  return {*smallest, *largest};
}

std::string saturation(float largest) {
  const double share = 100.0 * largest / float8_e4m3_max;
  return fmt::format("{:.3g} %{}", share, share > 100 ? ", clips" : "");
}

// Each layer's ranges, and how much of e4m3's range they would take without scales.
std::string as_text(const Calibration& calibration, const CalibrateFlags& flags) {
  std::string text = fmt::format("{:>5}  {:>10}  {:>14}  {:>10}  {:>14}", "layer", "largest key",
                                 "of 448", "value", "of 448");
  if (flags.options.includes_query) text += fmt::format("  {:>10}", "query");
  text += flags.options.per_head ? "  smallest head (key, value)\n" : "\n";
  for (std::size_t layer = 0; layer < calibration.layers.size(); ++layer) {
    const LayerRanges& ranges = calibration.layers[layer];
    if (ranges.key.empty()) continue;
    const Range key = range_of(ranges.key);
    const Range value = range_of(ranges.value);
    text += fmt::format("{:>5}  {:>11.4g}  {:>14}  {:>10.4g}  {:>14}", layer, key.largest,
                        saturation(key.largest), value.largest, saturation(value.largest));
    if (flags.options.includes_query) {
      text += fmt::format("  {:>10.4g}", range_of(ranges.query).largest);
    }
    if (flags.options.per_head) {
      text += fmt::format("  {:.4g}, {:.4g}", key.smallest, value.smallest);
    }
    text += '\n';
  }
  return text + fmt::format("{} tokens read; scales in {}/kv_scales.safetensors{}\n",
                            calibration.tokens, flags.output,
                            flags.options.takes_means ? ", means in key_means.safetensors" : "");
}

void run_calibrate(CalibrateFlags flags) {
  flags.options.per_head = flags.granularity == "head";
  EngineOptions machine;
  if (flags.machine.apply_to(&machine) == Device::cuda && flags.machine.device == "cuda") {
    throw_unsupported("--device cuda: ranges are taken on the CPU; expected auto or cpu");
  }
  require_writable_folder(flags.output, "--output");
  // Means of an earlier run beside scales of this one would be taken for one result.
  const std::string means = flags.output + "/key_means.safetensors";
  std::error_code ignored;
  if (!flags.options.takes_means && std::filesystem::exists(means, ignored)) {
    throw_bad_input("{}: is of an earlier run; give --means to take it anew, or another folder",
                    printable(means));
  }
  LoadedModel loaded = open_model(flags.model);
  std::vector<std::vector<TokenId>> texts;
  std::int64_t total = 0;
  for (const std::string& path : flags.texts) {
    texts.push_back(read_tokens(*loaded.tokenizer, "--text", path));
    total += static_cast<std::int64_t>(texts.back().size());
  }
  if (flags.options.max_tokens > 0) total = std::min(total, flags.options.max_tokens);
  load_weights(&loaded, flags.options.window_tokens);
  Progress progress("calibrate", total);
  const Calibration calibration = calibrate(loaded.model, machine, texts, flags.options,
                                            [&](std::int64_t done) { progress.update(done); });
  progress.clear();
  write_results(flags, loaded.model->config(), calibration);
  std::cout << as_text(calibration, flags);
}

}  // namespace

void add_calibrate(CLI::App& program, CommandAction* run) {
  CLI::App* command = program.add_subcommand(
      "calibrate", "Take static scales (and key means) of an FP8 cache from texts");
  const auto flags = std::make_shared<CalibrateFlags>();
  add_model_flag(*command, &flags->model);
  command->add_option("--text", flags->texts, "Files to read (-: standard input)")
      ->required()
      ->take_all();
  command
      ->add_option("-o,--output", flags->output,
                   "Folder for kv_scales.safetensors and quantization_config.json")
      ->required();
  command->add_option("--granularity", flags->granularity, "One scale per tensor, or per head")
      ->check(CLI::IsMember({"tensor", "head"}))
      ->capture_default_str();
  command->add_flag("--include-query", flags->options.includes_query,
                    "Scales of queries too, for engines that round them");
  command->add_flag("--means", flags->options.takes_means,
                    "Key means too, in key_means.safetensors (--kv-cache-key-mean)");
  add_number(*command, "--max-tokens", &flags->options.max_tokens,
             "Read at most so many tokens of all texts (default: all)")
      ->check(at_least_one);
  flags->machine.add_to(*command);
  command->callback([flags, run] { *run = [flags] { run_calibrate(*flags); }; });
}

}  // namespace octet
