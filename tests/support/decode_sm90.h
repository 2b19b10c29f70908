// Decode on Hopper against attention in double precision over the same stored keys and values.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
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
#include "core/float8_e4m3.h"
#include "kv/element_order.h"
#include "ops/attention/attention.h"
#include "ops/attention/decode_sm90.h"
#include "ops/quantize/hadamard.h"
#include "support/paged_cache.h"
#include "support/sm90_pages.h"

namespace octet {
inline namespace test_support {

struct DecodeProblem {
  int head_dim = 128;
  int query_heads = 8;
  int kv_heads = 2;
  int query_rows = 1;
  int window = 0;
  std::string dtype = "fp8";
  std::string scales = "dynamic";
  std::vector<std::int64_t> lengths = {};
  float value_mean = 0;
  KvLayerConstants constants = {};
  AttentionAccumulation accumulation = AttentionAccumulation::two_level;
  unsigned seed = 1;
};

// A cache written by the CPU's operations, and its copy on the GPU in Hopper's order.
class DecodeSm90 : public ::testing::Test {
 protected:
  // One head's error over few keys is that of its two-term query and weights, 2^-9 each at most.
  static constexpr double bound = 3e-3;

  struct Format {
    std::string dtype;
    std::vector<int> head_dims;
    std::string scales() const { return dtype == "bfloat16" ? "auto" : "dynamic"; }
  };
  inline static const std::vector<Format> formats = {{"fp8", {64, 96, 128, 192, 256, 512}},
                                                     {"int8:fp8", {64, 96, 128, 192, 256, 512}},
                                                     {"bfloat16", {64, 96, 128, 192, 256}}};

  void make(const DecodeProblem& problem) {
    problem_ = problem;
    CacheShape shape;
    shape.kv_heads = problem.kv_heads;
    shape.head_dim = problem.head_dim;
    shape.window = problem.window;
    shape.dtype = problem.dtype;
    shape.scales = problem.scales;
    shape.constants = problem.constants;
    cache_ = std::make_unique<PagedCache>(shape, problem.lengths);
    policy_ = cache_->layer().group->run.policy;

    std::int32_t tokens = 0;
    std::vector<SequenceRows> all;
    for (std::size_t i = 0; i < problem.lengths.size(); ++i) {
      const auto length = static_cast<std::int32_t>(problem.lengths[i]);
      all.push_back(cache_->rows(i, tokens, length, 0));
      tokens += length;
    }
    const std::size_t width = static_cast<std::size_t>(problem.kv_heads * problem.head_dim);
    std::vector<float> value =
        random_floats(pool_, static_cast<std::size_t>(tokens) * width, problem.seed + 1);
    for (float& x : value) x += problem.value_mean;
    OpContext context;
    context.pool = &pool_;
    key_ = random_floats(pool_, static_cast<std::size_t>(tokens) * width, problem.seed);
    cache_->write(context, key_, value, all);
    value_ = value;

    stored_query_ = random_floats(pool_, rows() * row_elements(), problem.seed + 2);
    for (float& x : stored_query_) x = round_to_bfloat16(x);
    // The kernel's query is rotated where keys are; the rotation is its own inverse.
    query_ = stored_query_;
    if (policy_.rotates_keys()) {
      for (std::size_t at = 0; at < query_.size();
           at += static_cast<std::size_t>(problem.head_dim)) {
        hadamard_rotate(query_.data() + at, problem.head_dim);
      }
    }
    key_scales_ = DeviceArray<float>(problem.constants.key_scales);
    value_scales_ = DeviceArray<float>(problem.constants.value_scales);
    upload(0);
  }

  std::size_t rows() const {
    return problem_.lengths.size() * static_cast<std::size_t>(problem_.query_rows);
  }
  std::size_t row_elements() const {
    return static_cast<std::size_t>(problem_.query_heads * problem_.head_dim);
  }

  // Copies every page to a place of its own on the GPU, `shift` pages on; what no page holds is
  // NaN.
  void upload(std::int64_t shift) {
    const KvLayerView host = cache_->layer();
    sm90_group_ = *host.group;
    sm90_group_.run = make_run_layout(policy_, problem_.head_dim, KvTarget::sm90);
    std::int64_t pages = 0;
    std::size_t most = 0;
    for (const std::int64_t length : problem_.lengths) {
      const std::int64_t own = (length + page_tokens - 1) / page_tokens;
      pages += own;
      most = std::max(most, static_cast<std::size_t>(own));
    }
    stride_ = static_cast<int>(most);
    std::vector<std::byte> arena(static_cast<std::size_t>(pages) * sm90_group_.page_bytes,
                                 std::byte{0x7F});
    std::vector<PageId> places(static_cast<std::size_t>(pages));
    std::iota(places.begin(), places.end(), PageId{0});
    std::mt19937 random(problem_.seed + 3 + static_cast<unsigned>(shift));
    std::shuffle(places.begin(), places.end(), random);
    std::vector<PageId> table(problem_.lengths.size() * most, std::numeric_limits<PageId>::max());
    std::vector<PageCopy> copies;
    std::size_t next = 0;
    for (std::size_t i = 0; i < problem_.lengths.size(); ++i) {
      const std::int64_t own = (problem_.lengths[i] + page_tokens - 1) / page_tokens;
      for (std::int64_t page = 0; page < own; ++page) {
        const PageId place = places[next++];
        table[i * most + static_cast<std::size_t>(page)] = place;
        copies.push_back({cache_->pages(i)[page], place});
      }
    }
    copy_pages(pool_, host, sm90_group_, copies, arena);
    arena_ = DeviceArray<std::byte>(arena);
    table_ = DeviceArray<PageId>(table);
  }

  DecodeSm90Shape shape() const {
    return {problem_.head_dim,    problem_.query_heads, problem_.kv_heads,
            problem_.query_rows,  problem_.window,      policy_,
            problem_.accumulation};
  }

  std::vector<float> run(DecodeSm90Workspace& workspace,
                         AttentionOutput type = AttentionOutput::float32) {
    std::vector<std::uint16_t> query;
    for (const float x : stored_query_) query.push_back(float_to_bfloat16(x));
    std::vector<std::int32_t> lengths;
    for (const std::int64_t length : problem_.lengths) {
      lengths.push_back(static_cast<std::int32_t>(length));
    }
    const DeviceArray<std::uint16_t> device_query(query);
    const DeviceArray<std::int32_t> device_lengths(lengths);
    DeviceArray<std::uint32_t> output(query.size());
    output.fill_bytes(0xFF);
    DecodeSm90Args args = scores_;
    args.layer.key_scales = problem_.constants.key_scales.empty() ? nullptr : key_scales_.data();
    args.layer.value_scales =
        problem_.constants.value_scales.empty() ? nullptr : value_scales_.data();
    args.query = device_query.data();
    args.output = output.data();
    args.output_type = type;
    args.query_stride = static_cast<std::int64_t>(row_elements());
    args.output_stride = args.query_stride;
    args.softmax_scale = softmax_scale();
    args.layer.view.arena = arena_.data();
    args.layer.view.slab_bytes = sm90_group_.page_bytes;
    args.layer.view.page_bytes = sm90_group_.page_bytes;
    args.layer.view.group = &sm90_group_;
    args.page_table = table_.data();
    args.page_table_stride = stride_;
    args.overlap = overlap_;
    workspace.plan(device_lengths.data(), static_cast<int>(lengths.size()), nullptr);
    decode_sm90(args, workspace, nullptr);
    check_cuda(cudaDeviceSynchronize(), "decode_sm90");
    const std::vector<std::uint32_t> words = output.download();
    std::vector<float> values(words.size());
    if (type == AttentionOutput::float32) {
      std::memcpy(values.data(), words.data(), words.size() * sizeof(float));
    } else {
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = bfloat16_to_float(static_cast<std::uint16_t>(words[i / 2] >> (i % 2 * 16)));
      }
    }
    return values;
  }

  // By attention_reference, in which int8 keys are rotated back: slow.
  std::vector<double> slow_reference() const {
    std::vector<SequenceRows> newest;
    for (std::size_t i = 0; i < problem_.lengths.size(); ++i) {
      const auto first = static_cast<std::int32_t>(problem_.lengths[i]) - problem_.query_rows;
      newest.push_back(cache_->rows(i, static_cast<std::int32_t>(i) * problem_.query_rows,
                                    problem_.query_rows, first));
    }
    AttentionArgs args;
    args.query = query_.data();
    args.query_stride = static_cast<std::int64_t>(row_elements());
    args.query_heads = problem_.query_heads;
    args.softmax_scale = softmax_scale();
    args.layer = cache_->layer();
    args.sequences = newest;
    std::vector<double> output(query_.size());
    attention_reference(args, output.data());
    return output;
  }

  // In double precision over the stored keys and values, with the query as it is stored. Of a
  // padded sequence nothing is written.
  std::vector<double> reference() {
    std::vector<double> output(query_.size(), std::numeric_limits<double>::quiet_NaN());
    const auto heads = static_cast<std::int64_t>(problem_.kv_heads);
    pool_.parallel_for(
        static_cast<std::int64_t>(problem_.lengths.size()) * heads, [&](std::int64_t pair, int) {
          attend(static_cast<std::size_t>(pair / heads), static_cast<int>(pair % heads), &output);
        });
    return output;
  }

  void attend(std::size_t sequence, int kv_head, std::vector<double>* output) const {
    const auto length = static_cast<int>(problem_.lengths[sequence]);
    if (length == 0) return;
    const KvLayerView layer = cache_->layer();
    const KvRunLayout& run = layer.group->run;
    const auto width = static_cast<std::size_t>(problem_.head_dim);
    const auto heads = static_cast<std::size_t>(problem_.query_heads);
    const int group = problem_.query_heads / problem_.kv_heads;
    const int queries = group * problem_.query_rows;
    const auto place = [&](int q) {
      const std::size_t row = sequence * static_cast<std::size_t>(problem_.query_rows) +
                              static_cast<std::size_t>(q / group);
      return row * row_elements() + static_cast<std::size_t>(kv_head * group + q % group) * width;
    };
    std::vector<double> element(width);
    const auto load = [&](int key, bool is_value) {
      const std::byte* bytes = layer.run(cache_->pages(sequence)[key / page_tokens], kv_head);
      const KvSidePolicy& side = is_value ? policy_.value : policy_.key;
      const int token = key % page_tokens;
      double scale =
          is_value ? static_value_scale(layer, kv_head) : static_key_scale(layer, kv_head);
      if (side.scales == KvScales::dynamic) {
        std::uint16_t bits = 0;
        std::memcpy(&bits,
                    bytes + (is_value ? run.value_scale_offset : run.key_scale_offset) +
                        2 * static_cast<std::size_t>(token),
                    sizeof(bits));
        scale = bfloat16_to_float(bits);
      }
      bytes += is_value ? run.value_offset : run.key_offset;
      for (int i = 0; i < problem_.head_dim; ++i) {
        const std::byte* at =
            bytes + element_offset(is_value ? run.value_order : run.key_order, bytes_of(side.dtype),
                                   problem_.head_dim, token, i);
        std::uint16_t bits = 0;
        std::memcpy(&bits, at, bytes_of(side.dtype));
        element[static_cast<std::size_t>(i)] =
            scale *
            (side.dtype == KvDtype::fp8    ? float8_e4m3_to_float(static_cast<std::uint8_t>(bits))
             : side.dtype == KvDtype::int8 ? static_cast<float>(static_cast<std::int8_t>(bits))
                                           : bfloat16_to_float(bits));
      }
    };
    const auto sees = [&](int q, int key) {
      const int end = length - (problem_.query_rows - 1 - q / group);
      return key < end && (problem_.window == 0 || key >= end - problem_.window);
    };
    const int first =
        problem_.window == 0 ? 0 : std::max(0, length - problem_.query_rows + 1 - problem_.window);
    std::vector<std::vector<double>> scores(static_cast<std::size_t>(queries));
    for (auto& of_query : scores) of_query.assign(static_cast<std::size_t>(length), -HUGE_VAL);
    for (int key = first; key < length; ++key) {
      load(key, false);
      for (int q = 0; q < queries; ++q) {
        if (!sees(q, key)) continue;
        double score = means_.empty() ? 0.0 : means_[place(q) / width];
        const float* query = stored_query_.data() + place(q);
        for (std::size_t i = 0; i < width; ++i) score += element[i] * query[i];
        score *= softmax_scale();
        if (scores_.soft_cap > 0) score = scores_.soft_cap * std::tanh(score / scores_.soft_cap);
        scores[static_cast<std::size_t>(q)][static_cast<std::size_t>(key)] = score;
      }
    }
    std::vector<double> highest;
    for (const auto& of_query : scores) {
      highest.push_back(*std::max_element(of_query.begin(), of_query.end()));
    }
    std::vector<double> sums(scores.size(), 0.0);
    for (std::size_t q = 0; q < scores.size() && !sinks_.empty(); ++q) {
      const double sink = sinks_[place(static_cast<int>(q)) / width % heads];
      highest[q] = std::max(highest[q], sink);
      sums[q] = std::exp(sink - highest[q]);
    }
    for (int q = 0; q < queries; ++q) std::fill_n(output->data() + place(q), width, 0.0);
    for (int key = first; key < length; ++key) {
      load(key, true);
      for (int q = 0; q < queries; ++q) {
        const auto of_query = static_cast<std::size_t>(q);
        const double weight =
            std::exp(scores[of_query][static_cast<std::size_t>(key)] - highest[of_query]);
        sums[of_query] += weight;
        double* to = output->data() + place(q);
        for (std::size_t i = 0; i < width; ++i) to[i] += weight * element[i];
      }
    }
    for (int q = 0; q < queries; ++q) {
      for (std::size_t i = 0; i < width; ++i) {
        (*output)[place(q) + i] /= sums[static_cast<std::size_t>(q)];
      }
    }
  }

  float softmax_scale() const { return 1.0f / std::sqrt(static_cast<float>(problem_.head_dim)); }

  // Norm of the difference over norm of the reference, the worst over all (row, head). Where
  // nothing is wanted, the output must still be as it was before: NaN.
  double worst_error(const std::vector<float>& got, const std::vector<double>& wanted) const {
    const auto width = static_cast<std::size_t>(problem_.head_dim);
    double worst = 0;
    for (std::size_t begin = 0; begin < wanted.size(); begin += width) {
      double difference = 0;
      double norm = 0;
      for (std::size_t i = begin; i < begin + width; ++i) {
        if (std::isnan(wanted[i]) && std::isnan(got[i])) continue;
        difference += (got[i] - wanted[i]) * (got[i] - wanted[i]);
        norm += wanted[i] * wanted[i];
      }
      const double error = difference == 0 ? 0.0 : std::sqrt(difference / norm);
      if (!(error <= worst)) worst = error;  // a NaN stays
      if (std::isnan(worst)) return worst;
    }
    return worst;
  }

  void expect_close(const DecodeProblem& problem, double most = bound) {
    make(problem);
    DecodeSm90Workspace workspace(shape(), static_cast<int>(problem.lengths.size()));
    const double error = worst_error(run(workspace), reference());
    EXPECT_LE(error, most) << problem.dtype << ", head_dim " << problem.head_dim << ", "
                           << problem.query_heads << "/" << problem.kv_heads << " heads, "
                           << problem.query_rows << " rows, window " << problem.window << ", "
                           << problem.scales;
    RecordProperty("error", std::to_string(error));
    std::printf("[    error ] %.2e of at most %.2e: %s %d\n", error, most, problem.dtype.c_str(),
                problem.head_dim);
  }

  ThreadPool pool_{0};
  DecodeProblem problem_;
  KvLayerPolicy policy_;
  std::unique_ptr<PagedCache> cache_;
  KvGroup sm90_group_;
  std::vector<float> key_;
  std::vector<float> value_;
  std::vector<float> query_;         // as attention() takes it
  std::vector<float> stored_query_;  // as the kernel does
  DecodeSm90Args scores_;            // soft cap, sinks and means of a problem that has them
  std::vector<float> sinks_;         // as scores_ has them
  std::vector<float> means_;
  DeviceArray<float> key_scales_;
  DeviceArray<float> value_scales_;
  int stride_ = 0;
  bool overlap_ = false;
  DeviceArray<std::byte> arena_;
  DeviceArray<PageId> table_;
};

}  // namespace test_support
}  // namespace octet
