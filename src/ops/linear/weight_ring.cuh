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

template <DataType type, int bands, int stages>
class WeightRing {
 public:
  static constexpr int stage_bytes = bands * StageLayout<type>::bytes;
  static constexpr int bytes = stages * stage_bytes;

  // `memory` holds `bytes`, aligned to 16; `barriers` one for each stage. All lanes.
  __device__ __forceinline__ WeightRing(std::uint8_t* memory, std::uint64_t* barriers, int lane)
      : memory_(memory), barriers_(barriers), lane_(lane) {
#if __CUDA_ARCH__ >= 900
    policy_ = ptx::evict_first_policy();
    if (lane == 0) {
      for (int i = 0; i < stages; ++i) ptx::mbarrier_init(barriers_ + i, 1);
      ptx::mbarrier_init_fence();
    }
    __syncwarp();
#endif
  }

  // Starts to fill the next stage from 256 elements of bands that follow one another: `from` is
  // where they begin in the first row, or their first slab; rows are `row_bytes` apart (slabs eight
  // times that) and have `left` bytes from there on. `there`: bands that the matrix has. The stage
  // must be used up by all lanes.
  __device__ __forceinline__ void fill(const std::uint8_t* from, std::int64_t row_bytes, int left,
                                       int there) {
    std::uint8_t* stage = memory_ + fill_stage_ * stage_bytes;
    const int of_row = Layout::rows && left < Layout::unit_bytes ? left : Layout::unit_bytes;
    const int filled = bands == 1 || there > bands ? bands : there;
#if __CUDA_ARCH__ >= 900
    std::uint64_t* barrier = barriers_ + fill_stage_;
    if (lane_ == 0) {
      ptx::mbarrier_expect(barrier, static_cast<std::uint32_t>(filled * device_band_rows * of_row));
    }
    if constexpr (Layout::rows) {
      if (lane_ < filled * device_band_rows) {
        ptx::bulk_copy(place(stage, lane_), from + lane_ * row_bytes,
                       static_cast<std::uint32_t>(of_row), barrier, policy_);
      }
    } else if (lane_ < filled) {
      ptx::bulk_copy(stage + lane_ * Layout::bytes, from + lane_ * device_band_rows * row_bytes,
                     device_band_rows * Layout::unit_bytes, barrier, policy_);
    }
#else
    if constexpr (Layout::rows) {
      for (int row = 0; row < filled * device_band_rows; ++row) {
        copy_together(place(stage, row), from + row * row_bytes, of_row);
      }
    } else {
      for (int band = 0; band < filled; ++band) {
        copy_together(stage + band * Layout::bytes, from + band * device_band_rows * row_bytes,
                      device_band_rows * Layout::unit_bytes);
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
    const std::uint8_t* stage = memory_ + stage_ * stage_bytes;
    if (++stage_ == stages) {
      stage_ = 0;
      parity_ ^= 1;
    }
    return stage;
  }

 private:
  using Layout = StageLayout<type>;

  static __device__ __forceinline__ std::uint8_t* place(std::uint8_t* stage, int row) {
    return stage + row / device_band_rows * Layout::bytes + Layout::place(row % device_band_rows);
  }
  // `count` bytes, a multiple of 16, by all lanes.
  __device__ __forceinline__ void copy_together(std::uint8_t* shared, const std::uint8_t* global,
                                                int count) const {
    for (int at = 16 * lane_; at < count; at += 512) {
      asm volatile(
          "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(ptx::shared_address(shared + at)),
          "l"(global + at)
          : "memory");
    }
  }

  std::uint8_t* memory_;
  std::uint64_t* barriers_;
  int lane_;
  std::uint64_t policy_ = 0;
  int fill_stage_ = 0;
  int stage_ = 0;
  std::uint32_t parity_ = 0;
};

}  // namespace octet
