#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "bench/attention_prefill.h"
#include "bench/attention_prefill_rate.h"
#include "bench/random_cache.h"
#include "bench/sustained.h"
#include "core/bfloat16.h"
#include "core/cuda/device.h"
#include "core/error.h"
#include "core/thread_pool.h"
#include "ops/attention/prefill_sm90.h"
#include "ops/attention/prefill_sm90_emulation.h"
#include "ops/attention/prefill_sm90_work.h"

namespace octet {

namespace {

// Launches of a timed graph together take at least this long, so that its own launch does not
// count.
constexpr double graph_microseconds = 20e3;
// Of each KV head that is checked.
constexpr int checked_rows = 48;

int rows_of(const AttentionPrefillBench& bench) {
  return bench.chunk == 0 ? bench.context : bench.chunk;
}

class Problem {
 public:
  Problem(const AttentionPrefillBench& bench, const KvLayerPolicy& policy,
          const KvLayerConstants& constants)
      : bench_(bench),
        constants_(constants),
        rows_(rows_of(bench)),
        cache_({policy,
                {bench.kv_heads, bench.head_dim, bench.window},
                std::vector<int>(static_cast<std::size_t>(bench.batch), bench.context),
                static_cast<float>(bench.value_mean),
                constants}),
        workspace_({bench.head_dim, bench.query_heads, bench.kv_heads, bench.window, policy},
                   rows_ * bench.batch, bench.batch) {
    std::mt19937_64 random(3);
    std::normal_distribution<float> normal(0.0f, 1.0f);
    // Long queries repeat a shorter random line from random places: N(0, 1) costs the CPU 20 ns.
    std::vector<std::uint16_t> line(std::size_t{1} << 20);
    for (std::uint16_t& x : line) x = float_to_bfloat16(normal(random));
    host_query_.resize(static_cast<std::size_t>(rows_) * static_cast<std::size_t>(bench.batch) *
                       row_elements());
    constexpr std::size_t piece = 4096;
    for (std::size_t at = 0; at < host_query_.size(); at += piece) {
      const std::size_t count = std::min(piece, host_query_.size() - at);
      const std::size_t from = random() % (line.size() - piece);
      std::copy_n(line.begin() + static_cast<std::ptrdiff_t>(from), count,
                  host_query_.begin() + static_cast<std::ptrdiff_t>(at));
    }
    query_ = DeviceArray<std::uint16_t>(host_query_);
    output_ = DeviceArray<std::uint16_t>(host_query_.size());
    std::vector<PrefillSm90Sequence> sequences;
    for (int i = 0; i < bench.batch; ++i) sequences.push_back({i * rows_, rows_, bench.context});
    workspace_.plan(sequences, nullptr);
  }

  double operations() const {
    double pairs = 0;
    for (int row = 0; row < rows_; ++row) pairs += last_of(row) - first_of(row);
    return 4.0 * bench_.head_dim * bench_.query_heads * pairs * bench_.batch;
  }

  void launch(AttentionOutput type, void* output, cudaStream_t stream) {
    AttentionCudaArgs args;
    args.query = query_.data();
    args.output = output;
    args.output_type = type;
    args.query_stride = static_cast<std::int64_t>(row_elements());
    args.output_stride = args.query_stride;
    args.softmax_scale = softmax_scale();
    args.layer = {cache_.layer(), cache_.key_scales(), cache_.value_scales()};
    args.page_table = cache_.table();
    args.page_table_stride = cache_.pages_per_sequence();
    prefill_sm90(args, workspace_, stream);
  }
  void launch(cudaStream_t stream) { launch(AttentionOutput::bfloat16, output_.data(), stream); }

  void check(AttentionPrefillReport* report);

 private:
  std::size_t row_elements() const {
    return static_cast<std::size_t>(bench_.query_heads) * static_cast<std::size_t>(bench_.head_dim);
  }
  float softmax_scale() const { return 1.0f / std::sqrt(static_cast<float>(bench_.head_dim)); }
  // Keys [first_of, last_of) are what a row of a sequence sees.
  int last_of(int row) const { return bench_.context - rows_ + row + 1; }
  int first_of(int row) const {
    return bench_.window == 0 ? 0 : std::max(last_of(row) - bench_.window, 0);
  }
  std::vector<float> query_of(int sequence, int row, int head) const {
    const std::size_t at =
        (static_cast<std::size_t>(sequence) * static_cast<std::size_t>(rows_) +
         static_cast<std::size_t>(row)) *
            row_elements() +
        static_cast<std::size_t>(head) * static_cast<std::size_t>(bench_.head_dim);
    std::vector<float> query;
    for (int i = 0; i < bench_.head_dim; ++i) {
      query.push_back(bfloat16_to_float(host_query_[at + static_cast<std::size_t>(i)]));
    }
    return query;
  }
  // The largest norm of a query row in the block of work that holds a row and head.
  double block_norm(int sequence, int row, int head) const;

  AttentionPrefillBench bench_;
  KvLayerConstants constants_;
  int rows_;
  RandomCache cache_;
  PrefillSm90Workspace workspace_;
  std::vector<std::uint16_t> host_query_;
  DeviceArray<std::uint16_t> query_;
  DeviceArray<std::uint16_t> output_;
};

double Problem::block_norm(int sequence, int row, int head) const {
  const int group = bench_.query_heads / bench_.kv_heads;
  const int kv_head = head / group;
  const int place = row * group + head % group;
  const int first = place / prefill_block_rows * prefill_block_rows;
  const int last = std::min(first + prefill_block_rows, rows_ * group);
  double largest = 0;
  for (int i = first; i < last; ++i) {
    double squares = 0;
    for (const float x : query_of(sequence, i / group, kv_head * group + i % group)) {
      squares += static_cast<double>(x) * x;
    }
    largest = std::max(largest, squares);
  }
  return std::sqrt(largest);
}

void Problem::check(AttentionPrefillReport* report) {
  DeviceArray<float> device_output(host_query_.size());
  device_output.fill_bytes(0xFF);
  launch(AttentionOutput::float32, device_output.data(), nullptr);
  const std::vector<float> output = device_output.download();
  for (const float x : output) {
    if (!std::isfinite(x)) throw_error(ErrorKind::internal, "prefill left an output of {}", x);
  }

  const KvRunLayout layout = cache_.layer().group->run;
  cache_.host_run(0, 0);  // brings the arena here before the threads ask for it
  const auto width = static_cast<std::size_t>(bench_.head_dim);
  const int group = bench_.query_heads / bench_.kv_heads;
  double difference = 0;
  double emulated_difference = 0;
  double norm = 0;
  std::mt19937 random(5);
  ThreadPool pool(0);
  // The first and the last KV head of the first and the last sequence.
  for (int side = 0; side < 2; ++side) {
    const int sequence = side * (bench_.batch - 1);
    const int kv_head = side * (bench_.kv_heads - 1);
    const PageId* table = cache_.host_table().data() +
                          static_cast<std::ptrdiff_t>(sequence) * cache_.pages_per_sequence();
    StoredHead head = read_stored_head(
        layout, 0, bench_.context, [&](int page) { return cache_.host_run(table[page], kv_head); });
    const auto set_static = [&](std::vector<float>& of_tokens, const std::vector<float>& of_heads) {
      if (of_heads.empty()) return;
      std::fill(of_tokens.begin(), of_tokens.end(), of_heads[static_cast<std::size_t>(kv_head)]);
    };
    set_static(head.key_scales, constants_.key_scales);
    set_static(head.value_scales, constants_.value_scales);
    std::vector<int> rows = {0, rows_ - 1};
    while (static_cast<int>(rows.size()) < checked_rows) {
      rows.push_back(static_cast<int>(random() % static_cast<unsigned>(rows_)));
    }
    std::vector<std::vector<double>> exact(rows.size(), std::vector<double>(width));
    std::vector<std::vector<double>> emulated = exact;
    const auto head_of = [&](std::int64_t i) {
      return kv_head * group + static_cast<int>(i) % group;
    };
    pool.parallel_for(static_cast<std::int64_t>(rows.size()), [&](std::int64_t i, int) {
      const auto at = static_cast<std::size_t>(i);
      const int row = rows[at];
      const std::vector<float> query = query_of(sequence, row, head_of(i));
      attend_exactly(head, query, first_of(row), last_of(row), softmax_scale(), exact[at].data());
      attend_as_prefill_rounds(head, query, block_norm(sequence, row, head_of(i)), first_of(row),
                               last_of(row), softmax_scale(), emulated[at].data());
    });
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::size_t at =
          (static_cast<std::size_t>(sequence) * static_cast<std::size_t>(rows_) +
           static_cast<std::size_t>(rows[i])) *
              row_elements() +
          static_cast<std::size_t>(head_of(static_cast<std::int64_t>(i))) * width;
      for (std::size_t d = 0; d < width; ++d) {
        const double wanted = exact[i][d];
        difference += (output[at + d] - wanted) * (output[at + d] - wanted);
        emulated_difference += (emulated[i][d] - wanted) * (emulated[i][d] - wanted);
        norm += wanted * wanted;
      }
    }
  }
  report->checked = true;
  report->error = std::sqrt(difference / norm);
  report->emulated_error = std::sqrt(emulated_difference / norm);
}

}  // namespace

AttentionPrefillReport bench_attention_prefill(const AttentionPrefillBench& bench) {
  const KvPolicy policy = random_cache_policy(bench.cache, bench.kv_heads);
  const CudaDeviceInfo device = cuda_device_info();
  Problem problem(bench, policy.layers[0], policy.constants[0]);
  AttentionPrefillReport report;
  report.device = device.name;
  report.cache = describe(policy.layers[0]);
  report.scales = policy.scales_name;
  if (bench.check) problem.check(&report);
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");

  report.operations = problem.operations();
  // A guess of 500 TFLOPS decides how many launches a graph holds.
  const int count =
      std::clamp(static_cast<int>(graph_microseconds / (report.operations / 500e6)), 1, 1000);
  const SustainedTime time =
      time_sustained(count, [&](int, cudaStream_t stream) { problem.launch(stream); });
  report.launches = time.launches;
  report.microseconds = time.median_microseconds;
  report.fastest_microseconds = time.fastest_microseconds;
  report.teraflops = report.operations / report.microseconds * 1e-6;
  report.multiply_teraflops = measure_multiply_rate(device.multiprocessors);
  return report;
}

}  // namespace octet
