#include "core/cuda/device.h"
#include "core/error.h"
#include "models/dense_decoder_device.h"

namespace octet {

std::unique_ptr<Model> make_dense_decoder_cuda(ModelConfig, DenseWeights,
                                               std::shared_ptr<const void>, const LoadOptions&) {
  throw_error(ErrorKind::device, "no model can run on a GPU: {}", cuda_unavailable_reason());
}

}  // namespace octet
