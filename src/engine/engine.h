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
#include "engine/engine_stats.h"
#include "engine/prefix_cache.h"
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
  // machine's free memory holds, on a GPU gpu_memory_utilization of its, if that is less.
  std::size_t kv_cache_bytes = 0;
  // On a GPU: the share of its memory, free once the weights and a step's scratch lie there, that
  // the cache may take.
  double gpu_memory_utilization = 0.9;
  bool cuda_graphs = true;  // decode steps of a GPU are replayed as graphs
  // Of an fp8 cache; on the CPU single_level is emulated, row by row of decode (attention.h).
  AttentionAccumulation accumulation = AttentionAccumulation::two_level;
  // In place of kv_cache_bytes: so many times the bytes of a page of every group; 0: not given.
  std::int64_t kv_cache_pages = 0;
  bool prefix_caching = true;  // texts that begin alike share pages
  SchedulerLimits limits;
  Arithmetic arithmetic = Arithmetic::float32;
  InstructionSet instruction_set = InstructionSet::portable;
  int threads = 0;  // 0: all CPUs that the process may use
  // Tests fill the cache's memory with a byte first, to show that unused bytes reach no output.
  std::optional<std::byte> cache_fill;
  // Sees every key, value and query; outlives the core. Null: nobody does.
  AttentionObserver* observer = nullptr;
};

// options.cache, with the model's query heads, and with what its checkpoint says of its cache where
// the options bring nothing.
KvPolicyOptions cache_options(const EngineOptions& options, const Model& model);

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

// One thread calls all of it, but for check(). A program with several threads takes an EngineThread
// (engine_thread.h).
class Engine {
 public:
  Engine(std::shared_ptr<Model> model, std::shared_ptr<const Tokenizer> tokenizer,
         const EngineOptions& options);

  // Throws Error{bad_input} for parameters out of range, token ids outside the vocabulary, an empty
  // prompt, and a prompt that leaves no room for an answer. Any thread may call it.
  void check(const GenerateRequest& request) const;
  // The same check, and the request waits for its turn. max_tokens past the context is cut to it.
  RequestId submit(GenerateRequest request);
  // For callers that number requests themselves and know that this one passed check(). Ids are
  // never used twice.
  void submit(RequestId id, GenerateRequest request, EngineClock::time_point arrival);
  // The request ends with FinishReason::cancelled and this message at the next step; unknown ids
  // are ignored.
  void cancel(RequestId id, std::string message = {});
  // Ends all requests now, without a step, and appends their last events.
  void end_all(FinishReason reason, const std::string& message, std::vector<TokenEvent>* events);

  bool idle() const { return scheduler_.idle(); }
  // Runs one batch and appends what it gave, in the order of the batch. What is wrong with one
  // request (logits that are no numbers) ends that one with FinishReason::error. What is wrong with
  // the model or the device is thrown; nothing can be done with the engine then but end_all().
  void step(std::vector<TokenEvent>* events);
  std::vector<TokenEvent> step();

  // All that the engine knows itself; the fields of EngineThread keep their defaults.
  EngineStats stats() const;
  EngineCore& core() { return core_; }
  const EngineCore& core() const { return core_; }
  const Scheduler& scheduler() const { return scheduler_; }
  const PrefixCache* prefix_cache() const { return prefix_cache_.get(); }

 private:
  struct Cancelled {
    RequestId id;
    std::string message;
  };
  // What a step gave one sequence.
  struct Result {
    Sequence* sequence = nullptr;
    std::int64_t rows = 0;
    // Of all rows where they are owed, of the last where complete; none where the model drew the
    // token.
    std::span<const float> logits;
    std::int64_t logit_rows = 0;  // that it wants of the model
    bool wants_logits = false;    // of a model that draws
    bool owes_prompt_logprobs = false;
    bool complete = false;  // no token of the text is left to read
    TokenId token = -1;
    std::optional<TokenLogprobs> logprobs;
    std::string error;
  };
  // Of one thread of the pool.
  struct Drawer {
    Sampler sampler;
    std::vector<float> adjusted_logits;
  };
  TokenEvent event_of(const Sequence& sequence) const;
  TokenEvent end_of(const Sequence& sequence, FinishReason reason, std::string message);
  void end_cancelled(std::vector<TokenEvent>* events);
  void lay_out_rows(std::span<const ScheduledRows> scheduled);
  void start_results(std::span<const ScheduledRows> scheduled);
  void compute();
  void compute_and_draw();
  void read_wanted_logits(std::size_t host_rows);
  void draw_tokens();
  void draw_token(Drawer& drawer, Result& result) const;
  void accept(Result& result, std::vector<TokenEvent>* events);
  TokenEvent accept_prompt_rows(const Result& result);
  TokenEvent accept_token(Result& result);
  void end_answer(Sequence& sequence, bool ends_answer, TokenEvent* event);
  void count_end(FinishReason reason);
  std::size_t usable_logits() const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  EngineCore core_;
  std::unique_ptr<PrefixCache> prefix_cache_;  // null: none
  Scheduler scheduler_;
  std::vector<TokenId> end_tokens_;  // the tokenizer's and the checkpoint's
  std::vector<Drawer> drawers_;
  std::vector<Cancelled> cancelled_;
  RequestId next_id_ = 1;
  EngineStats counters_;  // the counters of stats() and no gauge
  // Of one step; kept so that a step allocates little.
  std::vector<RunnerRows> rows_;
  std::vector<Result> results_;
  std::vector<DrawRow> draws_;
  std::vector<float> host_logits_;
  std::vector<RequestId> finished_;
};

}  // namespace octet
