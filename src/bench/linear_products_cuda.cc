#include <algorithm>
#include <random>
#include <vector>

#include "bench/linear_products.h"
#include "bench/sustained.h"
#include "bench/weight_read_rate.h"
#include "core/bfloat16.h"
#include "core/cuda/device.h"
#include "core/cuda/device_memory.h"
#include "core/cuda/launch.h"
#include "core/error.h"
#include "ops/linear/cublaslt_cuda.h"
#include "ops/linear/device_weights.h"
#include "ops/linear/linear_cuda.h"

namespace octet {

namespace {

// Weights that take turns make at least this much: several times an L2 of 50 MiB.
constexpr double least_rotation_bytes = 400e6;

// Random bytes as stored rows of a quantised type, of which matrices are cut. Some scales are no
// numbers; a product takes as long with them.
class StoredRows {
 public:
  StoredRows(DataType dtype, std::int64_t rows, std::int64_t columns)
      : dtype_(dtype), columns_(columns) {
    const DataTypeTraits traits = traits_of(dtype);
    row_bytes_ = static_cast<std::size_t>(columns) / traits.block_elements * traits.block_bytes;
    bytes_.resize(static_cast<std::size_t>(rows) * row_bytes_);
    std::mt19937_64 random(1);
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      bytes_[i] = static_cast<std::byte>(random() >> 56);
    }
  }
  TensorView matrix(std::int64_t first_row, std::int64_t rows) const {
    return {.name = "random",
            .dtype = dtype_,
            .shape = {rows, columns_},
            .data = bytes_.data() + static_cast<std::size_t>(first_row) * row_bytes_,
            .bytes = static_cast<std::size_t>(rows) * row_bytes_};
  }

 private:
  DataType dtype_;
  std::int64_t columns_;
  std::size_t row_bytes_ = 0;
  std::vector<std::byte> bytes_;
};

// `copies` matrices of a shape on the GPU.
class Matrices {
 public:
  Matrices(DataType dtype, const LinearShape& shape, int copies) {
    if (dtype == DataType::bfloat16 || dtype == DataType::float8_e4m3) {
      for (int i = 0; i < copies; ++i) {
        weights_.add_random("random", shape.outputs, shape.inputs, dtype,
                            static_cast<std::uint64_t>(i));
      }
    } else {
      // Matrices that begin at rows of their own differ in every row.
      rows_.emplace_back(dtype, shape.outputs + copies, shape.inputs);
      for (int i = 0; i < copies; ++i) weights_.add({rows_.back().matrix(i, shape.outputs)});
    }
    ThreadPool pool(0);
    weights_.upload(pool, nullptr);
  }
  const DeviceMatrix& at(int index) const {
    return weights_.matrix(static_cast<std::size_t>(index));
  }

 private:
  std::vector<StoredRows> rows_;
  DeviceWeights weights_;
};

double weight_bytes(DataType dtype, const LinearShape& shape) {
  const DataTypeTraits traits = traits_of(dtype);
  return static_cast<double>(shape.outputs) * static_cast<double>(shape.inputs) /
         traits.block_elements * traits.block_bytes;
}

class Bench {
 public:
  explicit Bench(const LinearProductsBench& bench) : bench_(bench), device_(cuda_device_info()) {
    std::int64_t inputs = 0;
    std::int64_t outputs = 0;
    for (const LinearShape& shape : bench.shapes) {
      inputs = std::max(inputs, shape.inputs);
      outputs = std::max(outputs, shape.outputs);
    }
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0.0f, 1.0f);
    std::vector<std::uint16_t> x(static_cast<std::size_t>(bench.rows * inputs));
    for (std::uint16_t& value : x) value = float_to_bfloat16(normal(random));
    x_ = DeviceArray<std::uint16_t>(x);
    y_ = DeviceArray<std::uint16_t>(static_cast<std::size_t>(bench.rows * outputs));
  }

  LinearProductsReport run() {
    LinearProductsReport report;
    report.device = device_.name;
    for (const LinearShape& shape : bench_.shapes) report.figures.push_back(measure(shape));
    report.read_terabytes_per_second = read_rate_;
    if (bench_.layers > 0) measure_step(&report);
    return report;
  }

 private:
  void launch(const DeviceMatrix& matrix, cudaStream_t stream) {
    LinearCudaArgs args;
    args.x = reinterpret_cast<const __nv_bfloat16*>(x_.data());
    args.x_stride = matrix.columns;
    args.rows = bench_.rows;
    args.weight = &matrix;
    args.y = y_.data();
    args.y_stride = matrix.rows;
    linear_cuda({stream, device_.multiprocessors, bench_.overlap}, workspace_, args);
  }

  // Where rows are few, weights come from memory in every step; a prefill has time enough.
  int copies_of(DataType dtype, const LinearShape& shape) const {
    constexpr std::int64_t few_rows = 64;
    if (bench_.rows > few_rows) return 1;
    return static_cast<int>(least_rotation_bytes / weight_bytes(dtype, shape)) + 2;
  }

  LinearProductFigure measure(const LinearShape& shape) {
    const int copies = copies_of(bench_.dtype, shape);
    const Matrices matrices(bench_.dtype, shape, copies);
    if (read_rate_ == 0) {
      // All copies lie in one run.
      const DeviceMatrixPart& part = matrices.at(0).parts[0];
      read_rate_ = measure_weight_read_rate(
          part.data, static_cast<std::size_t>(part.rows * part.row_bytes) * copies,
          device_.multiprocessors);
    }
    LinearProductFigure figure;
    figure.shape = shape;
    launch(matrices.at(0), nullptr);  // what is planned once for a shape
    const int count = copies > 1 ? std::max(copies, 64 / copies * copies) : 2;
    figure.microseconds = time_sustained(count, [&](int index, cudaStream_t stream) {
                            launch(matrices.at(index % copies), stream);
                          }).median_microseconds;
    const double rows = static_cast<double>(bench_.rows);
    figure.bytes = static_cast<double>(matrices.at(0).bytes()) +
                   2 * rows * static_cast<double>(shape.inputs + shape.outputs);
    figure.terabytes_per_second = figure.bytes / figure.microseconds * 1e-6;
    const double operations =
        2 * rows * static_cast<double>(shape.inputs) * static_cast<double>(shape.outputs);
    figure.teraflops = operations / figure.microseconds * 1e-6;
    const bool few = bench_.rows <= 2 || bench_.dtype != DataType::bfloat16;
    if (bench_.rows > 64 || !few) {
      figure.library_teraflops = operations / library_microseconds(shape) * 1e-6;
    }
    return figure;
  }

  CublasLtProduct library_product(const DeviceMatrix& matrix) {
    const DeviceMatrixPart& part = matrix.parts[0];
    CublasLtProduct product;
    product.x = x_.data();
    product.x_stride = matrix.columns;
    product.rows = bench_.rows;
    product.weights = part.data;
    product.weight_stride = part.row_bytes / 2;
    product.outputs = matrix.rows;
    product.k = matrix.columns;
    product.y = y_.data();
    product.y_stride = matrix.rows;
    return product;
  }

  // The fastest of the library's algorithms for bfloat16 matrices.
  double library_microseconds(const LinearShape& shape) {
    const int copies = copies_of(DataType::bfloat16, shape);
    const Matrices matrices(DataType::bfloat16, shape, copies);
    double fastest = 0;
    const int algorithms = library_.algorithms(library_product(matrices.at(0)));
    for (int i = 0; i < algorithms; ++i) {
      const double time =
          time_sustained(std::max(copies, 2), [&](int index, cudaStream_t stream) {
            library_.multiply_by(library_product(matrices.at(index % copies)), i, stream);
          }).median_microseconds;
      if (fastest == 0 || time < fastest) fastest = time;
    }
    return fastest;
  }

  void measure_step(LinearProductsReport* report) {
    std::vector<Matrices> shapes;
    for (const LinearShape& shape : bench_.shapes) {
      shapes.emplace_back(bench_.dtype, shape, shape.once ? 1 : bench_.layers);
    }
    std::vector<const DeviceMatrix*> order;
    for (int layer = 0; layer < bench_.layers; ++layer) {
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        if (!bench_.shapes[i].once) order.push_back(&shapes[i].at(layer));
      }
    }
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      if (bench_.shapes[i].once) order.push_back(&shapes[i].at(0));
    }
    const int count = static_cast<int>(order.size());
    const SustainedTime time = time_sustained(count, [&](int index, cudaStream_t stream) {
      launch(*order[static_cast<std::size_t>(index)], stream);
    });
    report->step_microseconds = time.median_microseconds * count;
    for (const DeviceMatrix* matrix : order) {
      report->step_bytes += static_cast<double>(matrix->bytes());
    }
  }

  LinearProductsBench bench_;
  CudaDeviceInfo device_;
  LinearCudaWorkspace workspace_;
  CublasLt library_;
  DeviceArray<std::uint16_t> x_;
  DeviceArray<std::uint16_t> y_;
  double read_rate_ = 0;
};

}  // namespace

LinearProductsReport bench_linear_products(const LinearProductsBench& bench) {
  return Bench(bench).run();
}

}  // namespace octet
