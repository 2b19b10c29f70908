#include "kv/kv_layout.h"

#include <gtest/gtest.h>

namespace octet {
namespace {

KvLayout layout_of(const std::string& dtype, int layers, int kv_heads, int head_dim) {
  const std::vector<KvLayerGeometry> geometry(static_cast<std::size_t>(layers),
                                              KvLayerGeometry{kv_heads, head_dim, 0});
  return KvLayout(geometry, make_kv_policy({.dtype = dtype, .scales = "auto"}, layers));
}

TEST(KvLayout, BytesPerTokenAreTheGeometrys) {
  // SmolLM2-135M: 30 layers of 3 KV heads of 64; keys and values.
  const double elements = 30 * 3 * 64 * 2;
  const double scales = 30 * 3 * 2 * 2;  // two bytes per token, head and side
  EXPECT_EQ(layout_of("float32", 30, 3, 64).bytes_per_token(), elements * 4);
  EXPECT_EQ(layout_of("bfloat16", 30, 3, 64).bytes_per_token(), elements * 2);
  EXPECT_EQ(layout_of("fp8", 30, 3, 64).bytes_per_token(), elements + scales);
  EXPECT_EQ(layout_of("int8", 30, 3, 64).bytes_per_token(), elements + scales);
}

TEST(KvLayout, Fp8WithDynamicScalesTakesAtMost52PercentOfBfloat16) {
  EXPECT_LE(layout_of("fp8", 30, 3, 64).bytes_per_token(),
            0.52 * layout_of("bfloat16", 30, 3, 64).bytes_per_token());
}

TEST(KvLayout, PartsOfARunAreApartAndAligned) {
  for (const char* dtype : {"float32", "float16:fp8", "fp8", "int8:bfloat16", "int8"}) {
    for (const int head_dim : {8, 64, 80, 128, 256, 512}) {
      const KvLayerPolicy policy = make_kv_policy({.dtype = dtype, .scales = "auto"}, 1).layers[0];
      const KvRunLayout run = make_run_layout(policy, head_dim);
      const std::size_t elements = static_cast<std::size_t>(head_dim) * page_tokens;
      EXPECT_EQ(run.key_offset, 0u);
      EXPECT_GE(run.value_offset, elements * bytes_of(policy.key.dtype));
      EXPECT_GE(run.key_scale_offset, run.value_offset + elements * bytes_of(policy.value.dtype));
      const std::size_t key_scales = policy.key.scales == KvScales::dynamic ? 128 : 0;
      const std::size_t value_scales = policy.value.scales == KvScales::dynamic ? 128 : 0;
      EXPECT_GE(run.value_scale_offset, run.key_scale_offset + key_scales);
      EXPECT_GE(run.bytes, run.value_scale_offset + value_scales);
      EXPECT_EQ(run.bytes % 128, 0u);
    }
  }
}

TEST(KvLayout, LayersThatAreAlikeShareAGroup) {
  std::vector<KvLayerGeometry> geometry = {{1, 64, 512}, {1, 64, 0}, {1, 64, 512}, {2, 64, 0}};
  KvPolicy policy = make_kv_policy({.dtype = "fp8", .scales = "auto"}, 4);
  const KvLayout layout(geometry, policy);
  ASSERT_EQ(layout.groups().size(), 3u);
  EXPECT_EQ(layout.group_of(0), layout.group_of(2));
  EXPECT_EQ(layout.index_in_group(2), 1);
  EXPECT_NE(layout.group_of(1), layout.group_of(3));
  EXPECT_EQ(layout.groups()[0].page_bytes, 2 * layout.groups()[0].layer_bytes);

  policy.layers[2].value = {KvDtype::bfloat16, KvScales::none};
  EXPECT_EQ(KvLayout(geometry, policy).groups().size(), 4u);
}

}  // namespace
}  // namespace octet
