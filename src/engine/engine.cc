#include "engine/engine.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "core/error.h"
#include "core/memory_info.h"

namespace octet {

namespace {

std::uint64_t draw_seed() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32) | device();
}

SchedulerLimits checked(SchedulerLimits limits) {
  if (limits.max_sequences < 1) {
    throw_bad_input("--max-num-seqs is {}, expected at least 1", limits.max_sequences);
  }
  if (limits.max_batched_tokens < limits.max_sequences) {
    throw_bad_input(
        "--max-num-batched-tokens is {}, expected at least --max-num-seqs, {}: each "
        "running sequence needs a row of a step",
        limits.max_batched_tokens, limits.max_sequences);
  }
  if (limits.prefill_chunk < 0) {
    throw_bad_input("--prefill-chunk is {}, expected at least 0 (0: whole prompts)",
                    limits.prefill_chunk);
  }
  return limits;
}

std::int64_t checked_model_len(std::int64_t asked, const ModelConfig& config) {
  if (asked < 0) throw_bad_input("--max-model-len is {}, expected at least 1", asked);
  if (asked > config.max_positions) {
    throw_bad_input("--max-model-len is {}, and the model was made for {} tokens", asked,
                    config.max_positions);
  }
  return asked == 0 ? config.max_positions : asked;
}

// Bytes of an arena that holds `texts` texts of `tokens` tokens, whatever slabs the groups take.
std::size_t arena_bytes_for(const KvLayout& layout, std::int64_t tokens, std::int64_t texts) {
  const std::size_t slab = PagePool::slab_bytes(layout);
  const auto pages = static_cast<std::size_t>((tokens + page_tokens - 1) / page_tokens);
  std::size_t slabs = 0;
  for (const KvGroup& group : layout.groups()) {
    const std::size_t per_slab = slab / group.page_bytes;
    slabs += (pages * static_cast<std::size_t>(texts) + per_slab - 1) / per_slab;
  }
  return slabs * slab;
}

std::size_t choose_arena_bytes(const KvLayout& layout, const EngineOptions& options,
                               std::int64_t max_model_len) {
  const std::size_t one_text = arena_bytes_for(layout, max_model_len, 1);
  std::size_t bytes = options.kv_cache_bytes;
  if (bytes == 0) {
    // Half, because the weights are mapped, not read yet, and will want memory too.
    bytes = std::min(arena_bytes_for(layout, max_model_len, options.limits.max_sequences),
                     available_memory_bytes() / 2);
  }
  if (bytes < one_text) {
    throw_error(ErrorKind::out_of_memory,
                "a KV cache of {} bytes cannot hold one text of {} tokens, which takes {} bytes; "
                "lower the context or take a smaller --kv-cache-dtype",
                bytes, max_model_len, one_text);
  }
  return bytes;
}

}  // namespace

EngineCore::EngineCore(std::shared_ptr<Model> model, const EngineOptions& options)
    : model_(std::move(model)),
      max_model_len_(checked_model_len(options.max_model_len, model_->config())),
      policy_(make_kv_policy(options.cache, model_->config().layers)),
      threads_(std::make_unique<ThreadPool>(options.threads)) {
  checked(options.limits);
  context_.pool = threads_.get();
  context_.instruction_set = options.instruction_set;
  context_.arithmetic = options.arithmetic;
  const KvLayout layout(model_->config().kv_geometry(), policy_);
  page_pool_ =
      std::make_unique<PagePool>(layout, choose_arena_bytes(layout, options, max_model_len_));
  if (options.cache_fill) {
    const std::span<std::byte> arena = page_pool_->arena();
    std::memset(arena.data(), std::to_integer<int>(*options.cache_fill), arena.size());
  }
  runner_ = std::make_unique<Runner>(model_, context_, *page_pool_);
}

Engine::Engine(std::shared_ptr<Model> model, std::shared_ptr<const Tokenizer> tokenizer,
               const EngineOptions& options)
    : tokenizer_(std::move(tokenizer)),
      core_(std::move(model), options),
      scheduler_(options.limits, core_.pool()) {}

RequestId Engine::submit(GenerateRequest request) {
  request.sampling.validate();
  if (request.prompt.empty()) throw_bad_input("the prompt is empty; expected at least one token");
  const auto length = static_cast<std::int64_t>(request.prompt.size());
  if (length >= core_.max_model_len()) {
    throw_bad_input(
        "the prompt is {} tokens long, and the context of {} tokens must hold it and at "
        "least one token of the answer",
        length, core_.max_model_len());
  }
  const std::int64_t vocabulary = core_.model().config().vocabulary_size;
  for (const TokenId token : request.prompt) {
    if (token < 0 || token >= vocabulary) {
      throw_bad_input("the prompt holds token id {}, outside the model's vocabulary of {}", token,
                      vocabulary);
    }
  }
  request.sampling.max_tokens =
      std::min(request.sampling.max_tokens, core_.max_model_len() - length);
  const std::uint64_t seed = request.sampling.seed ? *request.sampling.seed : draw_seed();
  const RequestId id = next_id_++;
  scheduler_.add(
      std::make_unique<Sequence>(id, std::move(request), seed, core_.pool(), *tokenizer_));
  return id;
}

void Engine::cancel(RequestId id) {
  if (scheduler_.find(id) != nullptr) cancelled_.push_back(id);
}

void Engine::end_cancelled(std::vector<TokenEvent>* events) {
  for (const RequestId id : cancelled_) {
    if (scheduler_.remove(id) == nullptr) continue;
    TokenEvent event;
    event.request = id;
    event.finished = FinishReason::cancelled;
    events->push_back(std::move(event));
  }
  cancelled_.clear();
}

// Rows of the output matrix past the tokenizer's last id are padding and never an answer.
std::size_t Engine::usable_logits() const {
  return static_cast<std::size_t>(std::min<std::int64_t>(core_.model().config().vocabulary_size,
                                                         tokenizer_->vocabulary_size()));
}

TokenEvent Engine::accept_token(Sequence& sequence, std::span<const float> logits) {
  const TokenId token =
      sampler_.sample(logits, sequence.sampling, sequence.seed, sequence.generated());
  TokenEvent event;
  event.request = sequence.id;
  event.token = token;
  if (sequence.sampling.logprobs >= 0) {
    event.logprobs = compute_logprobs(logits, token, sequence.sampling.logprobs);
  }
  sequence.tokens.push_back(token);

  const std::vector<TokenId>& ends = tokenizer_->end_tokens();
  const bool ends_answer =
      !sequence.sampling.ignore_eos && std::find(ends.begin(), ends.end(), token) != ends.end();
  if (!ends_answer) event.text = sequence.stop_filter.push(sequence.detokenizer.push(token));
  if (ends_answer || sequence.stop_filter.stopped()) {
    event.finished = FinishReason::stop;
  } else if (sequence.generated() >= sequence.sampling.max_tokens) {
    event.finished = FinishReason::length;
  }
  if (event.finished != FinishReason::none && !sequence.stop_filter.stopped()) {
    event.text += sequence.stop_filter.push(sequence.detokenizer.finish());
    if (sequence.stop_filter.stopped()) {
      event.finished = FinishReason::stop;
    } else {
      event.text += sequence.stop_filter.finish();
    }
  }
  return event;
}

std::vector<TokenEvent> Engine::step() {
  std::vector<TokenEvent> events;
  end_cancelled(&events);
  if (scheduler_.idle()) return events;

  const std::vector<ScheduledRows> scheduled = scheduler_.schedule();
  std::vector<RunnerRows> rows;
  rows.reserve(scheduled.size());
  for (const ScheduledRows& item : scheduled) {
    const Sequence& sequence = *item.sequence;
    RunnerRows request;
    request.blocks = &sequence.blocks;
    request.tokens = std::span(sequence.tokens)
                         .subspan(static_cast<std::size_t>(sequence.computed_tokens),
                                  static_cast<std::size_t>(item.tokens));
    request.first_position = sequence.computed_tokens;
    // A prompt that is not yet at its end needs no logits.
    request.logits = item.tokens == sequence.pending() ? WantedLogits::last : WantedLogits::none;
    rows.push_back(request);
  }
  std::span<const float> logits = core_.runner().run(rows);

  const auto vocabulary = static_cast<std::size_t>(core_.model().config().vocabulary_size);
  std::vector<RequestId> finished;
  for (const ScheduledRows& item : scheduled) {
    Sequence& sequence = *item.sequence;
    const bool complete = item.tokens == sequence.pending();
    sequence.computed_tokens += item.tokens;
    sequence.blocks.release_outside_windows(sequence.computed_tokens);
    if (!complete) continue;
    events.push_back(accept_token(sequence, logits.first(usable_logits())));
    logits = logits.subspan(vocabulary);
    if (events.back().finished != FinishReason::none) finished.push_back(sequence.id);
  }
  for (const RequestId id : finished) scheduler_.remove(id);
  return events;
}

}  // namespace octet
