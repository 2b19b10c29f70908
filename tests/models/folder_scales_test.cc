// Scales of a KV cache in real folders, through every step that a user's checkpoint takes. Issue
// numbers in the comments are other engines', where the case went wrong.
#include <cmath>
#include <filesystem>

#include <gtest/gtest.h>

#include "core/error.h"
#include "support/safetensors_writer.h"
#include "support/temporary_folder.h"
#include "support/test_models.h"

namespace octet {
namespace {

struct Extra {
  std::string name;
  std::vector<float> values;
};

const std::vector<TokenId> prompt = {1, 17, 9, 40, 22, 5, 63, 31, 8, 50, 2, 12, 33, 47};

// The small random llama of two layers, two KV heads and four query heads, with tensors beside its
// own and `scheme` as its kv_cache_scheme.
std::shared_ptr<Model> open_with(const std::vector<Extra>& extras, const std::string& scheme = "") {
  const std::filesystem::path source = data_path("models/folders/llama_bf16");
  const TemporaryFolder folder;
  const auto stored = Safetensors::open_index((source / "model.safetensors.index.json").string());
  SafetensorsWriter writer;
  for (const StoredTensor& tensor : stored->tensors()) {
    writer.add(tensor.view.name, tensor.type, tensor.view.shape,
               {tensor.view.data, tensor.view.data + tensor.view.bytes});
  }
  for (const Extra& extra : extras) {
    const auto count = static_cast<std::int64_t>(extra.values.size());
    writer.add(extra.name, "F32",
               count == 1 ? std::vector<std::int64_t>{1} : std::vector<std::int64_t>{count, 1, 1},
               bytes_of(extra.values));
  }
  writer.write(folder / "model.safetensors");
  Json config = parse_json(read_file((source / "config.json").string()), "config.json");
  if (!scheme.empty()) {
    config["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                     {"kv_cache_scheme",
                                      {{"num_bits", 8},
                                       {"type", "float"},
                                       {"strategy", scheme},
                                       {"symmetric", true},
                                       {"dynamic", false}}}};
  }
  write_file(folder / "config.json", dump_json(config));
  return load_model(Checkpoint::open(folder.path()));  // the mapping lives on
}

KvPolicy policy_of(const std::shared_ptr<Model>& model, const std::string& dtype) {
  return EngineCore(model, engine_options({.cache = dtype}, 64)).policy();
}

std::vector<Extra> both_layers(const std::string& rest, const std::vector<float>& values) {
  return {{"model.layers.0." + rest, values}, {"model.layers.1." + rest, values}};
}

std::vector<Extra> joined(std::vector<Extra> some, const std::vector<Extra>& more) {
  some.insert(some.end(), more.begin(), more.end());
  return some;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(a[i] - b[i], 2);
    norm += std::pow(b[i], 2);
  }
  return std::sqrt(difference / norm);
}

struct NameFamily {
  const char* of;
  std::vector<std::string> key;
  std::vector<std::string> value;
  std::vector<std::string> query;   // empty: the family has none
  std::vector<std::string> unused;  // what its exporters write beside them
};

const std::vector<NameFamily>& families() {
  static const std::vector<NameFamily> list = {
      {"compressed-tensors",
       {"self_attn.k_scale"},
       {"self_attn.v_scale"},
       {"self_attn.q_scale"},
       {"self_attn.k_zero_point", "self_attn.v_zero_point", "self_attn.q_zero_point"}},
      {"Quark",
       {"self_attn.k_proj.output_scale"},
       {"self_attn.v_proj.output_scale"},
       {"self_attn.q_proj.output_scale"},
       {"self_attn.prob_output_scale"}},
      {"ModelOpt", {"self_attn.k_proj.k_scale"}, {"self_attn.v_proj.v_scale"}, {}, {}},
      {"fused", {"self_attn.qkv_proj.k_scale"}, {"self_attn.qkv_proj.v_scale"}, {}, {}},
      {"Qwen3-MoE", {"self_attn.qkqkv_proj.k_scale"}, {"self_attn.qkqkv_proj.v_scale"}, {}, {}},
      {"NemotronH", {"mixer.k_proj.k_scale"}, {"mixer.v_proj.v_scale"}, {}, {}},
      {"HYV3", {"self_attn.k_cache.scale"}, {"self_attn.v_cache.scale"}, {"self_attn.q.scale"}, {}},
      {"AutoFP8", {"self_attn.kv_scale"}, {}, {}, {}},
      // auto-round#2370: names that are vLLM's own already.
      {"internal",
       {"self_attn.attn.k_scale"},
       {"self_attn.attn.v_scale"},
       {"self_attn.attn.q_scale"},
       {}}};
  return list;
}

TEST(FolderScales, EveryFamilyOfNamesLoadsForEveryLayer) {
  for (const NameFamily& family : families()) {
    std::vector<Extra> extras;
    for (int layer = 0; layer < 2; ++layer) {
      const std::string prefix = fmt::format("model.layers.{}.", layer);
      const float number = 0.5f + static_cast<float>(layer);
      for (const std::string& name : family.key) extras.push_back({prefix + name, {number}});
      for (const std::string& name : family.value) extras.push_back({prefix + name, {4 * number}});
      for (const std::string& name : family.query) extras.push_back({prefix + name, {8 * number}});
      for (const std::string& name : family.unused) extras.push_back({prefix + name, {0.0f}});
    }
    const std::shared_ptr<Model> model = open_with(extras);
    for (const auto& [dtype, scheme] : {std::pair("fp8", ""), std::pair("auto", "tensor")}) {
      const KvPolicy policy = policy_of(*scheme == 0 ? model : open_with(extras, scheme), dtype);
      EXPECT_EQ(policy.dtype_name, "fp8") << family.of;
      EXPECT_EQ(policy.scales_name, "tensor") << family.of;
      EXPECT_NE(policy.summary().find("model.safetensors"), std::string::npos) << family.of;
      ASSERT_EQ(policy.constants.size(), 2u);
      for (std::size_t layer = 0; layer < 2; ++layer) {
        const float number = 0.5f + static_cast<float>(layer);
        const KvLayerConstants& constants = policy.constants[layer];
        EXPECT_EQ(constants.key_scales, std::vector<float>(2, number)) << family.of;
        EXPECT_EQ(constants.value_scales,
                  std::vector<float>(2, family.value.empty() ? number : 4 * number))
            << family.of;
        EXPECT_EQ(constants.query_scales,
                  family.query.empty() ? std::vector<float>{} : std::vector<float>(2, 8 * number))
            << family.of;
      }
    }
  }
}

TEST(FolderScales, NamesOfNoFamilyAreRefusedNotDropped) {
  for (const char* name : {"self_attn.attn.attn.k_scale", "self_attn.k_scales",
                           "self_attn.k_proj.v_scale", "mlp.k_scale", "self_attn.k_cache.scales"}) {
    try {
      open_with(both_layers(name, {1.0f}));
      ADD_FAILURE() << name << " is accepted";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  }
}

// llm-compressor#2853: refused where the cache would use it, and named.
TEST(FolderScales, AScaleOfZeroIsRefusedByItsTensor) {
  std::vector<Extra> extras = both_layers("self_attn.k_scale", {1.0f});
  extras[1].values = {0.0f};
  try {
    policy_of(open_with(extras, "tensor"), "auto");
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("model.layers.1.self_attn.k_scale"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("--kv-cache-scales dynamic"), std::string::npos)
        << error.what();
  }
}

// What a cache does not take cannot be wrong with it.
TEST(FolderScales, ABadScaleStandsInNoWayOfCachesThatTakeNone) {
  std::vector<Extra> extras = both_layers("self_attn.k_scale", {1.0f});
  extras[1].values = {0.0f};
  const std::shared_ptr<Model> model = open_with(extras, "tensor");
  for (const char* dtype : {"bfloat16", "int8"}) EXPECT_NO_THROW(policy_of(model, dtype)) << dtype;
}

// sglang#18396 and vllm#44879: a bfloat16 cache ignores scales, and a flag wins over the scheme.
TEST(FolderScales, ABfloat16CacheAnswersAsWithoutScales) {
  const std::shared_ptr<Model> plain = open_with({});
  const std::shared_ptr<Model> scaled = open_with(
      joined(both_layers("self_attn.k_scale", {4.0f}), both_layers("self_attn.v_scale", {4.0f})),
      "tensor");
  for (const char* dtype : {"bfloat16", "float32"}) {
    EXPECT_EQ(policy_of(scaled, dtype).dtype_name, dtype);
    EXPECT_EQ(all_logits(scaled, prompt, {.cache = dtype}),
              all_logits(plain, prompt, {.cache = dtype}))
        << dtype;
  }
  EXPECT_EQ(policy_of(scaled, "auto").dtype_name, "fp8");
}

// vllm#34863, flashinfer#1023: scales of any size are undone. A power of two moves exponents alone,
// so that nothing but subnormal codes may differ; 0.03 rounds elsewhere.
TEST(FolderScales, AnswersStayThoseOfAnExactCacheWhateverTheScale) {
  const std::shared_ptr<Model> plain = open_with({});
  const std::vector<float> exact = all_logits(plain, prompt, {.cache = "float32"});
  const double unit =
      distance(all_logits(plain, prompt, {.cache = "fp8", .scales = "unit"}), exact);
  EXPECT_GT(unit, 0);
  for (const std::vector<float>& key : {std::vector<float>{0.03f}, {0.25f}, {0.5f, 0.0625f}}) {
    for (const float value : {0.03f, 0.5f}) {
      const std::shared_ptr<Model> scaled = open_with(
          joined(both_layers("self_attn.k_scale", key), both_layers("self_attn.v_scale", {value})));
      for (const std::int64_t chunk : {0, 1}) {  // prefill, and token by token
        const std::vector<float> logits =
            all_logits(scaled, prompt, {.cache = "fp8", .chunk = chunk});
        EXPECT_LT(distance(logits, exact), 2 * unit) << key[0] << " " << value << " " << chunk;
      }
    }
  }
}

// vllm#6738, sglang#31224: FP8 weights whose exporter gave the cache no scales. The start-up line
// says dynamic, and where there are scales it names their file.
TEST(FolderScales, Fp8WeightsWithoutScalesOfACacheRun) {
  for (const char* name : {"llama_ct_static", "llama_ct_block", "llama_modelopt"}) {
    const std::shared_ptr<Model> model =
        load_model(Checkpoint::open(data_path("models/folders/" + std::string(name))));
    const KvPolicy policy = policy_of(model, "fp8");
    EXPECT_EQ(policy.scales_name, "dynamic") << name;
    EXPECT_EQ(policy.summary().find("safetensors"), std::string::npos) << policy.summary();
    const std::vector<float> exact = all_logits(model, prompt, {.cache = "float32"});
    EXPECT_LT(distance(all_logits(model, prompt, {.cache = "fp8"}), exact), 0.1) << name;
    EXPECT_EQ(policy_of(model, "auto").dtype_name, "bfloat16") << name;
  }
}

}  // namespace
}  // namespace octet
