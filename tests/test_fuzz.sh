#!/bin/sh
# Replays the inputs of tests/fuzz/corpus through the fuzz targets, with any compiler: what once
# reached a new corner, or broke something, is tried again. Searching for more: tests/fuzz/search.sh.
set -u

build=${BUILD:-build}
mkdir -p "$build/fuzz" || exit 1
cc=${CC:-cc}
log=$build/fuzz/replay.log
passed=0
failed=0

for source in tests/fuzz/fuzz_*.c; do
  target=$(basename "$source" .c)
  program=$build/fuzz/$target
  count=$(find "tests/fuzz/corpus/$target" -type f | wc -l)
  # shellcheck disable=SC2086
  if $cc -std=c99 -O1 -g -Wall -Wextra -Werror -I. -Ibench ${CPPFLAGS:-} ${CFLAGS:-} "$source" \
    tests/fuzz/replay_main.c -o "$program" ${LDFLAGS:-} -lz -lpthread -ldl ${LDLIBS:-} >"$log" 2>&1 &&
    [ "$count" -gt 0 ] && find "tests/fuzz/corpus/$target" -type f -exec "$program" {} + >"$log" 2>&1; then
    passed=$((passed + count))
  else
    failed=$((failed + 1))
    echo "FAILED: $target, in the input named last:"
    tail -n 20 "$log"
  fi
done

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
