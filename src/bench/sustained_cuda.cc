#include <algorithm>
#include <vector>

#include <cuda_runtime_api.h>

#include "bench/sustained.h"
#include "core/cuda/check.h"
#include "core/cuda/event_timer.h"

namespace octet {

namespace {

constexpr double least_microseconds = 200e3;
constexpr double warm_up_microseconds = 50e3;
constexpr int least_samples = 5;

struct Stream {
  cudaStream_t stream = nullptr;
  Stream() { check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate"); }
  ~Stream() { cudaStreamDestroy(stream); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
};

struct GraphRun {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  GraphRun() = default;
  ~GraphRun() {
    if (executable != nullptr) cudaGraphExecDestroy(executable);
    if (graph != nullptr) cudaGraphDestroy(graph);
  }
  GraphRun(const GraphRun&) = delete;
  GraphRun& operator=(const GraphRun&) = delete;
};

}  // namespace

SustainedTime time_sustained(int count, const std::function<void(int, cudaStream_t)>& launch) {
  Stream stream;
  GraphRun run;
  check_cuda(cudaStreamBeginCapture(stream.stream, cudaStreamCaptureModeThreadLocal),
             "cudaStreamBeginCapture");
  for (int i = 0; i < count; ++i) launch(i, stream.stream);
  check_cuda(cudaStreamEndCapture(stream.stream, &run.graph), "cudaStreamEndCapture");
  check_cuda(cudaGraphInstantiate(&run.executable, run.graph, 0), "cudaGraphInstantiate");

  EventTimer timer;
  std::vector<double> samples;
  double total = 0;
  bool warm = false;
  while (total < (warm ? least_microseconds : warm_up_microseconds) ||
         static_cast<int>(samples.size()) < least_samples || !warm) {
    if (!warm && total >= warm_up_microseconds) {
      warm = true;
      total = 0;
      samples.clear();
    }
    timer.start(stream.stream);
    check_cuda(cudaGraphLaunch(run.executable, stream.stream), "cudaGraphLaunch");
    timer.stop(stream.stream);
    samples.push_back(timer.microseconds());
    total += samples.back();
  }
  std::sort(samples.begin(), samples.end());
  return {samples[samples.size() / 2] / count, samples.front() / count,
          static_cast<std::int64_t>(samples.size()) * count};
}

}  // namespace octet
