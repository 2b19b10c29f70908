// octet eval accumulation: what Hopper's FP8 accumulator loses, and what brings it back.
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "core/error.h"
#include "core/json.h"
#include "eval/accumulation.h"
#include "eval/plot.h"

namespace octet {

namespace {

struct AccumulationFlags {
  AccumulationOptions options;
  int threads = 0;
  std::optional<std::string> plot;
  bool json = false;
};

std::string panel_title(const AccumulationCurve& curve) {
  return fmt::format("{}, values of mean {}", curve.sink ? "sink of +16" : "no sink",
                     curve.value_mean);
}

std::string as_text(const AccumulationReport& report) {
  std::string text =
      "relative error of one query's output, Hopper's FP8 tensor core emulated (14 bits, "
      "truncating)\n";
  std::string panel;
  for (const AccumulationCurve& curve : report.curves) {
    if (panel_title(curve) != panel) {
      panel = panel_title(curve);
      text += fmt::format("\n{:<28}", panel);
      for (const std::int64_t context : report.contexts) {
        text += fmt::format("{:>9}", context % 1024 == 0 ? fmt::format("{}k", context / 1024)
                                                         : std::to_string(context));
      }
      text += '\n';
    }
    text += fmt::format("{:<28}", curve.name());
    for (const double error : curve.errors) text += fmt::format("{:>9.1e}", error);
    text += '\n';
  }
  return text +
         "\npromotion (how often the tensor core's sum is added to float32), scale of the "
         "softmax weights\n";
}

std::string as_json(const AccumulationReport& report) {
  Json object;
  object["contexts"] = report.contexts;
  object["curves"] = Json::array();
  for (const AccumulationCurve& curve : report.curves) {
    Json entry;
    entry["promote_every"] = curve.accumulation.promote_every;
    entry["scale"] = curve.accumulation.tile_local_scale ? "tile_local" : "running_max";
    entry["sink"] = curve.sink;
    entry["value_mean"] = curve.value_mean;
    entry["errors"] = curve.errors;
    object["curves"].push_back(std::move(entry));
  }
  return dump_json(object);
}

Plot as_plot(const AccumulationReport& report) {
  Plot plot;
  plot.x_label = "keys";
  plot.y_label = "relative error";
  plot.x.assign(report.contexts.begin(), report.contexts.end());
  for (const AccumulationCurve& curve : report.curves) {
    if (plot.panels.empty() || plot.panels.back().title != panel_title(curve)) {
      plot.panels.push_back({panel_title(curve), {}});
    }
    plot.panels.back().series.push_back({curve.name(), curve.errors});
  }
  return plot;
}

void run_accumulation(const AccumulationFlags& flags) {
  // What cannot be drawn is refused before the work.
  if (flags.plot) check_plot(*flags.plot);
  if (flags.plot == "-" && flags.json) {
    throw_bad_input("--plot - and --json both write to standard output, expected --plot FILE");
  }
  ThreadPool pool(flags.threads);
  Progress progress("eval accumulation", 1000);
  const AccumulationReport report =
      evaluate_accumulation(pool, flags.options, [&](std::int64_t done) { progress.update(done); });
  progress.clear();
  std::cout << (flags.json ? as_json(report) + "\n" : as_text(report)) << std::flush;
  if (flags.plot) draw_plot(as_plot(report), *flags.plot);
}

}  // namespace

void add_eval_accumulation(CLI::App& eval, CommandAction* run) {
  CLI::App* command = eval.add_subcommand(
      "accumulation", "Error of Hopper's FP8 accumulator against context length, emulated");
  const auto flags = std::make_shared<AccumulationFlags>();
  add_number(*command, "--context", &flags->options.longest_context,
             "Longest context, in keys; shorter ones double from 1,024 up to it")
      ->check(CLI::Range(1024, 1048576))
      ->default_str("131072");
  add_number(*command, "--threads", &flags->threads,
             "CPU threads (default: all that the process may use)")
      ->check(CLI::Range(1, 1024));
  command->add_option("--plot", flags->plot,
                      "Draw it with gnuplot into FILE.svg or FILE.png, or - for the terminal");
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback([flags, run] { *run = [flags] { run_accumulation(*flags); }; });
}

}  // namespace octet
