// octet bench: how fast a part of octet is on this machine.
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bench/attention_decode.h"
#include "bench/attention_prefill.h"
#include "cli/commands.h"
#include "cli/lists.h"
#include "core/error.h"
#include "core/json.h"

namespace octet {

namespace {

// 2^22 rows of 128 heads of 256 elements are 256 GiB: more than any GPU holds.
constexpr std::int64_t most_prefill_rows = std::int64_t{1} << 22;
constexpr int most_sequences = 4096;
constexpr int most_keys = 1 << 22;

struct AttentionFlags {
  std::string phase = "decode";
  std::string heads = "32/8";
  int batch = 1;
  int context = 1024;
  std::string lengths;  // in place of these two
  AttentionDecodeBench bench;
  int chunk = 0;  // of a prefill; 0: the whole context
  std::string accumulation = "two-level";
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

bool same_length(const std::vector<int>& lengths) {
  return std::all_of(lengths.begin(), lengths.end(),
                     [&](int length) { return length == lengths.front(); });
}

Json as_json(const AttentionDecodeBench& bench, const AttentionDecodeReport& report) {
  Json object;
  object["phase"] = "decode";
  object["device"] = report.device;
  object["head_dim"] = bench.head_dim;
  object["query_heads"] = bench.query_heads;
  object["kv_heads"] = bench.kv_heads;
  object["batch"] = bench.lengths.size();
  object["context"] = *std::max_element(bench.lengths.begin(), bench.lengths.end());
  if (!same_length(bench.lengths)) object["lengths"] = bench.lengths;
  object["query_rows"] = bench.query_rows;
  object["window"] = bench.window;
  object["value_mean"] = bench.value_mean;
  object["sink"] = bench.sinks;
  object["soft_cap"] = bench.soft_cap;
  object["attention_accumulation"] = bench.single_level ? "single" : "two-level";
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
  const std::string keys = same_length(bench.lengths)
                               ? fmt::format("{} x {}", bench.lengths.size(), bench.lengths.front())
                               : fmt::format("{}", fmt::join(bench.lengths, ", "));
  std::string text = fmt::format(
      "decode, head_dim {}, {}/{} heads, {} keys, {} cache, {} scales, on {}\n"
      "time            {:.2f} us (fastest sample {:.2f})\n"
      "read            {:.3f} TB/s, {:.1f} % of the {:.3f} TB/s of reading the same pages\n",
      bench.head_dim, bench.query_heads, bench.kv_heads, keys, report.cache, report.scales,
      report.device, report.microseconds, report.fastest_microseconds, report.terabytes_per_second,
      100 * report.terabytes_per_second / report.read_terabytes_per_second,
      report.read_terabytes_per_second);
  if (report.checked) {
    text += fmt::format("error           {:.2e} (output rounded to bfloat16: {:.2e})\n",
                        report.error, report.bfloat16_error);
  }
  return text;
}

Json as_json(const AttentionPrefillBench& bench, const AttentionPrefillReport& report) {
  Json object;
  object["phase"] = "prefill";
  object["device"] = report.device;
  object["head_dim"] = bench.head_dim;
  object["query_heads"] = bench.query_heads;
  object["kv_heads"] = bench.kv_heads;
  object["batch"] = bench.batch;
  object["context"] = bench.context;
  object["chunk"] = bench.chunk;
  object["window"] = bench.window;
  object["value_mean"] = bench.value_mean;
  object["kv_cache_dtype"] = report.cache;
  object["kv_cache_scales"] = report.scales;
  object["launches"] = report.launches;
  object["us"] = report.microseconds;
  object["us_fastest"] = report.fastest_microseconds;
  object["operations"] = report.operations;
  object["tflops"] = report.teraflops;
  object["multiply_tflops"] = report.multiply_teraflops;
  object["share_of_multiply_rate"] = report.teraflops / report.multiply_teraflops;
  if (report.checked) {
    object["error"] = report.error;
    object["emulated_error"] = report.emulated_error;
  }
  return object;
}

std::string as_text(const AttentionPrefillBench& bench, const AttentionPrefillReport& report) {
  std::string text = fmt::format(
      "prefill, head_dim {}, {}/{} heads, {} x {} rows over {} keys, {} cache, {} scales, on {}\n"
      "time            {:.1f} us (fastest sample {:.1f})\n"
      "operations      {:.0f} TFLOPS, {:.1f} % of the {:.0f} TFLOPS of multiplying alone\n",
      bench.head_dim, bench.query_heads, bench.kv_heads, bench.batch, bench.chunk, bench.context,
      report.cache, report.scales, report.device, report.microseconds, report.fastest_microseconds,
      report.teraflops, 100 * report.teraflops / report.multiply_teraflops,
      report.multiply_teraflops);
  if (report.checked) {
    text += fmt::format("error           {:.2e} (emulated on the CPU: {:.2e})\n", report.error,
                        report.emulated_error);
  }
  return text;
}

template <typename Bench, typename Report>
void print_report(const Bench& bench, const Report& report, bool json) {
  if (json) {
    std::cout << dump_json(as_json(bench, report)) << '\n';
  } else {
    std::cout << as_text(bench, report);
  }
}

void run_decode(const AttentionDecodeBench& bench, bool json) {
  const int shortest = *std::min_element(bench.lengths.begin(), bench.lengths.end());
  if (bench.query_rows > shortest) {
    throw_bad_input("--query-rows {}: more than the {} keys of a sequence", bench.query_rows,
                    shortest);
  }
  print_report(bench, bench_attention_decode(bench), json);
}

void run_prefill(const AttentionFlags& flags, const AttentionDecodeBench& shared) {
  if (flags.chunk > flags.context) {
    throw_bad_input("--chunk {}: more than the --context of {}", flags.chunk, flags.context);
  }
  AttentionPrefillBench bench;
  bench.head_dim = shared.head_dim;
  bench.query_heads = shared.query_heads;
  bench.kv_heads = shared.kv_heads;
  bench.batch = flags.batch;
  bench.context = flags.context;
  bench.chunk = flags.chunk == 0 ? flags.context : flags.chunk;
  bench.window = shared.window;
  bench.value_mean = shared.value_mean;
  bench.check = shared.check;
  bench.cache = shared.cache;
  const std::int64_t rows = static_cast<std::int64_t>(bench.chunk) * bench.batch;
  if (rows > most_prefill_rows) {
    throw_bad_input("--batch {} and --chunk {}: {} query rows; expected at most {}", bench.batch,
                    bench.chunk, rows, most_prefill_rows);
  }
  print_report(bench, bench_attention_prefill(bench), flags.json);
}

// What only the other phase reads is refused, so that no flag is silently ignored.
void refuse_flag(const CLI::App& command, const std::string& flag, const std::string& phase) {
  if (command.get_option(flag)->count() > 0) {
    throw_bad_input("{} says nothing to --phase {}", flag, phase);
  }
}

std::vector<int> lengths_of(const CLI::App& command, const AttentionFlags& flags) {
  if (flags.lengths.empty()) {
    return std::vector<int>(static_cast<std::size_t>(flags.batch), flags.context);
  }
  for (const char* flag : {"--batch", "--context"}) {
    if (command.get_option(flag)->count() > 0) {
      throw_bad_input("{} says nothing beside --lengths, which are of each sequence", flag);
    }
  }
  std::vector<int> lengths = parse_numbers<int>("--lengths", flags.lengths, 1, most_keys);
  if (lengths.size() > most_sequences) {
    throw_bad_input("--lengths: {} sequences, expected at most {}", lengths.size(), most_sequences);
  }
  return lengths;
}

void run_attention(const CLI::App& command, const AttentionFlags& flags) {
  AttentionDecodeBench bench = flags.bench;
  parse_heads(flags.heads, &bench);
  if (flags.phase == "decode") {
    refuse_flag(command, "--chunk", flags.phase);
    bench.single_level = flags.accumulation == "single";
    bench.lengths = lengths_of(command, flags);
    run_decode(bench, flags.json);
  } else if (flags.phase == "prefill") {
    refuse_flag(command, "--query-rows", flags.phase);
    for (const char* flag :
         {"--lengths", "--no-overlap", "--sink", "--soft-cap", "--attention-accumulation"}) {
      refuse_flag(command, flag, flags.phase);
    }
    run_prefill(flags, bench);
  } else {
    throw_unsupported("--phase {}: expected decode or prefill", flags.phase);
  }
}

}  // namespace

void add_bench(CLI::App& program, CommandAction* run) {
  CLI::App* bench = program.add_subcommand("bench", "Measure how fast a part of octet is here");
  bench->require_subcommand(1);
  add_bench_cpu(*bench, run);
  add_bench_serve(*bench, run);
  add_bench_linear(*bench, run);
  add_bench_step(*bench, run);
  add_bench_operations(*bench, run);
  CLI::App* command =
      bench->add_subcommand("attention", "Attention over the paged cache on an NVIDIA GPU");
  const auto flags = std::make_shared<AttentionFlags>();
  AttentionDecodeBench& options = flags->bench;
  command->add_option("--phase", flags->phase, "decode or prefill")->capture_default_str();
  command->add_option("--head-dim", options.head_dim, "Elements of a head")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--heads", flags->heads, "Query heads/KV heads")->capture_default_str();
  command->add_option("--batch", flags->batch, "Sequences")
      ->check(CLI::Range(1, most_sequences))
      ->capture_default_str();
  command->add_option("--context", flags->context, "Keys of every sequence")
      ->check(CLI::Range(1, most_keys))
      ->capture_default_str();
  command->add_option("--lengths", flags->lengths,
                      "Keys of each sequence, separated by commas, in place of these two");
  command->add_option("--query-rows", options.query_rows, "Query rows of every sequence")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command
      ->add_option("--chunk", flags->chunk, "Query rows of a prefill (default: the whole context)")
      ->check(CLI::Range(1, 1 << 22));
  command->add_option("--window", options.window, "Keys that a query sees (default: all)")
      ->check(CLI::PositiveNumber);
  command->add_option("--v-mean", options.value_mean, "Mean of the values, whose deviation is 1")
      ->capture_default_str();
  command
      ->add_option("--kv-cache-dtype", options.cache.dtype,
                   "Cache format, K[:V]: fp8 (= fp8_e4m3), int8:fp8 or bfloat16")
      ->capture_default_str();
  command
      ->add_option("--kv-cache-scales", options.cache.scales,
                   "Scales: dynamic or unit; decode also tensor or head, static numbers")
      ->capture_default_str();
  command->add_flag("--sink", options.sinks, "Give each head an attention sink");
  command->add_option("--soft-cap", options.soft_cap, "Soft cap of the scores (default: none)")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--attention-accumulation", flags->accumulation,
                   "How the tensor core's sums are kept: two-level or single")
      ->check(CLI::IsMember({"two-level", "single"}))
      ->capture_default_str();
  command->add_flag("!--no-overlap", options.overlap,
                    "Let no launch begin before the one ahead has ended");
  command->add_flag("--check", options.check, "Compare with attention in double precision");
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback(
      [flags, run, command] { *run = [flags, command] { run_attention(*command, *flags); }; });
}

}  // namespace octet
