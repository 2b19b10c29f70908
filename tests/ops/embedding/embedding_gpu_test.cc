// Embedding look-up on the GPU: the CPU's bits.
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "core/cuda/device.h"
#include "core/cuda/device_memory.h"
#include "core/cuda/launch.h"
#include "core/error.h"
#include "ops/embedding/embedding.h"
#include "ops/embedding/embedding_cuda.h"
#include "ops/linear/device_weights.h"
#include "ops/linear/random_weights.h"

namespace octet {
namespace {

CudaLaunch launch() { return {nullptr, cuda_device_info().multiprocessors, true}; }

TEST(EmbeddingGpu, GivesTheBitsOfTheCpu) {
  constexpr std::int64_t width = 512;
  const std::vector<std::int32_t> tokens = {3, 0, 99, 3, 50};
  for (const DataType dtype :
       {DataType::bfloat16, DataType::q4_k, DataType::q6_k, DataType::q8_0}) {
    SCOPED_TRACE(traits_of(dtype).name);
    const RandomWeights table(dtype, 100, width, 1);
    std::vector<float> expected(tokens.size() * width);
    ThreadPool pool(1);
    OpContext context;
    context.pool = &pool;
    embedding(context, {&table.view(), tokens.data(), static_cast<std::int64_t>(tokens.size()),
                        expected.data(), 33.5f});

    DeviceWeights weights;
    const std::size_t number = weights.add({table.view()});
    weights.upload(pool, nullptr);
    // A row of padding after the others.
    std::vector<std::int32_t> padded = tokens;
    padded.push_back(-1);
    const DeviceArray<std::int32_t> device_tokens(padded);
    DeviceArray<float> residual(padded.size() * width);
    residual.fill_bytes(0xFF);
    EmbeddingCudaArgs args;
    args.table = &weights.matrix(number);
    args.tokens = device_tokens.data();
    args.rows = static_cast<std::int64_t>(padded.size());
    args.residual = residual.data();
    args.scale = 33.5f;
    embedding_cuda(launch(), args);
    const std::vector<float> got = residual.download();
    EXPECT_EQ(std::vector<float>(got.begin(), got.begin() + tokens.size() * width), expected);
    EXPECT_EQ(std::vector<float>(got.end() - width, got.end()), std::vector<float>(width, 0.0f));
  }
}

TEST(EmbeddingGpu, RefusesAMissingTable) {
  EmbeddingCudaArgs args;
  args.rows = 1;
  EXPECT_THROW(embedding_cuda(launch(), args), Error);
}

}  // namespace
}  // namespace octet
