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

}  // namespace
}  // namespace octet
