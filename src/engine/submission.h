// What is handed to an engine that runs on a thread of its own (engine_thread.h), and what comes of
// it.
#pragma once

#include <functional>
#include <vector>

#include "engine/request.h"

namespace octet {

// Gets a request's events, in their order, on the engine's thread. It must return at once: what it
// takes, every request's next token takes longer. So it hands the event on (to a queue that is
// bounded by the reader's own care) and never waits. A sink that throws gets its request cancelled.
// The last event has `finished` set, comes exactly once for each accepted request, and nothing
// follows it; then the sink is destroyed, on the engine's thread too.
using TokenSink = std::function<void(TokenEvent&&)>;

struct Submission {
  GenerateRequest request;
  TokenSink sink;
};

enum class Admission {
  accepted,
  queue_full,  // for now: HTTP 429 with Retry-After
  draining,    // for good: HTTP 503
  unhealthy,   // for good: HTTP 503; EngineStats::unhealthy_reason says why
};

struct SubmitResult {
  Admission admission = Admission::accepted;
  std::vector<RequestId> ids;  // one for each submission, where accepted
};

enum class AbortReason {
  client_left,
  timed_out,
  reader_too_slow,
  shutting_down,
};
// "the client left", ...: the message of the last event.
const char* name_of(AbortReason reason);

}  // namespace octet
