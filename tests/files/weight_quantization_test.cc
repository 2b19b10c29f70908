// The checkpoints are of the formats' own packages' making, and so are the decoded values that they
// carry (tools/oracle/float8_cases.py).
#include "files/weight_quantization.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/bfloat16.h"
#include "core/error.h"
#include "files/block_decode.h"
#include "files/model_folder.h"
#include "support/safetensors_writer.h"
#include "support/temporary_folder.h"

namespace octet {
namespace {

struct Checkpoint {
  std::string folder;
  std::string method;
  std::vector<std::int64_t> shape;
  std::size_t scales;
  std::vector<std::string> companions;
};

class Float8Checkpoint : public testing::TestWithParam<Checkpoint> {
 protected:
  Float8Checkpoint()
      : folder_(ModelFolder::open(OCTET_TEST_DATA "/files/float8/" + GetParam().folder)) {}

  std::vector<std::int32_t> expected_rows() const {
    const StoredTensor* stored = folder_->tensors().find_stored("expected_rows");
    std::vector<std::int32_t> rows(stored->view.bytes / sizeof(std::int32_t));
    std::memcpy(rows.data(), stored->view.data, stored->view.bytes);
    return rows;
  }

  std::shared_ptr<const ModelFolder> folder_;
};

TEST_P(Float8Checkpoint, IsDecodedAsTheFormatsOwnPackageDecodesIt) {
  EXPECT_EQ(folder_->quantization().method(), GetParam().method);
  const StoredWeight weight = folder_->require_weight("layer.weight");
  EXPECT_EQ(weight.companions, GetParam().companions);
  EXPECT_EQ(weight.tensor.dtype, DataType::float8_e4m3);
  EXPECT_EQ(weight.tensor.shape, GetParam().shape);
  // Packed: a byte for each element, where the file has it.
  EXPECT_EQ(weight.tensor.bytes, static_cast<std::size_t>(weight.tensor.elements()));
  EXPECT_EQ(weight.tensor.data, folder_->tensors().require("layer.weight").data);
  ASSERT_NE(weight.tensor.scales, nullptr);
  EXPECT_EQ(weight.tensor.scales->values.size(), GetParam().scales);

  const TensorView& expected = folder_->tensors().require("expected");
  const TensorView* in_bfloat16 = folder_->tensors().find("expected_bf16");
  EXPECT_EQ(in_bfloat16 != nullptr, GetParam().folder == "dynamic");
  const auto columns = static_cast<std::size_t>(expected.shape[1]);
  std::vector<float> values(columns);
  std::vector<float> wanted(columns);
  std::int64_t place = 0;
  std::size_t different_codes = 0;
  std::vector<bool> seen(256);
  for (const std::int32_t row : expected_rows()) {
    decode_row(weight.tensor, row, values);
    decode_row(expected, place, wanted);
    for (std::size_t i = 0; i < columns; ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(wanted[i]))
          << "row " << row << " column " << i;
      const auto code = std::to_integer<std::size_t>(
          weight.tensor.data[static_cast<std::size_t>(row) * columns + i]);
      if (!seen[code]) ++different_codes;
      seen[code] = true;
    }
    if (in_bfloat16 != nullptr) {
      decode_row(*in_bfloat16, place, wanted);
      for (std::size_t i = 0; i < columns; ++i) {
        ASSERT_EQ(round_to_bfloat16(values[i]), wanted[i]) << "row " << row << " column " << i;
      }
    }
    ++place;
  }
  EXPECT_EQ(place, expected.shape[0]);
  EXPECT_GT(different_codes, 150u);
}

INSTANTIATE_TEST_SUITE_P(
    Formats, Float8Checkpoint,
    testing::Values(
        Checkpoint{"static",
                   "compressed-tensors",
                   {24, 48},
                   1,
                   {"layer.weight_scale", "layer.input_scale"}},
        Checkpoint{"dynamic", "compressed-tensors", {24, 48}, 24, {"layer.weight_scale"}},
        Checkpoint{"block", "compressed-tensors", {133, 160}, 4, {"layer.weight_scale"}},
        Checkpoint{"fp8", "fp8", {256, 128}, 2, {"layer.weight_scale_inv"}},
        Checkpoint{
            "modelopt", "modelopt", {24, 48}, 1, {"layer.weight_scale", "layer.input_scale"}}),
    [](const testing::TestParamInfo<Checkpoint>& parameter) { return parameter.param.folder; });

// A folder with one FP8 matrix of 4 x 64 and whatever else a test adds.
class WeightQuantizationTest : public testing::Test {
 protected:
  WeightQuantizationTest() { writer_.add("x.weight", "F8_E4M3", {4, 64}, codes()); }

  static std::vector<std::byte> codes() { return std::vector<std::byte>(256, std::byte{0x38}); }

  std::shared_ptr<const ModelFolder> open(const std::string& quantization) {
    opened_ = nullptr;  // before its file changes
    writer_.write(folder_ / "model.safetensors");
    write_file(folder_ / "config.json",
               quantization.empty() ? "{}" : R"({"quantization_config": )" + quantization + "}");
    return reopen();
  }
  // The last one opened stays open, for its weights are views.
  std::shared_ptr<const ModelFolder> reopen() {
    opened_ = ModelFolder::open(folder_.path());
    return opened_;
  }

  void expect_refused(const std::string& quantization, const std::string& part,
                      ErrorKind kind = ErrorKind::bad_input) {
    try {
      open(quantization)->require_weight("x.weight");
      ADD_FAILURE() << "gave the weight, but expected: " << part;
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_EQ(error.kind(), kind) << message;
      EXPECT_EQ(message.rfind(folder_.path(), 0), 0u) << message;
      EXPECT_NE(message.find(part), std::string::npos) << message << "\nlacks: " << part;
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    }
  }
  void expect_unsupported(const std::string& quantization, const std::string& part) {
    expect_refused(quantization, part, ErrorKind::unsupported);
  }

  std::vector<float> decoded(const StoredWeight& weight, std::int64_t row) {
    std::vector<float> values(64);
    decode_row(weight.tensor, row, values);
    return values;
  }

  TemporaryFolder folder_;
  SafetensorsWriter writer_;
  std::shared_ptr<const ModelFolder> opened_;
};

// With `weights` of a group, in compressed-tensors.
std::string group(const std::string& weights) {
  return R"({"quant_method": "compressed-tensors", "format": "float-quantized",
             "config_groups": {"group_0": {"targets": ["Linear"], "weights": )" +
         weights + "}}}";
}
const std::string per_tensor = R"({"num_bits": 8, "type": "float", "strategy": "tensor"})";
const std::string per_channel = R"({"num_bits": 8, "type": "float", "strategy": "channel"})";
const std::string in_blocks =
    R"({"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [2, 32]})";
const std::string modelopt = R"({"quant_method": "modelopt", "quant_algo": "FP8"})";

TEST_F(WeightQuantizationTest, PlacesTheScalesOfBlocks) {
  writer_.add("x.weight_scale", "F32", {2, 2}, bytes_of<float>({1, 2, 3, 4}));
  const StoredWeight weight = open(group(in_blocks))->require_weight("x.weight");
  EXPECT_EQ(decoded(weight, 1)[31], 1);  // 0x38 is 1
  EXPECT_EQ(decoded(weight, 1)[32], 2);
  EXPECT_EQ(decoded(weight, 2)[31], 3);
  EXPECT_EQ(decoded(weight, 3)[63], 4);
}

TEST_F(WeightQuantizationTest, ReadsScalesOfEveryType) {
  writer_.add("a.weight", "F8_E4M3", {4, 64}, codes())
      .add("a.weight_scale_inv", "BF16", {1, 1}, bytes_of<std::uint16_t>({0x3FC0}))
      .add("b.weight", "F8_E4M3", {4, 64}, codes())
      .add("b.weight_scale_inv", "F16", {1, 1}, bytes_of<std::uint16_t>({0x3E00}))
      .add("c.weight", "F8_E4M3", {4, 64}, codes())
      .add("c.weight_scale_inv", "F8_E8M0", {1, 1}, {std::byte{0}})
      .add("d.weight", "BF16", {1, 1}, bytes_of<std::uint16_t>({0x4000}));
  const auto folder = open(R"({"quant_method": "fp8", "weight_block_size": [128, 128],
                               "scale_fmt": "ue8m0", "modules_to_not_convert": ["d"]})");
  EXPECT_EQ(decoded(folder->require_weight("a.weight"), 3)[63], 1.5f);
  EXPECT_EQ(decoded(folder->require_weight("b.weight"), 0)[0], 1.5f);
  EXPECT_EQ(decoded(folder->require_weight("c.weight"), 0)[0], 0x1p-127f);
  const StoredWeight plain = folder->require_weight("d.weight");
  EXPECT_EQ(plain.tensor.scales, nullptr);
  EXPECT_TRUE(plain.companions.empty());
  EXPECT_FALSE(folder->find_weight("e.weight").has_value());
  EXPECT_THROW(folder->require_weight("e.weight"), Error);
}

TEST_F(WeightQuantizationTest, TakesWhatTheMethodsSay) {
  writer_.add("x.weight_scale", "F32", {4, 1}, bytes_of<float>({1, 2, 3, 4}))
      .add("x.input_scale", "F32", {1}, bytes_of<float>({9}))
      .add("x.weight_zero_point", "F8_E4M3", {4, 1}, std::vector<std::byte>(4));
  const StoredWeight weight =
      open(R"({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0})")
          ->require_weight("x.weight");
  EXPECT_EQ(decoded(weight, 3)[0], 4);
  EXPECT_EQ(weight.companions,
            (std::vector<std::string>{"x.weight_scale", "x.weight_zero_point", "x.input_scale"}));
  // Of a multimodal model, where the configuration is that of its text part.
  write_file(folder_ / "config.json",
             R"({"text_config": {"quantization_config": )" + group(per_channel) + "}}");
  EXPECT_EQ(decoded(reopen()->require_weight("x.weight"), 2)[0], 3);
  // config.json comes before ModelOpt's own file.
  write_file(folder_ / "hf_quant_config.json", R"({"quantization": {"quant_algo": "NVFP4"}})");
  EXPECT_EQ(decoded(reopen()->require_weight("x.weight"), 2)[0], 3);
}

// What early checkpoints of each tool say.
TEST_F(WeightQuantizationTest, TakesOlderConfigurations) {
  writer_.add("x.weight_scale", "F32", {}, bytes_of<float>({2}))
      .add("x.input_scale", "F32", {}, bytes_of<float>({9}));
  for (const std::string config :
       {R"({"quant_method": "compressed-tensors", "format": "naive-quantized",
            "quantization_status": "frozen", "ignore": ["lm_head"], "config_groups": {"group_0":
            {"targets": ["Linear"],
             "input_activations": {"num_bits": 8, "strategy": "tensor", "type": "float"},
             "weights": {"num_bits": 8, "strategy": "tensor", "type": "float"}}}})",
        R"({"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]})",
        R"({"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": null,
            "is_checkpoint_fp8_serialized": true})",
        R"({"quant_algo": "FP8", "exclude_modules": ["lm_head"]})"}) {
    SCOPED_TRACE(config);
    EXPECT_EQ(decoded(open(config)->require_weight("x.weight"), 3)[63], 2);
  }
}

TEST_F(WeightQuantizationTest, RefusesWeightsWithoutTheirScales) {
  expect_refused("",
                 "tensor 'x.weight' has type F8_E4M3, but no configuration says how it is scaled");
  expect_refused(group(per_tensor), "expected one of 'x.weight_scale' and 'x.weight_scale_inv'");
  writer_.add("x.weight_scale", "F32", {1}, bytes_of<float>({1}))
      .add("x.weight_scale_inv", "F32", {1}, bytes_of<float>({1}));
  expect_refused(group(per_tensor), "expected one of 'x.weight_scale' and 'x.weight_scale_inv'");
}

TEST_F(WeightQuantizationTest, RefusesScalesOfAnotherShape) {
  writer_.add("x.weight_scale", "F32", {2}, bytes_of<float>({1, 1}));
  expect_refused(group(per_tensor), "tensor 'x.weight_scale' has shape [2], expected [1], as ");
  expect_refused(group(per_channel), "expected [4, 1], as ");
  expect_refused(group(in_blocks), "expected [2, 2], as ");
  expect_refused(modelopt, "expected [1], as ");
}

TEST_F(WeightQuantizationTest, RefusesScalesThatAreNone) {
  const struct {
    float scale;
    const char* shown;
  } cases[] = {{std::numeric_limits<float>::quiet_NaN(), "nan"},
               {-std::numeric_limits<float>::quiet_NaN(), "nan"},
               {std::numeric_limits<float>::infinity(), "inf"},
               {-1.0f, "-1"},
               {8e35f, "8e+35"}};
  for (const auto& [scale, shown] : cases) {
    writer_ = SafetensorsWriter();
    writer_.add("x.weight", "F8_E4M3", {4, 64}, codes())
        .add("x.weight_scale", "F32", {4}, bytes_of<float>({1, 0, scale, 1}));
    expect_refused(group(per_channel), "tensor 'x.weight_scale' holds the scale ");
    expect_refused(group(per_channel), fmt::format("{} at element 2, expected 0 to ", shown));
  }
  writer_ = SafetensorsWriter();
  writer_.add("x.weight", "F8_E4M3", {4, 64}, codes())
      .add("x.weight_scale", "I32", {1}, bytes_of<std::int32_t>({1}));
  expect_unsupported(group(per_tensor), "tensor 'x.weight_scale' has type I32, expected scales of");
}

TEST_F(WeightQuantizationTest, RefusesWeightsThatAreNoSymmetricMatrix) {
  writer_ = SafetensorsWriter();
  writer_.add("x.weight", "F8_E4M3", {2, 2, 64}, codes())
      .add("x.weight_scale", "F32", {1}, bytes_of<float>({1}));
  expect_unsupported(modelopt, "has shape [2, 2, 64], expected a matrix");
  writer_ = SafetensorsWriter();
  writer_.add("x.weight", "F8_E4M3", {4, 64}, codes())
      .add("x.weight_scale", "F32", {1}, bytes_of<float>({1}))
      .add("x.weight_zero_point", "I8", {1}, {std::byte{1}});
  expect_unsupported(modelopt, "holds values other than 0, expected symmetric weights");
}

// A quantised cache beside plain weights.
TEST_F(WeightQuantizationTest, TakesConfigurationsOfACacheAlone) {
  for (const std::string config :
       {R"({"quant_method": "modelopt", "quant_algo": null, "kv_cache_quant_algo": "FP8"})",
        R"({"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"})",
        R"({"quant_method": "modelopt", "quant_algo": "", "kv_cache_quant_algo": "FP8"})",
        R"({"quant_method": "modelopt", "quant_algo": ""})", R"({"kv_cache_quant_algo": "FP8"})",
        R"({"quant_method": "quark", "export": {"kv_cache_group": ["*k_proj"]},
            "global_quant_config": {"weight": null, "input_tensors": null},
            "layer_quant_config": {"*k_proj": {"weight": null, "output_tensors":
            {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}}}})"}) {
    SCOPED_TRACE(config);
    EXPECT_EQ(open(config)->quantization().method(), "none");
  }
  expect_unsupported(R"({"quant_method": "quark", "layer_quant_config":
                     {"*q_proj": {"weight": {"dtype": "int4"}}}})",
                     "layer_quant_config.*q_proj.weight' is set");
}

TEST_F(WeightQuantizationTest, RefusesConfigurationsByName) {
  expect_unsupported(R"({"quant_method": "gptq"})",
                     "key 'quantization_config.quant_method' is 'gptq', expected");
  expect_refused("{}", "key 'quantization_config.quant_method' is missing");
  expect_unsupported(R"({"quant_method": "compressed-tensors", "format": "pack-quantized"})",
                     "key 'quantization_config.format' is 'pack-quantized'");
  expect_unsupported(R"({"quant_method": "compressed-tensors", "surprise": 1})",
                     "key 'quantization_config.surprise' is unknown");
  expect_unsupported(
      R"({"quant_method": "compressed-tensors", "transform_config": {"config_groups": {}}})",
      "key 'quantization_config.transform_config' is given, which octet does not apply");
  expect_unsupported(
      R"({"quant_method": "compressed-tensors", "sparsity_config": {"format": "sparse-bitmask"}})",
      "key 'quantization_config.sparsity_config.format' is 'sparse-bitmask'");
  expect_unsupported(
      R"({"quant_method": "compressed-tensors", "quantization_status": "calibration"})",
      "quantization_status' is 'calibration'");
  const std::string weights = "quantization_config.config_groups.group_0.weights.";
  expect_unsupported(group(R"({"num_bits": 4, "type": "float", "strategy": "tensor"})"),
                     weights + "num_bits' is 4, expected 8");
  expect_unsupported(group(R"({"num_bits": 8, "type": "int", "strategy": "tensor"})"),
                     weights + "type' is 'int'");
  expect_unsupported(group(R"({"num_bits": 8, "type": "float", "strategy": "group"})"),
                     weights + "strategy' is 'group'");
  expect_unsupported(
      group(R"({"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": false})"),
      weights + "symmetric' is false, expected true");
  expect_refused(group(R"({"num_bits": 8, "type": "float", "strategy": "block"})"),
                 weights + "block_structure' is missing");
  for (const std::string block : {"[0, 128]", "[128]", "[128, -1]"}) {
    expect_refused(R"({"quant_method": "fp8", "weight_block_size": )" + block + "}",
                   "weight_block_size' is " + block + ", expected two sizes");
  }
  expect_unsupported(R"({"quant_method": "fp8", "weight_block_size": [128, 48]})",
                     "weight_block_size' is [128, 48], expected a multiple of 32 columns");
  expect_unsupported(R"({"quant_method": "fp8", "fmt": "e5m2"})", "fmt' is 'e5m2'");
  expect_unsupported(R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})",
                     "quant_algo' is 'NVFP4'");
  write_file(folder_ / "hf_quant_config.json", R"({"quantization": {"quant_algo": "NVFP4"}})");
  expect_unsupported("", "/hf_quant_config.json: key 'quantization.quant_algo' is 'NVFP4'");
}

}  // namespace
}  // namespace octet
