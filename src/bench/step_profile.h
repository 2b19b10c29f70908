// What a step on a GPU consists of.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "models/model.h"

namespace octet {

// All launches of one operation in a step.
struct OperationTime {
  std::string operation;
  int launches = 0;
  double microseconds = 0;
  double bytes = 0;       // of weights, or of keys and values, that they read; 0: neither
  double operations = 0;  // of their products, 2 a multiply-add
};

// How a model runs attention and replays steps; empty and 0 on the CPU.
struct StepMachinery {
  std::string decode_kernel;
  std::string prefill_kernel;
  int graphs = 0;
  std::size_t graph_bytes = 0;
};
StepMachinery step_machinery(const Model& model);

// Times the operations of `step`, which runs the model once, by events on its stream; the median of
// several runs. Empty on the CPU.
std::vector<OperationTime> profile_step(Model& model, const std::function<void()>& step);

}  // namespace octet
