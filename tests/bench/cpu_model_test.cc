#include "bench/cpu_model.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/test_models.h"

namespace octet {
namespace {

// A window of 40 keys is shorter than the text, of which each round comes back to every depth.
TEST(BenchCpuModel, ComesBackToDepthsBeforeAWindow) {
  const auto file = GgufFile::open(data_path("models/gemma3_windows.gguf"));
  CpuModelBench bench;
  for (const std::string dtype : {"bfloat16", "fp8"}) {
    bench.caches.emplace_back();
    bench.caches.back().dtype = dtype;
  }
  bench.depths = {0, 450};
  bench.prefill = 8;
  bench.decode = 2;
  bench.rounds = 2;
  bench.engine.threads = 1;
  bench.engine.limits.max_batched_tokens = 32;
  const std::vector<CpuModelFigure> figures =
      bench_cpu_model(load_model(file), *file, bench, [](const std::string&) {});
  ASSERT_EQ(figures.size(), 8u);  // two caches, two depths, two phases
  for (const CpuModelFigure& figure : figures) {
    EXPECT_NEAR(figure.tokens_per_s * figure.seconds, figure.phase == "prefill" ? 8 : 1, 1e-9);
  }
}

}  // namespace
}  // namespace octet
