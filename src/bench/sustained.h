// Timing of launches that repeat.
#pragma once

#include <cstdint>
#include <functional>

#include <cuda_runtime_api.h>

namespace octet {

struct SustainedTime {
  double median_microseconds = 0;  // of a launch
  double fastest_microseconds = 0;
  std::int64_t launches = 0;
};

// Captures `count` calls of launch(index, stream) into a graph, so that no time goes to the CPU,
// warms up, and replays it for at least 200 ms; each replay is a sample, timed by events and
// divided by `count`.
SustainedTime time_sustained(int count, const std::function<void(int, cudaStream_t)>& launch);

}  // namespace octet
