// Writes the seeds of gguf_fuzz: small whole files, each with another part of the format in it; and
// of model_fuzz: a model of each family.
//
//   gguf_fuzz_corpus tests/fuzz/corpus
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "support/gguf_writer.h"

namespace octet {
namespace {

GgufWriter scalars() {
  GgufWriter writer;
  writer.add("a.u8", std::uint8_t{1})
      .add("a.i8", std::int8_t{-1})
      .add("a.u16", std::uint16_t{2})
      .add("a.i16", std::int16_t{-2})
      .add("a.u32", std::uint32_t{3})
      .add("a.i32", std::int32_t{-3})
      .add("a.u64", std::uint64_t{4})
      .add("a.i64", std::int64_t{-4})
      .add("a.f32", 0.5f)
      .add("a.f64", 0.25)
      .add("a.bool", true)
      .add("general.architecture", "llama")
      .add("split.count", std::uint16_t{1});
  return writer;
}

GgufWriter arrays() {
  GgufBytes nested;
  nested.put(std::uint32_t{9}).put(std::uint64_t{2});
  nested.put(std::uint32_t{0}).put(std::uint64_t{2}).put_plain("ab");
  nested.put(std::uint32_t{8}).put(std::uint64_t{1}).put("x");
  GgufWriter writer;
  writer.add_array<std::string>("tokens", {"a", "", "\xC3\xA9"})
      .add_array<std::int32_t>("token_type", {1, 2, 3})
      .add_array<float>("scores", {0.5f, -1.0f})
      .add_array<bool>("pattern", {true, false})
      .add_array<std::uint64_t>("sizes", {1})
      .add_raw("nested", gguf_array_type, nested);
  return writer;
}

GgufWriter all_tensor_types() {
  GgufWriter writer;
  for (const DataType type : all_data_types) {
    if (type == DataType::float8_e4m3) continue;  // GGUF has no such type
    const DataTypeTraits traits = traits_of(type);
    writer.add_tensor(traits.name, type, {traits.block_elements},
                      std::vector<std::byte>(traits.block_bytes, std::byte{0x35}));
  }
  return writer;
}

GgufWriter aligned_tensors() {
  GgufWriter writer;
  writer.set_alignment(64)
      .add_tensor("vector", {2}, std::vector<float>{1, 2})
      .add_tensor("matrix", {2, 3}, std::vector<float>(6, 1.5f))
      .add_tensor("cube", {1, 2, 1, 2}, std::vector<float>(4, -0.5f))
      .add_tensor("rows", DataType::q8_0, {2, 32}, std::vector<std::byte>(68, std::byte{7}));
  return writer;
}

// One layer, two query heads and one KV head of 8.
GgufWriter model(const std::string& family) {
  constexpr std::int64_t hidden = 16;
  constexpr std::int64_t head_dim = 8;
  const std::string layer = "blk.0.";
  GgufWriter writer;
  writer.add("general.architecture", family)
      .add(family + ".block_count", std::uint32_t{1})
      .add(family + ".context_length", std::uint32_t{64})
      .add(family + ".embedding_length", std::uint32_t{hidden})
      .add(family + ".feed_forward_length", std::uint32_t{hidden})
      .add(family + ".attention.head_count", std::uint32_t{2})
      .add(family + ".attention.head_count_kv", std::uint32_t{1})
      .add(family + ".attention.key_length", std::uint32_t{head_dim})
      .add(family + ".attention.layer_norm_rms_epsilon", 1e-5f)
      .add(family + ".rope.freq_base", 10000.0f)
      .add(family + ".rope.scaling.type", "linear")
      .add(family + ".rope.scaling.factor", 2.0f);
  const auto add = [&](const std::string& name, const std::vector<std::int64_t>& shape) {
    std::size_t elements = 1;
    for (const std::int64_t extent : shape) elements *= static_cast<std::size_t>(extent);
    writer.add_tensor(name, shape, std::vector<float>(elements, 0.25f));
  };
  add("token_embd.weight", {4, hidden});
  add("output_norm.weight", {hidden});
  add(layer + "attn_norm.weight", {hidden});
  add(layer + "attn_q.weight", {2 * head_dim, hidden});
  add(layer + "attn_k.weight", {head_dim, hidden});
  add(layer + "attn_v.weight", {head_dim, hidden});
  add(layer + "attn_output.weight", {hidden, 2 * head_dim});
  for (const char* name : {"ffn_norm", "post_attention_norm", "post_ffw_norm"}) {
    const bool is_gemmas = name[0] == 'p';
    if (!is_gemmas || family == "gemma3") add(layer + name + ".weight", {hidden});
  }
  for (const char* name : {"ffn_gate", "ffn_up", "ffn_down"}) {
    add(layer + name + ".weight", {hidden, hidden});
  }
  if (family == "gemma3") {
    writer.add("gemma3.attention.sliding_window", std::uint32_t{3})
        .add("gemma3.final_logit_softcapping", 30.0f);
    for (const char* name : {"attn_q_norm", "attn_k_norm"})
      add(layer + name + ".weight", {head_dim});
  }
  if (family == "qwen2") {
    add(layer + "attn_q.bias", {2 * head_dim});
    add(layer + "attn_k.bias", {head_dim});
    add(layer + "attn_v.bias", {head_dim});
  }
  return writer;
}

}  // namespace
}  // namespace octet

int main(int argument_count, char** arguments) {
  if (argument_count != 2) {
    std::fprintf(stderr, "usage: gguf_fuzz_corpus FOLDER\n");
    return 2;
  }
  const std::string models = std::string(arguments[1]) + "/model";
  const std::string folder = std::string(arguments[1]) + "/gguf";
  try {
    octet::GgufWriter().write(folder + "/nothing.gguf");
    octet::scalars().write(folder + "/scalars.gguf");
    octet::arrays().write(folder + "/arrays.gguf");
    octet::all_tensor_types().write(folder + "/tensor_types.gguf");
    octet::aligned_tensors().write(folder + "/aligned_tensors.gguf");
    for (const char* family : {"llama", "qwen2", "gemma3"}) {
      octet::model(family).write(models + "/" + family + ".gguf");
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gguf_fuzz_corpus: %s\n", error.what());
    return 1;
  }
  return 0;
}
