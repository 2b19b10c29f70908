#include "ops/linear/linear.h"

#include "core/error.h"
#include "files/block_quants.h"
#include "ops/cpu/dispatch.h"
#include "ops/linear/linear_cpu.h"
#include "ops/linear/linear_int16.h"

namespace octet {
namespace {

[[noreturn]] void fail(const LinearArgs& args, const char* what) {
  throw_error(ErrorKind::internal,
              "linear: weight '{}' {} {}: {} (rows {}, x_stride {}, y_stride {})",
              args.weight->name, traits_of(args.weight->dtype).name,
              format_shape(args.weight->shape), what, args.rows, args.x_stride, args.y_stride);
}

// Every element has its scale, and the 32 columns that the kernels take at once have the same.
void validate_scales(const LinearArgs& args) {
  const TensorView& weight = *args.weight;
  if (weight.scales == nullptr) return;
  const TensorScales& scales = *weight.scales;
  if (weight.dtype != DataType::float8_e4m3) fail(args, "expected no scales for this type");
  if (scales.block_rows < 1 || scales.block_columns < 1 || scales.grid_columns < 1) {
    fail(args, "expected blocks of scales of at least one element");
  }
  const std::int64_t grid_rows = (weight.shape[0] - 1) / scales.block_rows + 1;
  const std::int64_t grid_columns = (weight.shape[1] - 1) / scales.block_columns + 1;
  if (scales.grid_columns < grid_columns ||
      static_cast<std::int64_t>(scales.values.size()) / scales.grid_columns < grid_rows) {
    fail(args, "expected more scales");
  }
  if (grid_columns > 1 && scales.block_columns % 32 != 0) {
    fail(args, "expected blocks of scales of a multiple of 32 columns");
  }
}

void validate(const LinearArgs& args) {
  if (args.weight == nullptr) throw_error(ErrorKind::internal, "linear: there is no weight");
  const TensorView& weight = *args.weight;
  if (weight.shape.size() != 2) fail(args, "expected a matrix");
  const std::int64_t outputs = weight.shape[0];
  const std::int64_t k = weight.shape[1];
  if (outputs < 0 || k < 0) fail(args, "expected extents of at least 0");
  const DataTypeTraits traits = traits_of(weight.dtype);
  if (traits.block_elements == 0) fail(args, "unknown element type");
  if (k % traits.block_elements != 0) fail(args, "expected whole blocks in a row");
  const std::size_t row_bytes =
      static_cast<std::size_t>(k) / traits.block_elements * traits.block_bytes;
  if (row_bytes != 0 && weight.bytes / row_bytes < static_cast<std::size_t>(outputs)) {
    fail(args, "expected more bytes of data");
  }
  if (args.rows < 0) fail(args, "expected at least 0 rows");
  if (args.rows == 0 || outputs == 0) return;
  if (args.x_stride < k) fail(args, "expected x_stride to be at least the inputs");
  if (args.y_stride < outputs) fail(args, "expected y_stride to be at least the outputs");
  if (args.y == nullptr || (k > 0 && (args.x == nullptr || weight.data == nullptr))) {
    fail(args, "expected x, y and the weight's data");
  }
  validate_scales(args);
}

const LinearKernels& integer_kernels_for(const OpContext& context, DataType dtype) {
  const InstructionSet set = context.instruction_set;
  const bool int8 = context.arithmetic == Arithmetic::int8 && takes_int8(dtype);
  if constexpr (has_avx2_kernels) {
    if (set == InstructionSet::avx512_bf16) {
      return int8 ? linear_int8_kernels_avx512_bf16(dtype)
                  : linear_int16_kernels_avx512_bf16(dtype);
    }
    if (set >= InstructionSet::avx2 && int8) return linear_int8_kernels_avx2(dtype);
    if (set == InstructionSet::avx512) return linear_int16_kernels_avx512(dtype);
    if (set == InstructionSet::avx2) return linear_int16_kernels_avx2(dtype);
  }
  if (set != InstructionSet::portable) throw_no_kernel("linear", set);
  return int8 ? linear_int8_kernels_portable(dtype) : linear_int16_kernels_portable(dtype);
}

const LinearKernels& kernels_for(const OpContext& context, DataType dtype) {
  const InstructionSet set = context.instruction_set;
  const bool integers =
      context.arithmetic == Arithmetic::int16 || context.arithmetic == Arithmetic::int8;
  if (integers && has_quants(dtype)) return integer_kernels_for(context, dtype);
  if (set == InstructionSet::portable) return linear_kernels_portable();
  if constexpr (has_avx2_kernels) {
    if (set == InstructionSet::avx512_bf16 && context.arithmetic == Arithmetic::bfloat16) {
      return linear_kernels_avx512_bf16();
    }
    if (set >= InstructionSet::avx512) return linear_kernels_avx512();
    if (set == InstructionSet::avx2) return linear_kernels_avx2();
  }
  throw_no_kernel("linear", set);
}

}  // namespace

Arithmetic fastest_arithmetic(InstructionSet set) {
  return set >= InstructionSet::avx2 ? Arithmetic::int16 : Arithmetic::float32;
}

void linear(const OpContext& context, const LinearArgs& args) { linear(context, {&args, 1}); }

void linear(const OpContext& context, std::span<const LinearArgs> layers) {
  for (const LinearArgs& layer : layers) {
    validate(layer);
    const LinearArgs& first = layers.front();
    if (layer.x != first.x || layer.rows != first.rows || layer.x_stride != first.x_stride ||
        layer.weight->shape[1] != first.weight->shape[1]) {
      fail(layer, "expected the inputs of the layer that it is given with");
    }
  }
  while (!layers.empty()) {
    const LinearKernels& kernels = kernels_for(context, layers.front().weight->dtype);
    std::size_t alike = 1;
    while (alike < layers.size() &&
           &kernels_for(context, layers[alike].weight->dtype) == &kernels) {
      ++alike;
    }
    linear_cpu(context, kernels, layers.first(alike));
    layers = layers.subspan(alike);
  }
}

}  // namespace octet
