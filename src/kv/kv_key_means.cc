#include "kv/kv_key_means.h"

#include <cmath>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "core/error.h"
#include "core/printable.h"
#include "files/block_decode.h"
#include "files/safetensors.h"
#include "files/safetensors_checksum.h"
#include "kv/kv_scale_names.h"

namespace octet {

namespace {

constexpr std::string_view tensor_rest = "self_attn.k_mean";
constexpr std::string_view identity_key = "octet.key_means_of";
// With any query below 2^50 the product over a head stays finite in float32.
constexpr float largest_mean = 0x1p64f;

std::vector<float> read_mean(const Safetensors& file, const StoredTensor& stored,
                             const KvLayerGeometry& geometry) {
  const std::string name = printable(stored.view.name);
  const TensorView& tensor = *file.find(stored.view.name);
  if (tensor.shape != std::vector<std::int64_t>{geometry.kv_heads, geometry.head_dim}) {
    throw_bad_input("{}: tensor {} has shape {}, expected [{}, {}]", file.path(), name,
                    format_shape(tensor.shape), geometry.kv_heads, geometry.head_dim);
  }
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  decode_blocks(tensor.dtype, tensor.data, values);
  for (const float value : values) {
    if (!(std::fabs(value) <= largest_mean)) {
      throw_bad_input("{}: tensor {} holds {}, expected finite numbers of at most 2^64",
                      file.path(), name, value);
    }
  }
  return values;
}

}  // namespace

KvKeyMeans read_key_means(const std::string& path, std::span<const KvLayerGeometry> geometry,
                          const std::string& identity) {
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(path, ignored);
  const std::string name = folder ? path + "/key_means.safetensors" : path;
  const std::shared_ptr<const Safetensors> file = Safetensors::open_file(name);
  if (!check_checksum(*file) && !identity.empty()) throw_bad_input("{}: has no checksum", name);
  if (!identity.empty() && find_metadata(*file, identity_key) != identity) {
    throw_bad_input("{}: holds the key means of another model or recipe", name);
  }
  KvKeyMeans means;
  means.source = name;
  means.layers.resize(geometry.size());
  for (const StoredTensor& stored : file->tensors()) {
    const std::optional<LayerTensorName> parsed = parse_layer_tensor(stored.view.name);
    if (!parsed || parsed->rest != tensor_rest) continue;
    const auto layer = static_cast<std::size_t>(parsed->layer);
    if (layer >= geometry.size() || geometry[layer].kv_heads == 0) {
      throw_bad_input("{}: tensor {} is of a layer that is no attention layer of the model", name,
                      printable(stored.view.name));
    }
    if (!means.layers[layer].empty()) {
      throw_bad_input("{}: holds the key means of layer {} twice", name, layer);
    }
    means.layers[layer] = read_mean(*file, stored, geometry[layer]);
  }
  for (std::size_t layer = 0; layer < geometry.size(); ++layer) {
    if (geometry[layer].kv_heads > 0 && means.layers[layer].empty()) {
      throw_bad_input("{}: tensor model.layers.{}.{} is missing", name, layer, tensor_rest);
    }
  }
  return means;
}

std::vector<std::byte> encode_key_means(const KvKeyMeans& means,
                                        std::span<const KvLayerGeometry> geometry,
                                        const std::string& identity) {
  std::vector<FloatTensor> tensors;
  for (std::size_t layer = 0; layer < geometry.size(); ++layer) {
    if (means.layers[layer].empty()) continue;
    tensors.push_back({fmt::format("model.layers.{}.{}", layer, tensor_rest),
                       {geometry[layer].kv_heads, geometry[layer].head_dim},
                       means.layers[layer]});
  }
  if (identity.empty()) return encode_checked_safetensors(tensors);
  return encode_checked_safetensors(tensors, {{std::string(identity_key), identity}});
}

}  // namespace octet
