#include "engine/engine.h"

#include <algorithm>
#include <limits>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "core/cuda/device.h"
#include "core/error.h"
#include "core/memory_info.h"
#include "engine/key_means.h"
#include "ops/attention/single_level.h"

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
  if (limits.prefill_beside_decodes < 0) {
    throw_bad_input("--prefill-beside-decodes is {}, expected at least 0 (0: as many as fit)",
                    limits.prefill_beside_decodes);
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
// Windowed groups never hold more of one than a window and a chunk.
std::size_t arena_bytes_for(const KvLayout& layout, std::int64_t tokens, std::int64_t texts,
                            std::int64_t chunk) {
  const std::size_t slab = PagePool::slab_bytes(layout);
  std::size_t slabs = 0;
  for (const KvGroup& group : layout.groups()) {
    const std::size_t per_slab = slab / group.page_bytes;
    const auto pages =
        static_cast<std::size_t>(most_pages_at_once(group.geometry.window, 0, tokens, chunk));
    slabs += (pages * static_cast<std::size_t>(texts) + per_slab - 1) / per_slab;
  }
  return slabs * slab;
}

std::size_t bytes_of_pages(const KvLayout& layout, std::int64_t pages) {
  std::size_t bytes = 0;
  for (const KvGroup& group : layout.groups()) bytes += group.page_bytes;
  if (pages < 0 ||
      static_cast<std::uint64_t>(pages) > std::numeric_limits<std::size_t>::max() / bytes) {
    throw_bad_input("--num-gpu-blocks-override is {}, expected 1 to {}", pages,
                    std::numeric_limits<std::size_t>::max() / bytes);
  }
  return static_cast<std::size_t>(pages) * bytes;
}

std::size_t available_bytes(const EngineOptions& options, Device device) {
  // Half, because the weights are mapped, not read yet, and will want memory too.
  if (device == Device::cpu) return available_memory_bytes() / 2;
  return static_cast<std::size_t>(options.gpu_memory_utilization *
                                  static_cast<double>(free_device_bytes()));
}

std::size_t choose_arena_bytes(const KvLayout& layout, const EngineOptions& options,
                               std::int64_t max_model_len, Device device) {
  const std::int64_t chunk = options.limits.largest_chunk();
  const std::size_t one_text = arena_bytes_for(layout, max_model_len, 1, chunk);
  std::size_t bytes = options.kv_cache_pages != 0 ? bytes_of_pages(layout, options.kv_cache_pages)
                                                  : options.kv_cache_bytes;
  if (bytes == 0) {
    bytes = std::min(arena_bytes_for(layout, max_model_len, options.limits.max_sequences, chunk),
                     available_bytes(options, device));
  }
  if (bytes < one_text) {
    throw_error(ErrorKind::out_of_memory,
                "a KV cache of {} bytes cannot hold one text of {} tokens, which takes {} bytes; "
                "lower the context or take a smaller --kv-cache-dtype",
                bytes, max_model_len, one_text);
  }
  return bytes;
}

// What the bytes of a page depend on beside the cache's policy and the text.
std::string describe_model(const ModelConfig& config, Arithmetic arithmetic) {
  return fmt::format("{} {} layers {} hidden {} heads {}:{} x {} vocabulary {} arithmetic {}",
                     config.family, config.name, config.layers, config.hidden_size,
                     config.query_heads, config.kv_heads, config.head_dim, config.vocabulary_size,
                     name_of(arithmetic));
}

void check_accumulation(AttentionAccumulation accumulation, const Model& model,
                        const KvPolicy& policy) {
  if (accumulation != AttentionAccumulation::single_level) return;
  if (model.device() == Device::cuda && cuda_device_info().architecture != 90) {
    throw_unsupported(
        "--attention-accumulation single: only kernels of Hopper GPUs have it, and {} is none",
        cuda_device_info().name);
  }
  for (const KvLayerPolicy& layer : policy.layers) {
    std::string why;
    if (!has_single_level(layer, model.config().head_dim, &why)) {
      throw_unsupported("--attention-accumulation single: {}", why);
    }
  }
}

}  // namespace

KvPolicyOptions cache_options(const EngineOptions& options, const Model& model) {
  KvPolicyOptions cache = options.cache;
  if (cache.checkpoint == nullptr) cache.checkpoint = model.kv_checkpoint();
  cache.query_heads = model.config().query_heads;
  return cache;
}

EngineCore::EngineCore(std::shared_ptr<Model> model, const EngineOptions& options)
    : model_(std::move(model)),
      max_model_len_(checked_model_len(options.max_model_len, model_->config())),
      policy_(make_kv_policy(cache_options(options, *model_), model_->config().kv_geometry())),
      threads_(std::make_unique<ThreadPool>(options.threads)) {
  checked(options.limits);
  context_.pool = threads_.get();
  context_.instruction_set = options.instruction_set;
  context_.arithmetic = options.arithmetic;
  context_.accumulation = options.accumulation;
  context_.observer = options.observer;
  check_accumulation(options.accumulation, *model_, policy_);
  if (policy_.lacks_key_means) {
    throw_error(ErrorKind::internal, "--kv-cache-key-mean auto wants means that nobody took");
  }
  const Device device = model_->device();
  if (device != Device::cpu && options.observer != nullptr) {
    throw_error(ErrorKind::internal, "keys and queries can be looked at on the CPU alone");
  }
  const KvLayout layout(model_->config().kv_geometry(), policy_,
                        device == Device::cuda ? KvTarget::sm90 : KvTarget::cpu);
  model_->prepare({.rows = options.limits.max_batched_tokens,
                   .sequences = options.limits.max_sequences,
                   .logit_rows = options.limits.max_sequences + max_prompt_logit_rows,
                   .cuda_graphs = options.cuda_graphs});
  page_pool_ = std::make_unique<PagePool>(
      layout, choose_arena_bytes(layout, options, max_model_len_, device),
      device == Device::cuda ? allocate_device_arena : allocate_host_arena);
  if (options.cache_fill) page_pool_->fill(*options.cache_fill);
  runner_ = std::make_unique<Runner>(model_, context_, *page_pool_);
}

Engine::Engine(std::shared_ptr<Model> model, std::shared_ptr<const Tokenizer> tokenizer,
               const EngineOptions& options)
    : tokenizer_(std::move(tokenizer)),
      core_(model, with_key_means(options, model, *tokenizer_)),
      prefix_cache_(options.prefix_caching
                        ? std::make_unique<PrefixCache>(
                              core_.pool(),
                              describe_model(core_.model().config(), options.arithmetic),
                              core_.policy().fingerprint())
                        : nullptr),
      scheduler_(options.limits, core_.pool(), prefix_cache_.get()),
      end_tokens_(tokenizer_->end_tokens()) {
  // A folder's generation_config.json may name more of them than its tokenizer does. Those that are
  // no token of both model and tokenizer are never drawn.
  for (const TokenId token : core_.model().config().end_tokens) {
    if (static_cast<std::size_t>(token) >= usable_logits()) continue;
    if (std::find(end_tokens_.begin(), end_tokens_.end(), token) == end_tokens_.end()) {
      end_tokens_.push_back(token);
    }
  }
}

void Engine::check(const GenerateRequest& request) const {
  const SamplingParams& sampling = request.sampling;
  sampling.validate();
  if (request.prompt.empty()) throw_bad_input("the prompt is empty; expected at least one token");
  const auto length = static_cast<std::int64_t>(request.prompt.size());
  if (length > core_.max_model_len() ||
      (length == core_.max_model_len() && sampling.max_tokens > 0)) {
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
  const auto usable = static_cast<std::int64_t>(usable_logits());
  const auto check_token = [usable](const char* name, TokenId token) {
    if (token < 0 || token >= usable) {
      throw_bad_input("{} holds token id {}, outside the model's vocabulary of {}", name, token,
                      usable);
    }
  };
  for (const auto& [token, bias] : sampling.logit_bias) check_token("logit_bias", token);
  for (const TokenId token : sampling.stop_token_ids) check_token("stop_token_ids", token);
}

RequestId Engine::submit(GenerateRequest request) {
  check(request);
  const RequestId id = next_id_++;
  submit(id, std::move(request), EngineClock::now());
  return id;
}

void Engine::submit(RequestId id, GenerateRequest request, EngineClock::time_point arrival) {
  const auto length = static_cast<std::int64_t>(request.prompt.size());
  request.sampling.max_tokens =
      std::min(request.sampling.max_tokens, core_.max_model_len() - length);
  const std::uint64_t seed = request.sampling.seed ? *request.sampling.seed : draw_seed();
  BlockTable blocks(core_.pool(), prefix_cache_ ? &prefix_cache_->index() : nullptr);
  auto sequence =
      std::make_unique<Sequence>(id, std::move(request), seed, std::move(blocks), *tokenizer_);
  sequence->times.arrival = arrival;
  next_id_ = std::max(next_id_, id + 1);
  scheduler_.add(std::move(sequence));
}

void Engine::cancel(RequestId id, std::string message) {
  if (scheduler_.find(id) != nullptr) cancelled_.push_back({id, std::move(message)});
}

TokenEvent Engine::event_of(const Sequence& sequence) const {
  TokenEvent event;
  event.request = sequence.id;
  event.prompt_tokens = sequence.prompt_tokens;
  event.cached_tokens = sequence.cached_tokens;
  event.generated_tokens = sequence.generated();
  event.times = sequence.times;
  return event;
}

void Engine::count_end(FinishReason reason) {
  counters_.finished_stop += reason == FinishReason::stop ? 1 : 0;
  counters_.finished_length += reason == FinishReason::length ? 1 : 0;
  counters_.finished_cancelled += reason == FinishReason::cancelled ? 1 : 0;
  counters_.finished_error += reason == FinishReason::error ? 1 : 0;
}

TokenEvent Engine::end_of(const Sequence& sequence, FinishReason reason, std::string message) {
  TokenEvent event = event_of(sequence);
  event.finished = reason;
  event.message = std::move(message);
  return event;
}

void Engine::end_cancelled(std::vector<TokenEvent>* events) {
  for (Cancelled& cancelled : cancelled_) {
    const std::unique_ptr<Sequence> sequence = scheduler_.remove(cancelled.id);
    if (sequence == nullptr) continue;
    events->push_back(end_of(*sequence, FinishReason::cancelled, std::move(cancelled.message)));
    count_end(FinishReason::cancelled);
  }
  cancelled_.clear();
}

void Engine::end_all(FinishReason reason, const std::string& message,
                     std::vector<TokenEvent>* events) {
  while (const std::unique_ptr<Sequence> sequence = scheduler_.remove_oldest()) {
    events->push_back(end_of(*sequence, reason, message));
    count_end(reason);
  }
  cancelled_.clear();
}

// Rows of the output matrix past the tokenizer's last id are padding and never an answer.
std::size_t Engine::usable_logits() const {
  return static_cast<std::size_t>(std::min<std::int64_t>(core_.model().config().vocabulary_size,
                                                         tokenizer_->vocabulary_size()));
}

// The end of the answer, and of its text: what the filter and the detokenizer still hold.
void Engine::end_answer(Sequence& sequence, bool ends_answer, TokenEvent* event) {
  if (ends_answer || sequence.stop_filter.stopped()) {
    event->finished = FinishReason::stop;
  } else if (sequence.generated() >= sequence.sampling.max_tokens) {
    event->finished = FinishReason::length;
  }
  if (event->finished == FinishReason::none || sequence.stop_filter.stopped()) return;
  event->text += sequence.stop_filter.push(sequence.detokenizer.finish());
  if (sequence.stop_filter.stopped()) {
    event->finished = FinishReason::stop;
  } else {
    event->text += sequence.stop_filter.finish();
  }
}

void Engine::start_results(std::span<const ScheduledRows> scheduled) {
  results_.clear();
  for (const ScheduledRows& item : scheduled) {
    Result result;
    result.sequence = item.sequence;
    result.rows = item.tokens;
    result.owes_prompt_logprobs = item.sequence->owes_prompt_logprobs();
    result.complete = item.tokens == item.sequence->pending();
    result.logit_rows = result.owes_prompt_logprobs ? item.tokens : (result.complete ? 1 : 0);
    results_.push_back(std::move(result));
  }
}

// The model's logits of all wanted rows, in the order of the results.
void Engine::compute() {
  const auto vocabulary = static_cast<std::size_t>(core_.model().config().vocabulary_size);
  std::span<const float> logits = core_.runner().run(rows_);
  for (Result& result : results_) {
    const std::size_t floats = static_cast<std::size_t>(result.logit_rows) * vocabulary;
    result.logits = logits.first(floats);
    logits = logits.subspan(floats);
  }
}

namespace {

// Whether a model's own draw is the token that the sampler would choose.
bool can_draw(const Sequence& sequence) {
  const SamplingParams& sampling = sequence.sampling;
  return !sampling.has_penalties() && sampling.logit_bias.empty() &&
         sequence.generated() >= sampling.min_tokens && sampling.logprobs < 0;
}

DrawRow draw_of(const Sequence& sequence) {
  const SamplingParams& sampling = sequence.sampling;
  DrawRow row;
  row.temperature = sampling.temperature;
  row.top_p = sampling.top_p;
  row.min_p = sampling.min_p;
  row.top_k = static_cast<std::int32_t>(
      std::min<std::int64_t>(sampling.top_k, std::numeric_limits<std::int32_t>::max()));
  row.uniform = uniform_draw(sequence.seed, sequence.generated());
  return row;
}

}  // namespace

// The same for models that draw tokens themselves: logits come here for those rows alone that need
// them. What is no number is told by the sampler, which names it.
void Engine::compute_and_draw() {
  draws_.clear();
  for (const Result& result : results_) {
    // A row that the host will draw from is drawn from greedily, which is the least work.
    const DrawRow row = can_draw(*result.sequence) ? draw_of(*result.sequence) : DrawRow{};
    draws_.insert(draws_.end(), static_cast<std::size_t>(result.logit_rows), row);
  }
  std::span<const TokenId> drawn =
      core_.runner().run_and_draw(rows_, draws_, static_cast<std::int64_t>(usable_logits()));
  std::size_t host_rows = 0;
  for (Result& result : results_) {
    const auto rows = static_cast<std::size_t>(result.logit_rows);
    const bool draws = result.complete && result.sequence->sampling.max_tokens > 0;
    if (draws && can_draw(*result.sequence)) result.token = drawn[rows - 1];
    result.wants_logits = result.owes_prompt_logprobs || (draws && result.token < 0);
    if (result.wants_logits) host_rows += rows;
    drawn = drawn.subspan(rows);
  }
  read_wanted_logits(host_rows);
}

void Engine::read_wanted_logits(std::size_t host_rows) {
  const auto vocabulary = static_cast<std::size_t>(core_.model().config().vocabulary_size);
  if (host_logits_.size() < host_rows * vocabulary) host_logits_.resize(host_rows * vocabulary);
  std::span<float> room(host_logits_);
  std::int64_t first = 0;
  for (Result& result : results_) {
    const auto rows = static_cast<std::size_t>(result.logit_rows);
    if (result.wants_logits) {
      for (std::size_t row = 0; row < rows; ++row) {
        core_.runner().read_logits(first + static_cast<std::int64_t>(row),
                                   room.subspan(row * vocabulary, vocabulary));
      }
      result.logits = room.first(rows * vocabulary);
      room = room.subspan(rows * vocabulary);
    }
    first += result.logit_rows;
  }
}

// A pass over 50,000 to 260,000 logits for each sequence: worth all threads.
void Engine::draw_tokens() {
  drawers_.resize(static_cast<std::size_t>(core_.context().pool->size()));
  const auto draws = [](const Result& result) {
    return result.complete && result.token < 0 && result.sequence->sampling.max_tokens > 0;
  };
  core_.context().pool->parallel_for(
      static_cast<std::int64_t>(results_.size()), [&](std::int64_t index, int thread) {
        Result& result = results_[static_cast<std::size_t>(index)];
        if (draws(result)) draw_token(drawers_[static_cast<std::size_t>(thread)], result);
      });
}

void Engine::draw_token(Drawer& drawer, Result& result) const {
  const Sequence& sequence = *result.sequence;
  const auto vocabulary = static_cast<std::size_t>(core_.model().config().vocabulary_size);
  const std::span<const float> logits = result.logits.last(vocabulary).first(usable_logits());
  try {
    result.token = drawer.sampler.sample(
        adjust_logits(logits, sequence.sampling, sequence.token_counts, sequence.generated(),
                      end_tokens_, &drawer.adjusted_logits),
        sequence.sampling, sequence.seed, sequence.generated());
    if (sequence.sampling.logprobs >= 0) {
      result.logprobs = compute_logprobs(logits, result.token, sequence.sampling.logprobs);
    }
  } catch (const std::exception& error) {
    result.error = error.what();
  }
}

TokenEvent Engine::accept_token(Result& result) {
  Sequence& sequence = *result.sequence;
  const SamplingParams& sampling = sequence.sampling;
  const TokenId token = result.token;
  sequence.tokens.push_back(token);
  if (sampling.has_penalties()) sequence.token_counts.add_generated(token);
  if (sequence.generated() == 1) {
    sequence.times.first_token = EngineClock::now();
    counters_.prefix_hits += sequence.cached_tokens;
  }
  TokenEvent event = event_of(sequence);
  event.token = token;
  event.logprobs = std::move(result.logprobs);

  const auto holds = [token](const std::vector<TokenId>& tokens) {
    return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
  };
  const bool ends_answer =
      (!sampling.ignore_eos && holds(end_tokens_)) || holds(sampling.stop_token_ids);
  if (!ends_answer) {
    const std::string text = sequence.detokenizer.push(token);
    // The text of the first min_tokens holds no stop string, whatever it says.
    event.text =
        sequence.generated() <= sampling.min_tokens ? text : sequence.stop_filter.push(text);
  }
  end_answer(sequence, ends_answer, &event);
  return event;
}

// Rows [computed_tokens, computed_tokens + rows) with a row of logits each: row i speaks of token
// i + 1. After a preemption the rows that were told already are passed over.
TokenEvent Engine::accept_prompt_rows(const Result& result) {
  Sequence& sequence = *result.sequence;
  const std::int64_t first = sequence.prompt_logprobs_told;
  const std::int64_t last =
      std::min(sequence.computed_tokens + result.rows, sequence.prompt_tokens - 1);
  TokenEvent event = event_of(sequence);
  if (last <= first) return event;
  event.prompt_logprobs.resize(static_cast<std::size_t>(last - first));
  const auto vocabulary = static_cast<std::size_t>(core_.model().config().vocabulary_size);
  core_.context().pool->parallel_for(last - first, [&](std::int64_t index, int) {
    const std::int64_t row = first + index;
    const auto offset = static_cast<std::size_t>(row - sequence.computed_tokens) * vocabulary;
    const std::span<const float> logits = result.logits.subspan(offset, usable_logits());
    refuse_non_numbers(logits);
    event.prompt_logprobs[static_cast<std::size_t>(index)] =
        compute_logprobs(logits, sequence.tokens[static_cast<std::size_t>(row + 1)],
                         sequence.sampling.prompt_logprobs);
  });
  sequence.prompt_logprobs_told = last;
  return event;
}

void Engine::lay_out_rows(std::span<const ScheduledRows> scheduled) {
  rows_.clear();
  const EngineClock::time_point now = EngineClock::now();
  for (const ScheduledRows& item : scheduled) {
    Sequence& sequence = *item.sequence;
    if (sequence.times.first_scheduled == EngineClock::time_point{}) {
      sequence.times.first_scheduled = now;
      counters_.prompt_tokens += sequence.prompt_tokens;
      if (prefix_cache_ && !sequence.owes_prompt_logprobs()) {
        counters_.prefix_queries += sequence.prompt_tokens;
      }
    }
    counters_.computed_rows += item.tokens;
    RunnerRows request;
    request.blocks = &sequence.blocks;
    request.tokens = std::span(sequence.tokens)
                         .subspan(static_cast<std::size_t>(sequence.computed_tokens),
                                  static_cast<std::size_t>(item.tokens));
    request.first_position = sequence.computed_tokens;
    request.first_written = sequence.adopted_tokens;
    // A prompt that is not yet at its end needs no logits.
    request.logits = item.tokens == sequence.pending() ? WantedLogits::last : WantedLogits::none;
    if (sequence.owes_prompt_logprobs()) request.logits = WantedLogits::all;
    request.decodes = item.decodes;
    rows_.push_back(request);
  }
}

void Engine::accept(Result& result, std::vector<TokenEvent>* events) {
  Sequence& sequence = *result.sequence;
  FinishReason finished = FinishReason::none;
  try {
    if (!result.error.empty()) throw_error(ErrorKind::internal, "{}", result.error);
    if (result.owes_prompt_logprobs) {
      TokenEvent event = accept_prompt_rows(result);
      if (!event.prompt_logprobs.empty()) events->push_back(std::move(event));
    }
    if (result.complete && sequence.sampling.max_tokens == 0) {
      events->push_back(end_of(sequence, FinishReason::length, {}));
      finished = FinishReason::length;
    } else if (result.complete) {
      events->push_back(accept_token(result));
      ++counters_.generated_tokens;
      finished = events->back().finished;
    }
  } catch (const std::exception& error) {
    sequence.blocks.forget();
    finished = FinishReason::error;
    events->push_back(end_of(sequence, finished, error.what()));
  }
  sequence.computed_tokens += result.rows;
  sequence.blocks.release_outside_windows(sequence.computed_tokens);
  if (finished == FinishReason::none) return;
  finished_.push_back(sequence.id);
  count_end(finished);
}

std::vector<TokenEvent> Engine::step() {
  std::vector<TokenEvent> events;
  step(&events);
  return events;
}

void Engine::step(std::vector<TokenEvent>* events) {
  end_cancelled(events);
  if (scheduler_.idle()) return;

  const auto seconds = [](EngineClock::duration duration) {
    return std::chrono::duration<double>(duration).count();
  };
  const auto start = EngineClock::now();
  const std::vector<ScheduledRows>& scheduled = scheduler_.schedule();
  lay_out_rows(scheduled);
  const auto scheduled_at = EngineClock::now();
  start_results(scheduled);
  if (core_.model().draws()) {
    compute_and_draw();
  } else {
    compute();
  }
  const auto computed_at = EngineClock::now();
  finished_.clear();
  draw_tokens();
  for (Result& result : results_) accept(result, events);
  for (const RequestId id : finished_) scheduler_.remove(id);

  StepTimes& times = counters_.times;
  const bool decodes_only = std::all_of(scheduled.begin(), scheduled.end(),
                                        [](const auto& item) { return item.decodes; });
  times.schedule += seconds(scheduled_at - start);
  (decodes_only ? times.forward_decode : times.forward_prefill) +=
      seconds(computed_at - scheduled_at);
  ++(decodes_only ? times.decode_steps : times.prefill_steps);
  times.sample += seconds(EngineClock::now() - computed_at);
}

EngineStats Engine::stats() const {
  EngineStats stats = counters_;
  stats.running = static_cast<std::int64_t>(scheduler_.running());
  stats.waiting = static_cast<std::int64_t>(scheduler_.waiting());
  stats.preemptions = scheduler_.preemptions();
  const PagePool& pool = core_.pool();
  stats.kv_arena_bytes = pool.arena().size();
  stats.kv_usage =
      static_cast<double>(pool.held_bytes()) / static_cast<double>(stats.kv_arena_bytes);
  const std::vector<KvGroup>& groups = pool.layout().groups();
  for (std::size_t group = 0; group < groups.size(); ++group) {
    const std::string format = describe(groups[group].run.policy);
    auto found = std::find_if(stats.kv_bytes.begin(), stats.kv_bytes.end(),
                              [&](const KvFormatBytes& bytes) { return bytes.format == format; });
    if (found == stats.kv_bytes.end()) {
      found = stats.kv_bytes.insert(stats.kv_bytes.end(), KvFormatBytes{format, 0, 0});
    }
    const std::int64_t held = pool.held_pages(static_cast<int>(group));
    const std::int64_t idle = pool.used_pages(static_cast<int>(group)) - held;
    found->in_use += static_cast<std::size_t>(held) * groups[group].page_bytes;
    found->cached += static_cast<std::size_t>(idle) * groups[group].page_bytes;
  }
  const KvWriteCounters& writes = core_.runner().counters();
  stats.writes = writes.total();
  for (int layer = 0; layer < writes.layers(); ++layer) {
    stats.layer_writes.push_back(writes.layer(layer));
  }
  return stats;
}

}  // namespace octet
