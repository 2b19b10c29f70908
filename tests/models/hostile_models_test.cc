// Model files that are well-formed GGUF and yet no model: each is refused by name.
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>

#include <gtest/gtest.h>
#include <unistd.h>

#include "core/error.h"
#include "models/model.h"
#include "support/gguf_writer.h"

namespace octet {
namespace {

constexpr std::int64_t hidden = 32;
constexpr std::int64_t inner = 48;
constexpr std::int64_t vocabulary = 40;

// A llama of one layer, 4 query and 2 KV heads of 8, whose metadata and tensors a test may change
// before they are written.
class TinyModel {
 public:
  std::map<std::string, std::function<void(GgufWriter&)>> metadata;
  std::map<std::string, std::vector<std::int64_t>> tensors;

  TinyModel() {
    set("general.architecture", std::string("llama"));
    set("llama.block_count", std::uint32_t{1});
    set("llama.context_length", std::uint32_t{128});
    set("llama.embedding_length", static_cast<std::uint32_t>(hidden));
    set("llama.feed_forward_length", static_cast<std::uint32_t>(inner));
    set("llama.attention.head_count", std::uint32_t{4});
    set("llama.attention.head_count_kv", std::uint32_t{2});
    set("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    set("llama.rope.freq_base", 10000.0f);
    tensors = {
        {"token_embd.weight", {vocabulary, hidden}}, {"output_norm.weight", {hidden}},
        {"blk.0.attn_norm.weight", {hidden}},        {"blk.0.attn_q.weight", {32, hidden}},
        {"blk.0.attn_k.weight", {16, hidden}},       {"blk.0.attn_v.weight", {16, hidden}},
        {"blk.0.attn_output.weight", {hidden, 32}},  {"blk.0.ffn_norm.weight", {hidden}},
        {"blk.0.ffn_gate.weight", {inner, hidden}},  {"blk.0.ffn_up.weight", {inner, hidden}},
        {"blk.0.ffn_down.weight", {hidden, inner}}};
  }

  template <typename T>
  void set(const std::string& key, T value) {
    metadata[key] = [key, value](GgufWriter& writer) { writer.add(key, value); };
  }

  std::unique_ptr<Model> load() const {
    GgufWriter writer;
    for (const auto& [key, add] : metadata) add(writer);
    for (const auto& [name, shape] : tensors) {
      std::size_t elements = 1;
      for (const std::int64_t extent : shape) elements *= static_cast<std::size_t>(extent);
      writer.add_tensor(name, shape, std::vector<float>(elements, 0.5f));
    }
    const std::string path = (std::filesystem::temp_directory_path() /
                              ("octet_tiny_" + std::to_string(getpid()) + ".gguf"))
                                 .string();
    writer.write(path);
    const auto file = GgufFile::open(path);
    std::filesystem::remove(path);  // the mapping lives on
    return load_model(file);
  }

  // The error's kind and message; bad_input or unsupported, or the test fails.
  void expect_refused(const std::string& named) const {
    try {
      load();
      ADD_FAILURE() << "accepted; expected an error that names " << named;
    } catch (const Error& error) {
      EXPECT_TRUE(error.kind() == ErrorKind::bad_input || error.kind() == ErrorKind::unsupported)
          << error.what();
      EXPECT_NE(std::string(error.what()).find(named), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("octet_tiny_"), std::string::npos) << error.what();
    }
  }
};

TEST(HostileModels, TheUnbrokenOneLoads) { EXPECT_EQ(TinyModel().load()->config().head_dim, 8); }

TEST(HostileModels, EveryMissingTensorIsNamed) {
  const TinyModel whole;
  for (const auto& [name, shape] : whole.tensors) {
    TinyModel broken;
    broken.tensors.erase(name);
    broken.expect_refused(name);
  }
}

TEST(HostileModels, EveryWrongShapeIsNamed) {
  const TinyModel whole;
  for (const auto& [name, shape] : whole.tensors) {
    TinyModel broken;
    if (name == "token_embd.weight") {
      broken.tensors[name] = {vocabulary, hidden + 1};
    } else {
      broken.tensors[name][0] += 1;
    }
    broken.expect_refused(name);
    broken.tensors[name] = {shape[0], shape.back(), 2};
    broken.expect_refused(name);
  }
}

TEST(HostileModels, EveryMissingKeyThatMattersIsNamed) {
  for (const char* key : {"general.architecture", "llama.block_count", "llama.context_length",
                          "llama.embedding_length", "llama.feed_forward_length",
                          "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon"}) {
    TinyModel broken;
    broken.metadata.erase(key);
    broken.expect_refused(key);
  }
}

TEST(HostileModels, NumbersOutOfRangeAreNamed) {
  const auto expect = [](const std::string& key, auto value) {
    TinyModel broken;
    broken.set(key, value);
    broken.expect_refused(key);
  };
  const float nan = std::nanf("");
  const float infinity = std::numeric_limits<float>::infinity();
  for (const char* count : {"llama.block_count", "llama.embedding_length", "llama.context_length",
                            "llama.feed_forward_length", "llama.attention.head_count",
                            "llama.attention.head_count_kv", "llama.attention.key_length"}) {
    expect(count, std::uint32_t{0});
    expect(count, std::uint32_t{0xFFFFFFFF});
    expect(count, std::uint64_t{1} << 63);
    expect(count, std::int32_t{-1});
    expect(count, std::string("many"));
  }
  expect("llama.attention.head_count", std::uint32_t{3});
  expect("llama.attention.head_count", std::uint32_t{5});
  expect("llama.rope.freq_base", nan);
  expect("llama.rope.freq_base", infinity);
  expect("llama.rope.freq_base", 0.0f);
  expect("llama.rope.freq_base", -10000.0f);
  expect("llama.attention.layer_norm_rms_epsilon", nan);
  expect("llama.attention.layer_norm_rms_epsilon", -1.0f);
  expect("llama.attention.value_length", std::uint32_t{16});
  expect("llama.rope.dimension_count", std::uint32_t{4});
}

TEST(HostileModels, MathsThatTheFamilyDoesNotApplyIsNamed) {
  const auto expect = [](const std::string& key, auto value) {
    TinyModel broken;
    broken.set(key, value);
    broken.expect_refused(key);
  };
  expect("llama.rope.scaling.type", std::string("yarn"));
  expect("llama.rope.scaling.factor", 4.0f);
  expect("llama.rope.scaling.type", std::string("linear"));  // whose factor is missing
  expect("llama.rope.scale_linear", 2.0f);
  expect("llama.attention.sliding_window", std::uint32_t{4096});
  expect("llama.expert_count", std::uint32_t{8});
  expect("llama.logit_scale", 0.5f);
  expect("llama.attn_logit_softcapping", 50.0f);
  expect("llama.final_logit_softcapping", 30.0f);
  expect("llama.rope.scaling.attn_factor", 2.0f);
  expect("llama.use_parallel_residual", true);
  expect("llama.attention.causal", false);
  // Llama 3's scaling without its factors would be no scaling at all.
  expect("llama.rope.scaling.type", std::string("llama3"));
  expect("llama.attention.surprise", 1.0f);
  TinyModel harmless;
  harmless.set("llama.vocab_size", std::uint32_t{40});
  harmless.set("llama.rope.scaling.type", std::string("none"));
  harmless.set("llama.expert_count", std::uint32_t{0});
  EXPECT_NO_THROW(harmless.load());
}

// The same model as a gemma3, whose keys and tensors are more.
TinyModel tiny_gemma3() {
  TinyModel model;
  std::erase_if(model.metadata,
                [](const auto& entry) { return entry.first.starts_with("llama."); });
  model.set("general.architecture", std::string("gemma3"));
  model.set("gemma3.block_count", std::uint32_t{1});
  model.set("gemma3.context_length", std::uint32_t{128});
  model.set("gemma3.embedding_length", static_cast<std::uint32_t>(hidden));
  model.set("gemma3.feed_forward_length", static_cast<std::uint32_t>(inner));
  model.set("gemma3.attention.head_count", std::uint32_t{4});
  model.set("gemma3.attention.head_count_kv", std::uint32_t{2});
  model.set("gemma3.attention.layer_norm_rms_epsilon", 1e-6f);
  model.set("gemma3.attention.sliding_window", std::uint32_t{16});
  model.tensors["blk.0.attn_q_norm.weight"] = {8};
  model.tensors["blk.0.attn_k_norm.weight"] = {8};
  model.tensors["blk.0.post_attention_norm.weight"] = {hidden};
  model.tensors["blk.0.post_ffw_norm.weight"] = {hidden};
  return model;
}

TEST(HostileModels, Gemma3sOwnKeysAndTensorsAreChecked) {
  EXPECT_EQ(tiny_gemma3().load()->config().attention[0].window, 16);
  for (const char* name : {"blk.0.attn_q_norm.weight", "blk.0.attn_k_norm.weight",
                           "blk.0.post_attention_norm.weight", "blk.0.post_ffw_norm.weight"}) {
    TinyModel missing = tiny_gemma3();
    missing.tensors.erase(name);
    missing.expect_refused(name);
    TinyModel misshapen = tiny_gemma3();
    misshapen.tensors[name] = {hidden + 1};
    misshapen.expect_refused(name);
  }
  const auto expect = [](const std::string& key, auto value) {
    TinyModel broken = tiny_gemma3();
    broken.set(key, value);
    broken.expect_refused(key);
  };
  expect("gemma3.attention.sliding_window", std::uint32_t{0xFFFFFFFF});
  expect("gemma3.attention.sliding_window", std::int32_t{-1});
  expect("gemma3.attention.sliding_window_pattern", std::uint32_t{0});
  expect("gemma3.attention.sliding_window_pattern", std::string("all"));
  expect("gemma3.rope.freq_base_swa", 0.0f);
  expect("gemma3.rope.freq_base_swa", std::nanf(""));
  expect("gemma3.final_logit_softcapping", -30.0f);
  expect("gemma3.final_logit_softcapping", std::nanf(""));
  expect("gemma3.attn_logit_softcapping", 50.0f);
  expect("gemma3.rope.scaling.type", std::string("yarn"));
  expect("gemma3.surprise", 1.0f);
  // Without a window there is none, as llama.cpp reads such files.
  for (const bool zero : {false, true}) {
    TinyModel full = tiny_gemma3();
    full.metadata.erase("gemma3.attention.sliding_window");
    if (zero) full.set("gemma3.attention.sliding_window", std::uint32_t{0});
    EXPECT_EQ(full.load()->config().attention[0], LayerAttention{});
  }
}

TEST(HostileModels, UnknownFamiliesAndUnusedTensorsAreNamed) {
  TinyModel unknown;
  unknown.set("general.architecture", std::string("mamba"));
  unknown.expect_refused("mamba");
  for (const char* name : {"blk.0.attn_q.bias", "blk.0.attn_q_norm.weight",
                           "blk.1.attn_norm.weight", "blk.0.attn_output.bias", "surprise"}) {
    TinyModel unused;
    unused.tensors[name] = {hidden};
    unused.expect_refused(name);
  }
}

TEST(HostileModels, RopeFactorsMustBePositiveAndFit) {
  TinyModel wrong_length;
  wrong_length.tensors["rope_freqs.weight"] = {3};
  wrong_length.expect_refused("rope_freqs.weight");
  TinyModel fitting;
  fitting.tensors["rope_freqs.weight"] = {4};
  fitting.set("llama.rope.scaling.type", std::string("llama3"));
  fitting.set("llama.rope.scaling.factor", 8.0f);
  EXPECT_NO_THROW(fitting.load());
}

}  // namespace
}  // namespace octet
