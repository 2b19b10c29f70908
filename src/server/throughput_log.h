// A line about the engine's work every few seconds while there is any.
#pragma once

#include <chrono>
#include <string>

#include "engine/engine_stats.h"

namespace octet {

class ThroughputLog {
 public:
  // The line for the time since the last call, in the words of vLLM's, which tools read; "" where
  // nothing has happened.
  std::string line(const EngineStats& stats, std::chrono::duration<double> elapsed);

 private:
  EngineStats last_;
};

}  // namespace octet
