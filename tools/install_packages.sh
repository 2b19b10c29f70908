#!/usr/bin/env bash
# Installs the Debian 12 packages of the named groups, where any is missing; asks for root only then.
#   tools/install_packages.sh GROUP...    groups: build test browser fuzz lint
set -euo pipefail

build_packages=(g++ cmake ninja-build make ccache pkg-config ca-certificates
  python3 python3-pip python3-venv
  libfmt-dev nlohmann-json3-dev libcli11-dev libutf8proc-dev libpcre2-dev libxxhash-dev
  libboost-dev libspdlog-dev prometheus-cpp-dev libssl-dev)
test_packages=(libgtest-dev)
browser_packages=(chromium chromium-driver)
fuzz_packages=(clang-14 libclang-rt-14-dev)
lint_packages=(clang-format-14 clang-tidy-14 git)

say() { printf 'packages: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

packages_of() {
  case "$1" in
    build) printf '%s\n' "${build_packages[@]}" ;;
    test) printf '%s\n' "${test_packages[@]}" ;;
    browser) printf '%s\n' "${browser_packages[@]}" ;;
    fuzz) printf '%s\n' "${fuzz_packages[@]}" ;;
    lint) printf '%s\n' "${lint_packages[@]}" ;;
    *) return 1 ;;
  esac
}

is_installed() {
  [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Runs a command as root: as it is for root, through sudo for others.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

apt() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -q \
    -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 "$@" </dev/null
}

[ $# -gt 0 ] || fail "name at least one group of build, test, browser, fuzz, lint."

missing=()
wanted=()
for group in "$@"; do
  packages=$(packages_of "$group") || fail "'$group' is no group; the groups are build, test, browser, fuzz, lint."
  while read -r package; do wanted+=("$package"); done <<<"$packages"
done
if ! command -v dpkg-query >/dev/null; then
  say "this is no Debian system; install what these Debian packages hold yourself: ${wanted[*]}"
  exit 0
fi
for package in "${wanted[@]}"; do
  is_installed "$package" || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
  fail "missing, and neither root nor sudo to install them: run as root 'apt-get install ${missing[*]}'."
fi
say "installing with apt-get: ${missing[*]}"
apt update || fail "apt-get update failed; its message is above."
apt install -y --no-install-recommends "${missing[@]}" ||
  fail "apt-get could not install ${missing[*]}; its message is above."
say "installed."
