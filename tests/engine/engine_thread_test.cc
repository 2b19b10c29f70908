// The engine's thread: many callers, cancels, limits, draining, and faults that end no process.
#include "engine/engine_thread.h"

#include <atomic>
#include <future>
#include <latch>
#include <map>
#include <stdexcept>

#include <gtest/gtest.h>

#include "core/error.h"
#include "support/context_model.h"
#include "support/test_models.h"

namespace octet {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Collects one request's events; any thread may wait for its end.
class Reader {
 public:
  TokenSink sink() {
    return [this](TokenEvent&& event) {
      const std::lock_guard lock(mutex_);
      EXPECT_EQ(last_.finished, FinishReason::none) << "an event after the end";
      if (event.token >= 0) tokens_.push_back(event.token);
      last_ = std::move(event);
      changed_.notify_all();
    };
  }
  TokenEvent wait_for_end() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, seconds(60),
                                  [this] { return last_.finished != FinishReason::none; }));
    return last_;
  }
  void wait_for_tokens(std::size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, seconds(60), [&] { return tokens_.size() >= count; }));
  }
  std::vector<TokenId> tokens() {
    const std::lock_guard lock(mutex_);
    return tokens_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TokenId> tokens_;
  TokenEvent last_;
};

class EngineThreadTest : public ::testing::Test {
 protected:
  EngineThreadTest()
      : tokenizer_(Tokenizer::from_gguf(*GgufFile::open(data_path("models/llama_mixed.gguf")))),
        model_(std::make_shared<ContextModel>(tokenizer_->vocabulary_size())) {}

  std::unique_ptr<EngineThread> start(std::int64_t max_sequences = 4,
                                      std::int64_t max_waiting = 100) {
    EngineOptions options = engine_options(TestOptions{.threads = 1}, 4096);
    options.limits = {
        .max_sequences = max_sequences, .max_batched_tokens = 64, .prefill_chunk = 32};
    return std::make_unique<EngineThread>(std::make_unique<Engine>(model_, tokenizer_, options),
                                          EngineThreadOptions{.max_waiting = max_waiting});
  }

  static GenerateRequest request(int seed, std::size_t length, std::int64_t max_tokens) {
    GenerateRequest made;
    for (std::size_t i = 0; i < length; ++i) {
      made.prompt.push_back(
          static_cast<TokenId>((static_cast<std::size_t>(seed) * 101 + i * 17) % 200));
    }
    made.sampling.max_tokens = max_tokens;
    made.sampling.ignore_eos = true;
    return made;
  }
  std::vector<TokenId> expected(const GenerateRequest& asked) const {
    return model_->answer(asked.prompt, asked.sampling.max_tokens);
  }

  // Stops the engine before its next step until open() is called.
  struct Gate {
    explicit Gate(ContextModel& model) {
      model.before_step = [this](const ForwardBatch&) {
        entered.store(true);
        entered.notify_all();
        opened.wait();
      };
    }
    void wait_until_entered() { entered.wait(false); }
    void open() { opened.count_down(); }
    std::atomic<bool> entered{false};
    std::latch opened{1};
  };

  // Statistics of an engine that has nothing to do.
  static EngineStats settled(const EngineThread& engine) {
    for (int i = 0; i < 10000; ++i) {
      const EngineStats stats = engine.stats();
      if (stats.running + stats.waiting == 0) return stats;
      std::this_thread::sleep_for(milliseconds(1));
    }
    ADD_FAILURE() << "the engine does not come to rest";
    return engine.stats();
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<ContextModel> model_;
};

TEST_F(EngineThreadTest, ManyCallersGetTheirOwnAnswers) {
  const auto engine = start();
  constexpr int callers = 8;
  constexpr int requests = 6;
  std::vector<std::thread> threads;
  for (int caller = 0; caller < callers; ++caller) {
    threads.emplace_back([&, caller] {
      for (int i = 0; i < requests; ++i) {
        const GenerateRequest asked =
            request(caller * 10 + i, 10 + static_cast<std::size_t>(caller) * 23, 12);
        Reader reader;
        const SubmitResult result = engine->submit(asked, reader.sink());
        ASSERT_EQ(result.admission, Admission::accepted);
        const TokenEvent last = reader.wait_for_end();
        EXPECT_EQ(last.request, result.ids.at(0));
        EXPECT_EQ(last.finished, FinishReason::length);
        EXPECT_EQ(reader.tokens(), expected(asked));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const EngineStats stats = settled(*engine);
  EXPECT_EQ(stats.finished_length, callers * requests);
  EXPECT_EQ(stats.generated_tokens, callers * requests * 12);
  EXPECT_EQ(stats.kv_usage, 0.0);
  EXPECT_EQ(stats.seconds_since_progress, 0.0);
  EXPECT_GT(stats.times.forward_decode, 0.0);
  EXPECT_GT(stats.times.decode_steps, 0);
}

TEST_F(EngineThreadTest, EventsSayWhenThingsHappened) {
  const auto engine = start();
  Reader reader;
  const auto before = EngineClock::now();
  engine->submit(request(1, 100, 3), reader.sink());
  const TokenEvent last = reader.wait_for_end();
  EXPECT_GE(last.times.arrival, before);
  EXPECT_GE(last.times.first_scheduled, last.times.arrival);
  EXPECT_GE(last.times.first_token, last.times.first_scheduled);
  EXPECT_LE(last.times.first_token, EngineClock::now());
  EXPECT_EQ(last.prompt_tokens, 100);
  EXPECT_EQ(last.generated_tokens, 3);
}

TEST_F(EngineThreadTest, WhatIsWrongWithARequestIsToldToItsCaller) {
  const auto engine = start();
  Reader reader;
  GenerateRequest bad = request(1, 10, 5);
  bad.sampling.top_p = 2.0f;
  std::vector<Submission> pair;
  pair.push_back({request(1, 10, 5), reader.sink()});
  pair.push_back({bad, reader.sink()});
  EXPECT_THROW(engine->submit(std::move(pair)), Error);
  EXPECT_EQ(engine->stats().waiting + engine->stats().running, 0);
}

TEST_F(EngineThreadTest, AFullQueueRefusesAllOrNone) {
  Gate gate(*model_);
  const auto engine = start(2, 3);
  std::vector<std::unique_ptr<Reader>> readers;
  const auto submit = [&](std::size_t count) {
    std::vector<Submission> several;
    for (std::size_t i = 0; i < count; ++i) {
      readers.push_back(std::make_unique<Reader>());
      several.push_back({request(static_cast<int>(i), 10, 5), readers.back()->sink()});
    }
    const SubmitResult result = engine->submit(std::move(several));
    if (result.admission != Admission::accepted) readers.resize(readers.size() - count);
    return result.admission;
  };
  EXPECT_EQ(submit(1), Admission::accepted);
  gate.wait_until_entered();
  EXPECT_EQ(submit(3), Admission::accepted);
  EXPECT_EQ(submit(2), Admission::queue_full);
  EXPECT_EQ(submit(1), Admission::accepted);
  EXPECT_EQ(submit(1), Admission::queue_full);
  EXPECT_THROW(submit(6), Error);  // more than could ever wait
  readers.resize(5);
  EXPECT_EQ(engine->stats().waiting + engine->stats().running, 5);
  gate.open();
  for (const auto& reader : readers) {
    EXPECT_EQ(reader->wait_for_end().finished, FinishReason::length);
  }
  settled(*engine);
  EXPECT_EQ(submit(5), Admission::accepted);
  for (const auto& reader : readers) reader->wait_for_end();
}

TEST_F(EngineThreadTest, CancelsEndWithinAStepWhateverTheRequestDoes) {
  // Each step waits for a token of ours, so that steps can be counted.
  std::atomic<int> allowed{0};
  model_->before_step = [&](const ForwardBatch&) {
    for (int now = allowed; now == 0; now = allowed) allowed.wait(0);
    --allowed;
  };
  const auto engine = start(2);
  const auto allow = [&](int steps) {
    allowed += steps;
    allowed.notify_all();
  };
  Reader decoding, reading, queued;
  const RequestId a = engine->submit(request(1, 5, 3000), decoding.sink()).ids.at(0);
  allow(3);
  decoding.wait_for_tokens(3);
  const RequestId b = engine->submit(request(2, 3000, 5), reading.sink()).ids.at(0);
  const RequestId c = engine->submit(request(3, 5, 5), queued.sink()).ids.at(0);
  allow(2);
  decoding.wait_for_tokens(5);
  const std::int64_t steps = model_->steps;
  engine->cancel(c, AbortReason::client_left);
  engine->cancel(b, AbortReason::timed_out);
  engine->cancel(a, AbortReason::reader_too_slow);
  engine->cancel(12345, AbortReason::client_left);
  allow(1);
  EXPECT_EQ(queued.wait_for_end().message, name_of(AbortReason::client_left));
  EXPECT_EQ(reading.wait_for_end().message, name_of(AbortReason::timed_out));
  const TokenEvent last = decoding.wait_for_end();
  EXPECT_EQ(last.finished, FinishReason::cancelled);
  EXPECT_EQ(last.message, name_of(AbortReason::reader_too_slow));
  EXPECT_LE(model_->steps - steps, 1);
  EXPECT_EQ(settled(*engine).kv_usage, 0.0);
  EXPECT_EQ(settled(*engine).finished_cancelled, 3);
}

TEST_F(EngineThreadTest, DrainingFinishesWhatRunsAndRefusesTheRest) {
  const auto engine = start(2);
  std::vector<std::unique_ptr<Reader>> readers;
  for (int i = 0; i < 6; ++i) {
    readers.push_back(std::make_unique<Reader>());
    engine->submit(request(i, 20, 10), readers.back()->sink());
  }
  std::promise<void> drained;
  engine->drain(EngineClock::now() + seconds(60), [&] { drained.set_value(); });
  Reader late;
  EXPECT_EQ(engine->submit(request(9, 5, 5), late.sink()).admission, Admission::draining);
  EXPECT_TRUE(engine->stats().draining);
  drained.get_future().wait();
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(readers[static_cast<std::size_t>(i)]->wait_for_end().finished, FinishReason::length);
    EXPECT_EQ(readers[static_cast<std::size_t>(i)]->tokens(), expected(request(i, 20, 10)));
  }
}

TEST_F(EngineThreadTest, DrainingEndsWhatIsLeftAtTheDeadline) {
  model_->before_step = [](const ForwardBatch&) { std::this_thread::sleep_for(milliseconds(2)); };
  const auto engine = start(2);
  std::vector<std::unique_ptr<Reader>> readers;
  for (int i = 0; i < 5; ++i) {
    readers.push_back(std::make_unique<Reader>());
    engine->submit(request(i, 20, 4000), readers.back()->sink());
  }
  readers[0]->wait_for_tokens(2);
  std::promise<void> drained;
  engine->drain(EngineClock::now() + seconds(3600), [&] { drained.set_value(); });
  engine->drain(EngineClock::now() + milliseconds(20));  // a second signal
  drained.get_future().wait();
  for (const auto& reader : readers) {
    const TokenEvent last = reader->wait_for_end();
    EXPECT_EQ(last.finished, FinishReason::cancelled);
    EXPECT_EQ(last.message, name_of(AbortReason::shutting_down));
  }
  EXPECT_EQ(settled(*engine).kv_usage, 0.0);
}

TEST_F(EngineThreadTest, AnIdleEngineDrainsAtOnceAndTheDestructorEndsWhatRuns) {
  Reader reader;
  {
    const auto engine = start();
    engine->submit(request(1, 20, 4000), reader.sink());
    reader.wait_for_tokens(1);
  }
  EXPECT_EQ(reader.wait_for_end().finished, FinishReason::cancelled);
  const auto engine = start();
  std::promise<void> drained;
  engine->drain(EngineClock::now() + seconds(3600), [&] { drained.set_value(); });
  drained.get_future().wait();
}

TEST_F(EngineThreadTest, LogitsThatAreNoNumbersEndTheirRequestAlone) {
  model_->poisonous_token = 199;
  const auto engine = start();
  Reader healthy, poisoned;
  const GenerateRequest good = request(1, 20, 40);
  GenerateRequest bad = request(2, 20, 40);
  bad.prompt.back() = 199;
  // The answers themselves must not hold the token.
  const std::vector<TokenId> answer = expected(good);
  ASSERT_EQ(std::count(answer.begin(), answer.end(), 199), 0);
  engine->submit(good, healthy.sink());
  engine->submit(bad, poisoned.sink());
  const TokenEvent last = poisoned.wait_for_end();
  EXPECT_EQ(last.finished, FinishReason::error);
  EXPECT_NE(last.message.find("not a number"), std::string::npos) << last.message;
  EXPECT_EQ(healthy.wait_for_end().finished, FinishReason::length);
  EXPECT_EQ(healthy.tokens(), answer);
  const EngineStats stats = settled(*engine);
  EXPECT_TRUE(stats.healthy);
  EXPECT_EQ(stats.finished_error, 1);
  EXPECT_EQ(stats.kv_usage, 0.0);
}

TEST_F(EngineThreadTest, AFaultOfTheDeviceEndsAllRequestsAndNothingElse) {
  std::atomic<bool> broken{false};
  model_->before_step = [&](const ForwardBatch&) {
    if (broken) throw std::runtime_error("the device fell off the bus");
  };
  const auto engine = start(2);
  std::vector<std::unique_ptr<Reader>> readers;
  for (int i = 0; i < 5; ++i) {
    readers.push_back(std::make_unique<Reader>());
    engine->submit(request(i, 20, 4000), readers.back()->sink());
  }
  readers[0]->wait_for_tokens(1);
  broken = true;
  for (const auto& reader : readers) {
    const TokenEvent last = reader->wait_for_end();
    EXPECT_EQ(last.finished, FinishReason::error);
    EXPECT_EQ(last.message, "the device fell off the bus");
  }
  const EngineStats stats = settled(*engine);
  EXPECT_FALSE(stats.healthy);
  EXPECT_EQ(stats.unhealthy_reason, "the device fell off the bus");
  Reader late;
  EXPECT_EQ(engine->submit(request(9, 5, 5), late.sink()).admission, Admission::unhealthy);
}

TEST_F(EngineThreadTest, ASinkThatThrowsLosesItsRequestAlone) {
  const auto engine = start();
  Reader other;
  std::atomic<int> events{0};
  engine->submit(request(1, 10, 1000), [&](TokenEvent&&) {
    ++events;
    throw std::runtime_error("no room");
  });
  const GenerateRequest asked = request(2, 10, 20);
  engine->submit(asked, other.sink());
  EXPECT_EQ(other.wait_for_end().finished, FinishReason::length);
  EXPECT_EQ(other.tokens(), expected(asked));
  EXPECT_EQ(settled(*engine).finished_cancelled, 1);
  EXPECT_EQ(events, 2);  // a token, and the end
}

TEST_F(EngineThreadTest, ASinkMayCallTheEngine) {
  const auto engine = start();
  Reader second;
  std::atomic<bool> submitted{false};
  engine->submit(request(1, 10, 1000), [&](TokenEvent&& event) {
    if (submitted.exchange(true)) return;
    engine->submit(request(2, 10, 5), second.sink());
    engine->cancel(event.request, AbortReason::client_left);
    EXPECT_GE(engine->stats().running, 0);
  });
  EXPECT_EQ(second.wait_for_end().finished, FinishReason::length);
  EXPECT_EQ(settled(*engine).finished_cancelled, 1);
}

TEST_F(EngineThreadTest, WhoHearsOfAnAnswersEndFindsItCountedAndItsPlaceFree) {
  const auto engine = start(1, 0);
  Reader second;
  std::promise<EngineStats> at_end;
  engine->submit(request(1, 10, 3), [&](TokenEvent&& event) {
    if (event.finished == FinishReason::none) return;
    at_end.set_value(engine->stats());
    EXPECT_EQ(engine->submit(request(2, 10, 2), second.sink()).admission, Admission::accepted);
  });
  const EngineStats stats = at_end.get_future().get();
  EXPECT_EQ(stats.running + stats.waiting, 0);
  EXPECT_EQ(stats.finished_length, 1);
  EXPECT_EQ(stats.generated_tokens, 3);
  EXPECT_EQ(stats.kv_usage, 0.0);
  EXPECT_EQ(second.wait_for_end().finished, FinishReason::length);
}

TEST_F(EngineThreadTest, AStepThatHangsShowsInTheStatistics) {
  Gate gate(*model_);
  const auto engine = start();
  Reader reader;
  engine->submit(request(1, 10, 2), reader.sink());
  gate.wait_until_entered();
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_GE(engine->stats().seconds_since_progress, 0.03);
  gate.open();
  reader.wait_for_end();
  EXPECT_EQ(settled(*engine).seconds_since_progress, 0.0);
}

}  // namespace
}  // namespace octet
