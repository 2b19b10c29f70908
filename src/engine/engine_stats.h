// What the engine tells of itself: counters since its start, and gauges of now.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/request.h"
#include "ops/quantize/kv_write_counters.h"

namespace octet {

// Where the time of the steps went, in seconds since the start.
struct StepTimes {
  double schedule = 0;         // choosing rows, pages and prefix hits
  double forward_prefill = 0;  // the model, in steps that read some of a prompt
  double forward_decode = 0;   // the model, in steps of decoding alone
  double sample = 0;           // drawing tokens, text, stop strings
  double deliver = 0;          // sinks (EngineThread)
  std::int64_t prefill_steps = 0;
  std::int64_t decode_steps = 0;
};

// Cache memory of the layers that share one format.
struct KvFormatBytes {
  std::string format;  // "fp8:fp8", K before V
  std::size_t in_use = 0;
  std::size_t cached = 0;  // kept for later prompts, given up when memory is wanted
};

struct EngineStats {
  // Gauges.
  std::int64_t running = 0;
  std::int64_t waiting = 0;
  double kv_usage = 0;  // share of the arena that requests hold, 0 to 1; what is kept for later
                        // prompts counts as free
  std::size_t kv_arena_bytes = 0;
  std::vector<KvFormatBytes> kv_bytes;
  double seconds_since_progress = 0;  // since the last step's end; 0 where nothing is to be done
  bool draining = false;
  bool healthy = true;
  std::string unhealthy_reason;
  bool device_failed = false;  // that is why: nothing more can be had of it in this process

  // Counters.
  std::int64_t prefix_queries = 0;  // prompt tokens that were looked for in the cache
  std::int64_t prefix_hits = 0;     // those that were found
  std::int64_t prompt_tokens = 0;   // read, cached ones among them; a preemption does not count
  std::int64_t generated_tokens = 0;
  std::int64_t computed_rows = 0;  // rows that the model ran, preempted work again among them
  std::int64_t preemptions = 0;
  std::int64_t finished_stop = 0;
  std::int64_t finished_length = 0;
  std::int64_t finished_cancelled = 0;
  std::int64_t finished_error = 0;
  StepTimes times;
  KvWriteCounts writes;                     // of all layers
  std::vector<KvWriteCounts> layer_writes;  // of each
};

}  // namespace octet
