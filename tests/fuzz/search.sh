#!/bin/sh
# usage: search.sh TARGET|all [SECONDS]
# Lets clang's fuzzer look for inputs that break a target (fuzz_play, fuzz_trace, fuzz_session or
# fuzz_graph), from its corpus on. What it finds new goes to build/fuzz/TARGET.found; what breaks it
# to build/fuzz/TARGET-*. all: one target after the other, each for so many seconds; fails if one
# was broken. fuzz_play tells an input as a line that `build/test_random --play` plays, fuzz_session
# one for `build/test_offload_session --play`.
# Debian: the fuzzer is in libclang-rt-14-dev.
set -eu

target=${1:?usage: search.sh TARGET|all [SECONDS]}
seconds=${2:-60}
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
if [ "$target" = all ]; then
  broken=
  for source in tests/fuzz/fuzz_*.c; do
    target=$(basename "$source" .c)
    sh tests/fuzz/search.sh "$target" "$seconds" || broken="$broken $target"
  done
  if [ -n "$broken" ]; then
    echo "broken:$broken; the inputs are $build/fuzz/TARGET-*" >&2
    exit 1
  fi
  exit 0
fi
mkdir -p "$build/fuzz/$target.found"
clang -std=c99 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -D_GNU_SOURCE -I. \
  -Ibench -Itests "tests/fuzz/$target.c" -o "$build/fuzz/$target.search" -lz -lpthread -ldl
set -- "$build/fuzz/$target.found" "tests/fuzz/corpus/$target"
if [ -e "tests/fuzz/$target.dict" ]; then set -- "-dict=tests/fuzz/$target.dict" "$@"; fi
exec "$build/fuzz/$target.search" -max_len=1500 -len_control=20 -timeout=10 -rss_limit_mb=2048 \
  -max_total_time="$seconds" -print_final_stats=1 "-artifact_prefix=$build/fuzz/$target-" "$@"
