// The engine: requests in, tokens out, one step at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/instruction_set.h"
#include "core/thread_pool.h"
#include "engine/request.h"
#include "engine/runner.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "kv/kv_policy.h"
#include "models/model.h"
#include "ops/context.h"
#include "text/tokenizer.h"

namespace octet {

struct EngineOptions {
  KvPolicyOptions cache;
  // Longest prompt and answer together; 0: what the model was made for.
  std::int64_t max_model_len = 0;
  // Bytes of the cache; 0: room for max_sequences texts of max_model_len, or what half of the
  // machine's free memory holds if that is less.
  std::size_t kv_cache_bytes = 0;
  SchedulerLimits limits;
  Arithmetic arithmetic = Arithmetic::float32;
  InstructionSet instruction_set = InstructionSet::portable;
  int threads = 0;  // 0: all CPUs that the process may use
  // Tests fill the cache's memory with a byte first, to show that unused bytes reach no output.
  std::optional<std::byte> cache_fill;
};

// The memory, threads and layout that run one model; what Engine and the evaluations share.
class EngineCore {
 public:
  // Throws Error{bad_input} for options that do not fit the model, Error{out_of_memory} where the
  // cache cannot hold one text of max_model_len.
  EngineCore(std::shared_ptr<Model> model, const EngineOptions& options);
  EngineCore(const EngineCore&) = delete;
  EngineCore& operator=(const EngineCore&) = delete;

  const Model& model() const { return *model_; }
  const KvPolicy& policy() const { return policy_; }
  std::int64_t max_model_len() const { return max_model_len_; }
  const OpContext& context() const { return context_; }
  PagePool& pool() { return *page_pool_; }
  const PagePool& pool() const { return *page_pool_; }
  Runner& runner() { return *runner_; }
  const Runner& runner() const { return *runner_; }

 private:
  std::shared_ptr<Model> model_;
  std::int64_t max_model_len_;
  KvPolicy policy_;
  std::unique_ptr<ThreadPool> threads_;
  OpContext context_;
  std::unique_ptr<PagePool> page_pool_;
  std::unique_ptr<Runner> runner_;
};

// One thread calls all of it.
class Engine {
 public:
  Engine(std::shared_ptr<Model> model, std::shared_ptr<const Tokenizer> tokenizer,
         const EngineOptions& options);

  // Throws Error{bad_input} for parameters out of range, an empty prompt, and a prompt that leaves
  // no room for an answer. max_tokens past the context is cut to it.
  RequestId submit(GenerateRequest request);
  // The request ends with FinishReason::cancelled at the next step; unknown ids are ignored.
  void cancel(RequestId id);

  bool idle() const { return scheduler_.idle(); }
  // Runs one batch and returns what it gave, in the order of the batch.
  std::vector<TokenEvent> step();

  EngineCore& core() { return core_; }
  const EngineCore& core() const { return core_; }
  const Scheduler& scheduler() const { return scheduler_; }

 private:
  void end_cancelled(std::vector<TokenEvent>* events);
  TokenEvent accept_token(Sequence& sequence, std::span<const float> logits);
  std::size_t usable_logits() const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  EngineCore core_;
  Scheduler scheduler_;
  Sampler sampler_;
  std::vector<RequestId> cancelled_;
  RequestId next_id_ = 1;
};

}  // namespace octet
