// Matrix products on the GPU against double precision, for every type of weights.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/bfloat16.h"
#include "core/cuda/device.h"
#include "core/cuda/device_memory.h"
#include "core/cuda/launch.h"
#include "core/cuda/stream.h"
#include "core/error.h"
#include "files/block_decode.h"
#include "ops/linear/device_weights.h"
#include "ops/linear/linear.h"
#include "ops/linear/linear_cuda.h"
#include "ops/linear/random_weights.h"

namespace octet {
namespace {

CudaLaunch launch_on(cudaStream_t stream) {
  static const int multiprocessors = cuda_device_info().multiprocessors;
  return {stream, multiprocessors, true};
}

LinearCudaWorkspace& workspace() {
  // Scratch for few rows of weights, so that a prefill decodes matrices in several pieces.
  static LinearCudaWorkspace shared(std::size_t{1} << 20);
  return shared;
}

struct Shape {
  std::int64_t rows;
  std::int64_t outputs;
  std::int64_t k;
};

std::vector<Shape> shapes_of(DataType dtype) {
  const std::int64_t block = traits_of(dtype).block_elements;
  if (block == 1) {
    return {{1, 1, 1},       {1, 5, 31},    {2, 7, 33},     {3, 4, 8},      {8, 300, 100},
            {9, 50, 96},     {16, 66, 577}, {17, 97, 800},  {31, 129, 65},  {33, 130, 2056},
            {64, 257, 1024}, {65, 40, 264}, {127, 72, 512}, {513, 129, 320}};
  }
  return {{1, 1, block},        {1, 71, 3 * block},  {3, 9, block},        {8, 300, 5 * block},
          {9, 50, 2 * block},   {16, 33, 9 * block}, {17, 97, 4 * block},  {33, 130, 7 * block},
          {64, 257, 2 * block}, {65, 40, 3 * block}, {127, 72, 2 * block}, {513, 129, block}};
}

// x, its copy on the GPU, and a product's results.
struct Product {
  Product(const std::vector<TensorView>& tensors, const Shape& asked, bool with_bias, int x_padding)
      : shape(asked), parts(tensors) {
    x_stride = shape.k + x_padding;
    y_stride = shape.outputs + 3;
    x = random_floats(static_cast<std::size_t>(shape.rows * x_stride), 5);
    std::vector<std::uint16_t> bits;
    for (float& value : x) {
      value = round_to_bfloat16(value);
      bits.push_back(float_to_bfloat16(value));
    }
    device_x = DeviceArray<std::uint16_t>(bits);
    if (with_bias) bias = random_floats(static_cast<std::size_t>(shape.outputs), 6);
    matrix = weights.add(tensors);
    vector = weights.add_floats(bias);
    ThreadPool pool(2);
    weights.upload(pool, nullptr);
  }

  std::vector<double> reference() const {
    std::vector<double> all(static_cast<std::size_t>(shape.rows * shape.outputs));
    std::int64_t first = 0;
    for (const TensorView& part : parts) {
      const std::int64_t outputs = part.shape[0];
      std::vector<double> some(static_cast<std::size_t>(shape.rows * outputs));
      LinearArgs args;
      args.x = x.data();
      args.rows = shape.rows;
      args.x_stride = x_stride;
      args.weight = &part;
      args.bias = bias.empty() ? nullptr : bias.data() + first;
      linear_reference(args, some.data());
      for (std::int64_t row = 0; row < shape.rows; ++row) {
        for (std::int64_t i = 0; i < outputs; ++i) {
          all[static_cast<std::size_t>(row * shape.outputs + first + i)] =
              some[static_cast<std::size_t>(row * outputs + i)];
        }
      }
      first += outputs;
    }
    return all;
  }

  LinearCudaArgs args(LinearOutput type, void* y) const {
    LinearCudaArgs args;
    args.x = reinterpret_cast<const __nv_bfloat16*>(device_x.data());
    args.x_stride = x_stride;
    args.rows = shape.rows;
    args.weight = &weights.matrix(matrix);
    args.bias = weights.floats(vector);
    args.y = y;
    args.y_type = type;
    args.y_stride = y_stride;
    return args;
  }

  // Outputs without the gaps between rows, which must be as they were.
  std::vector<float> run(LinearOutput type, CudaLaunch launch = launch_on(nullptr)) const {
    const auto count = static_cast<std::size_t>(shape.rows * y_stride);
    DeviceArray<std::uint32_t> y(count);
    y.fill_bytes(0xFF);
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    linear_cuda(launch, workspace(), args(type, y.data()));
    check_cuda(cudaDeviceSynchronize(), "linear_cuda");
    const std::vector<std::uint32_t> words = y.download();
    std::vector<float> all(count);
    if (type == LinearOutput::float32) {
      std::memcpy(all.data(), words.data(), count * sizeof(float));
    } else {
      const auto* halves = reinterpret_cast<const std::uint16_t*>(words.data());
      for (std::size_t i = 0; i < count; ++i) all[i] = bfloat16_to_float(halves[i]);
    }
    std::vector<float> values;
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      for (std::int64_t i = 0; i < y_stride; ++i) {
        const float value = all[static_cast<std::size_t>(row * y_stride + i)];
        if (i < shape.outputs) {
          values.push_back(value);
        } else {
          EXPECT_TRUE(std::isnan(value)) << "row " << row << ": written past the last output";
        }
      }
    }
    return values;
  }

  Shape shape;
  std::vector<TensorView> parts;
  std::int64_t x_stride;
  std::int64_t y_stride;
  std::vector<float> x;
  std::vector<float> bias;
  DeviceArray<std::uint16_t> device_x;
  DeviceWeights weights;
  std::size_t matrix;
  std::size_t vector;
};

double relative_error(const std::vector<float>& got, const std::vector<double>& expected) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += (got[i] - expected[i]) * (got[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return norm == 0 && difference == 0 ? 0.0 : std::sqrt(difference / norm);
}

// Outputs rounded to bfloat16 are off by 2^-9 of themselves at most. Sums in float32 are off by far
// less, but where a prefill rounds other weights than bfloat16 to it.
void expect_near_reference(const Product& product, bool bfloat16_weights) {
  const std::vector<double> reference = product.reference();
  const bool rounds = product.shape.rows > linear_cuda_streamed_rows && !bfloat16_weights;
  EXPECT_LE(relative_error(product.run(LinearOutput::float32), reference), rounds ? 4e-3 : 1e-5);
  EXPECT_LE(relative_error(product.run(LinearOutput::bfloat16), reference), 4e-3);
}

class LinearGpu : public ::testing::TestWithParam<DataType> {};

TEST_P(LinearGpu, IsNearTheReference) {
  const DataType dtype = GetParam();
  for (const Shape& shape : shapes_of(dtype)) {
    SCOPED_TRACE(testing::Message() << shape.rows << " x " << shape.outputs << " x " << shape.k);
    const RandomWeights weights(dtype, shape.outputs, shape.k, 17);
    // Rows of x that no load of 16 bytes fits, and such that it does.
    expect_near_reference(Product({weights.view()}, shape, true, 3), dtype == DataType::bfloat16);
    expect_near_reference(Product({weights.view()}, shape, false, 8), dtype == DataType::bfloat16);
  }
}

// The same bits whatever the grid, whether launches overlap, and whatever other rows there are.
TEST_P(LinearGpu, GivesTheSameBitsOnAnyGridAndInAnyCompany) {
  const DataType dtype = GetParam();
  for (const std::int64_t rows : {2, 8, 16, 32}) {
    const Shape shape = {rows, 300, 2560};
    const RandomWeights weights(dtype, shape.outputs, shape.k, 18);
    const Product product({weights.view()}, shape, true, 0);
    const std::vector<float> whole = product.run(LinearOutput::float32);
    CudaLaunch few = launch_on(nullptr);
    few.multiprocessors = 3;
    few.overlap = false;
    EXPECT_EQ(product.run(LinearOutput::float32, few), whole) << rows;
    if (rows > linear_cuda_streamed_rows_bfloat16 && dtype == DataType::bfloat16) continue;
    Product alone({weights.view()}, {1, shape.outputs, shape.k}, true, 0);
    const std::vector<float> first = alone.run(LinearOutput::float32);
    EXPECT_EQ(first, std::vector<float>(whole.begin(), whole.begin() + shape.outputs)) << rows;
  }
}

TEST_P(LinearGpu, DecodesRowsExactly) {
  const DataType dtype = GetParam();
  const std::int64_t block = traits_of(dtype).block_elements;
  for (const std::int64_t k : {block == 1 ? std::int64_t{77} : block, 5 * block, 512 * block}) {
    const std::int64_t outputs = 37;
    const RandomWeights weights(dtype, outputs, k, 19);
    DeviceWeights device;
    const std::size_t number = device.add({weights.view()});
    ThreadPool pool(1);
    device.upload(pool, nullptr);
    const std::vector<std::int32_t> ids = {0, 36, 5, -1, 17, 37, 5};
    const DeviceArray<std::int32_t> device_ids(ids);
    DeviceArray<float> out(ids.size() * static_cast<std::size_t>(k));
    out.fill_bytes(0xFF);
    decode_rows_cuda(launch_on(nullptr), device.matrix(number), device_ids.data(),
                     static_cast<std::int64_t>(ids.size()), 0.75f, out.data());
    const std::vector<float> got = out.download();
    std::vector<float> row(static_cast<std::size_t>(k));
    for (std::size_t i = 0; i < ids.size(); ++i) {
      std::fill(row.begin(), row.end(), 0.0f);
      if (ids[i] >= 0 && ids[i] < outputs) decode_row(weights.view(), ids[i], row);
      for (std::size_t j = 0; j < row.size(); ++j) {
        ASSERT_EQ(got[i * row.size() + j], 0.75f * row[j]) << "row " << ids[i] << " element " << j;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllTypes, LinearGpu, testing::ValuesIn(all_data_types),
                         [](const testing::TestParamInfo<DataType>& parameter) {
                           return std::string(traits_of(parameter.param).name);
                         });

// --- Scales of FP8, and matrices of several tensors.

TensorView with_scales(TensorView tensor, std::int64_t block_rows, std::int64_t block_columns,
                       unsigned seed) {
  auto scales = std::make_shared<TensorScales>();
  scales->block_rows = block_rows;
  scales->block_columns = block_columns;
  scales->grid_columns = (tensor.shape[1] - 1) / block_columns + 1;
  const std::int64_t grid_rows = (tensor.shape[0] - 1) / block_rows + 1;
  scales->values =
      random_floats(static_cast<std::size_t>(grid_rows * scales->grid_columns), seed, 0.001f, 0.1f);
  tensor.scales = scales;
  return tensor;
}

TEST(LinearGpuScales, AreThoseOfTensorsRowsAndBlocks) {
  struct Layout {
    std::int64_t outputs, k, block_rows, block_columns;
  };
  const Layout layouts[] = {{90, 700, 90, 700},   {90, 700, 1, 700}, {256, 1024, 128, 128},
                            {300, 640, 128, 128}, {53, 300, 16, 96}, {97, 97, 128, 32},
                            {40, 2048, 1, 512}};
  for (const Layout& layout : layouts) {
    for (const std::int64_t rows : {1, 5, 16, 33, 70}) {
      SCOPED_TRACE(testing::Message()
                   << rows << " x " << layout.outputs << " x " << layout.k << " by "
                   << layout.block_rows << " x " << layout.block_columns);
      const RandomWeights codes(DataType::float8_e4m3, layout.outputs, layout.k, 20);
      const TensorView tensor =
          with_scales(codes.view(), layout.block_rows, layout.block_columns, 21);
      expect_near_reference(Product({tensor}, {rows, layout.outputs, layout.k}, true, 0), false);
    }
  }
}

TEST(LinearGpuParts, AreStackedWhateverTheirTypes) {
  const std::int64_t k = 768;
  const RandomWeights a(DataType::q4_k, 100, k, 22);
  const RandomWeights b(DataType::q6_k, 33, k, 23);
  const RandomWeights c(DataType::q4_k, 34, k, 24);
  const RandomWeights d(DataType::float8_e4m3, 40, k, 25);
  const RandomWeights e(DataType::bfloat16, 50, k, 26);
  const std::vector<TensorView> mixed = {a.view(), b.view(), c.view(), e.view()};
  // One scale a tensor, one a row, none; blocks that end with the tensor, and that do not.
  const std::vector<TensorView> scaled = {with_scales(d.view(), 40, k, 27),
                                          with_scales(d.view(), 1, k, 28), d.view()};
  const std::vector<TensorView> blocks = {
      with_scales(d.view(), 20, 128, 29), with_scales(d.view(), 20, 128, 30),
      with_scales(d.view(), 32, 128, 31), with_scales(d.view(), 32, 128, 32)};
  for (const std::int64_t rows : {1, 12, 50, 100}) {
    SCOPED_TRACE(rows);
    expect_near_reference(Product(mixed, {rows, 217, k}, true, 0), false);
    expect_near_reference(Product(scaled, {rows, 120, k}, true, 0), false);
    expect_near_reference(Product(blocks, {rows, 160, k}, false, 0), false);
  }
  const Product merged(scaled, {1, 120, k}, false, 0);
  EXPECT_EQ(merged.weights.matrix(merged.matrix).parts.size(), 1u);
}

// What a chain of products gives must not depend on how their launches overlap, nor on a graph.
TEST(LinearGpuChain, OverlapsAndReplaysWithoutAChange) {
  constexpr std::int64_t width = 1536;
  DeviceWeights weights;
  for (std::uint64_t i = 0; i < 6; ++i) {
    weights.add_random("random", width, width,
                       i % 2 == 0 ? DataType::bfloat16 : DataType::float8_e4m3, i);
  }
  ThreadPool pool(1);
  weights.upload(pool, nullptr);
  std::vector<std::uint16_t> start;
  for (const float value : random_floats(8 * width, 40)) start.push_back(float_to_bfloat16(value));

  const auto run = [&](bool overlap, bool graph) {
    CudaStream stream;
    CudaLaunch launch = launch_on(stream.get());
    launch.overlap = overlap;
    DeviceArray<std::uint16_t> a(start);
    DeviceArray<std::uint16_t> b(start.size());
    b.fill_bytes(0xFF);
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    const auto enqueue = [&] {
      for (std::size_t i = 0; i < 24; ++i) {
        LinearCudaArgs args;
        args.x = reinterpret_cast<const __nv_bfloat16*>((i % 2 == 0 ? a : b).data());
        args.x_stride = width;
        args.rows = 8;
        args.weight = &weights.matrix(i % 6);
        args.y = (i % 2 == 0 ? b : a).data();
        args.y_stride = width;
        linear_cuda(launch, workspace(), args);
      }
    };
    if (graph) {
      CudaGraph::capture(stream.get(), enqueue).launch(stream.get());
    } else {
      enqueue();
    }
    stream.synchronize();
    return a.download();
  };
  const std::vector<std::uint16_t> plain = run(false, false);
  double norm = 0;
  for (const std::uint16_t bits : plain) norm += std::pow(bfloat16_to_float(bits), 2);
  // Random matrices with elements of variance 1 / width keep the norm.
  EXPECT_NEAR(std::sqrt(norm / static_cast<double>(plain.size())), std::sqrt(1.0 / 3), 0.15);
  for (int repeat = 0; repeat < 20; ++repeat) {
    EXPECT_EQ(run(true, false), plain);
    EXPECT_EQ(run(true, true), plain);
  }
}

TEST(DeviceWeightsGpu, KeepsWhatItWasGiven) {
  const RandomWeights a(DataType::q8_0, 5000, 4096, 50);
  const RandomWeights b(DataType::bfloat16, 3000, 4096, 51);
  const std::vector<float> vector = random_floats(1001, 52);
  DeviceWeights weights;
  const std::size_t first = weights.add({a.view()});
  const std::size_t none = weights.add_floats({});
  const std::size_t floats = weights.add_floats(vector);
  const std::size_t second = weights.add({b.view()});
  EXPECT_EQ(weights.add({a.view()}), first);
  EXPECT_NE(second, first);
  const std::size_t planned = weights.planned_bytes();
  EXPECT_GE(planned, 5000u * 16 * 272 + 3000u * 8192 + 4004);
  std::uint64_t last = 0;
  std::uint64_t total = 0;
  ThreadPool pool(4);
  weights.upload(pool, [&](std::uint64_t done, std::uint64_t all) {
    EXPECT_GT(done, last);
    last = done;
    total = all;
  });
  EXPECT_EQ(last, total);
  EXPECT_EQ(weights.planned_bytes(), planned);
  EXPECT_EQ(weights.floats(none), nullptr);
  std::vector<float> copy(vector.size());
  check_cuda(cudaMemcpy(copy.data(), weights.floats(floats), copy.size() * sizeof(float),
                        cudaMemcpyDeviceToHost),
             "cudaMemcpy");
  EXPECT_EQ(copy, vector);
  // The bfloat16 rows as they were: K needs no padding.
  const DeviceMatrix& matrix = weights.matrix(second);
  ASSERT_EQ(matrix.parts.size(), 1u);
  std::vector<std::byte> rows(b.view().bytes);
  check_cuda(cudaMemcpy(rows.data(), matrix.parts[0].data, rows.size(), cudaMemcpyDeviceToHost),
             "cudaMemcpy");
  EXPECT_EQ(std::memcmp(rows.data(), b.view().data, rows.size()), 0);
}

TEST(DeviceWeightsGpu, RefusesWhatDoesNotFit) {
  const RandomWeights a(DataType::bfloat16, 4, 64, 53);
  const RandomWeights b(DataType::bfloat16, 4, 96, 54);
  DeviceWeights weights;
  EXPECT_THROW(weights.add({a.view(), b.view()}), Error);
  EXPECT_THROW(weights.add({}), Error);
  EXPECT_THROW(weights.add_random("r", 4, 4, DataType::q4_0, 1), Error);
  EXPECT_THROW(weights.matrix(0), Error);

  std::vector<std::byte> codes(64, std::byte{0x38});
  codes[63] = std::byte{0xFF};
  const TensorView nan = {.name = "w",
                          .dtype = DataType::float8_e4m3,
                          .shape = {2, 32},
                          .data = codes.data(),
                          .bytes = codes.size()};
  weights.add({nan});
  ThreadPool pool(1);
  try {
    weights.upload(pool, nullptr);
    FAIL() << "a NaN was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    EXPECT_NE(std::string(error.what()).find("byte 63"), std::string::npos) << error.what();
  }
}

TEST(LinearGpuSanitized, EveryTypeOnce) {
  for (const DataType dtype : all_data_types) {
    const std::int64_t block = traits_of(dtype).block_elements;
    const std::int64_t k = block == 1 ? 330 : 3 * block;
    const RandomWeights weights(dtype, 21, k, 60);
    for (const std::int64_t rows : {3, 13, 40}) {
      expect_near_reference(Product({weights.view()}, {rows, 21, k}, true, 1),
                            dtype == DataType::bfloat16);
    }
  }
}

}  // namespace
}  // namespace octet
