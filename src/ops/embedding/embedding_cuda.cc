#include "ops/embedding/embedding_cuda.h"

#include "core/error.h"
#include "ops/linear/linear_cuda.h"

namespace octet {

void embedding_cuda(const CudaLaunch& launch, const EmbeddingCudaArgs& args) {
  if (args.table == nullptr || args.rows < 0 ||
      (args.rows > 0 && (args.tokens == nullptr || args.residual == nullptr))) {
    throw_error(ErrorKind::internal, "embedding on the GPU: expected a table, tokens and residual");
  }
  decode_rows_cuda(launch, *args.table, args.tokens, args.rows, args.scale, args.residual);
}

}  // namespace octet
