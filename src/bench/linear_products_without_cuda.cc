#include "bench/linear_products.h"
#include "core/cuda/device.h"
#include "core/error.h"

namespace octet {

LinearProductsReport bench_linear_products(const LinearProductsBench&) {
  throw_unsupported("bench linear runs on an NVIDIA GPU, and {}", cuda_unavailable_reason());
}

}  // namespace octet
