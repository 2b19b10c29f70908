// How fast matrix products are on this machine's GPU, beside what its memory and cuBLASLt can do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/data_type.h"

namespace octet {

struct LinearShape {
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
  bool once = false;  // in a step, not in every layer
};

// The matrices of Llama-3.1-8B: query, key and value; attention's output; gate and up; down;
// logits.
inline const std::vector<LinearShape> llama_8b_shapes = {
    {6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}, {128256, 4096, true}};

struct LinearProductsBench {
  DataType dtype = DataType::bfloat16;
  std::int64_t rows = 1;
  std::vector<LinearShape> shapes = llama_8b_shapes;
  int layers = 0;       // of a step that runs all shapes in turn; 0: no step
  bool overlap = true;  // launches overlap as those of a step do
};

struct LinearProductFigure {
  LinearShape shape;
  double microseconds = 0;  // a launch: the median of samples over at least 200 ms
  double bytes = 0;         // of the packed weights, their scales, x and y
  double terabytes_per_second = 0;
  double teraflops = 0;
  // The rate of the fastest of cuBLASLt's own algorithms on the shape in bfloat16, weights being
  // read anew each time; 0: not measured (up to 64 rows of other weights, up to 2 of bfloat16).
  double library_teraflops = 0;
};

struct LinearProductsReport {
  std::string device;
  double read_terabytes_per_second = 0;  // weights of the same size, read and left unused
  std::vector<LinearProductFigure> figures;
  double step_microseconds = 0;  // of `layers` layers of distinct weights, in one graph
  double step_bytes = 0;
};

// Weights are random; as many copies take turns as make several times the L2. Throws
// Error{unsupported} in a build without CUDA, Error{device} where there is no GPU, and
// Error{out_of_memory}.
LinearProductsReport bench_linear_products(const LinearProductsBench& bench);

}  // namespace octet
