#!/usr/bin/env bash
# Runs every fuzzer of a folder for some seconds each; the first input that breaks one fails it all.
#   tools/run_fuzzers.sh FOLDER SECONDS
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: tools/run_fuzzers.sh FOLDER SECONDS" >&2; exit 2; }
folder=$1
seconds=$2

shopt -s nullglob
fuzzers=("$folder"/*_fuzz)
[ ${#fuzzers[@]} -gt 0 ] || { echo "fuzz: there is no fuzzer in $folder." >&2; exit 1; }

for fuzzer in "${fuzzers[@]}"; do
  name=$(basename "$fuzzer")
  corpus=$folder/corpus/$name    # grows from run to run
  findings=$folder/findings/$name
  mkdir -p "$corpus" "$findings"
  echo "fuzz: $name for $seconds s"
  # Tokens of the format, where the fuzzer brings a list of them.
  dictionary=()
  [ -f "$fuzzer.dict" ] && dictionary=(-dict="$fuzzer.dict")
  "$fuzzer" "${dictionary[@]}" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$findings/" "$corpus" </dev/null || {
    echo "fuzz: $name failed; the input is in $findings." >&2
    exit 1
  }
done
echo "fuzz: ${#fuzzers[@]} fuzzers, nothing found"
