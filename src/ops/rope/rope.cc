#include "ops/rope/rope.h"

#include "core/error.h"
#include "ops/cpu/dispatch.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/scratch.h"
#include "ops/rope/rope_kernels.h"

namespace octet {
namespace {

// Elements below which a part is not worth handing to a thread: about 2 us.
constexpr std::int64_t min_elements = 8192;

void validate(const RopeArgs& args) {
  if (args.rows < 0) {
    throw_error(ErrorKind::internal, "rope: {} rows: expected at least 0", args.rows);
  }
  if (args.rows == 0) return;
  if (args.table == nullptr || args.positions == nullptr || args.x == nullptr) {
    throw_error(ErrorKind::internal, "rope: expected x, positions and a table");
  }
  if (args.heads < 0 || args.head_dim < 2 * args.table->pairs() ||
      args.row_stride < std::int64_t{args.heads} * args.head_dim) {
    throw_error(ErrorKind::internal,
                "rope: {} heads of {} elements, {} of them rotated, do not fit a row stride of {}",
                args.heads, args.head_dim, 2 * args.table->pairs(), args.row_stride);
  }
  for (std::int64_t row = 0; row < args.rows; ++row) {
    if (args.positions[row] < 0 || args.positions[row] >= args.table->positions()) {
      throw_error(ErrorKind::internal, "rope: position {} at row {} is not in a table of {}",
                  args.positions[row], row, args.table->positions());
    }
  }
}

const RopeKernels& kernels_for(InstructionSet set) {
  if (set == InstructionSet::portable) return rope_kernels_portable();
  if constexpr (has_avx2_kernels) {
    if (set >= InstructionSet::avx2) return rope_kernels_avx2();
  }
  throw_no_kernel("rope", set);
}

void rotate_row(const RopeArgs& args, const RopeKernels& kernels, std::int64_t row) {
  const RopeTable& table = *args.table;
  const int pairs = table.pairs();
  const float* cosines = table.cosines(args.positions[row]);
  const float* sines = table.sines(args.positions[row]);
  float* head = args.x + row * args.row_stride;
  if (args.pairing == RopePairing::half_split) {
    for (int h = 0; h < args.heads; ++h, head += args.head_dim) {
      kernels.rotate(head, head + pairs, cosines, sines, pairs, head, head + pairs);
    }
    return;
  }
  // Interleaved pairs move to other places, some of them not read yet.
  thread_local Scratch scratch;
  auto* a =
      static_cast<float*>(scratch.reserve(2 * static_cast<std::size_t>(pairs) * sizeof(float)));
  float* b = a + pairs;
  for (int h = 0; h < args.heads; ++h, head += args.head_dim) {
    kernels.split(head, pairs, a, b);
    kernels.rotate(a, b, cosines, sines, pairs, head, head + pairs);
  }
}

}  // namespace

void rope(const OpContext& context, const RopeArgs& args) {
  validate(args);
  const RopeKernels& kernels = kernels_for(context.instruction_set);
  if (args.rows == 0 || args.heads == 0 || args.table->pairs() == 0) return;
  const std::int64_t row_elements = std::int64_t{args.heads} * args.head_dim;
  parallel_ranges(context, args.rows, min_elements / row_elements + 1,
                  [&args, &kernels](std::int64_t row, std::int64_t end) {
                    for (; row < end; ++row) rotate_row(args, kernels, row);
                  });
}

}  // namespace octet
