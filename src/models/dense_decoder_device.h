// The dense decoder on a GPU; in a build without CUDA it cannot be had.
#pragma once

#include <memory>

#include "models/dense_decoder.h"

namespace octet {

// Throws Error{device} where no GPU can be had, Error{out_of_memory} where it is too small, and
// Error{unsupported} for a model that its operations do not take.
std::unique_ptr<Model> make_dense_decoder_cuda(ModelConfig config, DenseWeights weights,
                                               std::shared_ptr<const void> storage,
                                               const LoadOptions& options);

}  // namespace octet
