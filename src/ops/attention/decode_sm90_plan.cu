#include <cuda_runtime.h>

#include "core/cuda/check.h"
#include "ops/attention/decode_sm90_work.h"

namespace octet {

namespace {

constexpr int plan_threads = 256;

// One block: a running sum of each sequence's turns, then each piece by bisection.
__global__ void __launch_bounds__(plan_threads)
    plan_kernel(DecodeTurns turns, const std::int32_t* context_lengths, int sequences, int pieces,
                std::int32_t* starts, DecodeWorkHeader* header) {
  __shared__ std::int32_t sums[plan_threads];
  __shared__ std::int32_t carried;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    carried = 0;
    starts[0] = 0;
  }
  __syncthreads();
  for (int begin = 0; begin < sequences; begin += plan_threads) {
    const int sequence = begin + thread;
    sums[thread] =
        sequence < sequences ? turns.turns(context_lengths[sequence]) * turns.kv_heads : 0;
    __syncthreads();
    for (int step = 1; step < plan_threads; step *= 2) {
      const std::int32_t before = thread >= step ? sums[thread - step] : 0;
      __syncthreads();
      sums[thread] += before;
      __syncthreads();
    }
    if (sequence < sequences) starts[sequence + 1] = carried + sums[thread];
    __syncthreads();
    if (thread == 0) carried += sums[plan_threads - 1];
    __syncthreads();
  }

  const std::int32_t total = carried;
  const int active = min(pieces, total);
  if (thread == 0) *header = {total, active, {0, 0}};
  auto* map = reinterpret_cast<DecodePiece*>(header + 1);
  for (int index = thread; index < pieces; index += plan_threads) {
    DecodePiece piece = {};
    if (index < active) {
      const std::int32_t first = piece_start(total, active, index);
      piece.turns = piece_start(total, active, index + 1) - first;
      // The last sequence that begins at or before the turn.
      int low = 0;
      int high = sequences;
      while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (starts[middle] <= first) {
          low = middle;
        } else {
          high = middle;
        }
      }
      const std::int32_t of_head = turns.turns(context_lengths[low]);
      piece.sequence = low;
      piece.length = context_lengths[low];
      piece.kv_head = (first - starts[low]) / of_head;
      piece.turn = (first - starts[low]) % of_head;
    }
    map[index] = piece;
  }
}

}  // namespace

void launch_decode_plan(const DecodeTurns& turns, const std::int32_t* context_lengths,
                        int sequences, int pieces, std::int32_t* starts, DecodeWorkHeader* map,
                        cudaStream_t stream) {
  plan_kernel<<<1, plan_threads, 0, stream>>>(turns, context_lengths, sequences, pieces, starts,
                                              map);
  check_cuda(cudaGetLastError(), "launch of the decode plan");
}

}  // namespace octet
