#include "ops/embedding/embedding.h"

#include <cstddef>
#include <span>

#include "core/error.h"
#include "files/block_decode.h"
#include "ops/cpu/parallel.h"

namespace octet {
namespace {

// Elements below which a part is not worth handing to a thread: about 4 us of scalar decoding.
constexpr std::int64_t min_elements = 4096;

std::size_t row_bytes_of(const TensorView& table) {
  const DataTypeTraits traits = traits_of(table.dtype);
  return static_cast<std::size_t>(table.shape[1]) / traits.block_elements * traits.block_bytes;
}

void validate_table(const TensorView& table) {
  const DataTypeTraits traits = traits_of(table.dtype);
  if (table.shape.size() != 2 || table.shape[0] < 0 || table.shape[1] < 0 ||
      traits.block_elements == 0 || table.shape[1] % traits.block_elements != 0) {
    throw_error(ErrorKind::internal,
                "embedding: table '{}' {} {}: expected a matrix with whole blocks in a row",
                table.name, traits.name, format_shape(table.shape));
  }
  const std::size_t row_bytes = row_bytes_of(table);
  if (row_bytes != 0 && table.bytes / row_bytes < static_cast<std::size_t>(table.shape[0])) {
    throw_error(ErrorKind::internal, "embedding: table '{}' {} {}: {} bytes of data are too few",
                table.name, traits.name, format_shape(table.shape), table.bytes);
  }
}

void validate(const EmbeddingArgs& args) {
  if (args.table == nullptr) throw_error(ErrorKind::internal, "embedding: there is no table");
  validate_table(*args.table);
  if (args.rows < 0) {
    throw_error(ErrorKind::internal, "embedding: {} rows: expected at least 0", args.rows);
  }
  if (args.rows == 0) return;
  if (args.tokens == nullptr ||
      (args.table->shape[1] > 0 && (args.y == nullptr || args.table->data == nullptr))) {
    throw_error(ErrorKind::internal, "embedding: expected tokens, y and the table's data");
  }
  for (std::int64_t row = 0; row < args.rows; ++row) {
    if (args.tokens[row] < 0 || args.tokens[row] >= args.table->shape[0]) {
      throw_error(ErrorKind::internal,
                  "embedding: token {} at row {} is not in the vocabulary of {} tokens",
                  args.tokens[row], row, args.table->shape[0]);
    }
  }
}

}  // namespace

void embedding(const OpContext& context, const EmbeddingArgs& args) {
  validate(args);
  const std::int64_t width = args.table->shape[1];
  if (width == 0) return;
  const std::size_t row_bytes = row_bytes_of(*args.table);
  parallel_ranges(context, args.rows, min_elements / width + 1,
                  [&args, width, row_bytes](std::int64_t row, std::int64_t end) {
                    for (; row < end; ++row) {
                      const std::span out(args.y + row * width, static_cast<std::size_t>(width));
                      const std::int32_t token = args.tokens[row];
                      decode_blocks(args.table->dtype,
                                    args.table->data + static_cast<std::size_t>(token) * row_bytes,
                                    out);
                      if (args.table->scales != nullptr) {
                        apply_scales(*args.table->scales, token, out);
                      }
                      if (args.scale == 1.0f) continue;
                      for (float& value : out) value *= args.scale;
                    }
                  });
}

}  // namespace octet
