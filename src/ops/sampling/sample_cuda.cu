#include <cmath>

#include <cuda_runtime.h>

#include "core/cuda/launch.cuh"
#include "ops/sampling/sample_cuda.h"

namespace octet {
namespace {

constexpr int threads = 1024;
constexpr int warps = threads / 32;
constexpr int most_tokens = 1 << 18;

// Weights are whole multiples of 2^-45: their sums are exact, in any order, and 2^18 of them fit.
using Mass = unsigned long long;
constexpr int mass_bits = 45;

// Candidates for top_k and top_p are those whose weight is at least 2^-halvings, for the smallest
// of these at which there are enough of them; the last takes all whose mass is not 0.
constexpr int levels = 7;
__device__ constexpr float least_weights[levels] = {0x1p-3f,  0x1p-6f,  0x1p-9f, 0x1p-12f,
                                                    0x1p-16f, 0x1p-20f, 0x1p-46f};

struct Level {
  unsigned count = 0;
  Mass mass = 0;
};

struct Shared {
  unsigned long long warp_best[warps];
  Mass warp_mass[warps];
  Level warp_levels[warps][levels];
  Mass total;
  Mass found_before;
  int found;
  int count;
  bool is_bad;
};

// engine/sampler's weights: portable_exp() of ops/cpu, operation for operation.
__device__ __forceinline__ float portable_exp(float x) {
  constexpr float shift = 12582912.0f;
  const float shifted = __fadd_rn(__fmul_rn(x, 0x1.715476p+0f), shift);
  const float n = __fsub_rn(shifted, shift);
  const float r = __fsub_rn(__fsub_rn(x, __fmul_rn(n, 0x1.63p-1f)), __fmul_rn(n, -0x1.bd0106p-13f));
  float q = __fadd_rn(__fmul_rn(0x1.6a23d0p-10f, r), 0x1.123a20p-7f);
  q = __fadd_rn(__fmul_rn(q, r), 0x1.5558f2p-5f);
  q = __fadd_rn(__fmul_rn(q, r), 0x1.555492p-3f);
  q = __fadd_rn(__fmul_rn(q, r), 0x1.fffffcp-2f);
  const float power = __fadd_rn(1.0f, __fadd_rn(r, __fmul_rn(__fmul_rn(r, r), q)));
  return __uint_as_float(__float_as_uint(power) + (__float_as_uint(shifted) << 23));
}

// Of a weight in [0, 1], cut off below the unit: the significand, moved to its place. The GPU's
// conversion to 64-bit integers takes eight times as long.
__device__ __forceinline__ Mass mass_of(float weight) {
  const unsigned bits = __float_as_uint(weight);
  const int shift = static_cast<int>(bits >> 23) - 127 + mass_bits - 23;
  const unsigned significand = (bits & 0x7FFFFFu) | 0x800000u;
  return shift >= 0 ? static_cast<Mass>(significand) << shift
                    : static_cast<Mass>(shift > -24 ? significand >> -shift : 0u);
}

// A row's rule from logit to weight; the likeliest token has weight 1.
struct Weights {
  float highest;
  float temperature;
  float bound;  // logits below it are filtered out

  __device__ __forceinline__ float of(float logit) const {
    float x = __fsub_rn(logit, highest);
    if (temperature != 1.0f) x = __fdiv_rn(x, temperature);
    // Below this a mass is 0; so are the weights that portable_exp would have to clamp.
    return x < -32.0f || logit < bound ? 0.0f : portable_exp(x);
  }
  __device__ __forceinline__ Mass mass_of(float logit) const { return octet::mass_of(of(logit)); }
};

// Ascending for ascending floats; -0 counts as 0.
__device__ __forceinline__ unsigned ordered(float x) {
  const unsigned bits = __float_as_uint(x + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float from_ordered(unsigned order) {
  return __uint_as_float((order & 0x80000000u) != 0 ? order & 0x7FFFFFFFu : ~order);
}

// Of tokens [begin, end) of a row, a warp's lanes taking every 32nd, eight loads at once.
template <typename Function>
__device__ __forceinline__ void for_each_token(const float* logits, int begin, int end,
                                               Function&& function) {
  constexpr int at_once = 8;
  for (int first = begin + static_cast<int>(threadIdx.x) % 32; first < end; first += 32 * at_once) {
    float values[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      values[i] = first + 32 * i < end ? logits[first + 32 * i] : -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      if (first + 32 * i < end) function(first + 32 * i, values[i]);
    }
  }
}

template <typename Number>
__device__ __forceinline__ Number warp_total(Number x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

// The part of `count` tokens that a warp takes: neighbours, so that sums by warp are in the tokens'
// order.
__device__ __forceinline__ int share_of(int count) { return (count + warps - 1) / warps; }

// The likeliest token, the lowest id among equals, as ordered logit and complement of the id; and
// whether a logit is no number. Ends with a barrier.
__device__ unsigned long long find_best(const float* logits, int vocabulary, Shared& shared) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int share = share_of(vocabulary);
  // A lane meets its tokens in ascending order, so that the first of equals stays.
  float highest = -INFINITY;
  int token_of_highest = warp * share;
  bool is_bad = false;
  for_each_token(logits, warp * share, min((warp + 1) * share, vocabulary),
                 [&](int token, float logit) {
                   is_bad |= !(logit < INFINITY);
                   if (logit > highest) {
                     highest = logit;
                     token_of_highest = token;
                   }
                 });
  unsigned long long best = static_cast<unsigned long long>(ordered(highest)) << 32 |
                            ~static_cast<unsigned>(token_of_highest);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) best = max(best, __shfl_xor_sync(~0u, best, step));
  is_bad = __any_sync(~0u, is_bad);
  if (threadIdx.x == 0) shared.is_bad = false;
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    shared.warp_best[warp] = best;
    if (is_bad) shared.is_bad = true;
  }
  __syncthreads();
  best = shared.warp_best[threadIdx.x % 32];
#pragma unroll
  for (int step = 16; step > 0; step /= 2) best = max(best, __shfl_xor_sync(~0u, best, step));
  return best;
}

// Masses of the warps' parts of `count` tokens from `first` on, in shared.warp_mass.
__device__ void sum_by_warps(const float* logits, const Weights& weights, int first, int count,
                             Shared& shared) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int share = share_of(count);
  const int begin = min(warp * share, count);
  const int end = min(begin + share, count);
  Mass mass = 0;
  for_each_token(logits, first + begin, first + end,
                 [&](int, float logit) { mass += weights.mass_of(logit); });
  mass = warp_total(mass);
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared.warp_mass[warp] = mass;
  __syncthreads();
}

// floor(uniform * total) for a multiple of 2^-53.
__device__ __forceinline__ Mass share_of_mass(double uniform, Mass total) {
  const auto parts = static_cast<Mass>(uniform * 0x1p53);
  return (__umul64hi(parts, total) << 11) | (parts * total) >> 53;
}

// Draws among all tokens, in the order of their ids: the first at which the sum passes a share of
// the total is found by 32nds.
__device__ int draw_from_all(const float* logits, const Weights& weights, int vocabulary,
                             double uniform, Shared& shared) {
  sum_by_warps(logits, weights, 0, vocabulary, shared);
  Mass total = 0;
  for (int warp = 0; warp < warps; ++warp) total += shared.warp_mass[warp];
  Mass rest = share_of_mass(uniform, total);
  int first = 0;
  int count = vocabulary;
  while (true) {
    int warp = 0;
    while (warp + 1 < warps && rest >= shared.warp_mass[warp]) rest -= shared.warp_mass[warp++];
    const int share = share_of(count);
    first += warp * share;
    count = min(share, count - warp * share);
    if (count <= 1) return first;
    sum_by_warps(logits, weights, first, count, shared);
  }
}

// Counts and masses of the levels, and the mass of all.
__device__ void measure_levels(const float* logits, const Weights& weights, int vocabulary,
                               Shared& shared, Level (&sums)[levels]) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int share = share_of(vocabulary);
  Level own[levels];
  for_each_token(logits, warp * share, min((warp + 1) * share, vocabulary), [&](int, float logit) {
    const float weight = weights.of(logit);
    const Mass mass = mass_of(weight);
#pragma unroll
    for (int level = 0; level < levels; ++level) {
      if (weight >= least_weights[level]) {
        ++own[level].count;
        own[level].mass += mass;
      }
    }
  });
#pragma unroll
  for (int level = 0; level < levels; ++level) {
    own[level].count = warp_total(own[level].count);
    own[level].mass = warp_total(own[level].mass);
    if (threadIdx.x % 32 == 0) shared.warp_levels[warp][level] = own[level];
  }
  __syncthreads();
#pragma unroll
  for (int level = 0; level < levels; ++level) {
    const Level of_lane = shared.warp_levels[threadIdx.x % 32][level];
    sums[level] = {warp_total(of_lane.count), warp_total(of_lane.mass)};
  }
}

// Candidates' keys: most likely first, the lowest id among equals, when ascending.
__device__ __forceinline__ unsigned long long key_of(float logit, int token) {
  return static_cast<unsigned long long>(~ordered(logit)) << 32 | static_cast<unsigned>(token);
}
__device__ __forceinline__ float logit_of(unsigned long long key) {
  return from_ordered(~static_cast<unsigned>(key >> 32));
}

// Gathers those of at least this weight and sorts them; the keys behind them, up to a power of two,
// are above all others. Returns that power of two.
__device__ int sort_candidates(const float* logits, const Weights& weights, int vocabulary,
                               float least_weight, int count, unsigned long long* keys,
                               Shared& shared) {
  int size = 32;
  while (size < count) size *= 2;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int share = share_of(vocabulary);
  if (threadIdx.x == 0) shared.count = 0;
  __syncthreads();
  for_each_token(logits, warp * share, min((warp + 1) * share, vocabulary),
                 [&](int token, float logit) {
                   if (weights.of(logit) >= least_weight) {
                     keys[atomicAdd(&shared.count, 1)] = key_of(logit, token);
                   }
                 });
  __syncthreads();
  for (int i = count + static_cast<int>(threadIdx.x); i < size; i += threads) keys[i] = ~0ull;
  // Bitonic sort (Batcher 1968).
  for (int run = 2; run <= size; run *= 2) {
    for (int distance = run / 2; distance > 0; distance /= 2) {
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < size / 2; i += threads) {
        const int low = i / distance * (2 * distance) + i % distance;
        const unsigned long long a = keys[low];
        const unsigned long long b = keys[low + distance];
        if ((a > b) == ((low & run) == 0)) {
          keys[low] = b;
          keys[low + distance] = a;
        }
      }
    }
  }
  __syncthreads();
  return size;
}

// The first place at which the sum of the sorted candidates' masses reaches `wanted` (at least 1),
// and the sum up to there; the last candidate where it never does.
struct Place {
  int index;
  Mass sum;
};
__device__ Place find_sum(const unsigned long long* keys, const Weights& weights, int count,
                          Mass wanted, Shared& shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int share = (count + threads - 1) / threads;
  const int begin = min(static_cast<int>(threadIdx.x) * share, count);
  const int end = min(begin + share, count);
  Mass own = 0;
  for (int i = begin; i < end; ++i) own += weights.mass_of(logit_of(keys[i]));
  Mass upto = own;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const Mass before = __shfl_up_sync(~0u, upto, step);
    if (lane >= step) upto += before;
  }
  __syncthreads();
  if (lane == 31) shared.warp_mass[warp] = upto;
  if (threadIdx.x == 0) shared.found = -1;
  __syncthreads();
  for (int i = 0; i < warp; ++i) upto += shared.warp_mass[i];
  Mass sum = upto - own;
  if (sum < wanted && wanted <= upto) {
    for (int i = begin; i < end; ++i) {
      sum += weights.mass_of(logit_of(keys[i]));
      if (sum >= wanted) {
        shared.found = i;
        shared.found_before = sum;
        break;
      }
    }
  }
  // The last thread's sum is the total.
  if (threadIdx.x == threads - 1) shared.total = upto;
  __syncthreads();
  const Place place =
      shared.found >= 0 ? Place{shared.found, shared.found_before} : Place{count - 1, shared.total};
  __syncthreads();
  return place;
}

// -1 where there are too many candidates to sort.
__device__ int draw_from_likely(const float* logits, const Weights& weights, int vocabulary,
                                const SampleParameters& parameters, unsigned long long* keys,
                                Shared& shared) {
  Level sums[levels];
  measure_levels(logits, weights, vocabulary, shared, sums);
  Mass total = sums[levels - 1].mass;
  const double least_mass = static_cast<double>(total) * (double{parameters.top_p} + 1e-6);
  int level = 0;
  while (level + 1 < levels &&
         (parameters.top_k > 0 ? sums[level].count < static_cast<unsigned>(parameters.top_k)
                               : static_cast<double>(sums[level].mass) < least_mass)) {
    ++level;
  }
  int count = 0;
  float least_weight = 0;
#pragma unroll
  for (int i = 0; i < levels; ++i) {
    if (i == level) {
      count = static_cast<int>(sums[i].count);
      least_weight = least_weights[i];
    }
  }
  if (count > sample_candidates) return -1;
  sort_candidates(logits, weights, vocabulary, least_weight, count, keys, shared);
  if (parameters.top_k > 0) {
    count = min(count, parameters.top_k);
    total = find_sum(keys, weights, count, ~Mass{0}, shared).sum;
  }
  if (parameters.top_p < 1.0f) {
    const double wanted = ceil(static_cast<double>(total) * double{parameters.top_p});
    const Place place =
        find_sum(keys, weights, count, max(static_cast<Mass>(wanted), Mass{1}), shared);
    count = place.index + 1;
    total = place.sum;
  }
  const Mass rest = share_of_mass(parameters.uniform, total);
  return static_cast<int>(
      static_cast<unsigned>(keys[find_sum(keys, weights, count, rest + 1, shared).index]));
}

// A block for each row.
__global__ void __launch_bounds__(threads) sample_kernel(const SampleCudaArgs args) {
  extern __shared__ unsigned long long keys[];
  __shared__ Shared shared;
  let_next_kernel_begin();
  begin_after_previous_kernels();
  const int index = static_cast<int>(blockIdx.x);
  const std::int64_t row = args.row_ids == nullptr ? index : args.row_ids[index];
  if (row < 0) return;
  const float* logits = args.logits + row * args.logits_stride;
  const SampleParameters parameters = args.parameters[index];

  const unsigned long long best = find_best(logits, args.vocabulary, shared);
  const float highest = from_ordered(static_cast<unsigned>(best >> 32));
  int token = static_cast<int>(~static_cast<unsigned>(best));
  auto status = SampleStatus::chosen;
  if (shared.is_bad || highest == -INFINITY) {
    status = SampleStatus::not_a_number;
    token = -1;
  } else if (parameters.temperature > 0.0f) {
    Weights weights = {highest, parameters.temperature, -INFINITY};
    if (parameters.min_p > 0.0f) {
      // By way of double, so that the float is the nearest, as the host's is.
      const auto log_min_p = static_cast<float>(log(double{parameters.min_p}));
      weights.bound = __fadd_rn(highest, __fmul_rn(parameters.temperature, log_min_p));
    }
    if (parameters.top_k > 0 || parameters.top_p < 1.0f) {
      token = draw_from_likely(logits, weights, args.vocabulary, parameters, keys, shared);
      if (token < 0) status = SampleStatus::left_to_host;
    } else {
      token = draw_from_all(logits, weights, args.vocabulary, parameters.uniform, shared);
    }
  }
  if (threadIdx.x == 0) {
    args.tokens[index] = token;
    args.statuses[index] = status;
  }
}

}  // namespace

void sample_cuda(const CudaLaunch& launch, const SampleCudaArgs& args) {
  check_internal(args.rows >= 0 && args.vocabulary > 0, "sample: expected rows and a vocabulary");
  if (args.rows == 0) return;
  check_internal(args.logits != nullptr && args.parameters != nullptr && args.tokens != nullptr &&
                     args.statuses != nullptr,
                 "sample: expected logits, parameters, tokens and statuses");
  check_supported(args.vocabulary <= most_tokens,
                  "sample: a vocabulary of more than 262144 tokens");
  constexpr std::size_t shared_bytes = sample_candidates * sizeof(unsigned long long);
  check_cuda(cudaFuncSetAttribute(sample_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(shared_bytes)),
             "cudaFuncSetAttribute");
  launch_kernel(launch, "launch of the sampling", sample_kernel,
                dim3(static_cast<unsigned>(args.rows)), dim3(threads), shared_bytes, args);
}

}  // namespace octet
