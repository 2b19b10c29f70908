#include <cuda_runtime.h>

#include "core/cuda/launch.cuh"
#include "core/cuda/numbers.cuh"
#include "core/cuda/warp.cuh"
#include "kv/element_order.h"
#include "ops/quantize/cache_write_cuda.h"
#include "ops/quantize/hadamard.h"

namespace octet {
namespace {

constexpr int warps = 4;  // of a block, each with a head of a row

// Where and how one side of a run is written.
struct Side {
  KvDtype dtype;
  KvScales scales;
  KvOrder order;
  int panel_shift;  // log2 of the bytes of a panel's row
  std::uint32_t offset;
  std::uint32_t scale_offset;
  const float* static_scales;  // [kv_heads]; null: none
};

struct Parameters {
  CacheWriteCudaArgs args;
  int kv_heads;
  int head_dim;
  int hadamard_block;  // 0: keys are not rotated
  float hadamard_norm;
  std::byte* layer;  // the arena, moved on to this layer's place in a page
  std::size_t slab_bytes;
  std::size_t page_bytes;
  std::size_t run_bytes;
  int pages_per_slab;
  Side key;
  Side value;
};

struct Counts {
  std::uint32_t saturated = 0;
  std::uint32_t subnormal = 0;
  std::uint32_t non_finite = 0;
};

__device__ __forceinline__ bool is_finite(float x) {
  return (__float_as_uint(x) & 0x7FFFFFFFu) < 0x7F800000u;
}

__device__ __forceinline__ int element_of(int step) {
  return 64 * step + 2 * (static_cast<int>(threadIdx.x) % 32);
}

// Of a thread's elements of a head at one position.
template <int steps>
struct RopeFactors {
  float cosine[2 * steps];
  float sine[2 * steps];

  __device__ __forceinline__ void load(const CacheWriteCudaArgs& args, std::int64_t position) {
    const int pairs = args.pairs;
#pragma unroll
    for (int i = 0; i < 2 * steps; ++i) {
      const int e = element_of(i / 2) + i % 2;
      if (e >= 2 * pairs) continue;
      const int pair = e < pairs ? e : e - pairs;
      cosine[i] = args.cosines[position * pairs + pair];
      sine[i] = args.sines[position * pairs + pair];
    }
  }
};

// A head's elements over a warp: at[2 j] and at[2 j + 1] of a lane are elements 64 j + 2 lane and
// the next.
template <int steps>
struct Head {
  float at[2 * steps];

  static __device__ __forceinline__ int element(int step) { return element_of(step); }

  __device__ __forceinline__ void load(const float* from, int head_dim) {
#pragma unroll
    for (int j = 0; j < steps; ++j) {
      float2 pair = {0, 0};
      if (element(j) < head_dim) {
        pair = *reinterpret_cast<const float2*>(from + element(j));
      }
      at[2 * j] = pair.x;
      at[2 * j + 1] = pair.y;
    }
  }

  __device__ __forceinline__ void normalise(const float* weight, float epsilon, int head_dim) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 2 * steps; ++i) sum = fmaf(at[i], at[i], sum);
    const float factor = 1.0f / sqrtf(warp_sum(sum) / static_cast<float>(head_dim) + epsilon);
#pragma unroll
    for (int i = 0; i < 2 * steps; ++i) {
      const int e = element(i / 2) + i % 2;
      if (e < head_dim) at[i] = at[i] * factor * weight[e];
    }
  }

  // `scratch`: this warp's, of head_dim elements.
  __device__ __forceinline__ void rotate_in_position(const CacheWriteCudaArgs& args,
                                                     const RopeFactors<steps>& factors,
                                                     int head_dim, float* scratch) {
    __syncwarp();
#pragma unroll
    for (int j = 0; j < steps; ++j) {
      if (element(j) < head_dim) {
        *reinterpret_cast<float2*>(scratch + element(j)) = make_float2(at[2 * j], at[2 * j + 1]);
      }
    }
    __syncwarp();
    const int pairs = args.pairs;
    const bool is_split = args.pairing == RopePairing::half_split;
#pragma unroll
    for (int i = 0; i < 2 * steps; ++i) {
      const int e = element(i / 2) + i % 2;
      if (e >= 2 * pairs) continue;
      const bool is_low = e < pairs;
      const int pair = is_low ? e : e - pairs;
      const float a = scratch[is_split ? pair : 2 * pair];
      const float b = scratch[is_split ? pair + pairs : 2 * pair + 1];
      at[i] = is_low ? __fsub_rn(__fmul_rn(a, factors.cosine[i]), __fmul_rn(b, factors.sine[i]))
                     : __fadd_rn(__fmul_rn(b, factors.cosine[i]), __fmul_rn(a, factors.sine[i]));
    }
  }

  // hadamard_rotate()'s butterfly: the same sums and differences of the same pairs.
  __device__ __forceinline__ void rotate(int block, float norm) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int j = 0; j < steps; ++j) {
      const float a = at[2 * j];
      const float b = at[2 * j + 1];
      at[2 * j] = __fadd_rn(a, b);
      at[2 * j + 1] = __fsub_rn(a, b);
    }
#pragma unroll
    for (int stride = 2; stride < 64; stride *= 2) {
      if (stride >= block) break;
      const bool is_high = (lane & (stride / 2)) != 0;
#pragma unroll
      for (int i = 0; i < 2 * steps; ++i) {
        const float other = __shfl_xor_sync(~0u, at[i], stride / 2);
        at[i] = is_high ? __fsub_rn(other, at[i]) : __fadd_rn(at[i], other);
      }
    }
#pragma unroll
    for (int stride = 1; stride < steps; stride *= 2) {
      if (64 * stride >= block) break;
#pragma unroll
      for (int j = 0; j < steps; ++j) {
        if ((j & stride) != 0) continue;
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const float a = at[2 * j + k];
          const float b = at[2 * (j + stride) + k];
          at[2 * j + k] = __fadd_rn(a, b);
          at[2 * (j + stride) + k] = __fsub_rn(a, b);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 2 * steps; ++i) at[i] = __fmul_rn(at[i], norm);
  }

  __device__ __forceinline__ void centre(const float* mean, int head_dim) {
#pragma unroll
    for (int i = 0; i < 2 * steps; ++i) {
      const int e = element(i / 2) + i % 2;
      if (e < head_dim) at[i] = difference(at[i], mean[e]);
    }
  }

  __device__ __forceinline__ float product(const float* other, int head_dim) const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 2 * steps; ++i) {
      const int e = element(i / 2) + i % 2;
      if (e < head_dim) sum = fmaf(at[i], other[e], sum);
    }
    return warp_sum(sum);
  }

  __device__ __forceinline__ void store_bfloat16(__nv_bfloat16* to, int head_dim) const {
#pragma unroll
    for (int j = 0; j < steps; ++j) {
      if (element(j) < head_dim) {
        *reinterpret_cast<__nv_bfloat162*>(to + element(j)) =
            __floats2bfloat162_rn(at[2 * j], at[2 * j + 1]);
      }
    }
  }
};

// element_offset() of kv/element_order.h for an even dimension, in 32 bits and without divisions.
__device__ __forceinline__ std::uint32_t offset_in_rows(int panel_shift, std::uint32_t token,
                                                        std::uint32_t byte) {
  const std::uint32_t row = 1u << panel_shift;
  const std::uint32_t within = (token << panel_shift) + (byte & (row - 1));
  const std::uint32_t swizzled = within ^ (((within >> 7) & (row / 16 - 1)) << 4);
  return ((byte >> panel_shift) << (panel_shift + 6)) + swizzled;
}
__device__ __forceinline__ std::uint32_t offset_in_transpose(std::uint32_t place,
                                                             std::uint32_t dimension) {
  const std::uint32_t within = dimension * page_tokens + place;
  return within ^ (((within >> 7) & 3) << 4);
}

// The codes of two neighbouring elements at `element` and the next.
__device__ __forceinline__ void store_codes(const Side& side, std::byte* run, std::uint32_t token,
                                            int element, std::uint32_t low, std::uint32_t high) {
  std::byte* elements = run + side.offset;
  const auto e = static_cast<std::uint32_t>(element);
  if (side.order == KvOrder::swizzled_transpose) {
    const auto place = static_cast<std::uint32_t>(transposed_place(static_cast<int>(token)));
    elements[offset_in_transpose(place, e)] = static_cast<std::byte>(low);
    elements[offset_in_transpose(place, e + 1)] = static_cast<std::byte>(high);
  } else if (side.dtype == KvDtype::fp8 || side.dtype == KvDtype::int8) {
    *reinterpret_cast<std::uint16_t*>(elements + offset_in_rows(side.panel_shift, token, e)) =
        static_cast<std::uint16_t>(low | (high << 8));
  } else {
    *reinterpret_cast<std::uint32_t*>(elements + offset_in_rows(side.panel_shift, token, 2 * e)) =
        low | (high << 16);
  }
}

// write_scale() of kv_write.cc, over a warp.
template <int steps>
__device__ __forceinline__ float write_dynamic_scale(const Side& side, const Head<steps>& head,
                                                     float largest_code, std::byte* run,
                                                     std::uint32_t token) {
  float largest = 0;
#pragma unroll
  for (int i = 0; i < 2 * steps; ++i) {
    if (is_finite(head.at[i])) largest = fmaxf(largest, fabsf(head.at[i]));
  }
  largest = warp_maximum(largest);
  const std::uint32_t bits =
      largest == 0.0f ? 0x3F80u  // 1
                      : bfloat16_bits_up(fmaxf(__fdiv_rn(largest, largest_code), 0x1p-126f));
  if (threadIdx.x % 32 == 0) {
    reinterpret_cast<std::uint16_t*>(run + side.scale_offset)[token] =
        static_cast<std::uint16_t>(bits);
  }
  return bfloat16_value(bits);
}

template <int steps>
__device__ void write_side(const Side& side, const Head<steps>& head, int head_dim, int kv_head,
                           std::byte* run, std::uint32_t token, DeviceKvCounts* counts) {
  const bool is_dynamic = side.scales == KvScales::dynamic;
  float scale = side.static_scales != nullptr ? side.static_scales[kv_head] : 1.0f;
  if (is_dynamic) {
    scale =
        write_dynamic_scale(side, head, side.dtype == KvDtype::int8 ? 127.0f : 448.0f, run, token);
  }
  Counts lost;
#pragma unroll
  for (int j = 0; j < steps; ++j) {
    const int e = Head<steps>::element(j);
    if (e >= head_dim) continue;
    std::uint32_t codes[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const float x = head.at[2 * j + k];
      const bool finite = is_finite(x);
      lost.non_finite += finite ? 0 : 1;
      switch (side.dtype) {
        case KvDtype::float16: {
          const float magnitude = fabsf(x);
          // Half a step beyond the largest number, which still rounds to it.
          lost.saturated += magnitude >= 65520.0f && finite ? 1 : 0;
          lost.subnormal += magnitude < 0x1p-14f && magnitude > 0.0f ? 1 : 0;
          codes[k] = float16_bits_saturating(x);
          break;
        }
        case KvDtype::fp8: {
          const float scaled = quotient(x, scale);
          lost.saturated += fabsf(scaled) > 448.0f ? 1 : 0;
          lost.subnormal += fabsf(scaled) < 0x1p-6f && x != 0.0f ? 1 : 0;
          codes[k] = e4m3_code(scaled);
          break;
        }
        case KvDtype::int8:
          codes[k] = int8_code(__fdiv_rn(x, scale));
          break;
        default:
          codes[k] = bfloat16_bits(x);
      }
    }
    store_codes(side, run, token, e, codes[0], codes[1]);
  }
  if (counts == nullptr ||
      !__any_sync(~0u, (lost.saturated | lost.subnormal | lost.non_finite) != 0)) {
    return;
  }
  lost.saturated = __reduce_add_sync(~0u, lost.saturated);
  lost.subnormal = __reduce_add_sync(~0u, lost.subnormal);
  lost.non_finite = __reduce_add_sync(~0u, lost.non_finite);
  if (threadIdx.x % 32 != 0) return;
  if (lost.saturated != 0) atomicAdd(&counts->saturated, lost.saturated);
  if (lost.subnormal != 0) atomicAdd(&counts->subnormal, lost.subnormal);
  if (lost.non_finite != 0) atomicAdd(&counts->non_finite, lost.non_finite);
}

// Null where the row's keys and values are in the cache already.
__device__ __forceinline__ std::byte* find_run(const Parameters& p, std::int64_t row,
                                               std::int32_t position, int kv_head) {
  const DeviceRows& rows = p.args.rows;
  const std::int64_t sequence = rows.sequence_of_row[row];
  if (rows.first_written != nullptr && position < rows.first_written[sequence]) return nullptr;
  const PageId page = rows.page_table[sequence * rows.page_table_stride + position / page_tokens];
  const auto slab = static_cast<std::size_t>(page / p.pages_per_slab);
  const auto part = static_cast<std::size_t>(page % p.pages_per_slab);
  return p.layer + slab * p.slab_bytes + part * p.page_bytes +
         static_cast<std::size_t>(kv_head) * p.run_bytes;
}

template <int steps>
__global__ void __launch_bounds__(32 * warps) cache_write_kernel(const Parameters p) {
  __shared__ float scratch[warps][64 * steps];
  let_next_kernel_begin();
  const CacheWriteCudaArgs& args = p.args;
  const int heads = args.query_heads + 2 * p.kv_heads;
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / 32;
  const std::int64_t row = item / heads;
  const int head = static_cast<int>(item % heads);
  const bool is_query = head < args.query_heads;
  const bool is_value = head >= args.query_heads + p.kv_heads;
  // What a step is told of its rows, looked up while the kernels ahead still run: four loads, each
  // with the result of the one before, are 4 us behind streamed weights.
  const std::int32_t position = row < args.rows.rows ? args.rows.positions[row] : -1;
  std::byte* run = nullptr;
  RopeFactors<steps> factors;
  if (position >= 0) {
    if (!is_query) run = find_run(p, row, position, (head - args.query_heads) % p.kv_heads);
    if (!is_value && args.cosines != nullptr) factors.load(args, position);
  }
  begin_after_previous_kernels();
  if (position < 0 || (!is_query && run == nullptr)) return;

  Head<steps> x;
  x.load(args.qkv + item * p.head_dim, p.head_dim);
  const float* norm = is_query ? args.query_norm : args.key_norm;
  if (!is_value && norm != nullptr) x.normalise(norm, args.norm_epsilon, p.head_dim);
  if (!is_value && args.cosines != nullptr) {
    x.rotate_in_position(args, factors, p.head_dim, scratch[threadIdx.x / 32]);
  }
  const auto token = static_cast<std::uint32_t>(position % page_tokens);
  if (is_query) {
    const std::int64_t place = row * args.query_heads + head;
    if (args.query_means != nullptr) {
      float mean = 0;
      if (p.args.layer.key_mean != nullptr) {
        const int kv_head = head / (args.query_heads / p.kv_heads);
        mean = x.product(p.args.layer.key_mean + kv_head * p.head_dim, p.head_dim);
      }
      if (threadIdx.x % 32 == 0) args.query_means[place] = mean;
    }
    if (p.hadamard_block != 0) x.rotate(p.hadamard_block, p.hadamard_norm);
    x.store_bfloat16(args.query + place * p.head_dim, p.head_dim);
  } else {
    const int kv_head = (head - args.query_heads) % p.kv_heads;
    if (!is_value && p.args.layer.key_mean != nullptr) {
      x.centre(p.args.layer.key_mean + kv_head * p.head_dim, p.head_dim);
    }
    if (!is_value && p.hadamard_block != 0) x.rotate(p.hadamard_block, p.hadamard_norm);
    write_side(is_value ? p.value : p.key, x, p.head_dim, kv_head, run, token, args.counts);
  }
}

int log2_of(std::size_t power) {
  int shift = 0;
  while ((std::size_t{1} << shift) < power) ++shift;
  return shift;
}

Side make_side(const KvSidePolicy& policy, KvOrder order, int head_dim, std::size_t offset,
               std::size_t scale_offset, const float* static_scales) {
  Side side = {};
  side.dtype = policy.dtype;
  side.scales = policy.scales;
  side.order = order;
  side.panel_shift =
      log2_of(panel_row_bytes(static_cast<std::size_t>(head_dim) * bytes_of(policy.dtype)));
  side.offset = static_cast<std::uint32_t>(offset);
  side.scale_offset = static_cast<std::uint32_t>(scale_offset);
  side.static_scales = is_static(policy.scales) ? static_scales : nullptr;
  check_internal(!is_static(policy.scales) || static_scales != nullptr,
                 "cache_write: a layer of static scales without them");
  return side;
}

void validate(const CacheWriteCudaArgs& args) {
  const KvGroup& group = *args.layer.view.group;
  const int kv_heads = group.geometry.kv_heads;
  check_internal(kv_heads > 0 && args.query_heads > 0 && args.query_heads % kv_heads == 0,
                 "cache_write: query heads that do not divide among the KV heads");
  check_internal(args.qkv != nullptr && args.query != nullptr && args.layer.view.arena != nullptr &&
                     args.rows.positions != nullptr && args.rows.sequence_of_row != nullptr &&
                     args.rows.page_table != nullptr,
                 "cache_write: expected qkv, query, rows and a cache");
  check_internal((args.cosines == nullptr) == (args.sines == nullptr) && args.pairs >= 0 &&
                     2 * args.pairs <= group.run.head_dim,
                 "cache_write: a rope table that does not fit head_dim");
  const auto is_sm90 = [](const KvSidePolicy& side, KvOrder order, bool is_value) {
    return side.dtype != KvDtype::float32 &&
           order == (is_value && is_eight_bit(side.dtype) ? KvOrder::swizzled_transpose
                                                          : KvOrder::swizzled_rows);
  };
  check_supported(is_sm90(group.run.policy.key, group.run.key_order, false) &&
                      is_sm90(group.run.policy.value, group.run.value_order, true),
                  "cache_write: the GPU takes pages of 8 or 16 bits an element in Hopper's order");
  check_supported(group.run.head_dim <= max_head_dim, "cache_write: head_dim above 512");
}

}  // namespace

void cache_write_cuda(const CudaLaunch& launch, const CacheWriteCudaArgs& args) {
  validate(args);
  if (args.rows.rows <= 0) return;
  const KvLayerView& view = args.layer.view;
  const KvRunLayout& run = view.group->run;
  Parameters p = {};
  p.args = args;
  p.kv_heads = view.group->geometry.kv_heads;
  p.head_dim = run.head_dim;
  if (run.policy.rotates_keys()) {
    p.hadamard_block = hadamard_block(run.head_dim);
    p.hadamard_norm = 1.0f / std::sqrt(static_cast<float>(p.hadamard_block));
  }
  p.layer = view.arena + view.layer_offset;
  p.slab_bytes = view.slab_bytes;
  p.page_bytes = view.page_bytes;
  p.run_bytes = run.bytes;
  p.pages_per_slab = view.pages_per_slab;
  p.key = make_side(run.policy.key, run.key_order, run.head_dim, run.key_offset,
                    run.key_scale_offset, args.layer.key_scales);
  p.value = make_side(run.policy.value, run.value_order, run.head_dim, run.value_offset,
                      run.value_scale_offset, args.layer.value_scales);
  const std::int64_t items =
      static_cast<std::int64_t>(args.rows.rows) * (args.query_heads + 2 * p.kv_heads);
  const dim3 grid(static_cast<unsigned>((items + warps - 1) / warps));
  const char* name = "launch of the cache write";
  if (p.head_dim <= 64) {
    launch_kernel(launch, name, cache_write_kernel<1>, grid, dim3(32 * warps), 0, p);
  } else if (p.head_dim <= 128) {
    launch_kernel(launch, name, cache_write_kernel<2>, grid, dim3(32 * warps), 0, p);
  } else if (p.head_dim <= 256) {
    launch_kernel(launch, name, cache_write_kernel<4>, grid, dim3(32 * warps), 0, p);
  } else {
    launch_kernel(launch, name, cache_write_kernel<8>, grid, dim3(32 * warps), 0, p);
  }
}

}  // namespace octet
