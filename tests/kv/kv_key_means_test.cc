#include "kv/kv_key_means.h"

#include <cmath>
#include <filesystem>

#include <gtest/gtest.h>
#include <unistd.h>

#include "core/error.h"
#include "files/safetensors_writer.h"
#include "files/write_file.h"
#include "kv/kv_policy.h"

namespace octet {
namespace {

class KeyMeansTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("octet_key_means_" + std::to_string(getpid()) + "_" +
               ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directory(folder_);
    means_.source = "a test";
    for (const KvLayerGeometry& layer : geometry_) {
      std::vector<float>& mean = means_.layers.emplace_back();
      for (int i = 0; i < layer.kv_heads * layer.head_dim; ++i) {
        mean.push_back(0.1f * static_cast<float>(i) - 1.0f);
      }
    }
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::vector<std::byte>& bytes) {
    const std::string path = (folder_ / "key_means.safetensors").string();
    write_file_atomically(path, bytes);
    return path;
  }
  std::vector<FloatTensor> tensors() const {
    return {{"model.layers.0.self_attn.k_mean", {2, 8}, means_.layers[0]},
            {"model.layers.2.self_attn.k_mean", {1, 16}, means_.layers[2]}};
  }
  std::string message_of(const std::vector<FloatTensor>& tensors) {
    try {
      read_key_means(write(encode_safetensors(tensors)), geometry_);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  std::filesystem::path folder_;
  std::vector<KvLayerGeometry> geometry_ = {{2, 8, 0}, {0, 0, 0}, {1, 16, 512}};
  KvKeyMeans means_;
};

TEST_F(KeyMeansTest, ComeBackBitForBitFromAFileAndAFolder) {
  const std::string path = write(encode_key_means(means_, geometry_));
  for (const std::string& given : {path, folder_.string()}) {
    const KvKeyMeans read = read_key_means(given, geometry_);
    EXPECT_EQ(read.layers, means_.layers);
    EXPECT_EQ(read.source, path);
  }
}

TEST_F(KeyMeansTest, WhatDoesNotFitTheModelIsRefusedByName) {
  const std::vector<FloatTensor> tensors = this->tensors();
  EXPECT_EQ(message_of(tensors), "no error");
  EXPECT_NE(message_of({tensors[0]}).find("layers.2.self_attn.k_mean is missing"),
            std::string::npos);
  std::vector<FloatTensor> changed = tensors;
  changed[0].shape = {8, 2};
  EXPECT_NE(message_of(changed).find("expected [2, 8]"), std::string::npos);
  changed = tensors;
  changed[1].values[3] = std::nanf("");
  EXPECT_NE(message_of(changed).find("expected finite numbers"), std::string::npos);
  for (const float huge : {3e38f, -2e19f}) {  // 2^64 is 1.8e19
    changed[1].values[3] = huge;
    EXPECT_NE(message_of(changed).find("layers.2.self_attn.k_mean' holds"), std::string::npos);
  }
  changed = tensors;
  changed[1].name = "model.layers.1.self_attn.k_mean";
  EXPECT_NE(message_of(changed).find("no attention layer"), std::string::npos);
  changed[1].name = "model.layers.3.self_attn.k_mean";
  EXPECT_NE(message_of(changed).find("no attention layer"), std::string::npos);
  changed[1].name = "layers.0.self_attn.k_mean";
  EXPECT_NE(message_of(changed).find("twice"), std::string::npos);
}

// Damage shows whatever it makes of the numbers; so do the means of another model, where it is
// known whose they must be.
TEST_F(KeyMeansTest, DamageAndOthersMeansAreRefusedByTheFile) {
  const auto message = [this](const std::vector<std::byte>& bytes, const std::string& identity) {
    try {
      read_key_means(write(bytes), geometry_, identity);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  std::vector<std::byte> bytes = encode_key_means(means_, geometry_);
  EXPECT_EQ(message(bytes, ""), "no error");
  EXPECT_NE(message(bytes, "mine").find("of another model"), std::string::npos);
  bytes.back() ^= std::byte{1};  // 0.5 becomes 0.50390625
  EXPECT_NE(message(bytes, "").find("key_means.safetensors: is damaged"), std::string::npos);

  const std::vector<std::byte> mine = encode_key_means(means_, geometry_, "mine");
  EXPECT_EQ(message(mine, "mine"), "no error");
  EXPECT_EQ(message(mine, ""), "no error");  // a file that the user names is the user's choice
  EXPECT_NE(message(mine, "yours").find("of another model"), std::string::npos);
  EXPECT_NE(message(encode_safetensors(tensors()), "mine").find("has no checksum"),
            std::string::npos);
}

TEST_F(KeyMeansTest, AutoIsForDynamicKeysAndAFileForAllOfEightBits) {
  const auto means = std::make_shared<const KvKeyMeans>(means_);
  const auto make = [&](const std::string& dtype, const std::string& scales,
                        const std::string& key_mean, bool brings_means) {
    KvPolicyOptions options{.dtype = dtype, .scales = scales};
    options.key_mean = key_mean;
    if (brings_means) options.means = means;
    return make_kv_policy(options, geometry_);
  };
  for (const char* dtype : {"fp8", "int8", "int8:fp8", "fp8:bfloat16"}) {
    const KvPolicy policy = make(dtype, "auto", "auto", true);
    EXPECT_EQ(policy.constants[0].key_mean, means_.layers[0]) << dtype;
    EXPECT_EQ(policy.constants[2].key_mean, means_.layers[2]) << dtype;
    EXPECT_TRUE(policy.constants[1].key_mean.empty());
    EXPECT_EQ(policy.key_mean_name, "a test");
    EXPECT_FALSE(policy.lacks_key_means);
    EXPECT_TRUE(make(dtype, "auto", "auto", false).lacks_key_means) << dtype;
    EXPECT_EQ(make(dtype, "auto", "off", true).key_mean_name, "off");
  }
  for (const char* dtype : {"float32", "bfloat16", "bfloat16:fp8"}) {
    const KvPolicy policy = make(dtype, "auto", "auto", false);
    EXPECT_FALSE(policy.lacks_key_means) << dtype;
    EXPECT_EQ(policy.key_mean_name, "off") << dtype;
  }
  EXPECT_TRUE(make("fp8", "unit", "auto", true).constants[0].key_mean.empty());
  // The keys of int8:fp8 are dynamic whatever the flag says of the fp8 side.
  EXPECT_FALSE(make("int8:fp8", "unit", "auto", true).constants[0].key_mean.empty());

  const std::string path = write(encode_key_means(means_, geometry_));
  EXPECT_EQ(make("fp8", "unit", path, false).constants[2].key_mean, means_.layers[2]);
  EXPECT_THROW(make("bfloat16", "auto", path, false), Error);
  EXPECT_THROW(check_kv_policy_options({.dtype = "fp8", .key_mean = "no/such/file"}), Error);
}

TEST_F(KeyMeansTest, AFileThatCannotBeWrittenIsAnErrorAndLeavesNothing) {
  EXPECT_THROW(write_file_atomically((folder_ / "no" / "file").string(), {}), Error);
  const std::string path = write(encode_safetensors({}));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
  EXPECT_TRUE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace octet
