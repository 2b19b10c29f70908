// One request for text, from its submission to its last byte.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/answer_format.h"
#include "server/asio.h"
#include "server/engine_client.h"
#include "server/event_mailbox.h"
#include "server/http_message.h"
#include "server/metrics.h"

namespace octet {

// What a request comes to once its text is tokens.
struct PreparedGeneration {
  std::vector<GenerateRequest> requests;  // of prompt 0 its answers, then of prompt 1, ...
  int choices = 1;                        // of each prompt
  bool stream = false;
  bool include_usage = false;
  std::unique_ptr<AnswerFormat> format;
};

// What all generations share; it outlives them.
struct GenerationContext {
  asio::io_context* io = nullptr;
  EngineClient* engine = nullptr;
  std::shared_ptr<EventMailbox> mailbox;
  ServerMetrics* metrics = nullptr;
  std::chrono::milliseconds request_timeout{0};  // 0: none
};

// For the I/O thread alone. It is alive while the list of generations holds it; `finished` tells
// that list that it is over, exactly once, and may destroy it.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  Generation(std::uint64_t key, const GenerationContext& context, PreparedGeneration prepared,
             std::shared_ptr<HttpExchange> exchange, std::function<void()> finished);
  ~Generation();
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  // Hands the requests to the engine. Throws ApiError where it takes none: 400, 429 or 503.
  void start();
  void on_event(int choice, TokenEvent&& event);

  // A comment on a stream that has been silent for so long, so that nothing on its way to the
  // client takes it for dead.
  void keep_alive(std::chrono::steady_clock::time_point now, std::chrono::seconds silence);

 private:
  struct Choice {
    RequestId id = 0;
    std::int64_t prompt_tokens = 0;
    std::int64_t cached_tokens = 0;
    std::int64_t generated_tokens = 0;
    std::optional<EngineClock::time_point> last_token;
    bool finished = false;
  };

  void on_leave(LeaveReason reason);
  void cancel(AbortReason reason);
  void note_times(Choice& choice, const TokenEvent& event);
  void fail(const TokenEvent& event);
  void send(std::string_view data);
  void complete();
  void end();
  Usage usage() const;

  std::uint64_t key_;
  const GenerationContext* context_;
  PreparedGeneration prepared_;
  std::shared_ptr<HttpExchange> exchange_;
  std::function<void()> finished_;
  std::vector<Choice> choices_;
  std::size_t unfinished_ = 0;
  asio::steady_timer timer_;
  std::chrono::steady_clock::time_point last_sent_;
  bool stream_begun_ = false;
  bool answered_ = false;  // the exchange is over, though the engine may still have events
};

}  // namespace octet
