// Prefill on Hopper against attention in double precision over the same stored keys and values, and
// against the CPU's emulation of what the kernel rounds.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/bfloat16.h"
#include "core/cuda/pinned_array.h"
#include "ops/attention/prefill_sm90.h"
#include "ops/attention/prefill_sm90_emulation.h"
#include "ops/attention/prefill_sm90_work.h"
#include "support/paged_cache.h"
#include "support/sm90_pages.h"

namespace octet {
inline namespace test_support {

struct PrefillPrompt {
  int rows = 0;
  int context = 0;
};

struct PrefillProblem {
  int head_dim = 128;
  int query_heads = 8;
  int kv_heads = 2;
  int window = 0;
  std::string dtype = "fp8";
  std::string scales = "dynamic";
  // Of each KV head, in place of `scales`.
  std::vector<float> key_scales = {};
  std::vector<float> value_scales = {};
  std::vector<PrefillPrompt> prompts = {};
  float value_mean = 0;
  float key_deviation = 1;  // larger: scores that span more
  unsigned seed = 1;
};

inline std::vector<PrefillPrompt> whole(const std::vector<int>& lengths) {
  std::vector<PrefillPrompt> prompts;
  for (const int length : lengths) prompts.push_back({length, length});
  return prompts;
}

struct PrefillErrors {
  double error = 0;
  double emulated = 0;
};

// A cache written by the CPU's operations, and its copy on the GPU in Hopper's order.
class PrefillSm90 : public ::testing::Test {
 protected:
  void make(const PrefillProblem& problem) {
    problem_ = problem;
    CacheShape shape;
    shape.kv_heads = problem.kv_heads;
    shape.head_dim = problem.head_dim;
    shape.window = problem.window;
    shape.dtype = problem.dtype;
    shape.scales = problem.dtype == "bfloat16" ? "auto" : problem.scales;
    shape.constants.key_scales = problem.key_scales;
    shape.constants.value_scales = problem.value_scales;
    std::vector<std::int64_t> lengths;
    for (const PrefillPrompt& prompt : problem.prompts) lengths.push_back(prompt.context);
    cache_ = std::make_unique<PagedCache>(shape, lengths);

    std::int32_t tokens = 0;
    std::vector<SequenceRows> all;
    sequences_.clear();
    std::int32_t query_rows = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const PrefillPrompt& prompt = problem.prompts[i];
      all.push_back(cache_->rows(i, tokens, prompt.context, 0));
      tokens += prompt.context;
      sequences_.push_back({query_rows, prompt.rows, prompt.context});
      query_rows += prompt.rows;
    }
    const std::size_t width = static_cast<std::size_t>(problem.kv_heads * problem.head_dim);
    std::vector<float> value =
        random_floats(pool_, static_cast<std::size_t>(tokens) * width, problem.seed + 1);
    for (float& x : value) x += problem.value_mean;
    OpContext context;
    context.pool = &pool_;
    cache_->write(context,
                  random_floats(pool_, static_cast<std::size_t>(tokens) * width, problem.seed,
                                problem.key_deviation),
                  value, all);
    query_ = random_floats(pool_, static_cast<std::size_t>(query_rows) * row_elements(),
                           problem.seed + 2);
    for (float& x : query_) x = round_to_bfloat16(x);
    query_rows_ = query_rows;
    upload(0);
    upload_query();
  }

  std::size_t row_elements() const {
    return static_cast<std::size_t>(problem_.query_heads * problem_.head_dim);
  }
  int group() const { return problem_.query_heads / problem_.kv_heads; }
  virtual float softmax_scale() const {
    return 1.0f / std::sqrt(static_cast<float>(problem_.head_dim));
  }

  // The first key of a sequence that any of its rows sees.
  int first_needed(const PrefillPrompt& prompt) const {
    return problem_.window == 0 ? 0
                                : std::max(prompt.context - prompt.rows + 1 - problem_.window, 0);
  }

  // Copies every page that a row sees to a place of its own on the GPU; what no page holds is NaN,
  // and pages before a window have no place.
  void upload(unsigned shift) {
    const KvLayerView host = cache_->layer();
    sm90_group_ = *host.group;
    sm90_group_.run = make_run_layout(host.group->run.policy, problem_.head_dim, KvTarget::sm90);
    std::size_t pages = 0;
    std::size_t most = 0;
    for (const PrefillPrompt& prompt : problem_.prompts) {
      const auto own = static_cast<std::size_t>((prompt.context + page_tokens - 1) / page_tokens);
      pages += own;
      most = std::max(most, own);
    }
    stride_ = static_cast<int>(most);
    std::vector<std::byte> arena(pages * sm90_group_.page_bytes, std::byte{0x7F});
    std::vector<PageId> places(pages);
    std::iota(places.begin(), places.end(), PageId{0});
    std::mt19937 random(problem_.seed + 3 + shift);
    std::shuffle(places.begin(), places.end(), random);
    std::vector<PageId> table(problem_.prompts.size() * most, std::numeric_limits<PageId>::max());
    std::vector<PageCopy> copies;
    std::size_t next = 0;
    for (std::size_t i = 0; i < problem_.prompts.size(); ++i) {
      const PrefillPrompt& prompt = problem_.prompts[i];
      const int own = (prompt.context + page_tokens - 1) / page_tokens;
      for (int page = first_needed(prompt) / page_tokens; page < own; ++page) {
        const PageId place = places[next++];
        table[i * most + static_cast<std::size_t>(page)] = place;
        copies.push_back({cache_->pages(i)[page], place});
      }
    }
    copy_pages(pool_, host, sm90_group_, copies, arena);
    arena_ = DeviceArray<std::byte>(arena);
    table_ = DeviceArray<PageId>(table);
  }

  // Whoever changes query_ after make() calls it again.
  void upload_query() {
    std::vector<std::uint16_t> query(query_.size());
    std::transform(query_.begin(), query_.end(), query.begin(), float_to_bfloat16);
    device_query_ = DeviceArray<std::uint16_t>(query);
  }

  PrefillSm90Shape shape() const {
    return {problem_.head_dim, problem_.query_heads, problem_.kv_heads, problem_.window,
            cache_->layer().group->run.policy};
  }
  PrefillSm90Workspace workspace() const {
    PrefillSm90Workspace made(shape(), query_rows_, static_cast<int>(sequences_.size()));
    made.plan(sequences_, nullptr);
    return made;
  }

  // What the kernel does not write is NaN.
  void launch(PrefillSm90Workspace& workspace, AttentionOutput type,
              DeviceArray<std::uint32_t>* output) {
    output->fill_bytes(0xFF);
    AttentionCudaArgs args;
    args.query = device_query_.data();
    args.output = output->data();
    args.output_type = type;
    args.query_stride = static_cast<std::int64_t>(row_elements());
    args.output_stride = args.query_stride;
    args.softmax_scale = softmax_scale();
    args.layer.view.arena = arena_.data();
    args.layer.view.slab_bytes = sm90_group_.page_bytes;
    args.layer.view.page_bytes = sm90_group_.page_bytes;
    args.layer.view.group = &sm90_group_;
    const DeviceArray<float> key_scales(problem_.key_scales);
    const DeviceArray<float> value_scales(problem_.value_scales);
    if (!problem_.key_scales.empty()) args.layer.key_scales = key_scales.data();
    if (!problem_.value_scales.empty()) args.layer.value_scales = value_scales.data();
    args.page_table = table_.data();
    args.page_table_stride = stride_;
    prefill_sm90(args, workspace, nullptr);
    check_cuda(cudaDeviceSynchronize(), "prefill_sm90");
  }

  std::vector<float> run(PrefillSm90Workspace& workspace,
                         AttentionOutput type = AttentionOutput::float32) {
    DeviceArray<std::uint32_t> output(query_.size());
    launch(workspace, type, &output);
    std::vector<float> values(query_.size());
    if (type == AttentionOutput::float32) {
      check_cuda(cudaMemcpy(values.data(), output.data(), output.bytes(), cudaMemcpyDeviceToHost),
                 "cudaMemcpy");
    } else {
      const std::vector<std::uint32_t> words = output.download();
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = bfloat16_to_float(static_cast<std::uint16_t>(words[i / 2] >> (i % 2 * 16)));
      }
    }
    return values;
  }

  // Whether `times` more launches give the bits of a first one. By way of page-locked memory and
  // all threads: what these tests look for is rare, so that they launch often, and a vector of
  // floats each time would take some hundred times as long as the kernel.
  bool repeats(PrefillSm90Workspace& workspace, int times) {
    constexpr std::size_t part = 1 << 18;
    DeviceArray<std::uint32_t> output(query_.size());
    const PinnedArray<std::uint32_t> first(output.size());
    const PinnedArray<std::uint32_t> again(output.size());
    const auto launch_to = [&](const PinnedArray<std::uint32_t>& host) {
      launch(workspace, AttentionOutput::float32, &output);
      check_cuda(cudaMemcpy(host.data(), output.data(), output.bytes(), cudaMemcpyDeviceToHost),
                 "cudaMemcpy");
    };
    launch_to(first);
    const auto parts = static_cast<std::int64_t>((output.size() + part - 1) / part);
    std::atomic<bool> same = true;
    for (int time = 0; time < times && same; ++time) {
      launch_to(again);
      pool_.parallel_for(parts, [&](std::int64_t index, int) {
        const std::size_t begin = static_cast<std::size_t>(index) * part;
        const std::size_t count = std::min(part, output.size() - begin);
        if (std::memcmp(first.data() + begin, again.data() + begin,
                        count * sizeof(std::uint32_t)) != 0) {
          same = false;
        }
      });
    }
    return same;
  }

  std::span<const float> query_of(std::size_t sequence, int row, int head) const {
    const auto at = static_cast<std::size_t>(sequences_[sequence].first_query_row + row);
    return std::span(query_).subspan(
        at * row_elements() + static_cast<std::size_t>(head * problem_.head_dim),
        static_cast<std::size_t>(problem_.head_dim));
  }
  // The largest norm of a query row in the block of work that holds a row and head.
  double block_norm(std::size_t sequence, int row, int head) const {
    const int place = row * group() + head % group();
    const int first = place / prefill_block_rows * prefill_block_rows;
    const int last = std::min(first + prefill_block_rows, sequences_[sequence].rows * group());
    double largest = 0;
    for (int i = first; i < last; ++i) {
      double squares = 0;
      for (const float x :
           query_of(sequence, i / group(), head / group() * group() + i % group())) {
        squares += static_cast<double>(x) * x;
      }
      largest = std::max(largest, squares);
    }
    return std::sqrt(largest);
  }

  // Over the first and last rows of each sequence, some between, and all heads. Of few short
  // sequences more: the error of a row of few keys is that of a few weights, some of which round
  // the other way in the emulation, and a few such rows would say little.
  PrefillErrors errors(const std::vector<float>& output) {
    for (const float x : output) {
      if (!std::isfinite(x)) return {HUGE_VAL, 0};
    }
    const KvLayerView host = cache_->layer();
    double difference = 0;
    double emulated_difference = 0;
    double norm = 0;
    std::mt19937 random(problem_.seed + 9);
    int keys = 0;
    for (const PrefillPrompt& prompt : problem_.prompts) keys += prompt.context;
    const int between = std::clamp(300000 / keys, 20, 200);
    const auto width = static_cast<std::size_t>(problem_.head_dim);
    for (std::size_t s = 0; s < sequences_.size(); ++s) {
      const PrefillPrompt& prompt = problem_.prompts[s];
      if (prompt.rows == 0) continue;
      std::vector<int> rows = {0, prompt.rows - 1};
      for (int i = 0; i < between; ++i) {
        rows.push_back(static_cast<int>(random() % static_cast<unsigned>(prompt.rows)));
      }
      std::vector<StoredHead> heads(static_cast<std::size_t>(problem_.kv_heads));
      pool_.parallel_for(problem_.kv_heads, [&](std::int64_t kv_head, int) {
        const auto h = static_cast<std::size_t>(kv_head);
        StoredHead& head = heads[h];
        head = read_stored_head(host.group->run, 0, prompt.context, [&](int page) {
          return host.run(cache_->pages(s)[page], static_cast<int>(kv_head));
        });
        if (!problem_.key_scales.empty()) {
          std::fill(head.key_scales.begin(), head.key_scales.end(), problem_.key_scales[h]);
        }
        if (!problem_.value_scales.empty()) {
          std::fill(head.value_scales.begin(), head.value_scales.end(), problem_.value_scales[h]);
        }
      });
      // Pairs of a row and a KV head, of whose query heads each row takes the next.
      const std::size_t pairs = rows.size() * heads.size();
      std::vector<std::vector<double>> exact(pairs, std::vector<double>(width));
      std::vector<std::vector<double>> emulated = exact;
      const auto row_of = [&](std::size_t pair) { return rows[pair % rows.size()]; };
      const auto head_of = [&](std::size_t pair) {
        return static_cast<int>(pair / rows.size()) * group() +
               static_cast<int>(pair % rows.size()) % group();
      };
      pool_.parallel_for(static_cast<std::int64_t>(pairs), [&](std::int64_t index, int) {
        const auto pair = static_cast<std::size_t>(index);
        const StoredHead& head = heads[pair / rows.size()];
        const int last = prompt.context - prompt.rows + row_of(pair) + 1;
        const int first = problem_.window == 0 ? 0 : std::max(last - problem_.window, 0);
        const std::span<const float> query = query_of(s, row_of(pair), head_of(pair));
        attend_exactly(head, query, first, last, softmax_scale(), exact[pair].data());
        attend_as_prefill_rounds(head, query, block_norm(s, row_of(pair), head_of(pair)), first,
                                 last, softmax_scale(), emulated[pair].data());
      });
      for (std::size_t pair = 0; pair < pairs; ++pair) {
        const auto row = static_cast<std::size_t>(sequences_[s].first_query_row + row_of(pair));
        const std::size_t at =
            row * row_elements() + static_cast<std::size_t>(head_of(pair)) * width;
        for (std::size_t d = 0; d < width; ++d) {
          difference += std::pow(output[at + d] - exact[pair][d], 2);
          emulated_difference += std::pow(emulated[pair][d] - exact[pair][d], 2);
          norm += std::pow(exact[pair][d], 2);
        }
      }
    }
    return {std::sqrt(difference / norm), std::sqrt(emulated_difference / norm)};
  }

  // At most a tenth above the emulation; what is added is the tensor core's 14 bits.
  void expect_close(const PrefillProblem& problem, double bound = 4e-2) {
    make(problem);
    PrefillSm90Workspace made = workspace();
    const PrefillErrors got = errors(run(made));
    const std::string what = "head_dim " + std::to_string(problem.head_dim) + ", " +
                             std::to_string(problem.query_heads) + "/" +
                             std::to_string(problem.kv_heads) + " heads, window " +
                             std::to_string(problem.window) + ", " + problem.dtype + ", " +
                             problem.scales;
    EXPECT_LE(got.error, 1.1 * got.emulated + 7e-4) << what;
    EXPECT_LE(got.error, bound) << what;
    std::printf("[    error ] %.2e, emulated %.2e: %s\n", got.error, got.emulated, what.c_str());
  }

  ThreadPool pool_{0};
  PrefillProblem problem_;
  std::unique_ptr<PagedCache> cache_;
  KvGroup sm90_group_;
  std::vector<PrefillSm90Sequence> sequences_;
  std::vector<float> query_;
  int query_rows_ = 0;
  DeviceArray<std::uint16_t> device_query_;
  int stride_ = 0;
  DeviceArray<std::byte> arena_;
  DeviceArray<PageId> table_;
};

}  // namespace test_support
}  // namespace octet
