// octet bench cpu: a model's speed and attention's on this machine's CPU, beside what the machine
// can do at most.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "bench/cpu_attention.h"
#include "bench/cpu_linear.h"
#include "bench/cpu_machine.h"
#include "bench/cpu_model.h"
#include "cli/commands.h"
#include "cli/lists.h"
#include "cli/options.h"
#include "core/error.h"
#include "core/json.h"

namespace octet {

namespace {

constexpr std::int64_t most_depth = std::int64_t{1} << 30;

struct BenchCpuFlags {
  std::string model;
  std::string depths = "0,4096,7500";
  std::string caches = "bfloat16,fp8,int8:fp8";
  CpuModelBench bench;
  bool matrices = true;
  bool attention = true;
  std::int64_t attention_context = 8192;
  std::int64_t attention_rows = 512;
  MachineFlags machine;
  bool json = false;
};

// Head_dim and heads of SmolLM2-135M, of one query head for a KV head, of Qwen2.5-0.5B, of Llama 3
// 8B and of gemma-3-270m.
constexpr CpuAttentionShape attention_shapes[] = {
    {64, 9, 3}, {64, 8, 8}, {64, 14, 2}, {128, 32, 8}, {256, 4, 1}};

// The types of common files, and a matrix of about the size of a small model's largest.
constexpr DataType matrix_types[] = {DataType::q4_0, DataType::q4_1, DataType::q5_0,
                                     DataType::q8_0, DataType::q4_k, DataType::q6_k};
constexpr std::int64_t matrix_outputs = 1536;
constexpr std::int64_t matrix_inputs = 1536;
constexpr std::int64_t matrix_rows[] = {1, 4, 512};

struct Report {
  EngineOptions engine;
  int threads = 0;
  CpuRates rates;
  std::vector<CpuModelFigure> model;
  std::vector<CpuLinearFigure> matrices;
  std::vector<CpuAttentionFigure> attention;
};

// One line that the next replaces, where standard error is a terminal.
void say(const std::string& what) {
  if (isatty(STDERR_FILENO) != 0) std::cerr << "\r\033[K" << what << std::flush;
}

std::vector<KvPolicyOptions> parse_caches(const std::string& list) {
  std::vector<KvPolicyOptions> caches;
  for (const std::string& cache : split_list(list)) {
    caches.push_back({.dtype = cache});
    check_kv_policy_options(caches.back());  // refuses before anything is measured
  }
  return caches;
}

void measure_model(const BenchCpuFlags& flags, Report* report) {
  CpuModelBench bench = flags.bench;
  bench.engine = report->engine;
  const std::shared_ptr<const GgufFile> file = GgufFile::open(flags.model);
  report->model = bench_cpu_model(load_model(file), *file, bench, say);
}

void measure_matrices(const OpContext& context, Report* report) {
  for (const std::int64_t rows : matrix_rows) {
    for (const DataType dtype : matrix_types) {
      say(fmt::format("matrix of {}, {} rows", traits_of(dtype).name, rows));
      report->matrices.push_back(
          bench_cpu_linear(context, dtype, rows, matrix_outputs, matrix_inputs));
    }
  }
}

void measure_attention(const BenchCpuFlags& flags, const OpContext& context, Report* report) {
  for (const CpuAttentionShape& shape : attention_shapes) {
    for (const std::int64_t rows : {std::int64_t{1}, flags.attention_rows}) {
      for (const std::string& cache : split_list(flags.caches)) {
        say(fmt::format("attention {} x {}/{}, {}", shape.head_dim, shape.query_heads,
                        shape.kv_heads, cache));
        report->attention.push_back(
            bench_cpu_attention(context, shape, {.dtype = cache}, rows, flags.attention_context));
      }
    }
  }
}

Json as_json(const Report& report) {
  Json object;
  object["instruction_set"] = name_of(report.engine.instruction_set);
  object["dtype"] = name_of(report.engine.arithmetic);
  object["threads"] = report.threads;
  object["read_gb_per_s"] = report.rates.read_gb_per_s;
  object["multiply_add_gflops"] = report.rates.multiply_add_gflops;
  if (report.rates.int16_gops > 0) object["int16_gops"] = report.rates.int16_gops;
  object["model"] = Json::array();
  for (const CpuModelFigure& figure : report.model) {
    object["model"].push_back({{"phase", figure.phase},
                               {"depth", figure.depth},
                               {"kv_cache_dtype", figure.cache},
                               {"kv_cache_scales", figure.scales},
                               {"tokens", figure.tokens},
                               {"ms", 1e3 * figure.seconds},
                               {"tokens_per_s", figure.tokens_per_s},
                               {"gb_per_s", figure.gb_per_s},
                               {"gflops", figure.gflops}});
  }
  object["matrices"] = Json::array();
  for (const CpuLinearFigure& figure : report.matrices) {
    object["matrices"].push_back({{"dtype", traits_of(figure.dtype).name},
                                  {"rows", figure.rows},
                                  {"outputs", figure.outputs},
                                  {"inputs", figure.inputs},
                                  {"us", 1e6 * figure.seconds},
                                  {"gb_per_s", figure.gb_per_s},
                                  {"gflops", figure.gflops}});
  }
  object["attention"] = Json::array();
  for (const CpuAttentionFigure& figure : report.attention) {
    object["attention"].push_back({{"phase", figure.phase},
                                   {"head_dim", figure.shape.head_dim},
                                   {"query_heads", figure.shape.query_heads},
                                   {"kv_heads", figure.shape.kv_heads},
                                   {"rows", figure.rows},
                                   {"context", figure.context},
                                   {"kv_cache_dtype", figure.cache},
                                   {"us", 1e6 * figure.seconds},
                                   {"gb_per_s", figure.gb_per_s},
                                   {"gflops", figure.gflops}});
  }
  return object;
}

std::string share_of(double value, double limit) {
  return fmt::format("{:7.1f} {:3.0f} %", value, 100 * value / limit);
}

std::string as_text(const Report& report) {
  std::string text = fmt::format(
      "machine     {} threads, {}, {} arithmetic: reads {:.1f} GB/s, multiply-adds {:.0f} GFLOPS",
      report.threads, name_of(report.engine.instruction_set), name_of(report.engine.arithmetic),
      report.rates.read_gb_per_s, report.rates.multiply_add_gflops);
  const bool int16 = report.rates.int16_gops > 0;
  text += int16 ? fmt::format(", {:.0f} of 16-bit integers\n", report.rates.int16_gops) : "\n";
  if (!report.model.empty()) {
    text += "\nmodel    depth  cache       tokens/s          ms   GB/s, share  GFLOPS, share\n";
  }
  for (const CpuModelFigure& figure : report.model) {
    text += fmt::format("{:8} {:5}  {:10} {:9.1f}  {:10.2f} {}  {}\n", figure.phase, figure.depth,
                        figure.cache, figure.tokens_per_s, 1e3 * figure.seconds,
                        share_of(figure.gb_per_s, report.rates.read_gb_per_s),
                        share_of(figure.gflops, report.rates.multiply_add_gflops));
  }
  if (!report.matrices.empty()) {
    text += "\nmatrix  type   outputs x inputs  rows         us   GB/s, share  GFLOPS, share\n";
  }
  for (const CpuLinearFigure& figure : report.matrices) {
    text +=
        fmt::format("        {:5}  {:>16}  {:4}  {:9.0f} {}  {}\n", traits_of(figure.dtype).name,
                    fmt::format("{} x {}", figure.outputs, figure.inputs), figure.rows,
                    1e6 * figure.seconds, share_of(figure.gb_per_s, report.rates.read_gb_per_s),
                    share_of(figure.gflops,
                             int16 ? report.rates.int16_gops : report.rates.multiply_add_gflops));
  }
  if (!report.attention.empty()) {
    text +=
        "\nattention  head_dim, heads  rows x keys  cache             us   GB/s, share"
        "  GFLOPS, share\n";
  }
  for (const CpuAttentionFigure& figure : report.attention) {
    text += fmt::format("{:9}  {:15}  {:11}  {:10} {:9.0f} {}  {}\n", figure.phase,
                        fmt::format("{}, {}/{}", figure.shape.head_dim, figure.shape.query_heads,
                                    figure.shape.kv_heads),
                        fmt::format("{} x {}", figure.rows, figure.context), figure.cache,
                        1e6 * figure.seconds, share_of(figure.gb_per_s, report.rates.read_gb_per_s),
                        share_of(figure.gflops, report.rates.multiply_add_gflops));
  }
  return text;
}

void run_bench_cpu(BenchCpuFlags flags) {
  flags.bench.depths = parse_numbers<std::int64_t>("--depths", flags.depths, 0, most_depth);
  flags.bench.caches = parse_caches(flags.caches);
  if (flags.attention_rows > flags.attention_context) {
    throw_bad_input("--attention-rows {}: more than the --attention-context of {}",
                    flags.attention_rows, flags.attention_context);
  }
  Report report;
  if (flags.machine.device == "cuda") {
    throw_unsupported("--device cuda: bench cpu measures the CPU; bench step measures a GPU");
  }
  flags.machine.apply_to(&report.engine);
  ThreadPool pool(report.engine.threads);
  report.threads = pool.size();
  const OpContext context = {&pool, report.engine.instruction_set, report.engine.arithmetic};
  say("measuring the machine");
  report.rates = measure_cpu_rates(context);
  if (!flags.model.empty()) measure_model(flags, &report);
  if (flags.matrices) measure_matrices(context, &report);
  if (flags.attention) measure_attention(flags, context, &report);
  say("");
  if (flags.json) {
    std::cout << dump_json(as_json(report)) << '\n';
  } else {
    std::cout << as_text(report);
  }
}

}  // namespace

void add_bench_cpu(CLI::App& bench, CommandAction* run) {
  CLI::App* command = bench.add_subcommand(
      "cpu", "A model's prefill and decode, and attention, on the CPU, beside its limits");
  const auto flags = std::make_shared<BenchCpuFlags>();
  CpuModelBench& options = flags->bench;
  command->add_option("-m,--model", flags->model, "Model file (GGUF); without it attention alone");
  command->add_option("--depths", flags->depths, "Tokens in the cache beforehand")
      ->capture_default_str();
  command
      ->add_option("--kv-cache-dtype", flags->caches,
                   "Cache formats, measured in turn, each K[:V] as in generate")
      ->capture_default_str();
  add_number(*command, "--prefill", &options.prefill, "Tokens of a measured prompt (default: 512)")
      ->check(CLI::Range(0, 1 << 20));
  add_number(*command, "--decode", &options.decode, "Tokens written at a depth (default: 32)")
      ->check(CLI::Range(0, 1 << 20));
  add_number(*command, "--rounds", &options.rounds, "Times that all is measured (default: 3)")
      ->check(CLI::Range(1, 1000));
  command->add_flag("!--no-matrices", flags->matrices, "Leave out the table of matrices");
  command->add_flag("!--no-attention", flags->attention, "Leave out the table of attention");
  add_number(*command, "--attention-context", &flags->attention_context,
             "Keys of attention's table (default: 8192)")
      ->check(CLI::Range(1, 1 << 20));
  add_number(*command, "--attention-rows", &flags->attention_rows,
             "Query tokens of its prefill (default: 512)")
      ->check(CLI::Range(2, 1 << 20));
  flags->machine.add_to(*command);
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback([flags, run] { *run = [flags] { run_bench_cpu(*flags); }; });
}

}  // namespace octet
