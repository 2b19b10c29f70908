#include "kv/kv_policy.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace octet {
namespace {

KvPolicy make(const std::string& dtype, const std::string& scales = "auto") {
  return make_kv_policy({.dtype = dtype, .scales = scales}, 2);
}

std::string message_of(const std::string& dtype, const std::string& scales = "auto") {
  try {
    make(dtype, scales);
  } catch (const Error& error) {
    EXPECT_TRUE(error.kind() == ErrorKind::bad_input || error.kind() == ErrorKind::unsupported);
    return error.what();
  }
  return "no error";
}

TEST(KvPolicy, OneWordSetsBothSides) {
  const KvPolicy policy = make("fp8");
  ASSERT_EQ(policy.layers.size(), 2u);
  for (const KvLayerPolicy& layer : policy.layers) {
    EXPECT_EQ(layer.key, (KvSidePolicy{KvDtype::fp8, KvScales::dynamic}));
    EXPECT_EQ(layer.value, (KvSidePolicy{KvDtype::fp8, KvScales::dynamic}));
    EXPECT_FALSE(layer.rotates_keys());
  }
  EXPECT_EQ(policy.dtype_name, "fp8");
  EXPECT_EQ(policy.scales_name, "dynamic");
}

TEST(KvPolicy, TwoWordsAreKeyAndValue) {
  const KvPolicy policy = make("int8:fp8_e4m3");
  EXPECT_EQ(policy.layers[0].key, (KvSidePolicy{KvDtype::int8, KvScales::dynamic}));
  EXPECT_EQ(policy.layers[0].value, (KvSidePolicy{KvDtype::fp8, KvScales::dynamic}));
  EXPECT_TRUE(policy.layers[0].rotates_keys());
  EXPECT_EQ(policy.dtype_name, "int8:fp8");
  EXPECT_EQ(describe(policy.layers[0]), "int8:fp8");
}

TEST(KvPolicy, FormatsWithoutScalesHaveNone) {
  for (const char* dtype : {"float32", "float16", "bfloat16"}) {
    const KvPolicy policy = make(dtype, "dynamic");
    EXPECT_EQ(policy.layers[0].key.scales, KvScales::none) << dtype;
    EXPECT_EQ(policy.scales_name, "none") << dtype;
  }
}

TEST(KvPolicy, UnitAppliesToTheE4m3SideAlone) {
  const KvPolicy policy = make("int8:fp8", "unit");
  EXPECT_EQ(policy.layers[0].key.scales, KvScales::dynamic);
  EXPECT_EQ(policy.layers[0].value.scales, KvScales::unit);
  EXPECT_EQ(policy.scales_name, "unit");
}

TEST(KvPolicy, UnitWithoutAnE4m3SideIsRefused) {
  for (const char* dtype : {"auto", "bfloat16", "int8", "float32:float16"}) {
    EXPECT_NE(message_of(dtype, "unit").find("--kv-cache-scales unit"), std::string::npos) << dtype;
  }
}

TEST(KvPolicy, AutoIsBfloat16AndSaysWhy) {
  const KvPolicy policy = make("auto");
  EXPECT_EQ(policy.layers[1].value.dtype, KvDtype::bfloat16);
  EXPECT_NE(policy.reason.find("auto"), std::string::npos);
}

TEST(KvPolicy, UnknownWordsAreNamedWithTheValidOnes) {
  for (const char* dtype :
       {"fp9", "", "fp8:", ":fp8", "fp8:fp8:fp8", "FP8", "auto:fp8", "fp8_e5m2", "nvfp4"}) {
    const std::string message = message_of(dtype);
    EXPECT_NE(message.find("--kv-cache-dtype"), std::string::npos) << dtype << ": " << message;
    EXPECT_NE(message.find("bfloat16"), std::string::npos) << dtype << ": " << message;
  }
  EXPECT_NE(message_of("fp8", "static").find("expected auto, dynamic or unit"), std::string::npos);
}

// Layers of gemma3's kind: every sixth sees all keys; the last has no attention.
std::vector<KvLayerGeometry> hybrid_geometry() {
  std::vector<KvLayerGeometry> geometry;
  for (int layer = 0; layer < 12; ++layer) geometry.push_back({1, 256, layer % 6 == 5 ? 0 : 512});
  geometry.push_back({0, 0, 0});
  return geometry;
}

std::vector<int> bfloat16_layers(const std::vector<std::string>& skip) {
  const KvPolicy policy = make_kv_policy({.dtype = "fp8", .skip_layers = skip}, hybrid_geometry());
  std::vector<int> layers;
  for (int layer = 0; layer < 12; ++layer) {
    if (describe(policy.layers[static_cast<std::size_t>(layer)]) == "bfloat16:bfloat16") {
      layers.push_back(layer);
    }
  }
  return layers;
}

TEST(KvPolicy, SkippedLayersKeepTheModelsFormat) {
  EXPECT_EQ(bfloat16_layers({}), (std::vector<int>{}));
  EXPECT_EQ(bfloat16_layers({"0 3"}), (std::vector<int>{0, 3}));
  EXPECT_EQ(bfloat16_layers({"0,3", "11"}), (std::vector<int>{0, 3, 11}));
  EXPECT_EQ(bfloat16_layers({" 3 , 3"}), (std::vector<int>{3}));
  EXPECT_EQ(bfloat16_layers({"0  3\t11\n"}), (std::vector<int>{0, 3, 11}));
  EXPECT_EQ(bfloat16_layers({"sliding_window"}), (std::vector<int>{0, 1, 2, 3, 4, 6, 7, 8, 9, 10}));
  EXPECT_EQ(bfloat16_layers({"sliding_window 5"}),
            (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
}

TEST(KvPolicy, TheReasonSaysWhatWasSkipped) {
  const KvPolicy policy =
      make_kv_policy({.dtype = "fp8", .skip_layers = {"sliding_window"}}, hybrid_geometry());
  EXPECT_NE(policy.summary().find("--kv-cache-dtype-skip-layers keeps 10 of 13 layers in bfloat16"),
            std::string::npos)
      << policy.summary();
  EXPECT_EQ(make("fp8").summary().find("skip"), std::string::npos);
}

TEST(KvPolicy, ScalesThatNoLayerIsLeftForAreRefused) {
  KvPolicyOptions options;
  options.dtype = "fp8";
  options.scales = "unit";
  options.skip_layers = {"0", "1"};
  try {
    make_kv_policy(options, 2);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("the skipped layers leave none"), std::string::npos)
        << error.what();
  }
  options.scales = "dynamic";
  EXPECT_NO_THROW(make_kv_policy(options, 2));
}

TEST(KvPolicy, WhatCannotBeSkippedIsRefusedWithTheValidOnes) {
  const auto message = [](const std::string& word, std::vector<KvLayerGeometry> geometry) {
    try {
      make_kv_policy({.dtype = "fp8", .skip_layers = {word}}, geometry);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  for (const char* word :
       {"12", "13", "-1", "+1", "00", "1x", "full_attention", "SLIDING_WINDOW",
        "99999999999999999999", "1-3", "", " ", ",", "0,", ",0", "0,,3", "0, ,3"}) {
    const std::string text = message(word, hybrid_geometry());
    EXPECT_NE(text.find("--kv-cache-dtype-skip-layers"), std::string::npos) << word;
    EXPECT_NE(text.find("sliding_window"), std::string::npos) << word << ": " << text;
    const bool holds_empty = std::string(word).find_first_not_of(" ,03") == std::string::npos &&
                             std::string(word) != "00";
    EXPECT_EQ(text.find("0 to 11") == std::string::npos, holds_empty) << word << ": " << text;
    EXPECT_EQ(text.find("holds an empty word") != std::string::npos, holds_empty) << text;
  }
  const std::vector<KvLayerGeometry> full(4, {2, 64, 0});
  EXPECT_NE(message("sliding_window", full).find("no layer of the model has a sliding window"),
            std::string::npos);
  EXPECT_EQ(message("sliding_window", full).find("or sliding_window"), std::string::npos);
}

TEST(KvPolicy, FlagsThatNoModelCouldTakeAreRefusedBeforeOneIsRead) {
  EXPECT_NO_THROW(check_kv_policy_options({.dtype = "fp8", .skip_layers = {"99 sliding_window"}}));
  EXPECT_THROW(check_kv_policy_options({.dtype = "fp8", .skip_layers = {"last"}}), Error);
  EXPECT_THROW(check_kv_policy_options({.dtype = "fp9"}), Error);
  EXPECT_THROW(check_kv_policy_options({.dtype = "int8", .scales = "unit"}), Error);
}

// A page may be shared only where everything that shaped its bytes is the same.
TEST(KvPolicy, FingerprintsDifferExactlyWhereStoredBytesWould) {
  const KvPolicy policy = make("fp8");
  EXPECT_EQ(policy.fingerprint(), make("fp8_e4m3", "dynamic").fingerprint());
  std::vector<KvPolicy> others = {make("fp8", "unit"),
                                  make("int8:fp8"),
                                  make("fp8:int8"),
                                  make("bfloat16"),
                                  make_kv_policy({.dtype = "fp8", .skip_layers = {"0"}}, 2),
                                  make_kv_policy({.dtype = "fp8", .skip_layers = {"1"}}, 2),
                                  make_kv_policy({.dtype = "fp8"}, 3)};
  KvPolicy changed = policy;
  changed.constants[1].key_mean = {1.0f, 2.0f};
  others.push_back(changed);
  changed.constants[1].key_mean = {1.0f, 2.0000002f};
  others.push_back(changed);
  std::swap(changed.constants[0], changed.constants[1]);
  others.push_back(changed);
  changed = policy;
  changed.constants[0].key_scales = {0.5f};
  others.push_back(changed);
  std::swap(changed.constants[0].key_scales, changed.constants[0].value_scales);
  others.push_back(changed);
  for (std::size_t i = 0; i < others.size(); ++i) {
    EXPECT_NE(others[i].fingerprint(), policy.fingerprint()) << i;
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_NE(others[i].fingerprint(), others[j].fingerprint()) << i << " " << j;
    }
  }
}

}  // namespace
}  // namespace octet
