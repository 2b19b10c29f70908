// A warp's own ring of stages in shared memory, which weights are copied to ahead of their use. For
// *.cu files.
//
// From sm_90 on a stage is filled by the copy engine, in one piece (a slab) or one a row, and
// counts its bytes; earlier, by asynchronous copies of 16 bytes of every lane.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "core/cuda/ptx.cuh"
#include "ops/linear/linear_products.cuh"

namespace octet {

template <DataType type, int stages>
class WeightRing {
 public:
  static constexpr int bytes = stages * StageLayout<type>::bytes;

  // `memory` holds `bytes`, aligned to 16; `barriers` one for each stage. All lanes.
  __device__ __forceinline__ WeightRing(std::uint8_t* memory, std::uint64_t* barriers, int lane)
      : memory_(memory), barriers_(barriers), lane_(lane) {
#if __CUDA_ARCH__ >= 900
    if (lane == 0) {
      for (int i = 0; i < stages; ++i) ptx::mbarrier_init(barriers_ + i, 1);
      ptx::mbarrier_init_fence();
    }
    __syncwarp();
#endif
  }

  // Starts to fill the next stage from 256 elements of a band: `from` is where they begin in the
  // first row, or their slab; rows are `row_bytes` apart and have `left` bytes from there on. The
  // stage must be used up by all lanes.
  __device__ __forceinline__ void fill(const std::uint8_t* from, std::int64_t row_bytes, int left) {
    std::uint8_t* stage = memory_ + fill_stage_ * StageLayout<type>::bytes;
    constexpr int unit_bytes = StageLayout<type>::unit_bytes;
    const int of_row = StageLayout<type>::rows && left < unit_bytes ? left : unit_bytes;
#if __CUDA_ARCH__ >= 900
    std::uint64_t* barrier = barriers_ + fill_stage_;
    if (lane_ == 0) {
      ptx::mbarrier_expect(barrier, static_cast<std::uint32_t>(device_band_rows * of_row));
    }
    if constexpr (StageLayout<type>::rows) {
      if (lane_ < device_band_rows) {
        ptx::bulk_copy(stage + StageLayout<type>::place(lane_), from + lane_ * row_bytes,
                       static_cast<std::uint32_t>(of_row), barrier);
      }
    } else if (lane_ == 0) {
      ptx::bulk_copy(stage, from, device_band_rows * unit_bytes, barrier);
    }
#else
    if constexpr (StageLayout<type>::rows) {
      for (int row = 0; row < device_band_rows; ++row) {
        for (int at = 16 * lane_; at < of_row; at += 512) {
          copy_16_bytes(stage + StageLayout<type>::place(row) + at, from + row * row_bytes + at);
        }
      }
    } else {
      for (int at = 16 * lane_; at < device_band_rows * unit_bytes; at += 512) {
        copy_16_bytes(stage + at, from + at);
      }
    }
#endif
    fill_stage_ = fill_stage_ + 1 == stages ? 0 : fill_stage_ + 1;
  }
  // Once for every stage, after fill() or in its stead.
  __device__ __forceinline__ void end_fill() {
#if __CUDA_ARCH__ < 900
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
  }

  // The next stage, once it is filled; the one before it is then used up by all lanes. `stages - 1`
  // stages have been begun, this one included.
  __device__ __forceinline__ const std::uint8_t* next() {
#if __CUDA_ARCH__ >= 900
    __syncwarp();
    ptx::mbarrier_wait(barriers_ + stage_, parity_);
#else
    asm volatile("cp.async.wait_group %0;" ::"n"(stages - 2) : "memory");
    __syncwarp();
#endif
    const std::uint8_t* stage = memory_ + stage_ * StageLayout<type>::bytes;
    if (++stage_ == stages) {
      stage_ = 0;
      parity_ ^= 1;
    }
    return stage;
  }

 private:
  static __device__ __forceinline__ void copy_16_bytes(std::uint8_t* shared,
                                                       const std::uint8_t* global) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(ptx::shared_address(shared)),
                 "l"(global)
                 : "memory");
  }

  std::uint8_t* memory_;
  std::uint64_t* barriers_;
  int lane_;
  int fill_stage_ = 0;
  int stage_ = 0;
  std::uint32_t parity_ = 0;
};

}  // namespace octet
