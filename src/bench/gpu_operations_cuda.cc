#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "bench/gpu_operations.h"
#include "bench/sustained.h"
#include "core/bfloat16.h"
#include "core/cuda/device.h"
#include "core/cuda/device_memory.h"
#include "core/float16.h"
#include "ops/activation/gated_activation_cuda.h"
#include "ops/attention/attention_cuda.h"
#include "ops/norm/rms_norm_cuda.h"
#include "ops/quantize/cache_write_cuda.h"
#include "ops/sampling/sample_cuda.h"

namespace octet {

namespace {

// Launches of a timed graph: so many that its own launch does not count.
constexpr int graph_launches = 64;
// Caches that decode takes turns with hold this many times the L2, at most `most_rotations` of
// them.
constexpr double rotation_factor = 5;
constexpr int most_rotations = 64;

__nv_bfloat16* as_bfloat16(const DeviceArray<std::uint16_t>& array) {
  return reinterpret_cast<__nv_bfloat16*>(array.data());
}

// N(0, 1) in bfloat16, a line of random numbers over and over.
DeviceArray<std::uint16_t> random_bfloat16s(std::size_t count) {
  static const std::vector<std::uint16_t> line = [] {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0.0f, 1.0f);
    std::vector<std::uint16_t> values(std::size_t{1} << 20);
    for (std::uint16_t& x : values) x = float_to_bfloat16(normal(random));
    return values;
  }();
  DeviceArray<std::uint16_t> array(count);
  for (std::size_t at = 0; at < count; at += line.size()) {
    const std::size_t bytes = std::min(line.size(), count - at) * sizeof(std::uint16_t);
    check_cuda(cudaMemcpy(array.data() + at, line.data(), bytes, cudaMemcpyHostToDevice),
               "cudaMemcpy");
  }
  return array;
}

// The same in float32.
DeviceArray<float> random_floats(std::size_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> line(std::min(count, std::size_t{1} << 20));
  for (float& x : line) x = normal(random);
  DeviceArray<float> array(count);
  for (std::size_t at = 0; at < count; at += line.size()) {
    check_cuda(
        cudaMemcpy(array.data() + at, line.data(),
                   std::min(line.size(), count - at) * sizeof(float), cudaMemcpyHostToDevice),
        "cudaMemcpy");
  }
  return array;
}

// Sequences of one length in shuffled pages, all of them copies of one random page.
class RepeatedCache {
 public:
  RepeatedCache(const KvLayerPolicy& policy, const GpuOperationsBench& bench, int sequences,
                int context)
      : pages_per_sequence_((context + page_tokens - 1) / page_tokens) {
    group_.geometry = {bench.kv_heads, bench.head_dim, 0};
    group_.run = make_run_layout(policy, bench.head_dim, KvTarget::sm90);
    group_.layer_bytes = group_.run.bytes * static_cast<std::size_t>(bench.kv_heads);
    group_.page_bytes = group_.layer_bytes;
    const auto pages =
        static_cast<std::size_t>(sequences) * static_cast<std::size_t>(pages_per_sequence_);
    arena_ = DeviceArray<std::byte>(pages * group_.page_bytes);
    const std::vector<std::byte> run = random_run();
    check_cuda(cudaMemcpy(arena_.data(), run.data(), run.size(), cudaMemcpyHostToDevice),
               "cudaMemcpy");
    for (std::size_t done = run.size(); done < arena_.bytes();) {
      const std::size_t bytes = std::min(done, arena_.bytes() - done);
      check_cuda(cudaMemcpy(arena_.data() + done, arena_.data(), bytes, cudaMemcpyDeviceToDevice),
                 "cudaMemcpy");
      done += bytes;
    }
    std::vector<PageId> table(pages);
    std::iota(table.begin(), table.end(), PageId{0});
    std::shuffle(table.begin(), table.end(), std::mt19937(7));
    table_ = DeviceArray<PageId>(table);
  }

  DeviceKvLayer layer() const {
    DeviceKvLayer layer;
    layer.view.arena = arena_.data();
    layer.view.slab_bytes = group_.page_bytes;
    layer.view.page_bytes = group_.page_bytes;
    layer.view.group = &group_;
    return layer;
  }
  const KvLayerPolicy& policy() const { return group_.run.policy; }
  const PageId* table(int sequence) const {
    return table_.data() + static_cast<std::ptrdiff_t>(sequence) * pages_per_sequence_;
  }
  int table_stride() const { return pages_per_sequence_; }

 private:
  std::vector<std::byte> random_run() const {
    std::vector<std::byte> run(group_.run.bytes);
    std::mt19937 random(2);
    std::normal_distribution<float> normal(0.0f, 1.0f);
    const auto elements = static_cast<std::size_t>(group_.run.head_dim) * page_tokens;
    const auto put = [&](std::size_t at, std::uint16_t bits) {
      std::memcpy(run.data() + at, &bits, sizeof(bits));
    };
    const auto fill = [&](const KvSidePolicy& side, std::size_t offset, std::size_t scales) {
      for (std::size_t i = 0; i < elements; ++i) {
        const float x = normal(random);
        if (side.dtype == KvDtype::bfloat16) {
          put(offset + 2 * i, float_to_bfloat16(x));
        } else if (side.dtype == KvDtype::float16) {
          put(offset + 2 * i, float_to_float16(x));
        } else {
          // Magnitudes 0x30 to 0x7B: no e4m3 NaN, and spread over either format.
          run[offset + i] = static_cast<std::byte>((random() & 0x80) | (0x30 + random() % 0x4C));
        }
      }
      if (side.scales != KvScales::dynamic) return;
      for (std::size_t token = 0; token < page_tokens; ++token) {
        put(scales + 2 * token, float_to_bfloat16(0.01f + 0.0001f * static_cast<float>(token)));
      }
    };
    fill(group_.run.policy.key, group_.run.key_offset, group_.run.key_scale_offset);
    fill(group_.run.policy.value, group_.run.value_offset, group_.run.value_scale_offset);
    return run;
  }

  KvGroup group_;
  int pages_per_sequence_;
  DeviceArray<std::byte> arena_;
  DeviceArray<PageId> table_;
};

class Measurement {
 public:
  explicit Measurement(const GpuOperationsBench& bench)
      : bench_(bench),
        device_(cuda_device_info()),
        policy_(make_kv_policy({.dtype = bench.cache}, 1).layers[0]) {
    report_.device = device_.name;
  }

  GpuOperationsReport run() {
    measure_norm();
    measure_activation();
    measure_cache_write(bench_.rows, "cache write");
    measure_decode();
    measure_sampling();
    if (bench_.prefill > 0) {
      measure_cache_write(bench_.prefill, "cache write of the prefill");
      measure_prefill();
    }
    return report_;
  }

 private:
  CudaLaunch launch_on(cudaStream_t stream) const {
    return {stream, device_.multiprocessors, true};
  }
  template <typename Launch>
  void measure(const char* name, double bytes, double multiply_adds, int launches,
               const Launch& launch) {
    const SustainedTime time = time_sustained(
        launches, [&](int index, cudaStream_t stream) { launch(index, launch_on(stream)); });
    report_.figures.push_back({name, time.median_microseconds, bytes, multiply_adds});
  }

  static std::size_t elements(int rows, int width) {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(width);
  }
  float softmax_scale() const { return 1.0f / std::sqrt(static_cast<float>(bench_.head_dim)); }
  int query_width() const { return bench_.query_heads * bench_.head_dim; }

  void measure_norm() {
    const std::size_t count = elements(bench_.rows, bench_.hidden);
    const DeviceArray<float> residual(std::vector<float>(count, 0.1f));
    const DeviceArray<float> weight(
        std::vector<float>(static_cast<std::size_t>(bench_.hidden), 1.0f));
    const DeviceArray<std::uint16_t> branch = random_bfloat16s(count);
    const DeviceArray<std::uint16_t> y(count);
    RmsNormCudaArgs args;
    args.residual = residual.data();
    args.branch = as_bfloat16(branch);
    args.weight = weight.data();
    args.y = as_bfloat16(y);
    args.rows = bench_.rows;
    args.width = bench_.hidden;
    args.epsilon = 1e-5f;
    measure("RMS norm", 12.0 * static_cast<double>(count), 0, graph_launches,
            [&](int, const CudaLaunch& launch) { rms_norm_cuda(launch, args); });
  }

  void measure_activation() {
    const std::size_t count = elements(bench_.rows, bench_.intermediate);
    const DeviceArray<std::uint16_t> gate_up = random_bfloat16s(2 * count);
    const DeviceArray<std::uint16_t> y(count);
    measure("SwiGLU", 6.0 * static_cast<double>(count), 0, graph_launches,
            [&](int, const CudaLaunch& launch) {
              gated_activation_cuda(launch, {Activation::silu, as_bfloat16(gate_up), as_bfloat16(y),
                                             bench_.rows, bench_.intermediate});
            });
  }

  // Rows of one sequence.
  void measure_cache_write(int rows, const char* name) {
    const RepeatedCache cache(policy_, bench_, 1, rows);
    const int heads = bench_.query_heads + 2 * bench_.kv_heads;
    const DeviceArray<float> qkv = random_floats(elements(rows, heads * bench_.head_dim));
    const DeviceArray<std::uint16_t> query(elements(rows, query_width()));
    std::vector<std::int32_t> positions(static_cast<std::size_t>(rows));
    std::iota(positions.begin(), positions.end(), 0);
    const DeviceArray<std::int32_t> device_positions(positions);
    const DeviceArray<std::int32_t> sequences(
        std::vector<std::int32_t>(static_cast<std::size_t>(rows), 0));
    const DeviceArray<std::int32_t> lengths(std::vector<std::int32_t>{rows});
    const int pairs = bench_.head_dim / 2;
    const DeviceArray<float> cosines(std::vector<float>(elements(rows, pairs), 0.6f));
    const DeviceArray<float> sines(std::vector<float>(elements(rows, pairs), 0.8f));
    const DeviceArray<DeviceKvCounts> counts(std::vector<DeviceKvCounts>(1));
    CacheWriteCudaArgs args;
    args.qkv = qkv.data();
    args.query = as_bfloat16(query);
    args.cosines = cosines.data();
    args.sines = sines.data();
    args.pairs = pairs;
    args.query_heads = bench_.query_heads;
    args.rows = {rows,           1,       device_positions.data(), sequences.data(),
                 lengths.data(), nullptr, cache.table(0),          cache.table_stride()};
    args.layer = cache.layer();
    args.counts = counts.data();
    const double bytes =
        static_cast<double>(qkv.bytes() + query.bytes()) +
        static_cast<double>(cache.layer().view.group->page_bytes) / page_tokens * rows;
    measure(name, bytes, 0, graph_launches,
            [&](int, const CudaLaunch& launch) { cache_write_cuda(launch, args); });
  }

  void measure_decode() {
    const std::size_t page_bytes = make_run_layout(policy_, bench_.head_dim, KvTarget::sm90).bytes *
                                   static_cast<std::size_t>(bench_.kv_heads);
    const double bytes =
        static_cast<double>(page_bytes) / page_tokens * bench_.context * bench_.rows;
    const int rotations = std::clamp(
        static_cast<int>(rotation_factor * static_cast<double>(device_.l2_bytes) / bytes) + 1, 2,
        most_rotations);
    const RepeatedCache cache(policy_, bench_, bench_.rows * rotations, bench_.context);
    const DeviceArray<std::uint16_t> query = random_bfloat16s(elements(bench_.rows, query_width()));
    const DeviceArray<std::uint16_t> output(query.size());
    const DeviceArray<std::int32_t> lengths(
        std::vector<std::int32_t>(static_cast<std::size_t>(bench_.rows), bench_.context));
    AttentionDecodeWorkspace workspace(shape(), bench_.rows);
    workspace.plan(launch_on(nullptr), lengths.data(), bench_.rows);
    measure("decode attention", bytes, 0, std::max(graph_launches, rotations),
            [&](int index, const CudaLaunch& launch) {
              AttentionCudaArgs args = attention_args(cache, query, output);
              args.page_table = cache.table(index % rotations * bench_.rows);
              attention_decode_cuda(launch, workspace, args);
            });
  }

  void measure_prefill() {
    const RepeatedCache cache(policy_, bench_, 1, bench_.prefill);
    const DeviceArray<std::uint16_t> query =
        random_bfloat16s(elements(bench_.prefill, query_width()));
    const DeviceArray<std::uint16_t> output(query.size());
    AttentionPrefillWorkspace workspace(shape(), bench_.prefill, 1);
    const PrefillSm90Sequence sequence = {0, bench_.prefill, bench_.prefill};
    workspace.plan(launch_on(nullptr), {&sequence, 1});
    const double pairs = 0.5 * bench_.prefill * (bench_.prefill + 1.0);
    measure("prefill attention", 0, 2.0 * query_width() * pairs, 4,
            [&](int, const CudaLaunch& launch) {
              AttentionCudaArgs args = attention_args(cache, query, output);
              args.page_table = cache.table(0);
              attention_prefill_cuda(launch, workspace, args);
            });
  }

  AttentionCudaShape shape() const {
    return {bench_.head_dim, bench_.query_heads, bench_.kv_heads, 0, policy_};
  }
  AttentionCudaArgs attention_args(const RepeatedCache& cache,
                                   const DeviceArray<std::uint16_t>& query,
                                   const DeviceArray<std::uint16_t>& output) const {
    AttentionCudaArgs args;
    args.query = as_bfloat16(query);
    args.output = as_bfloat16(output);
    args.query_stride = query_width();
    args.output_stride = query_width();
    args.softmax_scale = softmax_scale();
    args.layer = cache.layer();
    args.page_table_stride = cache.table_stride();
    return args;
  }

  void measure_sampling() {
    const auto rows = static_cast<std::size_t>(bench_.rows);
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0.0f, 2.5f);
    std::vector<float> logits(elements(bench_.rows, bench_.vocabulary));
    for (float& x : logits) x = normal(random);
    const DeviceArray<float> device_logits(logits);
    const DeviceArray<std::int32_t> tokens(rows);
    const DeviceArray<SampleStatus> statuses(rows);
    const auto sample = [&](const char* name, const SampleParameters& parameters) {
      const DeviceArray<SampleParameters> device_parameters(
          std::vector<SampleParameters>(rows, parameters));
      SampleCudaArgs args;
      args.logits = device_logits.data();
      args.logits_stride = bench_.vocabulary;
      args.parameters = device_parameters.data();
      args.tokens = tokens.data();
      args.statuses = statuses.data();
      args.rows = bench_.rows;
      args.vocabulary = bench_.vocabulary;
      measure(name, 4.0 * static_cast<double>(logits.size()), 0, 16,
              [&](int, const CudaLaunch& launch) { sample_cuda(launch, args); });
    };
    sample("greedy token", {0, 1, 0, 0, 0.5});
    sample("token at temperature 1", {1, 1, 0, 0, 0.5});
    sample("token by top_p 0.9", {0.7f, 0.9f, 0, 0, 0.5});
    sample("token by top_k 50", {1, 1, 0, 50, 0.5});
  }

  GpuOperationsBench bench_;
  CudaDeviceInfo device_;
  KvLayerPolicy policy_;
  GpuOperationsReport report_;
};

}  // namespace

GpuOperationsReport bench_gpu_operations(const GpuOperationsBench& bench) {
  return Measurement(bench).run();
}

}  // namespace octet
