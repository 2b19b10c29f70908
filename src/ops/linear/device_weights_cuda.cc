#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include <cuda_runtime_api.h>

#include "core/cuda/check.h"
#include "core/cuda/device_memory.h"
#include "core/cuda/event.h"
#include "core/cuda/pinned_array.h"
#include "core/cuda/stream.h"
#include "core/error.h"
#include "core/printable.h"
#include "ops/linear/decode_rows.h"
#include "ops/linear/device_packing.h"
#include "ops/linear/device_weights.h"

namespace octet {

namespace {

constexpr std::uint64_t alignment = 256;
constexpr std::size_t staging_buffers = 3;
constexpr std::size_t staging_bytes = std::size_t{32} << 20;
// What one thread packs before it looks for more.
constexpr std::int64_t task_bytes = std::int64_t{1} << 18;

std::uint64_t aligned(std::uint64_t offset) {
  return (offset + alignment - 1) / alignment * alignment;
}

// Bands of eight rows that come from one tensor, or a vector of floats as one band.
struct Source {
  std::uint64_t offset = 0;  // in the arena
  std::int64_t bands = 0;
  std::int64_t band_bytes = 0;  // packed
  std::int64_t rows = 0;        // 0: floats
  std::int64_t columns = 0;
  DataType dtype = DataType::float32;
  const std::byte* stored = nullptr;
  std::int64_t stored_row_bytes = 0;
};

std::int64_t stored_row_bytes(DataType dtype, std::int64_t columns) {
  const DataTypeTraits traits = traits_of(dtype);
  return columns / traits.block_elements * traits.block_bytes;
}

void check_tensor(const TensorView& tensor, std::int64_t columns) {
  const DataTypeTraits traits = traits_of(tensor.dtype);
  const auto fail = [&](const char* what) {
    throw_error(ErrorKind::internal, "weights for the GPU: tensor {} {} {}: {}",
                printable(tensor.name), traits.name, format_shape(tensor.shape), what);
  };
  if (tensor.shape.size() != 2) fail("expected a matrix");
  if (tensor.shape[0] < 1 || tensor.shape[1] < 1) fail("expected at least one row and column");
  if (tensor.shape[1] != columns) fail("expected as many columns as the tensors above it");
  if (tensor.shape[1] > (std::int64_t{1} << 30) || tensor.shape[0] > (std::int64_t{1} << 30)) {
    fail("expected at most 2^30 rows and columns");
  }
  if (columns % traits.block_elements != 0) fail("expected whole blocks in a row");
  const auto row = static_cast<std::size_t>(stored_row_bytes(tensor.dtype, columns));
  if (tensor.data == nullptr || tensor.bytes / row < static_cast<std::size_t>(tensor.shape[0])) {
    fail("expected more bytes of data");
  }
  if (tensor.scales == nullptr) return;
  const TensorScales& scales = *tensor.scales;
  if (tensor.dtype != DataType::float8_e4m3) fail("expected no scales for this type");
  if (scales.block_rows < 1 || scales.block_columns < 1 || scales.grid_columns < 1) {
    fail("expected blocks of scales of at least one element");
  }
  const std::int64_t grid_rows = (tensor.shape[0] - 1) / scales.block_rows + 1;
  const std::int64_t grid_columns = (columns - 1) / scales.block_columns + 1;
  if (scales.grid_columns < grid_columns ||
      static_cast<std::int64_t>(scales.values.size()) / scales.grid_columns < grid_rows) {
    fail("expected more scales");
  }
  if (grid_columns > 1 && scales.block_columns % device_group_elements != 0) {
    fail("expected blocks of scales of a multiple of 32 columns");
  }
}

// e4m3 has two codes that are no numbers.
void refuse_nan_codes(const TensorView& tensor) {
  if (tensor.dtype != DataType::float8_e4m3) return;
  for (std::size_t i = 0; i < tensor.bytes; ++i) {
    if ((std::to_integer<unsigned>(tensor.data[i]) & 0x7Fu) == 0x7Fu) {
      throw_bad_input("tensor {} holds a NaN (byte {} of its data), which no weight may be",
                      printable(tensor.name), i);
    }
  }
}

}  // namespace

struct DeviceWeights::Contents {
  struct Planned {
    DeviceMatrix matrix;
    std::vector<Source> sources;  // of the parts' rows, in order
    std::vector<std::uint64_t> part_offsets;
    std::vector<std::vector<float>> part_scales;  // of each part; empty: none
    std::vector<std::uint64_t> scale_offsets;
    std::vector<const std::byte*> identity;  // the tensors' data
    std::vector<TensorView> unchecked;       // whose codes upload() has yet to look at
    bool random = false;
    std::uint64_t seed = 0;
  };
  struct Vector {
    std::vector<float> values;
    std::uint64_t offset = 0;
  };

  std::vector<Planned> matrices;
  std::vector<Vector> vectors;
  std::uint64_t bytes = 0;
  DeviceArray<std::byte> arena;
  bool uploaded = false;

  std::uint64_t reserve(std::uint64_t size) {
    const std::uint64_t offset = aligned(bytes);
    bytes = offset + size;
    return offset;
  }
  void add_part(Planned* planned, const TensorView& tensor);
  void place(Planned* planned);
  std::vector<Source> sources() const;
  void resolve();
  void fill_random();
};

namespace {

// One scale a row: what a scale of whole rows, of the whole matrix, or none at all comes to.
std::vector<float> scales_of_rows(const TensorView& tensor) {
  const auto rows = static_cast<std::size_t>(tensor.shape[0]);
  if (tensor.scales == nullptr) return std::vector<float>(rows, 1.0f);
  std::vector<float> values(rows);
  for (std::size_t row = 0; row < rows; ++row) {
    values[row] = *tensor.scales->of_row(static_cast<std::int64_t>(row));
  }
  return values;
}

bool scales_differ_along_a_row(const TensorView& tensor) {
  return tensor.scales != nullptr && tensor.shape[1] > tensor.scales->block_columns;
}

// The scales of the tensor's own rows, and how they lie.
std::pair<DeviceScales, std::vector<float>> device_scales(const TensorView& tensor) {
  DeviceScales layout;
  layout.block_columns = tensor.shape[1];
  if (!scales_differ_along_a_row(tensor)) return {layout, scales_of_rows(tensor)};
  const TensorScales& scales = *tensor.scales;
  layout.grid_columns = scales.grid_columns;
  layout.block_rows = scales.block_rows;
  layout.block_columns = scales.block_columns;
  const std::int64_t grid_rows = (tensor.shape[0] - 1) / scales.block_rows + 1;
  const auto count = static_cast<std::ptrdiff_t>(grid_rows * scales.grid_columns);
  return {layout, {scales.values.begin(), scales.values.begin() + count}};
}

bool same_layout(const DeviceScales& a, const DeviceScales& b) {
  return a.grid_columns == b.grid_columns && a.block_rows == b.block_rows &&
         a.block_columns == b.block_columns;
}

}  // namespace

// Rows of one type go on where the part above ends, if their scales do too.
void DeviceWeights::Contents::add_part(Planned* planned, const TensorView& tensor) {
  const std::int64_t columns = planned->matrix.columns;
  DeviceMatrixPart part;
  part.dtype = tensor.dtype;
  part.first_row = planned->matrix.rows;
  part.rows = tensor.shape[0];
  part.row_bytes = device_row_bytes(tensor.dtype, columns);
  std::vector<float> scales;
  if (tensor.dtype == DataType::float8_e4m3) {
    std::tie(part.scales, scales) = device_scales(tensor);
    planned->unchecked.push_back(tensor);
  }
  Source source;
  source.bands = (part.rows + device_band_rows - 1) / device_band_rows;
  source.band_bytes = device_band_rows * part.row_bytes;
  source.rows = part.rows;
  source.columns = columns;
  source.dtype = part.dtype;
  source.stored = tensor.data;
  source.stored_row_bytes = stored_row_bytes(part.dtype, columns);
  planned->sources.push_back(source);
  planned->matrix.rows += part.rows;
  if (!planned->matrix.parts.empty()) {
    DeviceMatrixPart& above = planned->matrix.parts.back();
    const bool goes_on = above.dtype == part.dtype && same_layout(above.scales, part.scales) &&
                         above.rows % above.scales.block_rows == 0 &&
                         above.rows % device_band_rows == 0;
    if (goes_on) {
      above.rows += part.rows;
      std::vector<float>& all = planned->part_scales.back();
      all.insert(all.end(), scales.begin(), scales.end());
      return;
    }
  }
  planned->matrix.parts.push_back(part);
  planned->part_scales.push_back(std::move(scales));
}

void DeviceWeights::Contents::place(Planned* planned) {
  std::size_t next = 0;
  for (std::size_t i = 0; i < planned->matrix.parts.size(); ++i) {
    const DeviceMatrixPart& part = planned->matrix.parts[i];
    std::uint64_t offset = reserve(static_cast<std::uint64_t>(
        device_matrix_bytes(part.dtype, part.rows, planned->matrix.columns)));
    planned->part_offsets.push_back(offset);
    for (std::int64_t rows = 0; rows < part.rows && next < planned->sources.size(); ++next) {
      Source& source = planned->sources[next];
      source.offset = offset;
      offset += static_cast<std::uint64_t>(source.bands * source.band_bytes);
      rows += source.rows;
    }
    planned->scale_offsets.push_back(reserve(planned->part_scales[i].size() * sizeof(float)));
  }
}

// Everything that is copied, by its place in the arena.
std::vector<Source> DeviceWeights::Contents::sources() const {
  std::vector<Source> all;
  const auto add_floats = [&](const std::vector<float>& values, std::uint64_t offset) {
    if (values.empty()) return;
    Source source;
    source.offset = offset;
    source.bands = 1;
    source.band_bytes = static_cast<std::int64_t>(values.size() * sizeof(float));
    source.stored = reinterpret_cast<const std::byte*>(values.data());
    all.push_back(source);
  };
  for (const Planned& planned : matrices) {
    all.insert(all.end(), planned.sources.begin(), planned.sources.end());
    if (planned.random) continue;
    for (std::size_t i = 0; i < planned.part_scales.size(); ++i) {
      add_floats(planned.part_scales[i], planned.scale_offsets[i]);
    }
  }
  for (const Vector& vector : vectors) add_floats(vector.values, vector.offset);
  std::sort(all.begin(), all.end(),
            [](const Source& a, const Source& b) { return a.offset < b.offset; });
  return all;
}

void DeviceWeights::Contents::resolve() {
  for (Planned& planned : matrices) {
    for (std::size_t i = 0; i < planned.matrix.parts.size(); ++i) {
      DeviceMatrixPart& part = planned.matrix.parts[i];
      part.data = arena.data() + planned.part_offsets[i];
      if (planned.part_scales[i].empty()) continue;
      part.scales.values = reinterpret_cast<const float*>(arena.data() + planned.scale_offsets[i]);
    }
  }
}

void DeviceWeights::Contents::fill_random() {
  for (const Planned& planned : matrices) {
    if (!planned.random) continue;
    const float deviation = 1.0f / std::sqrt(static_cast<float>(planned.matrix.columns));
    // Codes of deviation 64: no larger than 448, and few of them subnormal.
    fill_random_rows({}, planned.matrix.parts[0], planned.matrix.columns, deviation, deviation / 64,
                     planned.seed);
  }
}

DeviceWeights::DeviceWeights() : contents_(std::make_unique<Contents>()) {}
DeviceWeights::~DeviceWeights() = default;
DeviceWeights::DeviceWeights(DeviceWeights&&) noexcept = default;
DeviceWeights& DeviceWeights::operator=(DeviceWeights&&) noexcept = default;

std::size_t DeviceWeights::add(std::vector<TensorView> tensors) {
  if (tensors.empty()) throw_error(ErrorKind::internal, "weights for the GPU: no tensor");
  std::vector<const std::byte*> identity;
  for (const TensorView& tensor : tensors) {
    check_tensor(tensor, tensors[0].shape.size() == 2 ? tensors[0].shape[1] : 0);
    identity.push_back(tensor.data);
  }
  auto& matrices = contents_->matrices;
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    if (matrices[i].identity == identity) return i;
  }
  Contents::Planned planned;
  planned.identity = std::move(identity);
  planned.matrix.name = tensors[0].name;
  planned.matrix.columns = tensors[0].shape[1];
  for (const TensorView& tensor : tensors) contents_->add_part(&planned, tensor);
  contents_->place(&planned);
  matrices.push_back(std::move(planned));
  return matrices.size() - 1;
}

std::size_t DeviceWeights::add_random(const std::string& name, std::int64_t rows,
                                      std::int64_t columns, DataType dtype, std::uint64_t seed) {
  if (dtype != DataType::bfloat16 && dtype != DataType::float8_e4m3) {
    throw_unsupported("random weights of {}: expected BF16 or F8_E4M3", traits_of(dtype).name);
  }
  if (rows < 1 || columns < 1 || rows > (std::int64_t{1} << 30) ||
      columns > (std::int64_t{1} << 30)) {
    throw_error(ErrorKind::internal, "random weights {} of [{}, {}]", name, rows, columns);
  }
  Contents::Planned planned;
  planned.random = true;
  planned.seed = seed;
  planned.matrix.name = name;
  planned.matrix.rows = rows;
  planned.matrix.columns = columns;
  DeviceMatrixPart part;
  part.dtype = dtype;
  part.rows = rows;
  part.row_bytes = device_row_bytes(dtype, columns);
  part.scales.block_columns = columns;
  planned.matrix.parts.push_back(part);
  planned.part_scales.emplace_back(dtype == DataType::float8_e4m3 ? static_cast<std::size_t>(rows)
                                                                  : 0);
  contents_->place(&planned);
  contents_->matrices.push_back(std::move(planned));
  return contents_->matrices.size() - 1;
}

std::size_t DeviceWeights::add_floats(std::vector<float> values) {
  const std::uint64_t offset = contents_->reserve(values.size() * sizeof(float));
  contents_->vectors.push_back({std::move(values), offset});
  return contents_->vectors.size() - 1;
}

std::size_t DeviceWeights::planned_bytes() const {
  return static_cast<std::size_t>(aligned(contents_->bytes));
}

namespace {

// Packs bands [begin, end) of a source to where its first packed band would be `base`.
void pack_bands(const Source& source, std::int64_t begin, std::int64_t end, std::byte* base) {
  if (source.rows == 0) {
    std::memcpy(base, source.stored, static_cast<std::size_t>(source.band_bytes));
    return;
  }
  for (std::int64_t band = begin; band < end; ++band) {
    const std::int64_t first = band * device_band_rows;
    const auto rows =
        static_cast<int>(std::min<std::int64_t>(device_band_rows, source.rows - first));
    pack_device_band(
        source.dtype, source.columns, rows, source.stored + first * source.stored_row_bytes,
        source.stored_row_bytes,
        {base + band * source.band_bytes, static_cast<std::size_t>(source.band_bytes)});
  }
}

struct Task {
  const Source* source;
  std::int64_t begin;
  std::int64_t end;
  std::byte* base;
};

// One of the page-locked buffers that take turns: a window of the arena.
struct Staging {
  PinnedArray<std::byte> bytes;
  CudaEvent sent;
  bool used = false;
};

// Walks through the sources in the order of the arena, a window at a time.
class StagedCopy {
 public:
  StagedCopy(const std::vector<Source>& sources, std::byte* arena)
      : sources_(sources), arena_(arena) {
    std::size_t largest = staging_bytes;
    for (const Source& source : sources) {
      largest = std::max(largest, static_cast<std::size_t>(source.band_bytes));
      total_ += static_cast<std::uint64_t>(source.bands * source.band_bytes);
    }
    for (Staging& staging : staging_) staging.bytes = PinnedArray<std::byte>(largest);
  }

  void run(ThreadPool& pool, const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
    std::uint64_t done = 0;
    for (std::size_t turn = 0; source_ < sources_.size(); ++turn) {
      Staging& staging = staging_[turn % staging_buffers];
      if (staging.used) staging.sent.wait();
      const std::vector<Task> tasks = fill_window(staging);
      pool.parallel_for(static_cast<std::int64_t>(tasks.size()), [&](std::int64_t i, int) {
        const Task& task = tasks[static_cast<std::size_t>(i)];
        pack_bands(*task.source, task.begin, task.end, task.base);
      });
      check_cuda(cudaMemcpyAsync(arena_ + window_start_, staging.bytes.data(), window_bytes_,
                                 cudaMemcpyHostToDevice, stream_.get()),
                 "cudaMemcpyAsync");
      staging.sent.record(stream_.get());
      staging.used = true;
      for (const Task& task : tasks) {
        done += static_cast<std::uint64_t>((task.end - task.begin) * task.source->band_bytes);
      }
      if (progress) progress(done, total_);
    }
    check_cuda(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
  }

 private:
  // As many bands as fit from where the last window ended. Between two sources lies padding.
  std::vector<Task> fill_window(Staging& staging) {
    std::vector<Task> tasks;
    window_start_ = band_offset();
    window_bytes_ = 0;
    while (source_ < sources_.size()) {
      const Source& source = sources_[source_];
      const std::uint64_t at = band_offset() - window_start_;
      if (at >= staging.bytes.size()) break;
      const auto room = static_cast<std::int64_t>(staging.bytes.size() - at);
      const std::int64_t bands = std::min(source.bands - band_, room / source.band_bytes);
      if (bands == 0) break;
      // pack_bands() counts from the source's first band.
      std::byte* base = staging.bytes.data() + at - band_ * source.band_bytes;
      const std::int64_t of_task = std::max<std::int64_t>(1, task_bytes / source.band_bytes);
      for (std::int64_t begin = band_; begin < band_ + bands; begin += of_task) {
        tasks.push_back({&source, begin, std::min(begin + of_task, band_ + bands), base});
      }
      window_bytes_ = at + static_cast<std::uint64_t>(bands * source.band_bytes);
      band_ += bands;
      if (band_ < source.bands) break;
      band_ = 0;
      ++source_;
    }
    return tasks;
  }
  std::uint64_t band_offset() const {
    const Source& source = sources_[source_];
    return source.offset + static_cast<std::uint64_t>(band_ * source.band_bytes);
  }

  const std::vector<Source>& sources_;
  std::byte* arena_;
  Staging staging_[staging_buffers];
  CudaStream stream_;
  std::size_t source_ = 0;
  std::int64_t band_ = 0;
  std::uint64_t window_start_ = 0;
  std::uint64_t window_bytes_ = 0;
  std::uint64_t total_ = 0;
};

DeviceArray<std::byte> allocate_arena(std::size_t bytes) {
  std::size_t free = 0;
  std::size_t total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  constexpr double gib = 1024.0 * 1024.0 * 1024.0;
  if (bytes > free) {
    throw_error(
        ErrorKind::out_of_memory,
        "the model's weights take {:.2f} GiB of the GPU's memory, of which {:.2f} GiB are free",
        static_cast<double>(bytes) / gib, static_cast<double>(free) / gib);
  }
  return DeviceArray<std::byte>(bytes);
}

}  // namespace

void DeviceWeights::upload(
    ThreadPool& pool,
    const std::function<void(std::uint64_t done, std::uint64_t total)>& progress) {
  if (contents_->uploaded) throw_error(ErrorKind::internal, "weights for the GPU: uploaded twice");
  for (Contents::Planned& planned : contents_->matrices) {
    const auto& tensors = planned.unchecked;
    pool.parallel_for(static_cast<std::int64_t>(tensors.size()), [&](std::int64_t i, int) {
      refuse_nan_codes(tensors[static_cast<std::size_t>(i)]);
    });
    planned.unchecked.clear();
  }
  contents_->arena = allocate_arena(planned_bytes());
  contents_->resolve();
  const std::vector<Source> sources = contents_->sources();
  if (!sources.empty()) StagedCopy(sources, contents_->arena.data()).run(pool, progress);
  contents_->fill_random();
  check_cuda(cudaDeviceSynchronize(), "upload of the weights");
  for (Contents::Planned& planned : contents_->matrices) {
    planned.sources.clear();
    for (std::vector<float>& scales : planned.part_scales) scales = {};
  }
  for (Contents::Vector& vector : contents_->vectors) {
    if (vector.values.empty()) continue;
    vector.values = std::vector<float>(1);  // not empty, so not a null pointer
  }
  contents_->uploaded = true;
}

const DeviceMatrix& DeviceWeights::matrix(std::size_t number) const {
  if (!contents_->uploaded || number >= contents_->matrices.size()) {
    throw_error(ErrorKind::internal, "weights for the GPU: no matrix {}", number);
  }
  return contents_->matrices[number].matrix;
}

const float* DeviceWeights::floats(std::size_t number) const {
  if (!contents_->uploaded || number >= contents_->vectors.size()) {
    throw_error(ErrorKind::internal, "weights for the GPU: no vector {}", number);
  }
  const Contents::Vector& vector = contents_->vectors[number];
  if (vector.values.empty()) return nullptr;
  return reinterpret_cast<const float*>(contents_->arena.data() + vector.offset);
}

}  // namespace octet
