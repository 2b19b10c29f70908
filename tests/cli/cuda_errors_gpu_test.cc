// What a GPU or its libraries cannot give is told in one sentence, and the program ends with 1.
#include <algorithm>
#include <array>
#include <string>

#include <gtest/gtest.h>

#include "core/cuda/device.h"
#include "core/error.h"
#include "ops/linear/cublaslt_cuda.h"
#include "ops/linear/device_weights.h"
#include "support/run_program.h"
#include "support/test_models.h"

namespace octet {
namespace {

std::string refusal(ErrorKind kind, const auto& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST(CudaErrorsGpu, AMissingCublasLtIsNamed) {
  constexpr std::array<const char*, 2> files = {"libcublasLt.so.none",
                                                "/nowhere/libcublasLt.so.13"};
  const std::string message = refusal(ErrorKind::device, [&] { CublasLt library(files); });
  EXPECT_NE(message.find("cuBLASLt"), std::string::npos) << message;
  EXPECT_NE(message.find("libcublasLt.so.none"), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

TEST(CudaErrorsGpu, ALibraryOfAnotherKindIsRefusedByTheFunctionItLacks) {
  constexpr std::array<const char*, 1> files = {"libc.so.6"};
  const std::string message = refusal(ErrorKind::device, [&] { CublasLt library(files); });
  EXPECT_EQ(message, "cuBLASLt has no cublasLtCreate");
}

TEST(CudaErrorsGpu, WeightsThatDoNotFitAreRefusedAndLeaveTheGpuUsable) {
  DeviceWeights weights;
  weights.add_random("wide", std::int64_t{1} << 21, std::int64_t{1} << 20, DataType::bfloat16, 1);
  ThreadPool pool(1);
  const std::string message =
      refusal(ErrorKind::out_of_memory, [&] { weights.upload(pool, nullptr); });
  EXPECT_NE(message.find("4096.00 GiB"), std::string::npos) << message;
  EXPECT_NE(message.find("free"), std::string::npos) << message;
  DeviceWeights small;
  const std::size_t number = small.add_random("small", 64, 64, DataType::bfloat16, 1);
  small.upload(pool, nullptr);
  EXPECT_NE(small.matrix(number).parts[0].data, nullptr);
}

TEST(CudaErrorsGpu, TheProgramSaysOneSentenceAndEndsWithOne) {
  const ProgramResult result =
      run_octet({"generate", "--model", data_path("models/llama_wide_heads.gguf"), "--device",
                 "cuda", "--prompt", "a", "--kv-cache-memory-bytes", "1000000000000"});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err.rfind("octet: ", 0), 0u) << result.err;
  EXPECT_NE(result.err.find("bytes free"), std::string::npos) << result.err;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
}

}  // namespace
}  // namespace octet
