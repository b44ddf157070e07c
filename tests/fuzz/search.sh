#!/bin/sh
# usage: search.sh TARGET [SECONDS]
# Lets clang's fuzzer look for inputs that break a target (fuzz_operations, fuzz_trace, fuzz_desc,
# fuzz_profile, fuzz_session or fuzz_bfc), from its corpus on. What it finds new goes to
# build/fuzz/TARGET.found; what breaks it to build/fuzz/TARGET-*. To see what an input of
# fuzz_operations does, build it with -DFUZZ_TRACE. Debian: the fuzzer is in libclang-rt-14-dev.
set -eu

target=${1:?usage: search.sh TARGET [SECONDS]}
seconds=${2:-60}
cd "$(dirname "$0")/../.."
mkdir -p "build/fuzz/$target.found"
clang -std=c99 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -I. -Ibench \
  "tests/fuzz/$target.c" -o "build/fuzz/$target.search" -lz -lpthread -ldl
set -- "build/fuzz/$target.found" "tests/fuzz/corpus/$target"
if [ -e "tests/fuzz/$target.dict" ]; then set -- "-dict=tests/fuzz/$target.dict" "$@"; fi
exec "build/fuzz/$target.search" -max_len=1500 -len_control=20 -timeout=10 -rss_limit_mb=2048 \
  -max_total_time="$seconds" -print_final_stats=1 "-artifact_prefix=build/fuzz/$target-" "$@"
