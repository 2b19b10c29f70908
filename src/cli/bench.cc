// octet bench: how fast a part of octet is on this machine.
#include <iostream>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bench/attention_decode.h"
#include "cli/commands.h"
#include "core/error.h"
#include "core/json.h"

namespace octet {

namespace {

struct AttentionFlags {
  std::string phase = "decode";
  std::string heads = "32/8";
  AttentionDecodeBench bench;
  bool json = false;
};

// "32/8": query heads and KV heads.
void parse_heads(const std::string& text, AttentionDecodeBench* bench) {
  int used = 0;
  if (std::sscanf(text.c_str(), "%5d/%5d%n", &bench->query_heads, &bench->kv_heads, &used) != 2 ||
      static_cast<std::size_t>(used) != text.size() || bench->kv_heads < 1 ||
      bench->query_heads < 1 || bench->query_heads % bench->kv_heads != 0) {
    throw_bad_input(
        "--heads {}: expected query heads/KV heads, the one a multiple of the other, as "
        "in 32/8",
        text);
  }
}

Json as_json(const AttentionDecodeBench& bench, const AttentionDecodeReport& report) {
  Json object;
  object["phase"] = "decode";
  object["device"] = report.device;
  object["head_dim"] = bench.head_dim;
  object["query_heads"] = bench.query_heads;
  object["kv_heads"] = bench.kv_heads;
  object["batch"] = bench.batch;
  object["context"] = bench.context;
  object["query_rows"] = bench.query_rows;
  object["window"] = bench.window;
  object["value_mean"] = bench.value_mean;
  object["kv_cache_dtype"] = report.cache;
  object["kv_cache_scales"] = report.scales;
  object["overlap"] = bench.overlap;
  object["blocks"] = report.blocks;
  object["rotations"] = report.rotations;
  object["launches"] = report.launches;
  object["us"] = report.microseconds;
  object["us_fastest"] = report.fastest_microseconds;
  object["bytes"] = report.bytes;
  object["tb_per_s"] = report.terabytes_per_second;
  object["read_tb_per_s"] = report.read_terabytes_per_second;
  object["share_of_read_rate"] = report.terabytes_per_second / report.read_terabytes_per_second;
  if (report.checked) {
    object["error"] = report.error;
    object["error_bfloat16_output"] = report.bfloat16_error;
  }
  return object;
}

std::string as_text(const AttentionDecodeBench& bench, const AttentionDecodeReport& report) {
  std::string text = fmt::format(
      "decode, head_dim {}, {}/{} heads, {} x {} keys, {} cache, {} scales, on {}\n"
      "time            {:.2f} us (fastest sample {:.2f})\n"
      "read            {:.3f} TB/s, {:.1f} % of the {:.3f} TB/s of reading the same pages\n",
      bench.head_dim, bench.query_heads, bench.kv_heads, bench.batch, bench.context, report.cache,
      report.scales, report.device, report.microseconds, report.fastest_microseconds,
      report.terabytes_per_second,
      100 * report.terabytes_per_second / report.read_terabytes_per_second,
      report.read_terabytes_per_second);
  if (report.checked) {
    text += fmt::format("error           {:.2e} (output rounded to bfloat16: {:.2e})\n",
                        report.error, report.bfloat16_error);
  }
  return text;
}

void run_attention(const AttentionFlags& flags) {
  if (flags.phase != "decode") {
    throw_unsupported("--phase {}: expected decode, the one phase that has a benchmark",
                      flags.phase);
  }
  AttentionDecodeBench bench = flags.bench;
  parse_heads(flags.heads, &bench);
  if (bench.query_rows > bench.context) {
    throw_bad_input("--query-rows {}: more than the --context of {}", bench.query_rows,
                    bench.context);
  }
  const AttentionDecodeReport report = bench_attention_decode(bench);
  if (flags.json) {
    std::cout << dump_json(as_json(bench, report)) << '\n';
  } else {
    std::cout << as_text(bench, report);
  }
}

}  // namespace

void add_bench(CLI::App& program, CommandAction* run) {
  CLI::App* bench = program.add_subcommand("bench", "Measure how fast a part of octet is here");
  bench->require_subcommand(1);
  add_bench_cpu(*bench, run);
  add_bench_serve(*bench, run);
  CLI::App* command =
      bench->add_subcommand("attention", "Attention over the paged cache on an NVIDIA GPU");
  const auto flags = std::make_shared<AttentionFlags>();
  AttentionDecodeBench& options = flags->bench;
  command->add_option("--phase", flags->phase, "decode")->capture_default_str();
  command->add_option("--head-dim", options.head_dim, "Elements of a head")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--heads", flags->heads, "Query heads/KV heads")->capture_default_str();
  command->add_option("--batch", options.batch, "Sequences")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("--context", options.context, "Keys of every sequence")
      ->check(CLI::Range(1, 1 << 22))
      ->capture_default_str();
  command->add_option("--query-rows", options.query_rows, "Query rows of every sequence")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option("--window", options.window, "Keys that a query sees (default: all)")
      ->check(CLI::PositiveNumber);
  command->add_option("--v-mean", options.value_mean, "Mean of the values, whose deviation is 1")
      ->capture_default_str();
  command
      ->add_option("--kv-cache-dtype", options.cache.dtype, "Cache format, K[:V]: fp8 (= fp8_e4m3)")
      ->capture_default_str();
  command->add_option("--kv-cache-scales", options.cache.scales, "Scales: dynamic or unit")
      ->capture_default_str();
  command->add_flag("!--no-overlap", options.overlap,
                    "Let no launch begin before the one ahead has ended");
  command->add_flag("--check", options.check, "Compare with attention in double precision");
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback([flags, run] { *run = [flags] { run_attention(*flags); }; });
}

}  // namespace octet
