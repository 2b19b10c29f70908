// What Hopper's FP8 accumulator costs as contexts grow, and what each cure leaves of it: emulated.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "ops/attention/hopper_accumulator.h"

namespace octet {

struct AccumulationOptions {
  std::int64_t longest_context = 131072;  // others double from 1,024 up to it
  int head_dim = 32;
  unsigned seed = 1;
};

struct AccumulationCurve {
  HopperAccumulation accumulation;
  bool sink = false;           // token 0 has the score 16
  double value_mean = 0;       // of the values, which deviate from it by 1
  std::vector<double> errors;  // for each context: |output - exact| / |exact| over the head
  // "every tile, tile-local scale"
  std::string name() const;
};

struct AccumulationReport {
  std::vector<std::int64_t> contexts;
  std::vector<AccumulationCurve> curves;
};

// One query over random scores (normal, deviation 1) and values (e4m3), against the same stored
// values in double precision: promotion never and every 1, 4 and 64 tiles of 64 keys, weights
// scaled tile by tile and by the running maximum, with and without a sink, values of mean 0 and
// 0.5. The same seed gives the same report. `progress` is called with the work done, in 1/1000.
AccumulationReport evaluate_accumulation(ThreadPool& pool, const AccumulationOptions& options,
                                         const std::function<void(std::int64_t)>& progress);

}  // namespace octet
