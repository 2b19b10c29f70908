// Blocking of a linear layer for CPUs.
//
// Few rows (decode): each thread streams through its share of the stored weights once, decoding in
// registers.
// Many rows (prefill): x is packed once into tiles of a few rows; a task decodes some outputs into
// panels that stay in the second-level cache, then runs all its row tiles over them. So a weight is
// decoded once per row block, which costs under 1 % of its multiplications for 512 rows.
#include "ops/linear/linear_cpu.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/cpu/parallel.h"
#include "ops/cpu/scratch.h"

namespace octet {
namespace {

// Bytes of decoded panels that a task works on: under half of a second-level cache of 512 KB, the
// rest being for x and the stored weights.
constexpr std::int64_t panel_budget = 192 * 1024;
// Rows packed at a time, the server's prefill chunk; bounds the working memory of long prompts (K =
// 4,864: 10 MB). Their packed tiles stream from the third level, at two bytes a cycle.
constexpr std::int64_t rows_at_once = 512;
constexpr std::int64_t max_rows_per_task = 512;
// Multiplications below which a part is not worth handing to a thread: 2 to 4 us.
constexpr std::int64_t min_multiplications = 32768;

struct Job {
  const LinearKernels& kernels;
  std::span<const LinearArgs> layers;  // of the same x
  const LinearArgs& first;             // of them
  Arithmetic arithmetic;
  std::int64_t outputs;  // of all layers
  std::int64_t k;
  std::int64_t padded_k;
  // Of the rows being worked on:
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::byte* packed = nullptr;
  bool packed_direct = false;  // for multiply_direct where that takes another form
  // A task's share:
  std::int64_t outputs_per_task = 0;
  std::int64_t tiles_per_task = 0;
};

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::int64_t packed_row_bytes(const Job& job) {
  const std::size_t bytes =
      job.packed_direct ? job.kernels.packed_direct_bytes : job.kernels.packed_bytes;
  return job.padded_k / job.kernels.k_step * static_cast<std::int64_t>(bytes);
}

std::int64_t panel_row_bytes(const Job& job) {
  return job.padded_k / job.kernels.k_step * static_cast<std::int64_t>(job.kernels.panel_bytes);
}

std::int64_t row_tiles(const Job& job) { return ceil_divide(job.rows, job.kernels.tile_rows); }

int rows_of_tile(const Job& job, std::int64_t tile) {
  const std::int64_t left = job.rows - tile * job.kernels.tile_rows;
  return static_cast<int>(std::min<std::int64_t>(left, job.kernels.tile_rows));
}

std::byte* packed_tile(const Job& job, std::int64_t tile) {
  return job.packed + tile * job.kernels.tile_rows * packed_row_bytes(job);
}

void pack(const OpContext& context, Job& job) {
  // Of the calling thread; the workers only read and write through the pointer.
  thread_local Scratch scratch;
  job.packed = static_cast<std::byte*>(
      scratch.reserve(static_cast<std::size_t>(job.rows * packed_row_bytes(job))));
  const std::int64_t tile_elements = job.kernels.tile_rows * job.padded_k;
  const std::int64_t min_tiles = min_multiplications / std::max<std::int64_t>(tile_elements, 1) + 1;
  const auto pack_rows = job.packed_direct ? job.kernels.pack_direct : job.kernels.pack_rows;
  parallel_ranges(
      context, row_tiles(job), min_tiles, [&job, pack_rows](std::int64_t tile, std::int64_t end) {
        for (; tile < end; ++tile) {
          const std::int64_t row = job.first_row + tile * job.kernels.tile_rows;
          pack_rows(job.first.x + row * job.first.x_stride, job.first.x_stride,
                    rows_of_tile(job, tile), job.k, job.arithmetic, packed_tile(job, tile));
        }
      });
}

WeightRows weight_rows(const Job& job, const LinearArgs& layer, std::int64_t first,
                       std::int64_t count) {
  const TensorView& weight = *layer.weight;
  const DataTypeTraits traits = traits_of(weight.dtype);
  const std::int64_t row_bytes = job.k / traits.block_elements * traits.block_bytes;
  return {.dtype = weight.dtype,
          .data = weight.data + first * row_bytes,
          .row_bytes = row_bytes,
          .outputs = count,
          .k = job.k,
          .scales = weight.scales.get(),
          .first_row = first};
}

OutputTile output_tile(const LinearArgs& layer, std::int64_t row, std::int64_t output) {
  return {.y = layer.y + row * layer.y_stride + output,
          .y_stride = layer.y_stride,
          .bias = layer.bias == nullptr ? nullptr : layer.bias + output};
}

// Shares of `unit` outputs that the layers consist of; none holds outputs of two.
std::int64_t shares_of(const LinearArgs& layer, std::int64_t unit) {
  return ceil_divide(layer.weight->shape[0], unit);
}
std::int64_t shares_of(const Job& job, std::int64_t unit) {
  std::int64_t shares = 0;
  for (const LinearArgs& layer : job.layers) shares += shares_of(layer, unit);
  return shares;
}

// Calls body(layer, first share, last share + 1) for each layer that has some of these shares.
template <class Body>
void for_shares(const Job& job, std::int64_t unit, std::int64_t begin, std::int64_t end,
                const Body& body) {
  for (const LinearArgs& layer : job.layers) {
    const std::int64_t shares = shares_of(layer, unit);
    const std::int64_t first = std::max<std::int64_t>(begin, 0);
    const std::int64_t last = std::min(end, shares);
    if (first < last) body(layer, first, last);
    begin -= shares;
    end -= shares;
  }
}

// Outputs are handed out by eights, a multiple of what all kernels take through the weights at
// once.
void run_direct(const OpContext& context, Job& job) {
  constexpr std::int64_t unit = 8;
  job.packed_direct = job.kernels.pack_direct != nullptr;
  pack(context, job);
  const std::int64_t unit_cost = std::max<std::int64_t>(unit * job.padded_k * job.rows, 1);
  parallel_ranges(
      context, shares_of(job, unit), ceil_divide(min_multiplications, unit_cost),
      [&job](std::int64_t begin, std::int64_t end) {
        for_shares(job, unit, begin, end,
                   [&job](const LinearArgs& layer, std::int64_t from, std::int64_t to) {
                     const std::int64_t first = from * unit;
                     const std::int64_t count = std::min(to * unit, layer.weight->shape[0]) - first;
                     job.kernels.multiply_direct(job.packed, static_cast<int>(job.rows),
                                                 weight_rows(job, layer, first, count),
                                                 output_tile(layer, job.first_row, first));
                   });
      });
}

// Large enough to decode seldom, small enough to keep all threads busy to the end.
void choose_task_size(const OpContext& context, Job& job) {
  const std::int64_t unit = job.kernels.panel_outputs;
  const std::int64_t fitting = panel_budget / std::max<std::int64_t>(panel_row_bytes(job), 1);
  std::int64_t outputs = std::clamp<std::int64_t>(fitting, 4, job.kernels.most_outputs);
  std::int64_t tiles = std::max<std::int64_t>(
      1, std::min(row_tiles(job), max_rows_per_task / job.kernels.tile_rows));
  const std::int64_t threads = thread_count(context);
  const std::int64_t wanted = threads == 1 ? 1 : 4 * threads;
  const auto tasks = [&] {
    return ceil_divide(job.outputs, outputs) * ceil_divide(row_tiles(job), tiles);
  };
  while (tasks() < wanted && outputs > 16) outputs /= 2;
  while (tasks() < wanted && tiles > 4) tiles = ceil_divide(tiles, 2);
  // Equal shares rather than full ones and a small rest.
  outputs = ceil_divide(job.outputs, ceil_divide(job.outputs, outputs));
  job.outputs_per_task = ceil_divide(outputs, unit) * unit;
  job.tiles_per_task = ceil_divide(row_tiles(job), ceil_divide(row_tiles(job), tiles));
}

void decode_panels(const Job& job, const LinearArgs& layer, std::int64_t first, std::int64_t count,
                   std::byte* panels) {
  const std::int64_t unit = job.kernels.panel_outputs;
  for (std::int64_t output = 0; output < count; output += unit) {
    job.kernels.decode_panel(
        weight_rows(job, layer, first + output, std::min(unit, count - output)), job.arithmetic,
        panels + output * panel_row_bytes(job));
  }
}

// Some row tiles of a share of a layer's outputs.
void run_share(const Job& job, const LinearArgs& layer, std::int64_t share,
               std::int64_t row_block) {
  const std::int64_t first = share * job.outputs_per_task;
  const std::int64_t count = std::min(job.outputs_per_task, layer.weight->shape[0] - first);
  const std::int64_t first_tile = row_block * job.tiles_per_task;
  const std::int64_t end_tile = std::min(first_tile + job.tiles_per_task, row_tiles(job));

  thread_local Scratch scratch;
  auto* panels = static_cast<std::byte*>(
      scratch.reserve(static_cast<std::size_t>(job.outputs_per_task * panel_row_bytes(job))));
  decode_panels(job, layer, first, count, panels);
  for (std::int64_t tile = first_tile; tile < end_tile; ++tile) {
    const std::int64_t row = job.first_row + tile * job.kernels.tile_rows;
    job.kernels.multiply(packed_tile(job, tile), rows_of_tile(job, tile), panels, count,
                         job.padded_k, output_tile(layer, row, first));
  }
}

void run_task(const Job& job, std::int64_t index) {
  const std::int64_t blocks = ceil_divide(row_tiles(job), job.tiles_per_task);
  const std::int64_t share = index / blocks;
  for_shares(
      job, job.outputs_per_task, share, share + 1,
      [&job, row_block = index % blocks](const LinearArgs& layer, std::int64_t from, std::int64_t) {
        run_share(job, layer, from, row_block);
      });
}

void run_panels(const OpContext& context, Job& job) {
  const std::int64_t total = job.first.rows;
  const std::int64_t blocks = ceil_divide(total, rows_at_once);
  const std::int64_t tile_rows = job.kernels.tile_rows;
  const std::int64_t block_rows = ceil_divide(ceil_divide(total, blocks), tile_rows) * tile_rows;
  for (job.first_row = 0; job.first_row < total; job.first_row += block_rows) {
    job.rows = std::min(block_rows, total - job.first_row);
    pack(context, job);
    choose_task_size(context, job);
    const std::int64_t tasks =
        shares_of(job, job.outputs_per_task) * ceil_divide(row_tiles(job), job.tiles_per_task);
    const std::int64_t work = job.rows * job.outputs * std::max<std::int64_t>(job.padded_k, 1);
    if (context.pool == nullptr || work < 2 * min_multiplications) {
      for (std::int64_t task = 0; task < tasks; ++task) run_task(job, task);
    } else {
      context.pool->parallel_for(tasks, [&job](std::int64_t task, int) { run_task(job, task); });
    }
  }
}

}  // namespace

void linear_cpu(const OpContext& context, const LinearKernels& kernels,
                std::span<const LinearArgs> layers) {
  const LinearArgs& first = layers.front();
  const std::int64_t k = first.weight->shape[1];
  Job job = {.kernels = kernels,
             .layers = layers,
             .first = first,
             .arithmetic = context.arithmetic,
             .outputs = 0,
             .k = k,
             .padded_k = ceil_divide(k, kernels.k_step) * kernels.k_step};
  for (const LinearArgs& layer : layers) job.outputs += layer.weight->shape[0];
  if (job.outputs == 0 || first.rows == 0) return;
  const bool has_direct = context.arithmetic != Arithmetic::bfloat16 || kernels.direct_bfloat16;
  if (first.rows <= kernels.direct_rows && has_direct) {
    job.rows = first.rows;
    run_direct(context, job);
  } else {
    run_panels(context, job);
  }
}

}  // namespace octet
