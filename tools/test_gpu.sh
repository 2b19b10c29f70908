#!/usr/bin/env bash
# Runs the GPU's tests, then a reduced set under compute-sanitizer: out-of-bounds and leaked accesses,
# races in shared memory, barriers that not all threads reach.
#   tools/test_gpu.sh BUILD_FOLDER
set -euo pipefail

[ $# -eq 1 ] || { echo "usage: tools/test_gpu.sh BUILD_FOLDER" >&2; exit 2; }
tests=$1/octet_gpu_tests
# Small problems only: the sanitizer runs a kernel a hundred times slower.
reduced='--gtest_filter=*Sanitized*'

"$tests"
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
[ -x "$sanitizer" ] || { echo "test-gpu: compute-sanitizer is missing; it comes with the CUDA toolkit" >&2; exit 1; }
for tool in memcheck racecheck synccheck; do
  echo "test-gpu: compute-sanitizer $tool"
  "$sanitizer" --tool "$tool" --error-exitcode 1 "$tests" "$reduced"
done
echo "test-gpu: all passed"
