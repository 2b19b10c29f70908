// Hugging Face folders that are well-formed and yet say what octet would get wrong: each is refused
// by the name of its key or tensor.
#include <chrono>
#include <functional>
#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/json.h"
#include "models/model.h"
#include "support/safetensors_writer.h"
#include "support/temporary_folder.h"

namespace octet {
namespace {

constexpr std::int64_t hidden = 32;
constexpr std::int64_t inner = 48;
constexpr std::int64_t vocabulary = 40;

// A model of one layer, 4 query and 2 KV heads of 8, whose configuration and tensors a test may
// change before they are written.
class TinyFolder {
 public:
  Json config = Json::object();
  std::map<std::string, std::vector<std::int64_t>> tensors;

  explicit TinyFolder(const std::string& model_type = "llama") {
    config["model_type"] = model_type;
    config["num_hidden_layers"] = 1;
    config["hidden_size"] = hidden;
    config["intermediate_size"] = inner;
    config["num_attention_heads"] = 4;
    config["num_key_value_heads"] = 2;
    config["head_dim"] = 8;
    config["max_position_embeddings"] = 128;
    config["rms_norm_eps"] = 1e-5;
    config["vocab_size"] = vocabulary;
    config["tie_word_embeddings"] = true;
    const std::string layer = "model.layers.0.";
    tensors = {{"model.embed_tokens.weight", {vocabulary, hidden}},
               {"model.norm.weight", {hidden}},
               {layer + "input_layernorm.weight", {hidden}},
               {layer + "self_attn.q_proj.weight", {32, hidden}},
               {layer + "self_attn.k_proj.weight", {16, hidden}},
               {layer + "self_attn.v_proj.weight", {16, hidden}},
               {layer + "self_attn.o_proj.weight", {hidden, 32}},
               {layer + "post_attention_layernorm.weight", {hidden}},
               {layer + "mlp.gate_proj.weight", {inner, hidden}},
               {layer + "mlp.up_proj.weight", {inner, hidden}},
               {layer + "mlp.down_proj.weight", {hidden, inner}}};
    if (model_type == "qwen2") {
      tensors[layer + "self_attn.q_proj.bias"] = {32};
      tensors[layer + "self_attn.k_proj.bias"] = {16};
      tensors[layer + "self_attn.v_proj.bias"] = {16};
    }
    if (model_type == "gemma3_text") {
      config["sliding_window"] = 16;
      tensors[layer + "self_attn.q_norm.weight"] = {8};
      tensors[layer + "self_attn.k_norm.weight"] = {8};
      tensors[layer + "pre_feedforward_layernorm.weight"] = {hidden};
      tensors[layer + "post_feedforward_layernorm.weight"] = {hidden};
    }
  }

  TinyFolder& with(const std::string& key, Json value) {
    config[key] = std::move(value);
    return *this;
  }

  std::unique_ptr<Model> load() const {
    const TemporaryFolder folder;
    SafetensorsWriter writer;
    for (const auto& [name, shape] : tensors) {
      std::size_t elements = 1;
      for (const std::int64_t extent : shape) elements *= static_cast<std::size_t>(extent);
      writer.add(name, "F32", shape, bytes_of(std::vector<float>(elements, 0.5f)));
    }
    writer.write(folder / "model.safetensors");
    write_file(folder / "config.json", dump_json(config));
    return load_model(Checkpoint::open(folder.path()));  // the mapping lives on
  }

  // bad_input or unsupported, with one sentence that names the culprit and the file.
  void expect_refused(const std::string& named, const std::string& file = "config.json") const {
    try {
      load();
      ADD_FAILURE() << "accepted; expected an error that names " << named;
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_TRUE(error.kind() == ErrorKind::bad_input || error.kind() == ErrorKind::unsupported)
          << message;
      EXPECT_NE(message.find(named), std::string::npos) << message;
      EXPECT_NE(message.find(file), std::string::npos) << message;
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    }
  }
};

constexpr const char* types[] = {"llama", "qwen2", "gemma3_text"};

TEST(HostileFolders, TheUnbrokenOnesLoad) {
  for (const char* type : types) EXPECT_EQ(TinyFolder(type).load()->config().head_dim, 8) << type;
}

TEST(HostileFolders, EveryMissingOrMisshapenTensorIsNamed) {
  for (const char* type : types) {
    const TinyFolder whole(type);
    for (const auto& [name, shape] : whole.tensors) {
      TinyFolder broken(type);
      broken.tensors.erase(name);
      broken.expect_refused(name, "model.safetensors");
      broken.tensors[name] = shape;
      broken.tensors[name].back() += 1;
      broken.expect_refused(name, "model.safetensors");
      broken.tensors[name] = {shape[0], shape.back(), 2};
      broken.expect_refused(name, "model.safetensors");
    }
  }
}

TEST(HostileFolders, EveryMissingKeyThatMattersIsNamed) {
  for (const char* key : {"model_type", "num_hidden_layers", "hidden_size", "intermediate_size",
                          "num_attention_heads", "max_position_embeddings"}) {
    TinyFolder broken;
    broken.config.erase(key);
    broken.expect_refused(key);
  }
}

TEST(HostileFolders, NumbersOutOfRangeAndOfOtherTypesAreNamed) {
  for (const char* key :
       {"num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads",
        "num_key_value_heads", "head_dim", "max_position_embeddings"}) {
    for (const Json& value : {Json(0), Json(-1), Json(1LL << 62), Json(1.5), Json("many"),
                              Json::array({1}), Json(true)}) {
      TinyFolder().with(key, value).expect_refused(key);
    }
  }
  TinyFolder().with("num_attention_heads", 5).expect_refused("num_attention_heads");
  TinyFolder().with("rms_norm_eps", -1).expect_refused("rms_norm_eps");
  TinyFolder().with("rope_theta", 0).expect_refused("rope_theta");
  TinyFolder().with("rope_theta", -1e4).expect_refused("rope_theta");
  TinyFolder().with("vocab_size", 41).expect_refused("vocab_size");
  TinyFolder().with("eos_token_id", -3).expect_refused("eos_token_id");
  TinyFolder().with("eos_token_id", Json::array({1, 1LL << 40})).expect_refused("eos_token_id");
  TinyFolder().with("model_type", "mamba").expect_refused("mamba");
}

TEST(HostileFolders, ScalingsOfTheContextThatOctetDoesNotKnowAreNamed) {
  for (const char* form : {"rope_scaling", "rope_parameters"}) {
    for (const char* key : {"rope_type", "type"}) {
      for (const char* type : {"yarn", "dynamic", "longrope", "su", "proportional", "\n\x1b[31m"}) {
        const std::string named = type[0] == '\n' ? "\\x0a\\x1b[31m" : type;
        TinyFolder().with(form, {{key, type}, {"factor", 4.0}}).expect_refused(named);
      }
    }
    TinyFolder().with(form, {{"rope_type", "linear"}}).expect_refused("factor");
    TinyFolder().with(form, {{"rope_type", "linear"}, {"factor", 0}}).expect_refused("factor");
    TinyFolder()
        .with(form, {{"rope_type", "linear"}, {"factor", 2}, {"attention_factor", 1.5}})
        .expect_refused("attention_factor");
    TinyFolder()
        .with(form, {{"rope_type", "default"}, {"mrope_section", Json::array({1, 1, 2})}})
        .expect_refused("mrope_section");
    TinyFolder().with(form, "linear").expect_refused(form);
  }
  Json llama3 = {{"rope_type", "llama3"},
                 {"factor", 8.0},
                 {"low_freq_factor", 1.0},
                 {"high_freq_factor", 4.0},
                 {"original_max_position_embeddings", 64}};
  EXPECT_NO_THROW(TinyFolder().with("rope_scaling", llama3).load());
  for (const auto& [key, value] : llama3.items()) {
    if (key == "rope_type") continue;
    Json broken = llama3;
    broken.erase(key);
    TinyFolder().with("rope_scaling", broken).expect_refused(key);
  }
  llama3["low_freq_factor"] = 4.0;
  TinyFolder().with("rope_scaling", llama3).expect_refused("high_freq_factor");
  TinyFolder()
      .with("rope_scaling", {{"rope_type", "default"}})
      .with("rope_parameters", {{"rope_type", "default"}})
      .expect_refused("rope_scaling");
  TinyFolder().with("partial_rotary_factor", 0.5).expect_refused("partial_rotary_factor");
}

TEST(HostileFolders, MathsThatTheFamilyDoesNotApplyIsNamed) {
  for (const char* activation : {"gelu", "relu", "quick_gelu", "gelu_pytorch"}) {
    for (const char* type : types) {
      TinyFolder(type).with("hidden_act", activation).expect_refused(activation);
    }
  }
  TinyFolder("gemma3_text")
      .with("hidden_activation", "gelu_pytorch_tanh")
      .with("hidden_act", "silu")
      .expect_refused("hidden_act");
  TinyFolder().with("attention_bias", true).expect_refused("attention_bias");
  TinyFolder().with("mlp_bias", true).expect_refused("mlp_bias");
  TinyFolder("gemma3_text").with("attention_bias", true).expect_refused("attention_bias");
  TinyFolder("gemma3_text")
      .with("attn_logit_softcapping", 50.0)
      .expect_refused("attn_logit_softcapping");
  TinyFolder("gemma3_text")
      .with("use_bidirectional_attention", true)
      .expect_refused("use_bidirectional_attention");
  TinyFolder("gemma3_text")
      .with("query_pre_attn_scalar", 0)
      .expect_refused("query_pre_attn_scalar");
  TinyFolder().with("final_logit_softcapping", 30.0).expect_refused("final_logit_softcapping");
  TinyFolder().with("surprise", 1).expect_refused("surprise");
  EXPECT_NO_THROW(TinyFolder().with("surprise", nullptr).load());
  TinyFolder().with("num_experts", 8).expect_refused("num_experts");
  TinyFolder().with("surprise", Json::array({0})).expect_refused("surprise");
  TinyFolder().with("surprise", {{"a", nullptr}}).expect_refused("surprise");
}

// What writers of configurations leave in them, none of which a forward pass asks for.
TEST(HostileFolders, KeysThatSayNothingOfTheMathsAreTaken) {
  for (const char* type : types) {
    TinyFolder folder(type);
    folder.with("pruned_heads", Json::object()).with("surprise", Json::array());
    folder.with("is_decoder", false).with("no_repeat_ngram_size", 0).with("num_beam_groups", 1);
    folder.with("cross_attention_hidden_size", nullptr).with("tie_encoder_decoder", false);
    folder.with("unsloth_version", "2025.3.19").with("unsloth_fixed", true);
    folder.with("max_sequence_length", 2048).with("_name_or_path", "/a/b");
    folder.with("_attn_implementation_autoset", true).with("id2label", {{"0", "LABEL_0"}});
    EXPECT_NO_THROW(folder.load()) << type;
  }
}

TEST(HostileFolders, ManyKeysTakeNoQuadraticTime) {
  // Behind the library's back: its own insertion looks at every key.
  const auto add_keys = [](Json& object, const Json& value) {
    for (int i = 0; i < 200'000; ++i) {
      object.get_ref<Json::object_t&>().emplace_back(fmt::format("k{}", i), value);
    }
  };
  TinyFolder folder;
  add_keys(folder.config, nullptr);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_NO_THROW(folder.load());
  Json groups = Json::object();
  add_keys(groups, Json::object());
  TinyFolder quantized;
  quantized.with("quantization_config",
                 {{"quant_method", "compressed-tensors"}, {"config_groups", groups}});
  EXPECT_NO_THROW(quantized.load());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST(HostileFolders, AnActiveWindowIsRefusedWhereItIsNotApplied) {
  for (const char* type : {"llama", "qwen2"}) {
    TinyFolder(type).with("sliding_window", 64).expect_refused("sliding_window");
    TinyFolder(type)
        .with("sliding_window", 64)
        .with("use_sliding_window", true)
        .expect_refused("sliding_window");
    TinyFolder(type)
        .with("layer_types", Json::array({"sliding_attention"}))
        .expect_refused("layer_types");
    EXPECT_NO_THROW(TinyFolder(type).with("sliding_window", nullptr).load());
    EXPECT_NO_THROW(
        TinyFolder(type).with("sliding_window", 64).with("use_sliding_window", false).load());
    EXPECT_NO_THROW(TinyFolder(type).with("layer_types", Json::array({"full_attention"})).load());
  }
  TinyFolder missing("gemma3_text");
  missing.config.erase("sliding_window");
  missing.expect_refused("sliding_window");
  TinyFolder("gemma3_text").with("sliding_window", 0).expect_refused("sliding_window");
  for (const Json& list : {Json::array(), Json::array({"full_attention", "full_attention"}),
                           Json::array({"chunked_attention"}), Json::array({1})}) {
    TinyFolder("gemma3_text").with("layer_types", list).expect_refused("layer_types");
  }
  TinyFolder("gemma3_text")
      .with("sliding_window_pattern", 0)
      .expect_refused("sliding_window_pattern");
}

TEST(HostileFolders, UnusedTensorsAreNamedAndHarmlessOnesAreNot) {
  for (const char* name :
       {"model.layers.0.self_attn.q_proj.bias", "model.layers.1.mlp.up_proj.weight",
        "model.layers.0.self_attn.q_norm.weight", "surprise", "vision_tower.embedding.weight"}) {
    TinyFolder unused;
    unused.tensors[name] = {hidden};
    unused.expect_refused(name, "model.safetensors");
  }
  TinyFolder harmless;
  harmless.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {4};
  harmless.tensors["model.layers.0.self_attn.k_scale"] = {1};
  harmless.tensors["lm_head.weight"] = {vocabulary, hidden};  // tied: transformers ignores it
  harmless.with("torch_dtype", "bfloat16").with("use_cache", true).with("pretraining_tp", 1);
  EXPECT_NO_THROW(harmless.load());
  TinyFolder untied;
  untied.with("tie_word_embeddings", false).expect_refused("lm_head.weight", "model.safetensors");
}

TEST(HostileFolders, ANestedConfigurationIsReadWithTheSameCare) {
  TinyFolder nested("gemma3_text");
  Json text = nested.config;
  nested.config = {
      {"model_type", "gemma3"}, {"text_config", text}, {"vision_config", Json::object()}};
  EXPECT_EQ(nested.load()->config().attention[0].window, 16);
  nested.config["surprise"] = 1;
  nested.expect_refused("surprise");
  nested.config.erase("surprise");
  nested.config["text_config"]["surprise"] = 1;
  nested.expect_refused("surprise");
  nested.config["text_config"] = "none";
  nested.expect_refused("text_config");
  nested.config.erase("text_config");
  nested.expect_refused("num_hidden_layers");
}

}  // namespace
}  // namespace octet
