#!/bin/sh
# usage: deps.sh replay|bench|test|fuzz|mutate|proof|plots|manual|ci|lint|torch|viewer
# Installs what that target of the Makefile, or .ci/run, needs and the machine lacks (Debian and
# Ubuntu), once it has said what that is; INSTALL_PACKAGES=no: says so, and fails. torch: one for the
# CPU, on which tests/clients/test_clients.sh tries sessions. viewer: a browser, and below build/viewer
# what drives it, for tests/tools/test_viewer.sh.
set -eu

cc=${CC:-cc}
missing=

# need PACKAGE COMMAND...: the package is missing if the command fails.
need() {
  package=$1
  shift
  if ! "$@" >/dev/null 2>&1; then missing="$missing $package"; fi
}

has_header() { echo "#include <$1>" | $cc -E -x c -; }
has_cxx_library() { echo '#include <cstddef>' | "$1" -E -x c++ -; }
has_fuzzer() {
  echo 'int LLVMFuzzerTestOneInput(const char *data, unsigned long n) { return data && n > 9; }' |
    clang -fsanitize=fuzzer -x c - -o /dev/null
}
has_pip() { python3 -c "$pip_modules" || /usr/bin/python3 -c "$pip_modules"; }
pip_modules='import setuptools, pip, wheel'
has_torch() { python3 -c 'import torch' || /usr/bin/python3 -c 'import torch'; }
has_torch_headers() { python3 -c "$torch_header" || /usr/bin/python3 -c "$torch_header"; }
torch_header='from os.path import exists, join; from torch.utils.cpp_extension import include_paths
assert any(exists(join(path, "torch", "library.h")) for path in include_paths())'

case $1 in
replay | bench | test | fuzz | mutate | proof | plots | manual | ci | lint | torch | viewer) ;;
*)
  echo "usage: deps.sh replay|bench|test|fuzz|mutate|proof|plots|manual|ci|lint|torch|viewer" >&2
  exit 2
  ;;
esac

need gcc command -v "${cc%% *}"
need libc6-dev has_header stdlib.h
need zlib1g-dev has_header zlib.h
if [ "$1" = plots ]; then need gnuplot-nox command -v gnuplot; fi
if [ "$1" = manual ] || [ "$1" = plots ] || [ "$1" = mutate ] || [ "$1" = test ]; then
  need python3 command -v python3
fi
if [ "$1" = mutate ]; then
  need gcc command -v gcov
  need libcmocka-dev has_header cmocka.h
fi
if [ "$1" = proof ]; then
  need python3 command -v python3
  need frama-c-base command -v frama-c
  need why3 command -v why3
  need z3 command -v z3
  need cvc4 command -v cvc4
  need spin command -v spin
fi
if [ "$1" = bench ]; then
  need g++ has_cxx_library "${CXX:-g++}"
  need libmimalloc-dev has_header mimalloc.h
fi
if [ "$1" = test ] || [ "$1" = ci ]; then
  need gcc command -v gcc
  need libcmocka-dev has_header cmocka.h
  need g++ has_cxx_library g++
  need clang has_cxx_library clang++
  need cmake command -v cmake
  need pkgconf command -v pkg-config
fi
if [ "$1" = fuzz ]; then
  need clang command -v clang
  need libclang-rt-14-dev has_fuzzer
fi
if [ "$1" = ci ]; then
  need clang-format command -v clang-format
  need python3-pip has_pip
fi
if [ "$1" = torch ]; then
  need python3-torch has_torch
  need libtorch-dev has_torch_headers
fi
if [ "$1" = lint ]; then
  need cppcheck command -v cppcheck
  need clang-tidy command -v clang-tidy
  need valgrind command -v valgrind
  need gcc-mingw-w64-x86-64-win32 command -v x86_64-w64-mingw32-gcc
  need libz-mingw-w64-dev test -f /usr/x86_64-w64-mingw32/lib/libz.a
  need 'wine wine64' command -v wine
  need 'gcc-aarch64-linux-gnu libc6-dev-arm64-cross' command -v aarch64-linux-gnu-gcc
  need qemu-user command -v qemu-aarch64
fi
driver=${BUILD:-build}/viewer
if [ "$1" = viewer ]; then
  need 'chromium fonts-dejavu-core' command -v chromium
  need nodejs command -v node
  need npm command -v npm
fi

# What drives the browser comes from npm.
install_driver() {
  if [ "$1" != viewer ] || [ -d "$driver/node_modules/playwright-core" ]; then return; fi
  if [ "${INSTALL_PACKAGES:-}" = no ]; then
    echo "missing, please install: npm install --prefix $driver playwright-core" >&2
    exit 1
  fi
  echo "now installed into $driver by npm: playwright-core" >&2
  mkdir -p "$driver"
  npm install --prefix "$driver" --ignore-scripts --no-audit --no-fund playwright-core@1.65.1 >&2
}
if [ -z "$missing" ]; then
  install_driver "$1"
  exit 0
fi

as_root=
if [ "$(id -u)" != 0 ]; then as_root="sudo -n"; fi
if [ "${INSTALL_PACKAGES:-}" = no ] || ! command -v apt-get >/dev/null 2>&1 ||
  ! $as_root true >/dev/null 2>&1; then
  echo "missing, please install:$missing" >&2
  exit 1
fi
echo "missing:$missing" >&2
echo "now installed by: ${as_root:+$as_root }apt-get install --no-install-recommends$missing" >&2
echo '(INSTALL_PACKAGES=no only says what is missing)' >&2
export DEBIAN_FRONTEND=noninteractive

# apt_get ARGUMENT...: again as long as another process holds a lock of apt's or dpkg's, for ten
# minutes at most.
apt_get() {
  left=60
  said=$(mktemp)
  until LC_ALL=C $as_root apt-get "$@" >"$said" 2>&1; do
    cat "$said"
    if ! grep -qE 'Could not get lock|Unable to (acquire|lock)' "$said" || [ "$left" = 0 ]; then
      rm -f "$said"
      return 1
    fi
    echo "another process installs packages: waiting for it, $left times 10 s at most"
    left=$((left - 1))
    sleep 10
  done
  cat "$said"
  rm -f "$said"
}

{
  apt_get update -q
  # shellcheck disable=SC2086
  apt_get install -y -q --no-install-recommends $missing
} >&2
install_driver "$1"
