// How long a step of a model takes: decoding at chosen contexts, and the way to the first token.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/step_profile.h"
#include "engine/engine.h"

namespace octet {

struct StepBench {
  std::vector<KvPolicyOptions> caches;  // one, or two whose steps alternate
  std::vector<std::int64_t> contexts;   // keys of every sequence, the step's own row included
  std::int64_t batch = 1;               // sequences
  std::int64_t steps = 200;             // measured, of each cache at each context
  EngineOptions engine;                 // limits.max_batched_tokens is a chunk of the prompt
};

// One cache at one context. A step is all of it: laying rows out, the model, the draw of a token of
// each sequence and the wait for it.
struct StepFigure {
  std::string cache;
  std::string scales;
  std::int64_t context = 0;
  double first_token_ms = 0;  // a prompt of `context` tokens, alone, nothing of it cached
  double step_ms = 0;         // median
  double fastest_step_ms = 0;
  double p99_step_ms = 0;
  double weight_bytes = 0;  // that a step reads; 0: not known
  double cache_bytes = 0;   // keys and values that a step reads
  // Of one step, none beginning before the last has ended, and of the prompt's last chunk.
  std::vector<OperationTime> operations;
  std::vector<OperationTime> prompt_operations;
  std::string decode_kernel;  // of attention, on a GPU: "sm90" or "portable"
  std::string prefill_kernel;
};

// Of two caches: how much longer a step with the second takes, from pairs of neighbouring steps.
struct StepDifference {
  std::int64_t context = 0;
  double mean_ms = 0;
  double half_width_ms = 0;  // of the 95 % confidence interval
  std::int64_t pairs = 0;
};

struct StepReport {
  std::string device;
  int graphs = 0;
  std::size_t graph_bytes = 0;
  std::vector<StepFigure> figures;
  std::vector<StepDifference> differences;
};

// Throws Error{bad_input} where a context exceeds the model's. `progress` is told what is about to
// be done.
StepReport bench_step(const std::shared_ptr<Model>& model, const StepBench& bench,
                      const std::function<void(const std::string&)>& progress);

}  // namespace octet
