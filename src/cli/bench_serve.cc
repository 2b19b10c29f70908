// octet bench serve: a load on a server, as `vllm bench serve` makes and reports it.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/chrono.h>
#include <fmt/format.h>

#include "bench/serve_load.h"
#include "bench/serve_report.h"
#include "cli/commands.h"
#include "cli/lists.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "core/error.h"
#include "core/printable.h"

namespace octet {

namespace {

struct BenchServeFlags {
  ServeLoad load;
  ServeReportOptions report;
  int port = 8000;
  std::string base_url;
  std::string endpoint;
  std::string dataset = "random";
  std::string request_rate = "inf";
  std::string metrics = "ttft,tpot,itl";
  std::string percentiles = "99";
  std::vector<std::string> goodput;
  bool save = false;
  std::string folder = ".";
  std::string file;
  bool json = false;
};

double parse_number(const std::string& flag, const std::string& text, double low, double high) {
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() ||
      !(value >= low && value <= high)) {
    throw_bad_input("{} {}: expected a number from {} to {}", flag, printable(text), low, high);
  }
  return value;
}

// http://HOST[:PORT][/...]
void parse_base_url(const std::string& url, ServeLoad* load) {
  constexpr std::string_view scheme = "http://";
  if (url.starts_with("https://")) {
    throw_unsupported("--base-url {}: octet bench serve speaks plain http", printable(url));
  }
  if (!url.starts_with(scheme)) {
    throw_bad_input("--base-url {}: expected http://HOST:PORT", printable(url));
  }
  std::string rest = url.substr(scheme.size());
  if (const std::size_t slash = rest.find('/'); slash != rest.npos) {
    if (slash + 1 != rest.size()) {
      throw_bad_input("--base-url {}: expected no path, which --endpoint names", printable(url));
    }
    rest.resize(slash);
  }
  load->port = 80;
  if (const std::size_t colon = rest.rfind(':'); colon != rest.npos && rest.back() != ']') {
    load->port = static_cast<std::uint16_t>(
        parse_number("--base-url, port", rest.substr(colon + 1), 1, 65535));
    rest.resize(colon);
  }
  if (rest.size() > 2 && rest.front() == '[') rest = rest.substr(1, rest.size() - 2);
  load->host = rest;
}

void choose_endpoint(BenchServeFlags* flags) {
  const std::string& backend = flags->report.backend;
  if (backend == "openai-chat") {
    flags->load.endpoint = ServeEndpoint::chat;
  } else if (backend != "openai" && backend != "vllm") {
    throw_bad_input("--backend {}: expected openai (= vllm) or openai-chat", printable(backend));
  }
  const bool chat = flags->load.endpoint == ServeEndpoint::chat;
  flags->load.path = flags->endpoint.empty() ? (chat ? "/v1/chat/completions" : "/v1/completions")
                                             : flags->endpoint;
}

void parse_goals(BenchServeFlags* flags) {
  for (const std::string& text : flags->goodput) {
    const std::size_t colon = text.find(':');
    const std::string metric = text.substr(0, colon);
    if (colon == text.npos || (metric != "ttft" && metric != "tpot" && metric != "e2el")) {
      throw_bad_input("--goodput {}: expected ttft:MS, tpot:MS or e2el:MS", printable(text));
    }
    flags->report.goals.push_back(
        {metric, parse_number("--goodput " + metric, text.substr(colon + 1), 0, 1e9)});
  }
}

void check(BenchServeFlags* flags) {
  if (flags->dataset != "random") {
    throw_unsupported("--dataset-name {}: expected random, the one that there is",
                      printable(flags->dataset));
  }
  flags->load.port = static_cast<std::uint16_t>(flags->port);
  if (!flags->base_url.empty()) parse_base_url(flags->base_url, &flags->load);
  choose_endpoint(flags);
  flags->load.request_rate = flags->request_rate == "inf"
                                 ? 0
                                 : parse_number("--request-rate", flags->request_rate, 1e-6, 1e6);
  if (!(flags->load.range_ratio >= 0 && flags->load.range_ratio < 1)) {
    throw_bad_input("--random-range-ratio {}: expected a number from 0 to below 1",
                    flags->load.range_ratio);
  }
  flags->report.metrics = split_list(flags->metrics);
  for (const std::string& metric : flags->report.metrics) {
    if (metric != "ttft" && metric != "tpot" && metric != "itl" && metric != "e2el") {
      throw_bad_input("--percentile-metrics {}: expected some of ttft, tpot, itl, e2el",
                      printable(metric));
    }
  }
  flags->report.percentiles.clear();
  for (const std::string& percent : split_list(flags->percentiles)) {
    flags->report.percentiles.push_back(parse_number("--metric-percentiles", percent, 0, 100));
  }
  parse_goals(flags);
}

void save(const BenchServeFlags& flags, const std::string& json) {
  std::string name = flags.file;
  if (name.empty()) {
    name = fmt::format("{}-{}qps", flags.report.backend, flags.request_rate);
    if (flags.load.max_concurrency > 0) {
      name += fmt::format("-concurrency{}", flags.load.max_concurrency);
    }
    name += "-" + flags.report.date + ".json";
  }
  const std::filesystem::path path = std::filesystem::path(flags.folder) / name;
  std::ofstream file(path);
  file << json << '\n';
  file.close();
  if (!file) throw_bad_input("{}: cannot be written", printable(path.string()));
  std::cerr << "saved " << path.string() << '\n';
}

void run_bench_serve(BenchServeFlags flags) {
  check(&flags);
  const std::time_t now = std::time(nullptr);
  flags.report.date = fmt::format("{:%Y%m%d-%H%M%S}", fmt::localtime(now));
  Progress progress("requests", flags.load.prompts);
  const ServeResult result =
      run_serve_load(flags.load, [&](std::int64_t done) { progress.update(done); });
  progress.clear();
  const std::string json = serve_report_json(flags.load, result, flags.report);
  if (flags.json) {
    std::cout << json << '\n';
  } else {
    std::cout << serve_report_text(flags.load, result, flags.report);
  }
  if (flags.save) save(flags, json);
  const auto failed = std::count_if(result.records.begin(), result.records.end(),
                                    [](const ServeRecord& record) { return !record.completed; });
  if (failed == static_cast<std::ptrdiff_t>(result.records.size()) && failed > 0) {
    throw_error(ErrorKind::device, "every request failed: {}",
                single_line(result.records.front().error));
  }
}

void add_target_flags(CLI::App& command, BenchServeFlags* flags) {
  const std::string group = "Server";
  ServeLoad& load = flags->load;
  command.add_option("--backend", flags->report.backend, "openai (= vllm) or openai-chat")
      ->capture_default_str()
      ->group(group);
  command.add_option("--base-url", flags->base_url, "http://HOST:PORT, instead of the next two")
      ->group(group);
  command.add_option("--host", load.host, "The server's host")->capture_default_str()->group(group);
  add_number(command, "--port", &flags->port, "The server's port")
      ->check(CLI::Range(1, 65535))
      ->default_str("8000")
      ->group(group);
  command.add_option("--endpoint", flags->endpoint, "Path (default: the backend's)")->group(group);
  command.add_option("--model", load.model, "Model to ask for (default: the server's first)")
      ->group(group);
  command.add_option("--api-key", load.api_key, "Key to ask with")
      ->envname("OPENAI_API_KEY")
      ->group(group);
}

void add_load_flags(CLI::App& command, BenchServeFlags* flags) {
  const std::string group = "Load";
  ServeLoad& load = flags->load;
  command.add_option("--dataset-name", flags->dataset, "random: prompts of random words")
      ->capture_default_str()
      ->group(group);
  const auto number = [&](const char* name, std::int64_t* target, const char* help, bool zero) {
    add_number(command, name, target, help)
        ->check(zero ? CLI::NonNegativeNumber : CLI::PositiveNumber)
        ->default_str(std::to_string(*target))
        ->group(group);
  };
  number("--num-prompts", &load.prompts, "Requests", false);
  number("--num-warmups", &load.warmups, "Requests before the measured ones", true);
  number("--random-input-len", &load.input_len, "Words of a prompt, about a token each", false);
  number("--random-output-len", &load.output_len, "Most tokens of an answer", false);
  number("--max-concurrency", &load.max_concurrency, "Requests at once (0: no limit)", true);
  add_number(command, "--random-range-ratio", &load.range_ratio,
             "Lengths vary by this share to either side")
      ->default_str("0")
      ->group(group);
  command.add_option("--request-rate", flags->request_rate, "Requests a second, Poisson; or inf")
      ->capture_default_str()
      ->group(group);
  command.add_flag("--ignore-eos", load.ignore_eos, "Answers of the full length")->group(group);
  add_number(command, "--temperature", &load.temperature, "Temperature of the answers")
      ->default_str("0")
      ->group(group);
  add_number(command, "--seed", &load.seed, "Seed of prompts, lengths and arrivals")
      ->default_str("0")
      ->group(group);
}

void add_report_flags(CLI::App& command, BenchServeFlags* flags) {
  const std::string group = "Report";
  command.add_option("--percentile-metrics", flags->metrics, "Some of ttft, tpot, itl, e2el")
      ->capture_default_str()
      ->group(group);
  command.add_option("--metric-percentiles", flags->percentiles, "Percentiles, as in 50,90,99")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--goodput", flags->goodput,
                  "Goals in ms, as in ttft:500 tpot:50: counts the requests that meet them all")
      ->group(group);
  command.add_flag("--save-result", flags->save, "Write the JSON report to a file")->group(group);
  command.add_flag("--save-detailed", flags->report.detailed, "With every request's figures")
      ->group(group);
  command.add_option("--result-dir", flags->folder, "Folder of that file")
      ->capture_default_str()
      ->group(group);
  command.add_option("--result-filename", flags->file, "Name of that file")->group(group);
  command.add_flag("--json", flags->json, "Print the JSON report instead of the table")
      ->group(group);
}

}  // namespace

void add_bench_serve(CLI::App& bench, CommandAction* run) {
  CLI::App* command = bench.add_subcommand(
      "serve", "A load on a server that speaks OpenAI's API, and its latencies");
  const auto flags = std::make_shared<BenchServeFlags>();
  add_target_flags(*command, flags.get());
  add_load_flags(*command, flags.get());
  add_report_flags(*command, flags.get());
  command->callback([flags, run] { *run = [flags] { run_bench_serve(*flags); }; });
}

}  // namespace octet
