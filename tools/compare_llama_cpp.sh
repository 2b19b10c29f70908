#!/usr/bin/env bash
# octet and llama.cpp on the same model file and the same cores, in turn: prints a table of ratios.
#
#   tools/compare_llama_cpp.sh MODEL.gguf [options of compare_llama_cpp.py]
#   tools/compare_llama_cpp.sh --server MODEL.gguf [options of compare_llama_cpp_server.py]
#
# Builds llama.cpp once, from the source package of llama-cpp-python 0.3.36 (pinned checksum), for
# this machine's own CPU (Release, GGML_NATIVE), into $LLAMA_CPP_FOLDER (default: a folder of the user's
# cache), at low priority. COMPARE_JOBS (default: all processors) bounds the compiler's processes.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.3.36
checksum=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
folder=${LLAMA_CPP_FOLDER:-${XDG_CACHE_HOME:-$HOME/.cache}/octet/llama_cpp_python-$version}
bin=$folder/build/bin
targets=(llama-bench llama-quantize)
compare=(tools/compare_llama_cpp.py --llama-bench "$bin/llama-bench" --llama-quantize "$bin/llama-quantize")
if [ "${1:-}" = --server ]; then
  shift
  targets=(llama-server)
  compare=(tools/compare_llama_cpp_server.py --llama-server "$bin/llama-server")
fi

build_llama_cpp() {
  mkdir -p "$folder"
  local package=$folder/llama_cpp_python-$version.tar.gz
  if [ ! -f "$package" ]; then
    python3 -m pip download --quiet --no-deps --no-binary llama-cpp-python --dest "$folder" \
      "llama-cpp-python==$version"
  fi
  echo "$checksum  $package" | sha256sum --check --quiet
  tar -xzf "$package" -C "$folder"
  # Without TLS and its web page, which the build would fetch.
  cmake -G Ninja -S "$folder/llama_cpp_python-$version/vendor/llama.cpp" -B "$folder/build" \
    -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF -DLLAMA_OPENSSL=OFF \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=ON -DLLAMA_BUILD_APP=OFF \
    -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF
  nice -n 19 cmake --build "$folder/build" --target "${targets[@]}" -j "${COMPARE_JOBS:-$(nproc)}"
}

for target in "${targets[@]}"; do
  [ -x "$bin/$target" ] && continue
  echo "compare: building llama.cpp's $target in $folder" >&2
  build_llama_cpp >&2
done
exec python3 "${compare[@]}" "$@"
