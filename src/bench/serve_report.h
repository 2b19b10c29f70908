// What a load on a server came to, in the words and keys of `vllm bench serve`.
#pragma once

#include <string>
#include <vector>

#include "bench/serve_load.h"

namespace octet {

struct ServeGoal {
  std::string metric;  // "ttft", "tpot" or "e2el"
  double milliseconds = 0;
};

struct ServeReportOptions {
  std::string backend = "openai";
  std::string date;  // "20260131-235959"
  std::vector<std::string> metrics = {"ttft", "tpot",
                                      "itl"};  // of those and "e2el": with percentiles
  std::vector<double> percentiles = {99};
  std::vector<ServeGoal> goals;  // --goodput
  bool detailed = false;         // lists of every request's figures
};

std::string serve_report_text(const ServeLoad& load, const ServeResult& result,
                              const ServeReportOptions& options);
// One JSON object.
std::string serve_report_json(const ServeLoad& load, const ServeResult& result,
                              const ServeReportOptions& options);

}  // namespace octet
