#!/usr/bin/env bash
# Makes sure that CUDA's compiler, nvcc 13 or newer, is there: in the PATH, in CUDACXX or in
# /usr/local/cuda; otherwise installs it where apt knows the toolkit's packages.
set -euo pipefail

packages=(cuda-nvcc-13-0 cuda-cudart-dev-13-0 libcublas-dev-13-0)

say() { printf 'cuda: %s\n' "$*" >&2; }

major_version() {
  "$1" --version 2>/dev/null | sed -nE 's/.*release ([0-9]+)\..*/\1/p'
}

has_compiler() {
  local candidate version
  for candidate in "${CUDACXX:-}" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc; do
    [ -n "$candidate" ] && [ -x "$candidate" ] || continue
    version=$(major_version "$candidate")
    [ -n "$version" ] && [ "$version" -ge 13 ] && return 0
  done
  return 1
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

if has_compiler; then exit 0; fi
if command -v apt-cache >/dev/null && apt-cache show "${packages[@]}" >/dev/null 2>&1; then
  say "installing with apt-get: ${packages[*]}"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends \
    "${packages[@]}" </dev/null
  if has_compiler; then exit 0; fi
fi
say "nvcc 13 or newer is neither in the PATH nor in /usr/local/cuda, and apt knows no ${packages[0]};" \
  "install NVIDIA's CUDA toolkit 13."
exit 1
