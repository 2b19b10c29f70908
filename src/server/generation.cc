#include "server/generation.h"

#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "server/api_error.h"

namespace octet {

namespace {

// What the client of an answer that was not finished is told.
ApiError error_of(const TokenEvent& event) {
  if (event.finished == FinishReason::error) {
    return ApiError(500, fmt::format("the answer failed: {}", event.message));
  }
  if (event.message == name_of(AbortReason::timed_out)) {
    return ApiError(504, "the answer took longer than the server allows (--request-timeout)");
  }
  return ApiError(503, fmt::format("the answer was ended: {}", event.message));
}

void refuse(Admission admission) {
  switch (admission) {
    case Admission::accepted:
      return;
    case Admission::queue_full:
      throw ApiError(429, "as many requests are waiting as may; try again later", {}, "queue_full");
    case Admission::draining:
      throw ApiError(503, "the server is shutting down", {}, "shutting_down");
    case Admission::unhealthy:
      throw ApiError(503, "the engine has failed and takes no requests", {}, "unhealthy");
  }
}

}  // namespace

Generation::Generation(std::uint64_t key, const GenerationContext& context,
                       PreparedGeneration prepared, std::shared_ptr<HttpExchange> exchange,
                       std::function<void()> finished)
    : key_(key),
      context_(&context),
      prepared_(std::move(prepared)),
      exchange_(std::move(exchange)),
      finished_(std::move(finished)),
      timer_(*context.io),
      last_sent_(std::chrono::steady_clock::now()) {}

Generation::~Generation() = default;

void Generation::start() {
  std::vector<Submission> submissions;
  submissions.reserve(prepared_.requests.size());
  const std::int64_t max_tokens =
      prepared_.requests.empty() ? 0 : prepared_.requests.front().sampling.max_tokens;
  int index = 0;
  for (GenerateRequest& request : prepared_.requests) {
    Choice choice;
    choice.prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
    choices_.push_back(choice);
    const AnswerKey key{key_, index++};
    submissions.push_back(
        {std::move(request), [mailbox = context_->mailbox, key](TokenEvent&& event) {
           mailbox->put(key, std::move(event));
         }});
  }
  prepared_.requests.clear();
  SubmitResult result;
  try {
    result = context_->engine->submit(std::move(submissions));
  } catch (const Error& error) {
    throw to_api_error(error);
  }
  refuse(result.admission);
  unfinished_ = choices_.size();
  for (std::size_t i = 0; i < choices_.size(); ++i) choices_[i].id = result.ids.at(i);
  context_->metrics->on_submitted(prepared_.choices, max_tokens);

  exchange_->on_leave([this](LeaveReason reason) { on_leave(reason); });
  // The client may have left while its text became tokens.
  if (exchange_->left()) return on_leave(LeaveReason::gone);
  if (context_->request_timeout.count() > 0) {
    timer_.expires_after(context_->request_timeout);
    timer_.async_wait([weak = weak_from_this()](const NetworkError& error) {
      const auto self = weak.lock();
      if (self && !error) self->cancel(AbortReason::timed_out);
    });
  }
  if (prepared_.stream) {
    HttpResponse head;
    head.content_type = "text/event-stream; charset=utf-8";
    head.headers = {{"Cache-Control", "no-store"}, {"X-Accel-Buffering", "no"}};
    stream_begun_ = true;
    exchange_->begin_stream(std::move(head));
  }
}

void Generation::on_leave(LeaveReason reason) {
  answered_ = true;
  context_->metrics->on_left(reason);
  cancel(reason == LeaveReason::too_slow ? AbortReason::reader_too_slow : AbortReason::client_left);
}

void Generation::cancel(AbortReason reason) {
  for (const Choice& choice : choices_) {
    if (!choice.finished) context_->engine->cancel(choice.id, reason);
  }
}

void Generation::note_times(Choice& choice, const TokenEvent& event) {
  const auto now = EngineClock::now();
  if (event.token >= 0) {
    if (choice.last_token) {
      context_->metrics->on_token_gap(now - *choice.last_token);
    } else {
      context_->metrics->on_first_token(now - event.times.arrival);
    }
    choice.last_token = now;
  }
  if (event.finished != FinishReason::none) context_->metrics->on_finished(event, now);
}

void Generation::on_event(int index, TokenEvent&& event) {
  Choice& choice = choices_.at(static_cast<std::size_t>(index));
  if (choice.finished) return;
  choice.cached_tokens = event.cached_tokens;
  choice.generated_tokens = event.generated_tokens;
  note_times(choice, event);
  const bool last = event.finished != FinishReason::none;
  const bool failed =
      event.finished == FinishReason::cancelled || event.finished == FinishReason::error;
  if (last) {
    choice.finished = true;
    --unfinished_;
  }
  if (!answered_) {
    if (failed) {
      fail(event);
    } else if (prepared_.stream) {
      if (const std::string chunk = prepared_.format->chunk(index, event); !chunk.empty()) {
        send(chunk);
      }
    } else {
      prepared_.format->accept(index, std::move(event));
    }
  }
  if (unfinished_ > 0) return;
  if (!answered_) complete();
  end();
}

// One answer of a request that fails fails them all: a client gets all that it asked for, or an
// error.
void Generation::fail(const TokenEvent& event) {
  answered_ = true;
  const ApiError error = error_of(event);
  if (stream_begun_) {
    send(error_body(error));
    exchange_->end_stream();
  } else {
    exchange_->respond(error_response(error));
  }
  cancel(AbortReason::client_left);
}

void Generation::send(std::string_view data) {
  last_sent_ = std::chrono::steady_clock::now();
  std::string part;
  part.reserve(data.size() + 8);
  part.append("data: ").append(data).append("\n\n");
  exchange_->write(part);
}

void Generation::complete() {
  answered_ = true;
  if (!prepared_.stream) {
    HttpResponse response;
    response.body = prepared_.format->whole(usage());
    exchange_->respond(std::move(response));
    return;
  }
  if (prepared_.include_usage) send(prepared_.format->usage_chunk(usage()));
  send("[DONE]");
  exchange_->end_stream();
}

// A prompt with several answers is counted once.
Usage Generation::usage() const {
  Usage usage;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    usage.completion_tokens += choice.generated_tokens;
    if (i % static_cast<std::size_t>(prepared_.choices) != 0) continue;
    usage.prompt_tokens += choice.prompt_tokens;
    usage.cached_tokens += choice.cached_tokens;
  }
  return usage;
}

void Generation::keep_alive(std::chrono::steady_clock::time_point now,
                            std::chrono::seconds silence) {
  if (!stream_begun_ || answered_ || now - last_sent_ < silence) return;
  last_sent_ = now;
  exchange_->write(": the answer is on its way\n\n");
}

void Generation::end() {
  // The exchange may not call back any more.
  exchange_->on_leave(nullptr);
  std::exchange(finished_, nullptr)();
}

}  // namespace octet
