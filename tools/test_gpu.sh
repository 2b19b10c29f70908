#!/usr/bin/env bash
# Reads the compiler's report on Hopper's attention kernels, runs the GPU's tests, then a reduced set under
# compute-sanitizer: out-of-bounds accesses, and barriers that not all threads reach. Its racecheck is not run: docs/kernels/decode_sm90.md says why.
#   tools/test_gpu.sh BUILD_FOLDER
set -euo pipefail

[ $# -eq 1 ] || { echo "usage: tools/test_gpu.sh BUILD_FOLDER" >&2; exit 2; }
tests=$1/octet_gpu_tests

ctest --test-dir "$1" --output-on-failure -R '^house\.(prefill|decode)_kernels$'
"$tests"
# The server as its clients meet it, over models on the GPU.
for test in hostile lifetime; do
  echo "test-gpu: tests/server/${test}_test.py"
  OCTET_BINARY=$(realpath "$1/octet") python3 -B "tests/server/${test}_test.py"
done
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
if [ ! -x "$sanitizer" ]; then
  echo "test-gpu: compute-sanitizer is missing; it comes with the CUDA toolkit" >&2
  exit 1
fi
# Small problems only: the sanitizer runs a kernel a hundred times slower.
for tool in memcheck synccheck; do
  echo "test-gpu: compute-sanitizer $tool"
  "$sanitizer" --tool "$tool" --error-exitcode 1 "$tests" --gtest_filter='*Sanitized*'
done
echo "test-gpu: all passed"
