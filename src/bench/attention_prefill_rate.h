// The rate at which the GPU multiplies e4m3: what a prefill kernel is held to.
#pragma once

namespace octet {

// TFLOPS of the tensor cores multiplying random e4m3 numbers from shared memory, nothing else: the
// median of samples over at least 200 ms.
double measure_multiply_rate(int multiprocessors);

}  // namespace octet
