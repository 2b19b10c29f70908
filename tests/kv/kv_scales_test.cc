// Scales that checkpoints and files carry: every family of names, every type, and what users hit in
// other engines (issue numbers in the comments are those engines').
#include "kv/kv_scales.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include <gtest/gtest.h>

#include "core/bfloat16.h"
#include "core/error.h"
#include "core/float16.h"
#include "files/safetensors_checksum.h"
#include "files/safetensors_writer.h"
#include "files/write_file.h"
#include "kv/kv_checkpoint.h"
#include "kv/kv_policy.h"
#include "kv/kv_scale_names.h"

namespace octet {
namespace {

std::shared_ptr<const Safetensors> file_of(const std::vector<FloatTensor>& tensors) {
  return Safetensors::from_bytes(encode_safetensors(tensors), "m/model.safetensors");
}

FloatTensor scalar(const std::string& name, float value) { return {name, {1}, {value}}; }

std::string message_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_TRUE(error.kind() == ErrorKind::bad_input || error.kind() == ErrorKind::unsupported);
    return error.what();
  }
  return "no error";
}

struct NameFamily {
  const char* key;
  const char* value;
  const char* query;  // "": the family has none
};

// fp8_serving.md's eight, as tensors of layer 3 are called; AutoFP8's one number is both.
constexpr NameFamily families[] = {
    {"self_attn.k_scale", "self_attn.v_scale", "self_attn.q_scale"},
    {"self_attn.k_proj.output_scale", "self_attn.v_proj.output_scale",
     "self_attn.q_proj.output_scale"},
    {"self_attn.k_proj.k_scale", "self_attn.v_proj.v_scale", ""},
    {"self_attn.qkv_proj.k_scale", "self_attn.qkv_proj.v_scale", ""},
    {"self_attn.qkqkv_proj.k_scale", "self_attn.qkqkv_proj.v_scale", ""},
    {"mixer.k_proj.k_scale", "mixer.v_proj.v_scale", ""},
    {"self_attn.k_cache.scale", "self_attn.v_cache.scale", "self_attn.q.scale"},
    {"self_attn.kv_scale", "self_attn.kv_scale", ""},
    {"self_attn.attn.k_scale", "self_attn.attn.v_scale", "self_attn.attn.q_scale"},
};

TEST(KvScaleNames, EveryFamilyLoadsAScaleForEachLayer) {
  constexpr int layers = 5;
  for (const NameFamily& family : families) {
    const bool both = std::string(family.key) == family.value;
    std::vector<FloatTensor> tensors = {scalar("model.embed_tokens.weight", -1)};
    for (int layer = 0; layer < layers; ++layer) {
      const std::string prefix = fmt::format("model.layers.{}.", layer);
      const auto number = static_cast<float>(layer + 1);
      tensors.push_back(scalar(prefix + family.key, number));
      if (!both) tensors.push_back(scalar(prefix + family.value, 10 * number));
      if (family.query[0] != 0) tensors.push_back(scalar(prefix + family.query, 100 * number));
      // Scales of weights and activations are no scales of a cache.
      tensors.push_back(scalar(prefix + "self_attn.k_proj.weight_scale", -1));
      tensors.push_back(scalar(prefix + "self_attn.k_proj.input_scale", -1));
    }
    const auto set = read_kv_scales(*file_of(tensors));
    ASSERT_NE(set, nullptr) << family.key;
    ASSERT_EQ(set->layers.size(), static_cast<std::size_t>(layers)) << family.key;
    for (int layer = 0; layer < layers; ++layer) {
      const KvFittedScales fitted = fit_scales(*set, layer, 2);
      const auto number = static_cast<float>(layer + 1);
      EXPECT_EQ(fitted.key, (std::vector<float>{number, number})) << family.key;
      EXPECT_EQ(fitted.value[0], both ? number : 10 * number) << family.key;
      EXPECT_EQ(fitted.query.empty(), family.query[0] == 0) << family.key;
      if (!fitted.query.empty()) {
        EXPECT_EQ(fitted.query[1], 100 * number);
      }
      EXPECT_FALSE(fitted.key_per_head);
    }
  }
}

TEST(KvScaleNames, ModulesAroundTheLayersAndWhatIsNoScale) {
  for (const char* name : {"layers.7.self_attn.k_scale", "model.layers.7.self_attn.k_scale",
                           "model.language_model.layers.7.self_attn.k_scale",
                           "language_model.model.layers.7.self_attn.k_scale",
                           "backbone.layers.7.mixer.k_proj.k_scale"}) {
    const auto parsed = parse_kv_scale_name(name);
    ASSERT_TRUE(parsed) << name;
    EXPECT_EQ(parsed->layer, 7);
    EXPECT_EQ(parsed->role, KvScaleRole::key);
  }
  for (const auto& [name, role] :
       {std::pair{"model.layers.7.self_attn.prob_output_scale", KvScaleRole::unused},
        std::pair{"model.layers.7.self_attn.k_zero_point", KvScaleRole::zero_point}}) {
    ASSERT_TRUE(parse_kv_scale_name(name)) << name;
    EXPECT_EQ(parse_kv_scale_name(name)->role, role);
  }
  for (const char* name :
       {"model.vision_tower.layers.7.self_attn.k_scale", "model.layers.07.self_attn.k_scale",
        "model.layers.-1.self_attn.k_scale", "model.layers..self_attn.k_scale",
        "model.layers.99999999999.self_attn.k_scale", "model.layers.7.mlp.k_scale",
        "model.layers.7.self_attn.k_proj.weight_scale", "model.layers.7.k_scale", "k_scale", "",
        "model.layers.7.self_attn.attn.attn.k_scale", "model.layers.7.self_attn.k_scales"}) {
    EXPECT_FALSE(parse_kv_scale_name(name)) << name;
  }
}

// Checkpoints keep scales in the model's type: a file with each, made byte by byte.
TEST(KvScales, EveryTypeAndRankLoads) {
  const float wanted = 0.0390625f;  // exact in all three
  struct Stored {
    const char* type;
    std::string bytes;
  };
  const auto bytes_of_number = [](auto number) {
    std::string bytes(sizeof(number), '\0');
    std::memcpy(bytes.data(), &number, sizeof(number));
    return bytes;
  };
  for (const Stored& stored : {Stored{"F32", bytes_of_number(wanted)},
                               Stored{"BF16", bytes_of_number(float_to_bfloat16(wanted))},
                               Stored{"F16", bytes_of_number(float_to_float16(wanted))}}) {
    for (const char* shape : {"[]", "[1]", "[1,1,1]"}) {
      const std::string header = fmt::format(
          R"({{"model.layers.0.self_attn.k_scale":{{"dtype":"{}","shape":{},"data_offsets":[0,{}]}}}})",
          stored.type, shape, stored.bytes.size());
      const std::uint64_t size = header.size();
      const std::string text = bytes_of_number(size) + header + stored.bytes;
      std::vector<std::byte> bytes(text.size());
      std::memcpy(bytes.data(), text.data(), text.size());
      const auto set = read_kv_scales(*Safetensors::from_bytes(std::move(bytes), "m"));
      ASSERT_NE(set, nullptr);
      EXPECT_EQ(fit_scales(*set, 0, 4).key, std::vector<float>(4, wanted)) << stored.type << shape;
      // Keys' alone: values take theirs.
      EXPECT_EQ(fit_scales(*set, 0, 4).value, std::vector<float>(4, wanted));
    }
  }
}

// vllm#30141: 32 query heads over 8 KV heads, all scales distinct.
TEST(KvScales, PerHeadScalesKeepTheirHeadsAndQueriesTheLargestOfTheirGroup) {
  FloatTensor key{"model.layers.0.self_attn.k_scale", {8, 1, 1}, {}};
  FloatTensor value{"model.layers.0.self_attn.v_scale", {8, 1, 1}, {}};
  FloatTensor query{"model.layers.0.self_attn.q_scale", {32, 1, 1}, {}};
  for (int head = 0; head < 8; ++head) {
    key.values.push_back(1.0f + static_cast<float>(head));
    value.values.push_back(0.25f * (1.0f + static_cast<float>(head)));
  }
  for (int head = 0; head < 32; ++head) {
    query.values.push_back(static_cast<float>(1 + (head * 7) % 32));
  }
  const auto set = read_kv_scales(*file_of({key, value, query}));
  const KvFittedScales fitted = fit_scales(*set, 0, 8);
  EXPECT_EQ(fitted.key, key.values);
  EXPECT_EQ(fitted.value, value.values);
  EXPECT_TRUE(fitted.key_per_head);
  for (std::size_t head = 0; head < 8; ++head) {
    float largest = 0;
    for (std::size_t i = 4 * head; i < 4 * head + 4; ++i) {
      largest = std::max(largest, query.values[i]);
    }
    EXPECT_EQ(fitted.query[head], largest);
  }
  // Where the model's heads are known, no other multiple will do.
  EXPECT_EQ(fit_scales(*set, 0, 8, 32).query, fitted.query);
  EXPECT_NE(message_of([&] { fit_scales(*set, 0, 8, 16); }).find("q_scale' holds 32 scales"),
            std::string::npos);
}

// llm-compressor#2853 and #2117: scales of 0 that calibration wrote.
TEST(KvScales, NumbersThatAreNoScaleAreRefusedByTheirTensor) {
  for (const float bad : {0.0f, -0.0f, -1.0f, std::nanf(""), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (const char* side : {"k", "v", "q"}) {
      std::vector<FloatTensor> tensors;
      for (const char* each : {"k", "v", "q"}) {
        tensors.push_back(scalar(fmt::format("model.layers.11.self_attn.{}_scale", each),
                                 std::string(each) == side ? bad : 1.0f));
      }
      const std::string message = message_of([&] { read_kv_scales(*file_of(tensors)); });
      EXPECT_NE(message.find(fmt::format("layers.11.self_attn.{}_scale", side)), std::string::npos)
          << message;
      EXPECT_NE(message.find("expected a positive number"), std::string::npos) << message;
    }
  }
}

// Positive and finite, but no float32 arithmetic is possible with them: they would end in a logit
// that is no number, long after.
TEST(KvScales, NumbersThatFloat32CannotComputeWithAreRefusedByTheirTensor) {
  const auto message = [](float scale) {
    return message_of(
        [&] { read_kv_scales(*file_of({scalar("model.layers.3.self_attn.k_scale", scale)})); });
  };
  for (const float bad : {3e38f, 7.6e35f, 2e19f, 1e-38f, 1e-45f}) {
    EXPECT_NE(message(bad).find("layers.3.self_attn.k_scale' holds the scale"), std::string::npos)
        << bad;
    EXPECT_NE(message(bad).find("from 2^-126 to 2^64"), std::string::npos) << bad;
  }
  for (const float good : {0x1p64f, 0x1p-126f, 1e-12f}) {
    EXPECT_EQ(message(good), "no error") << good;
    EXPECT_TRUE(std::isfinite(1 / good) && std::isfinite(good * 448 * 448));
  }
}

// What one layer lacks was lost on the way: it is not made up from another scale.
TEST(KvScales, ScalesOfSomeLayersOnlyAreRefused) {
  for (const char* side : {"v", "q"}) {
    for (const int given : {0, 1}) {
      const std::string message = message_of([&] {
        read_kv_scales(
            *file_of({scalar("model.layers.0.self_attn.k_scale", 1),
                      scalar("model.layers.1.self_attn.k_scale", 1),
                      scalar(fmt::format("model.layers.{}.self_attn.{}_scale", given, side), 1)}));
      });
      EXPECT_NE(message.find(fmt::format("layers.{}.self_attn.{}_scale", given, side)),
                std::string::npos)
          << message;
      EXPECT_NE(message.find(fmt::format("of layer {}", 1 - given)), std::string::npos) << message;
    }
  }
}

TEST(KvScales, ZeroPointsAreZeroOrRefused) {
  const auto message = [](float point) {
    return message_of([&] {
      read_kv_scales(*file_of({scalar("model.layers.0.self_attn.k_scale", 1),
                               scalar("model.layers.0.self_attn.k_zero_point", point)}));
    });
  };
  EXPECT_EQ(message(0), "no error");
  EXPECT_NE(message(1).find("k_zero_point' holds values other than 0"), std::string::npos);
}

TEST(KvScales, MissingDoubleAndMiscountedScalesAreRefusedByName) {
  const std::string prefix = "model.layers.0.self_attn.";
  const auto read = [&](const std::vector<FloatTensor>& tensors) {
    return message_of([&] { read_kv_scales(*file_of(tensors)); });
  };
  EXPECT_NE(read({scalar(prefix + "v_scale", 1)}).find("v_scale"), std::string::npos);
  EXPECT_NE(read({scalar(prefix + "v_scale", 1)}).find("none for its keys"), std::string::npos);
  EXPECT_NE(read({scalar(prefix + "q_scale", 1)}).find("none for its keys"), std::string::npos);
  EXPECT_NE(read({scalar(prefix + "k_scale", 1), scalar(prefix + "k_proj.k_scale", 1)})
                .find("two scales"),
            std::string::npos);
  EXPECT_NE(read({{prefix + "k_scale", {0}, {}}}).find("holds 0 numbers"), std::string::npos);
  EXPECT_NE(read({scalar("model.layers.4096.self_attn.k_scale", 1)}).find("limit"),
            std::string::npos);
  EXPECT_EQ(read_kv_scales(*file_of({scalar("model.norm.weight", 1)})), nullptr);

  const auto fit = [&](std::int64_t heads, int kv_heads, int layer) {
    FloatTensor key{prefix + "k_scale", {heads, 1, 1}, {}};
    key.values.resize(static_cast<std::size_t>(heads), 1.0f);
    const auto set = read_kv_scales(*file_of({key}));
    return message_of([&] { fit_scales(*set, layer, kv_heads); });
  };
  for (const int kv_heads : {1, 2, 16}) {
    EXPECT_NE(fit(8, kv_heads, 0).find("k_scale' holds 8 scales"), std::string::npos) << kv_heads;
  }
  EXPECT_EQ(fit(8, 8, 0), "no error");
  EXPECT_NE(fit(8, 8, 1).find("keys of layer 1"), std::string::npos);
}

// --- what a policy makes of them ---

std::shared_ptr<const KvCheckpoint> checkpoint_of(const std::string& config,
                                                  const std::vector<FloatTensor>& tensors,
                                                  const std::string& quantization_file = "") {
  auto checkpoint = std::make_shared<KvCheckpoint>();
  std::optional<JsonValue> file;
  if (!quantization_file.empty()) {
    file = JsonValue::parse(quantization_file, "m/hf_quant_config.json");
  }
  checkpoint->scheme = read_kv_scheme(JsonValue::parse(config, "m/config.json"), file);
  if (!tensors.empty()) checkpoint->scales = read_kv_scales(*file_of(tensors));
  return checkpoint;
}

std::string scheme_json(const std::string& fields) {
  return R"({"quantization_config":{"quant_method":"compressed-tensors","kv_cache_scheme":{)" +
         fields + "}}}";
}

const std::string per_tensor_scheme = scheme_json(
    R"("num_bits":8,"type":"float","strategy":"tensor","symmetric":true,"dynamic":false)");

std::vector<FloatTensor> two_layers(float key = 4, float value = 8) {
  std::vector<FloatTensor> tensors;
  for (const int layer : {0, 1}) {
    tensors.push_back(scalar(fmt::format("model.layers.{}.self_attn.k_scale", layer), key));
    tensors.push_back(scalar(fmt::format("model.layers.{}.self_attn.v_scale", layer), value));
  }
  return tensors;
}

KvPolicy policy_of(KvPolicyOptions options, std::shared_ptr<const KvCheckpoint> checkpoint,
                   int kv_heads = 2) {
  options.checkpoint = std::move(checkpoint);
  const std::vector<KvLayerGeometry> geometry(2, {kv_heads, 64, 0});
  return make_kv_policy(options, geometry);
}

TEST(KvCheckpoint, AutoTakesTheSchemeAndItsScales) {
  const KvPolicy policy = policy_of({}, checkpoint_of(per_tensor_scheme, two_layers()));
  EXPECT_EQ(policy.dtype_name, "fp8");
  EXPECT_EQ(policy.scales_name, "tensor");
  EXPECT_EQ(policy.layers[1].key, (KvSidePolicy{KvDtype::fp8, KvScales::tensor}));
  EXPECT_EQ(policy.constants[1].key_scales, (std::vector<float>{4, 4}));
  EXPECT_EQ(policy.constants[1].value_scales, (std::vector<float>{8, 8}));
  EXPECT_NE(policy.reason.find("m/config.json"), std::string::npos);
  EXPECT_NE(policy.summary().find("scales tensor of m/model.safetensors"), std::string::npos);
}

// vllm#44879, #57126: a flag wins over the checkpoint. sglang#18396: a bfloat16 cache has no
// scales.
TEST(KvCheckpoint, FlagsWinOverIt) {
  const auto checkpoint = checkpoint_of(per_tensor_scheme, two_layers());
  const KvPolicy plain = policy_of({.dtype = "bfloat16"}, checkpoint);
  EXPECT_EQ(plain.fingerprint(), policy_of({.dtype = "bfloat16"}, nullptr).fingerprint());
  EXPECT_TRUE(plain.constants[0].key_scales.empty());
  for (const char* scales : {"dynamic", "unit"}) {
    const KvPolicy policy = policy_of({.dtype = "fp8", .scales = scales}, checkpoint);
    EXPECT_EQ(policy.scales_name, scales);
    EXPECT_TRUE(policy.constants[0].key_scales.empty());
  }
  const KvPolicy mixed = policy_of({.dtype = "int8:fp8"}, checkpoint);
  EXPECT_EQ(mixed.layers[0].key.scales, KvScales::dynamic);
  EXPECT_EQ(mixed.layers[0].value.scales, KvScales::tensor);
  EXPECT_TRUE(mixed.constants[0].key_scales.empty());
  const KvPolicy skipping = policy_of({.dtype = "fp8", .skip_layers = {"1"}}, checkpoint);
  EXPECT_EQ(describe(skipping.layers[1]), "bfloat16:bfloat16");
  EXPECT_TRUE(skipping.constants[1].key_scales.empty());
}

// vllm#6738: an FP8 checkpoint without scales of a cache.
TEST(KvCheckpoint, WithoutScalesTheyAreDynamic) {
  const auto checkpoint = checkpoint_of(per_tensor_scheme, {});
  for (const char* dtype : {"auto", "fp8"}) {
    const KvPolicy policy = policy_of({.dtype = dtype}, checkpoint);
    EXPECT_EQ(policy.dtype_name, "fp8");
    EXPECT_EQ(policy.scales_name, "dynamic");
    // sglang#31224: the one line that tells where scales come from names no file.
    EXPECT_EQ(policy.summary().find("safetensors"), std::string::npos);
  }
}

TEST(KvCheckpoint, WithoutASchemeAutoIsBfloat16) {
  for (
      const char* config :
      {"{}", R"({"quantization_config":null})", R"({"quantization_config":{"quant_method":"fp8"}})",
       R"({"quantization_config":{"quant_method":"compressed-tensors","kv_cache_scheme":null}})"}) {
    const auto checkpoint = checkpoint_of(config, two_layers());
    EXPECT_EQ(policy_of({}, checkpoint).dtype_name, "bfloat16") << config;
    EXPECT_EQ(policy_of({.dtype = "fp8"}, checkpoint).scales_name, "tensor") << config;
  }
}

// vllm#45312: schemes that octet does not cache by are refused before anything runs, unless a flag
// names a format.
TEST(KvCheckpoint, OtherSchemesAreRefusedByKeyUnlessAFlagDecides) {
  struct Case {
    const char* fields;
    const char* named;
  };
  for (const Case& tested :
       {Case{R"("num_bits":4,"type":"float","strategy":"tensor","symmetric":true)", "num_bits 4"},
        Case{R"("num_bits":8,"type":"int","strategy":"tensor","symmetric":true)", "type 'int'"},
        Case{R"("num_bits":8,"type":"float","strategy":"channel","symmetric":true)", "'channel'"},
        Case{R"("num_bits":8,"type":"float","strategy":"tensor","symmetric":false)", "symmetric"},
        Case{R"("num_bits":8,"type":"float","strategy":"tensor")", "symmetric"},
        Case{R"("num_bits":8,"type":"float","strategy":"token","symmetric":true)", "'token'"},
        Case{R"("num_bits":8,"type":"float","symmetric":true,"dynamic":"local")", "'local'"},
        Case{R"("num_bits":8,"type":"float","symmetric":true,"group_size":128)", "'group_size'"},
        Case{R"("num_bits":8,"type":"float","symmetric":true,"shift":1)", "'shift'"}}) {
    const auto checkpoint = checkpoint_of(scheme_json(tested.fields), two_layers());
    for (const char* dtype : {"auto", "fp8"}) {
      const std::string message = message_of([&] { policy_of({.dtype = dtype}, checkpoint); });
      EXPECT_NE(message.find("quantization_config.kv_cache_scheme"), std::string::npos) << message;
      EXPECT_NE(message.find(tested.named), std::string::npos) << message;
    }
    EXPECT_EQ(policy_of({.dtype = "bfloat16"}, checkpoint).dtype_name, "bfloat16");
    EXPECT_EQ(policy_of({.dtype = "fp8", .scales = "dynamic"}, checkpoint).scales_name, "dynamic");
  }
}

// sglang#26436: one head's number must not be taken for all.
TEST(KvCheckpoint, TheStrategyAndTheTensorsMustAgree) {
  FloatTensor key{"model.layers.0.self_attn.k_scale", {8, 1, 1}, {1, 2, 3, 4, 5, 6, 7, 8}};
  FloatTensor other = key;
  other.name = "model.layers.1.self_attn.k_scale";
  const std::string message = message_of([&] {
    policy_of({}, checkpoint_of(per_tensor_scheme, {key, other}), /*kv_heads=*/8);
  });
  EXPECT_NE(message.find("layer 0 has a scale for each head"), std::string::npos) << message;
  const std::string per_head =
      scheme_json(R"("num_bits":8,"type":"float","strategy":"attn_head","symmetric":true)");
  const KvPolicy policy = policy_of({}, checkpoint_of(per_head, {key, other}), 8);
  EXPECT_EQ(policy.scales_name, "head");
  EXPECT_EQ(policy.constants[1].key_scales, key.values);
  // Nor one number for all heads, but where there is one head.
  EXPECT_NE(message_of([&] {
              policy_of({}, checkpoint_of(per_head, two_layers()), 8);
            }).find("layer 0 has one scale for all its heads"),
            std::string::npos);
  EXPECT_EQ(policy_of({}, checkpoint_of(per_head, two_layers()), 1).constants[0].key_scales,
            std::vector<float>{4.0f});
  EXPECT_EQ(
      policy_of({.dtype = "fp8", .scales = "dynamic"}, checkpoint_of(per_head, two_layers()), 8)
          .scales_name,
      "dynamic");
}

// compressed-tensors: dynamic scales are found at run time, and none are stored.
TEST(KvCheckpoint, ADynamicSchemeIsOctetsDynamicScales) {
  for (const char* strategy : {"tensor", "attn_head", "token"}) {
    const std::string config = scheme_json(fmt::format(
        R"("num_bits":8,"type":"float","strategy":"{}","symmetric":true,"dynamic":true)",
        strategy));
    const KvPolicy policy = policy_of({}, checkpoint_of(config, {}));
    EXPECT_EQ(policy.dtype_name, "fp8");
    EXPECT_EQ(policy.scales_name, "dynamic");
    EXPECT_NE(policy.reason.find("with dynamic scales"), std::string::npos) << policy.reason;
    const auto contradictory = checkpoint_of(config, two_layers());
    for (const char* dtype : {"auto", "fp8"}) {
      const std::string message = message_of([&] { policy_of({.dtype = dtype}, contradictory); });
      EXPECT_NE(message.find("says that they are dynamic"), std::string::npos) << message;
    }
    EXPECT_EQ(policy_of({.scales = "dynamic"}, contradictory).scales_name, "dynamic");
  }
  const auto quark = [](const char* of_keys, const char* of_values) {
    return fmt::format(
        R"({{"quantization_config":{{"quant_method":"quark",
            "export":{{"kv_cache_group":["*k_proj","*v_proj"]}},"layer_quant_config":{{
            "*k_proj":{{"output_tensors":{{"dtype":"fp8_e4m3","qscheme":"per_tensor","is_dynamic":{}}}}},
            "*v_proj":{{"output_tensors":{{"dtype":"fp8_e4m3","qscheme":"per_tensor","is_dynamic":{}}}}}}}}}}})",
        of_keys, of_values);
  };
  EXPECT_EQ(policy_of({}, checkpoint_of(quark("true", "true"), {})).scales_name, "dynamic");
  EXPECT_EQ(policy_of({}, checkpoint_of(quark("false", "null"), two_layers())).scales_name,
            "tensor");
  EXPECT_NE(message_of([&] {
              policy_of({}, checkpoint_of(quark("true", "false"), {}));
            }).find("is_dynamic of '*v_proj'"),
            std::string::npos);
}

// A vision model's wrapper and files of old have the configuration elsewhere.
TEST(KvCheckpoint, TheSchemeIsFoundWhereTheWeightsConfigurationIs) {
  const std::string scheme =
      R"({"quant_method":"compressed-tensors","kv_cache_scheme":{"num_bits":8,"type":"float",
          "strategy":"tensor","symmetric":true}})";
  for (const std::string& config : {R"({"compression_config":)" + scheme + "}",
                                    R"({"text_config":{"quantization_config":)" + scheme + "}}"}) {
    EXPECT_EQ(policy_of({}, checkpoint_of(config, two_layers())).scales_name, "tensor") << config;
  }
}

TEST(KvCheckpoint, KeysScalesAloneServeValuesAndThatIsSaid) {
  std::vector<FloatTensor> keys;
  for (const FloatTensor& tensor : two_layers()) {
    if (tensor.name.ends_with("k_scale")) keys.push_back(tensor);
  }
  const KvPolicy policy = policy_of({.dtype = "fp8"}, checkpoint_of("{}", keys));
  EXPECT_EQ(policy.constants[1].value_scales, policy.constants[1].key_scales);
  EXPECT_NE(policy.reason.find("serve values too"), std::string::npos) << policy.reason;
  EXPECT_EQ(policy_of({.dtype = "fp8"}, checkpoint_of("{}", two_layers())).reason.find("serve"),
            std::string::npos);
}

TEST(KvCheckpoint, ALayerWithoutScalesOrTooManyLayersAreRefused) {
  std::vector<FloatTensor> tensors = two_layers();
  tensors.resize(2);
  std::string message =
      message_of([&] { policy_of({}, checkpoint_of(per_tensor_scheme, tensors)); });
  EXPECT_NE(message.find("keys of layer 1"), std::string::npos) << message;
  EXPECT_EQ(
      policy_of({.dtype = "auto", .skip_layers = {"1"}}, checkpoint_of(per_tensor_scheme, tensors))
          .layers[0]
          .key.scales,
      KvScales::tensor);
  tensors = two_layers();
  tensors.push_back(scalar("model.layers.2.self_attn.k_scale", 1));
  tensors.push_back(scalar("model.layers.2.self_attn.v_scale", 1));
  message = message_of([&] { policy_of({}, checkpoint_of(per_tensor_scheme, tensors)); });
  EXPECT_NE(message.find("layers.2."), std::string::npos) << message;
  EXPECT_NE(message.find("the model has 2 layers"), std::string::npos) << message;
}

TEST(KvCheckpoint, ModelOptAndQuarkConfigurations) {
  const auto dtype_of = [](const std::string& config, const std::string& file = "") {
    return policy_of({}, checkpoint_of(config, two_layers(), file)).dtype_name;
  };
  EXPECT_EQ(dtype_of("{}", R"({"quantization":{"quant_algo":"FP8","kv_cache_quant_algo":"FP8"}})"),
            "fp8");
  EXPECT_EQ(dtype_of("{}", R"({"quantization":{"kv_cache_quant_algo":"fp8"}})"), "fp8");
  EXPECT_EQ(dtype_of("{}", R"({"quantization":{"kv_cache_quant_algo":null}})"), "bfloat16");
  EXPECT_EQ(dtype_of(R"({"quantization_config":{"quant_method":"modelopt","kv_cache_scheme":
                        {"dynamic":false,"num_bits":8,"type":"float"}}})"),
            "fp8");
  EXPECT_EQ(dtype_of(R"({"quantization_config":{"quant_method":"quark",
      "export":{"kv_cache_group":["*k_proj","*v_proj"]},"layer_quant_config":{
      "*k_proj":{"output_tensors":{"dtype":"fp8_e4m3","qscheme":"per_tensor"}},
      "*v_proj":{"output_tensors":{"dtype":"fp8_e4m3","qscheme":"per_tensor"}}}}})"),
            "fp8");
  EXPECT_EQ(dtype_of(R"({"quantization_config":{"quant_method":"quark",
      "export":{"kv_cache_group":[]}}})"),
            "bfloat16");
  for (const char* config :
       {R"({"quantization_config":{"quant_method":"quark","export":{"kv_cache_group":["*k_proj"]},
            "layer_quant_config":{"*k_proj":{"output_tensors":{"dtype":"fp8_e4m3",
            "qscheme":"per_channel"}}}}})",
        R"({"quantization_config":{"quant_method":"quark","export":{"kv_cache_group":["*k_proj"]},
            "layer_quant_config":{}}})"}) {
    EXPECT_NE(message_of([&] { dtype_of(config); }).find("kv_cache_group"), std::string::npos);
  }
  EXPECT_NE(message_of([&] {
              dtype_of("{}", R"({"quantization":{"kv_cache_quant_algo":"NVFP4"}})");
            }).find("NVFP4"),
            std::string::npos);
}

TEST(KvScaleFile, AFileOrFolderNamedByTheFlagWins) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("octet_kv_scales_{}", getpid());
  std::filesystem::create_directory(folder);
  const std::string path = (folder / "kv_scales.safetensors").string();
  write_file_atomically(path, encode_safetensors(two_layers(2, 3)));
  for (const std::string& given : {path, folder.string()}) {
    const KvPolicy policy = policy_of({.dtype = "fp8", .scales = given},
                                      checkpoint_of(per_tensor_scheme, two_layers()));
    EXPECT_EQ(policy.constants[0].key_scales, (std::vector<float>{2, 2}));
    EXPECT_EQ(policy.scales_source, path);
    EXPECT_NE(
        message_of([&] { policy_of({.dtype = "int8", .scales = given}, nullptr); }).find("neither"),
        std::string::npos);
  }
  write_file_atomically(path, encode_safetensors({scalar("model.norm.weight", 1)}));
  EXPECT_NE(message_of([&] {
              policy_of({.dtype = "fp8", .scales = path}, nullptr);
            }).find("holds no scale"),
            std::string::npos);
  std::vector<FloatTensor> misspelt = two_layers(2, 3);
  misspelt.push_back(scalar("model.layers.1.self_attn.v_scael", 1));
  write_file_atomically(path, encode_safetensors(misspelt));
  EXPECT_NE(message_of([&] {
              policy_of({.dtype = "fp8", .scales = path}, nullptr);
            }).find("tensor 'model.layers.1.self_attn.v_scael' is no scale of a KV cache"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              policy_of({.dtype = "fp8", .scales = "nowhere"}, nullptr);
            }).find("--kv-cache-scales 'nowhere'"),
            std::string::npos);
  // A file of another format, and one whose numbers changed on the way.
  std::ofstream(path) << "{\"scales\": [1, 2, 3]} and so on";
  EXPECT_NE(message_of([&] {
              policy_of({.dtype = "fp8", .scales = path}, nullptr);
            }).find("--kv-cache-scales: " + path + ": "),
            std::string::npos);
  std::vector<std::byte> bytes = encode_checked_safetensors(two_layers(2, 3));
  write_file_atomically(path, bytes);
  EXPECT_EQ(policy_of({.dtype = "fp8", .scales = path}, nullptr).scales_name, "tensor");
  bytes.back() ^= std::byte{1};
  write_file_atomically(path, bytes);
  EXPECT_NE(message_of([&] {
              policy_of({.dtype = "fp8", .scales = path}, nullptr);
            }).find(path + ": is damaged"),
            std::string::npos);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace octet
