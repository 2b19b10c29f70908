// What compute-sanitizer's racecheck (CUDA 13.0) makes of barriers among a part of a block, beside
// threads that wait at the block's own. Each of four warpgroups writes 128 words, waits for its own
// threads, reads what others of them wrote, and waits again; then all threads meet. There is no
// race in it.
//
//   nvcc -gencode=arch=compute_90a,code=sm_90a -o racecheck_named_barriers
//   racecheck_named_barriers.cu compute-sanitizer --tool racecheck --racecheck-report all
//   racecheck_named_barriers 512   no hazard compute-sanitizer --tool racecheck --racecheck-report
//   all racecheck_named_barriers 640   521 errors
#include <cstdio>
#include <cstdlib>

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

__global__ void exchange(int* sums) {
  __shared__ int words[4][128];
  __shared__ int last[2];
  const int group = static_cast<int>(threadIdx.x) / 128;
  const int thread = static_cast<int>(threadIdx.x) % 128;
  int sum = 0;
  for (int round = 0; round < 10 && group < 4; ++round) {
    words[group][thread] = round + thread;
    wait_for_warpgroup(group);
    sum += words[group][thread * 7 % 128];
    wait_for_warpgroup(group);
  }
  __syncthreads();
  if (threadIdx.x == 0 || threadIdx.x == 32) last[threadIdx.x / 32] = static_cast<int>(blockIdx.x);
  __syncthreads();
  sums[blockIdx.x * blockDim.x + threadIdx.x] = sum + last[0] + last[1];
}

int main(int argc, char** argv) {
  int* sums = nullptr;
  cudaMalloc(&sums, sizeof(int) * 132 * 1024);
  exchange < < <132, argc> 1 ? std::atoi(argv[1]) : 640 >>> (sums);
  std::printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
}
