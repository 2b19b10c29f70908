#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "bench/attention_decode.h"
#include "bench/random_cache.h"
#include "bench/read_rate.h"
#include "bench/sustained.h"
#include "core/bfloat16.h"
#include "core/cuda/device.h"
#include "core/float8_e4m3.h"
#include "core/thread_pool.h"
#include "kv/element_order.h"
#include "ops/attention/decode_sm90.h"

namespace octet {

namespace {

// Caches that the launches take turns with hold this many times the L2.
constexpr double rotation_factor = 5;

int rotations_for(double bytes_read, std::size_t l2_bytes) {
  const double wanted = rotation_factor * static_cast<double>(l2_bytes);
  return std::max(2, static_cast<int>(std::ceil(wanted / bytes_read)));
}

// Keys of a sequence that any of its query rows sees.
int visible_keys(const AttentionDecodeBench& bench, int length) {
  return bench.window == 0 ? length : std::min(length, bench.window + bench.query_rows - 1);
}

// The sequences of as many caches.
std::vector<int> repeated(const std::vector<int>& lengths, int times) {
  std::vector<int> all;
  for (int i = 0; i < times; ++i) all.insert(all.end(), lengths.begin(), lengths.end());
  return all;
}

class Problem {
 public:
  Problem(const AttentionDecodeBench& bench, const KvLayerPolicy& policy,
          const KvLayerConstants& constants, const CudaDeviceInfo& device)
      : bench_(bench),
        policy_(policy),
        constants_(constants),
        rotations_(rotations_for(bytes_read(), device.l2_bytes)),
        batch_(static_cast<int>(bench.lengths.size())),
        cache_({policy,
                {bench.kv_heads, bench.head_dim, bench.window},
                repeated(bench.lengths, rotations_),
                static_cast<float>(bench.value_mean),
                constants}),
        workspace_({bench.head_dim, bench.query_heads, bench.kv_heads, bench.query_rows,
                    bench.window, policy,
                    bench.single_level ? AttentionAccumulation::single_level
                                       : AttentionAccumulation::two_level},
                   batch_),
        lengths_(std::vector<std::int32_t>(bench.lengths.begin(), bench.lengths.end())) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0.0f, 1.0f);
    host_query_.resize(static_cast<std::size_t>(rows()) * row_elements());
    for (std::uint16_t& x : host_query_) x = float_to_bfloat16(normal(random));
    query_ = DeviceArray<std::uint16_t>(host_query_);
    if (bench.sinks) {
      for (int head = 0; head < bench.query_heads; ++head) {
        host_sinks_.push_back(2.0f + normal(random));
      }
      sinks_ = DeviceArray<float>(host_sinks_);
    }
    output_ = DeviceArray<std::uint16_t>(host_query_.size());
    float_output_ = DeviceArray<float>(host_query_.size());
  }

  double bytes_read() const {
    const KvRunLayout run = make_run_layout(policy_, bench_.head_dim, KvTarget::sm90);
    double keys = 0;
    for (const int length : bench_.lengths) keys += visible_keys(bench_, length);
    return keys * bench_.kv_heads * static_cast<double>(run.bytes) / page_tokens;
  }
  int rotations() const { return rotations_; }
  int blocks() const { return workspace_.blocks(); }
  RandomCache& cache() { return cache_; }
  int rows() const { return batch_ * bench_.query_rows; }
  int row_elements() const { return bench_.query_heads * bench_.head_dim; }

  void plan(cudaStream_t stream) { workspace_.plan(lengths_.data(), batch_, stream); }

  void launch(int rotation, AttentionOutput type, cudaStream_t stream) {
    DecodeSm90Args args;
    args.query = query_.data();
    args.output = type == AttentionOutput::float32 ? static_cast<void*>(float_output_.data())
                                                   : static_cast<void*>(output_.data());
    args.output_type = type;
    args.query_stride = row_elements();
    args.output_stride = row_elements();
    args.softmax_scale = softmax_scale();
    args.soft_cap = static_cast<float>(bench_.soft_cap);
    args.sinks = bench_.sinks ? sinks_.data() : nullptr;
    args.layer = {cache_.layer(), cache_.key_scales(), cache_.value_scales()};
    args.page_table =
        cache_.table() + static_cast<std::int64_t>(rotation) * batch_ * cache_.pages_per_sequence();
    args.page_table_stride = cache_.pages_per_sequence();
    args.overlap = bench_.overlap;
    decode_sm90(args, workspace_, stream);
  }

  // Outputs of one launch over the given rotation, poisoned before.
  std::vector<float> run_float32(int rotation) {
    float_output_.fill_bytes(0xFF);
    launch(rotation, AttentionOutput::float32, nullptr);
    return float_output_.download();
  }
  std::vector<float> run_bfloat16(int rotation) {
    output_.fill_bytes(0xFF);
    launch(rotation, AttentionOutput::bfloat16, nullptr);
    std::vector<float> values;
    for (const std::uint16_t bits : output_.download()) values.push_back(bfloat16_to_float(bits));
    return values;
  }

  // The same in double precision over what is stored, for the given rotation.
  std::vector<double> reference(int rotation);

 private:
  float softmax_scale() const { return 1.0f / std::sqrt(static_cast<float>(bench_.head_dim)); }
  void attend(int rotation, int sequence, int kv_head, std::vector<double>* output);

  AttentionDecodeBench bench_;
  KvLayerPolicy policy_;
  KvLayerConstants constants_;
  int rotations_;
  int batch_;
  RandomCache cache_;
  DecodeSm90Workspace workspace_;
  DeviceArray<std::int32_t> lengths_;
  std::vector<std::uint16_t> host_query_;
  std::vector<float> host_sinks_;
  DeviceArray<float> sinks_;
  DeviceArray<std::uint16_t> query_;
  DeviceArray<std::uint16_t> output_;
  DeviceArray<float> float_output_;
};

double side_scale(const KvSidePolicy& side, const std::vector<float>& of_heads, int kv_head,
                  const std::byte* scales, int token) {
  if (is_static(side.scales)) return of_heads[static_cast<std::size_t>(kv_head)];
  if (side.scales != KvScales::dynamic) return 1.0;
  return bfloat16_to_float(reinterpret_cast<const std::uint16_t*>(scales)[token]);
}

double stored_element(KvDtype dtype, const std::byte* bytes) {
  switch (dtype) {
    case KvDtype::fp8:
      return float8_e4m3_to_float(static_cast<std::uint8_t>(*bytes));
    case KvDtype::int8:
      return static_cast<std::int8_t>(*bytes);
    default:
      return bfloat16_to_float(*reinterpret_cast<const std::uint16_t*>(bytes));
  }
}

// All query rows and heads of one KV head of one sequence.
void Problem::attend(int rotation, int sequence, int kv_head, std::vector<double>* output) {
  const KvLayerView layer = cache_.layer();
  const KvRunLayout& run = layer.group->run;
  const int head_dim = bench_.head_dim;
  const int group = bench_.query_heads / bench_.kv_heads;
  const int queries = group * bench_.query_rows;
  const int length = bench_.lengths[static_cast<std::size_t>(sequence)];
  const PageId* table =
      cache_.host_table().data() +
      (static_cast<std::size_t>(rotation) * batch_ + sequence) * cache_.pages_per_sequence();
  std::vector<std::vector<double>> scores(queries);
  for (auto& of_query : scores) of_query.assign(length, -HUGE_VAL);
  const auto place = [&](int q) {
    const int row = sequence * bench_.query_rows + q / group;
    return (static_cast<std::size_t>(row) * bench_.query_heads + kv_head * group + q % group) *
           static_cast<std::size_t>(head_dim);
  };
  std::vector<double> element(head_dim);
  const auto load = [&](const std::byte* bytes, KvDtype dtype, KvOrder order, double scale,
                        int token) {
    for (int i = 0; i < head_dim; ++i) {
      const std::size_t at = element_offset(order, bytes_of(dtype), head_dim, token, i);
      element[i] = scale * stored_element(dtype, bytes + at);
    }
  };
  const auto sees = [&](int q, int key) {
    const int end = length - (bench_.query_rows - 1 - q / group);
    return key < end && (bench_.window == 0 || key >= end - bench_.window);
  };
  const int first = length - visible_keys(bench_, length);
  for (int key = first; key < length; ++key) {
    const std::byte* bytes = cache_.host_run(table[key / page_tokens], kv_head);
    const int token = key % page_tokens;
    load(bytes, policy_.key.dtype, run.key_order,
         side_scale(policy_.key, constants_.key_scales, kv_head, bytes + run.key_scale_offset,
                    token),
         token);
    for (int q = 0; q < queries; ++q) {
      if (!sees(q, key)) continue;
      double score = 0;
      for (int i = 0; i < head_dim; ++i) {
        score += element[i] * bfloat16_to_float(host_query_[place(q) + i]);
      }
      score *= softmax_scale();
      if (bench_.soft_cap > 0) score = bench_.soft_cap * std::tanh(score / bench_.soft_cap);
      scores[q][key] = score;
    }
  }
  std::vector<double> highest(queries);
  std::vector<double> sums(queries, 0.0);
  for (int q = 0; q < queries; ++q) {
    highest[q] = *std::max_element(scores[q].begin(), scores[q].end());
    if (bench_.sinks) {
      const double sink = host_sinks_[static_cast<std::size_t>(kv_head * group + q % group)];
      highest[q] = std::max(highest[q], sink);
      sums[q] = std::exp(sink - highest[q]);
    }
  }
  for (int key = first; key < length; ++key) {
    const std::byte* bytes = cache_.host_run(table[key / page_tokens], kv_head);
    const int token = key % page_tokens;
    load(bytes + run.value_offset, policy_.value.dtype, run.value_order,
         side_scale(policy_.value, constants_.value_scales, kv_head, bytes + run.value_scale_offset,
                    token),
         token);
    for (int q = 0; q < queries; ++q) {
      const double weight = std::exp(scores[q][key] - highest[q]);
      sums[q] += weight;
      for (int i = 0; i < head_dim; ++i) (*output)[place(q) + i] += weight * element[i];
    }
  }
  for (int q = 0; q < queries; ++q) {
    for (int i = 0; i < head_dim; ++i) (*output)[place(q) + i] /= sums[q];
  }
}

std::vector<double> Problem::reference(int rotation) {
  std::vector<double> output(host_query_.size(), 0.0);
  cache_.host_run(0, 0);  // brings the arena here before the threads ask for it
  ThreadPool pool(0);
  pool.parallel_for(static_cast<std::int64_t>(batch_) * bench_.kv_heads,
                    [&](std::int64_t pair, int) {
                      attend(rotation, static_cast<int>(pair / bench_.kv_heads),
                             static_cast<int>(pair % bench_.kv_heads), &output);
                    });
  return output;
}

// NaN where any output is.
double relative_error(const std::vector<float>& output, const std::vector<double>& reference) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    difference += (output[i] - reference[i]) * (output[i] - reference[i]);
    norm += reference[i] * reference[i];
  }
  return std::sqrt(difference / norm);
}

}  // namespace

AttentionDecodeReport bench_attention_decode(const AttentionDecodeBench& bench) {
  const KvPolicy policy = random_cache_policy(bench.cache, bench.kv_heads);
  const CudaDeviceInfo device = cuda_device_info();
  Problem problem(bench, policy.layers[0], policy.constants[0], device);
  AttentionDecodeReport report;
  report.device = device.name;
  report.cache = describe(policy.layers[0]);
  report.scales = policy.scales_name;
  report.blocks = problem.blocks();
  report.rotations = problem.rotations();
  problem.plan(nullptr);

  if (bench.check) {
    const int rotation = problem.rotations() - 1;
    const std::vector<double> reference = problem.reference(rotation);
    report.checked = true;
    report.error = relative_error(problem.run_float32(rotation), reference);
    report.bfloat16_error = relative_error(problem.run_bfloat16(rotation), reference);
  }
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");

  // A graph long enough that its own launch does not count.
  const int count = (std::max(64, problem.rotations()) + problem.rotations() - 1) /
                    problem.rotations() * problem.rotations();
  const SustainedTime time = time_sustained(count, [&](int index, cudaStream_t stream) {
    problem.launch(index % problem.rotations(), AttentionOutput::bfloat16, stream);
  });
  report.launches = time.launches;
  report.microseconds = time.median_microseconds;
  report.fastest_microseconds = time.fastest_microseconds;
  report.bytes = problem.bytes_read();
  report.terabytes_per_second = report.bytes / report.microseconds * 1e-6;
  report.read_terabytes_per_second =
      measure_read_rate(problem.cache(), bench.kv_heads, device.multiprocessors);
  return report;
}

}  // namespace octet
