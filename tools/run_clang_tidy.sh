#!/usr/bin/env bash
# Runs clang-tidy over source files, several at a time; any finding fails.
#   tools/run_clang_tidy.sh BUILD_FOLDER JOBS FILE...
set -euo pipefail
[ $# -ge 3 ] || { echo "usage: tools/run_clang_tidy.sh BUILD_FOLDER JOBS FILE..." >&2; exit 2; }
build=$1
jobs=$2
shift 2

# One file's findings in one piece, without the counts of warnings in other people's headers.
check() {
  local findings status=0
  findings=$(clang-tidy-14 -p "$1" --quiet "$2" 2>&1) || status=$?
  printf 'clang-tidy: %s\n' "$2"
  grep -vE '^[0-9]+ warnings?( and [0-9]+ errors?)? generated\.$' <<<"$findings" | grep . || true
  return "$status"
}
export -f check

echo "clang-tidy: $# files, about 10 s each"
printf '%s\0' "$@" | xargs -0 -n 1 -P "$jobs" bash -c 'check "$0" "$1"' "$build" ||
  { echo "clang-tidy: findings above" >&2; exit 1; }
echo "clang-tidy: no findings"
