// What compute-sanitizer's racecheck makes of barriers among a part of a block: each of four warpgroups
// writes 128 words, waits for its own threads, reads what others of them wrote, and waits again. There is
// no race in it. (The same with barriers of the whole block: no hazard.)
//
//   nvcc -gencode=arch=compute_90a,code=sm_90a -o racecheck_named_barriers racecheck_named_barriers.cu
//   compute-sanitizer --tool racecheck racecheck_named_barriers [block]
#include <cstdio>

template <int barrier>
__device__ void wait() {
  asm volatile("bar.sync %0, 128;" ::"n"(barrier) : "memory");
}

__device__ void wait_for_warpgroup(int group) {
  if (group == 0) wait<1>();
  if (group == 1) wait<2>();
  if (group == 2) wait<3>();
  if (group == 3) wait<4>();
}

template <bool whole_block>
__global__ void exchange(int* sums) {
  __shared__ int words[4][128];
  const int group = static_cast<int>(threadIdx.x) / 128;
  const int thread = static_cast<int>(threadIdx.x) % 128;
  int sum = 0;
  for (int round = 0; round < 10; ++round) {
    words[group][thread] = round + thread;
    whole_block ? __syncthreads() : wait_for_warpgroup(group);
    sum += words[group][thread * 7 % 128];
    whole_block ? __syncthreads() : wait_for_warpgroup(group);
  }
  sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

int main(int argc, char**) {
  int* sums = nullptr;
  cudaMalloc(&sums, sizeof(int) * 132 * 512);
  if (argc > 1) {
    exchange<true><<<132, 512>>>(sums);
  } else {
    exchange<false><<<132, 512>>>(sums);
  }
  std::printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
}
