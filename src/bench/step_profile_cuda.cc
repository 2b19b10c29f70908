#include <algorithm>
#include <map>
#include <memory>

#include "bench/step_profile.h"
#include "core/cuda/check.h"
#include "models/dense_decoder_cuda.h"

namespace octet {

namespace {

constexpr int profiled_runs = 3;

class Event {
 public:
  Event() { check_cuda(cudaEventCreate(&event_), "cudaEventCreate"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(cudaStream_t stream) {
    check_cuda(cudaEventRecord(event_, stream), "cudaEventRecord");
  }
  double microseconds_since(const Event& earlier) const {
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, earlier.event_, event_), "cudaEventElapsedTime");
    return 1e3 * milliseconds;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// An event after each operation: what lies between two is the later one's time.
class Recorder final : public StepObserverCuda {
 public:
  void begin(cudaStream_t stream) override {
    used_ = 0;
    next().record(stream);
    launches_.clear();
  }
  void after(const char* operation, std::span<const DeviceMatrix* const> weights, std::int64_t rows,
             cudaStream_t stream) override {
    next().record(stream);
    Launch launch = {operation, 0, 0};
    for (const DeviceMatrix* weight : weights) {
      launch.bytes += static_cast<double>(weight->bytes());
      launch.operations +=
          2.0 * static_cast<double>(weight->rows * weight->columns) * static_cast<double>(rows);
    }
    launches_.push_back(std::move(launch));
  }

  // Once the step has ended. In the order in which the operations came first.
  std::vector<OperationTime> times() const {
    std::vector<OperationTime> times;
    for (std::size_t i = 0; i < launches_.size(); ++i) {
      const Launch& launch = launches_[i];
      auto found = std::find_if(times.begin(), times.end(), [&](const OperationTime& time) {
        return time.operation == launch.operation;
      });
      if (found == times.end()) {
        found = times.insert(times.end(), OperationTime{launch.operation, 0, 0, 0, 0});
      }
      ++found->launches;
      found->microseconds += events_[i + 1]->microseconds_since(*events_[i]);
      found->bytes += launch.bytes;
      found->operations += launch.operations;
    }
    return times;
  }

 private:
  struct Launch {
    std::string operation;
    double bytes = 0;
    double operations = 0;
  };
  Event& next() {
    if (used_ == events_.size()) events_.push_back(std::make_unique<Event>());
    return *events_[used_++];
  }

  std::vector<std::unique_ptr<Event>> events_;
  std::size_t used_ = 0;
  std::vector<Launch> launches_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

StepMachinery step_machinery(const Model& model) {
  const auto* decoder = dynamic_cast<const DenseDecoderCuda*>(&model);
  if (decoder == nullptr) return {};
  return {decoder->decode_kernel(), decoder->prefill_kernel(), decoder->graph_count(),
          decoder->graph_bytes()};
}

std::vector<OperationTime> profile_step(Model& model, const std::function<void()>& step) {
  auto* decoder = dynamic_cast<DenseDecoderCuda*>(&model);
  if (decoder == nullptr) return {};
  Recorder recorder;
  std::vector<OperationTime> times;
  std::map<std::string, std::vector<double>> samples;
  decoder->observe(&recorder);
  try {
    step();  // warms up
    for (int run = 0; run < profiled_runs; ++run) {
      step();
      times = recorder.times();
      for (const OperationTime& time : times) samples[time.operation].push_back(time.microseconds);
    }
  } catch (...) {
    decoder->observe(nullptr);
    throw;
  }
  decoder->observe(nullptr);
  for (OperationTime& time : times) time.microseconds = median(samples[time.operation]);
  return times;
}

}  // namespace octet
