// octet bench linear: matrix products on an NVIDIA GPU.
#include <charconv>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bench/linear_products.h"
#include "cli/commands.h"
#include "core/error.h"
#include "core/json.h"

namespace octet {

namespace {

constexpr std::int64_t most_extent = std::int64_t{1} << 24;

struct LinearFlags {
  std::string dtype = "bfloat16";
  std::string shapes;
  LinearProductsBench bench;
  bool json = false;
};

DataType parse_dtype(const std::string& text) {
  if (text == "bfloat16") return DataType::bfloat16;
  if (text == "fp8") return DataType::float8_e4m3;
  std::string known;
  for (const DataType dtype : all_data_types) {
    if (text == traits_of(dtype).name) return dtype;
    known += fmt::format(", {}", traits_of(dtype).name);
  }
  throw_unsupported("--dtype {}: expected bfloat16, fp8 or a type of stored weights{}", text,
                    known);
}

bool parse_extent(std::string_view text, std::int64_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() && *value >= 1 &&
         *value <= most_extent;
}

// "6144x4096,4096x4096": outputs x inputs.
std::vector<LinearShape> parse_shapes(const std::string& text) {
  std::vector<LinearShape> shapes;
  std::string_view rest = text;
  while (true) {
    const std::size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    const std::size_t cross = item.find('x');
    LinearShape shape;
    if (cross == std::string_view::npos || !parse_extent(item.substr(0, cross), &shape.outputs) ||
        !parse_extent(item.substr(cross + 1), &shape.inputs)) {
      throw_bad_input(
          "--shapes {}: expected outputs x inputs, each from 1 to 2^24, as in "
          "6144x4096,4096x14336",
          text);
    }
    shapes.push_back(shape);
    if (comma == std::string_view::npos) return shapes;
    rest.remove_prefix(comma + 1);
  }
}

Json as_json(const LinearFlags& flags, const LinearProductsReport& report) {
  Json object;
  object["device"] = report.device;
  object["dtype"] = flags.dtype;
  object["rows"] = flags.bench.rows;
  object["overlap"] = flags.bench.overlap;
  object["read_tb_per_s"] = report.read_terabytes_per_second;
  for (const LinearProductFigure& figure : report.figures) {
    Json row;
    row["outputs"] = figure.shape.outputs;
    row["inputs"] = figure.shape.inputs;
    row["us"] = figure.microseconds;
    row["bytes"] = figure.bytes;
    row["tb_per_s"] = figure.terabytes_per_second;
    row["share_of_read_rate"] = figure.terabytes_per_second / report.read_terabytes_per_second;
    row["tflops"] = figure.teraflops;
    if (figure.library_teraflops > 0) {
      row["library_tflops"] = figure.library_teraflops;
      row["share_of_library"] = figure.teraflops / figure.library_teraflops;
    }
    object["products"].push_back(row);
  }
  if (flags.bench.layers > 0) {
    object["layers"] = flags.bench.layers;
    object["step_us"] = report.step_microseconds;
    object["step_bytes"] = report.step_bytes;
  }
  return object;
}

std::string as_text(const LinearFlags& flags, const LinearProductsReport& report) {
  std::string text =
      fmt::format("{} rows, {} weights, on {}; memory reads {:.3f} TB/s\n", flags.bench.rows,
                  flags.dtype, report.device, report.read_terabytes_per_second);
  for (const LinearProductFigure& figure : report.figures) {
    text += fmt::format(
        "{:>7} x {:<6} {:>9.2f} us  {:.3f} TB/s ({:.1f} %)  {:.0f} TFLOPS", figure.shape.outputs,
        figure.shape.inputs, figure.microseconds, figure.terabytes_per_second,
        100 * figure.terabytes_per_second / report.read_terabytes_per_second, figure.teraflops);
    if (figure.library_teraflops > 0) {
      text +=
          fmt::format(" ({:.1f} % of cuBLASLt's {:.0f})",
                      100 * figure.teraflops / figure.library_teraflops, figure.library_teraflops);
    }
    text += '\n';
  }
  if (flags.bench.layers > 0) {
    const double rate = report.step_bytes / report.step_microseconds * 1e-6;
    text +=
        fmt::format("step of {} layers {:.3f} ms, {:.2f} GB, {:.3f} TB/s ({:.1f} %)\n",
                    flags.bench.layers, report.step_microseconds * 1e-3, report.step_bytes * 1e-9,
                    rate, 100 * rate / report.read_terabytes_per_second);
  }
  return text;
}

void run_linear(const LinearFlags& flags) {
  LinearProductsBench bench = flags.bench;
  bench.dtype = parse_dtype(flags.dtype);
  if (!flags.shapes.empty()) bench.shapes = parse_shapes(flags.shapes);
  for (const LinearShape& shape : bench.shapes) {
    const auto block = static_cast<std::int64_t>(traits_of(bench.dtype).block_elements);
    if (shape.inputs % block != 0) {
      throw_bad_input("--shapes: {} inputs are no multiple of {}, the block of {}", shape.inputs,
                      block, flags.dtype);
    }
  }
  const LinearProductsReport report = bench_linear_products(bench);
  if (flags.json) {
    std::cout << dump_json(as_json(flags, report)) << '\n';
  } else {
    std::cout << as_text(flags, report);
  }
}

}  // namespace

void add_bench_linear(CLI::App& bench, CommandAction* run) {
  CLI::App* command = bench.add_subcommand("linear", "Matrix products on an NVIDIA GPU");
  const auto flags = std::make_shared<LinearFlags>();
  command
      ->add_option("--dtype", flags->dtype,
                   "Of the weights: bfloat16, fp8 or a type of GGUF files, such as Q4_K")
      ->capture_default_str();
  command->add_option("--shapes", flags->shapes,
                      "Outputs x inputs, comma-separated (default: those of Llama-3.1-8B)");
  command->add_option("--rows", flags->bench.rows, "Rows of x")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command
      ->add_option("--layers", flags->bench.layers,
                   "Also time a step of so many layers of distinct weights")
      ->check(CLI::Range(1, 1024));
  command->add_flag("!--no-overlap", flags->bench.overlap,
                    "Let no launch begin before the one ahead has ended");
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback([flags, run] { *run = [flags] { run_linear(*flags); }; });
}

}  // namespace octet
