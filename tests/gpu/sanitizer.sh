#!/bin/sh
# What compute-sanitizer finds in the blocks of a lake that examples/nvtx.h shows it: in mapped memory
# if it takes that as a heap, and in plain memory. It needs a GPU, nvtx3/nvToolsExtMem.h and a
# compute-sanitizer; where one is missing it says so and succeeds. `make gpu-test` runs it. The last
# line is `N passed, N failed`.

. tests/tools/shell.sh

left_out() {
  echo "skipped: what compute-sanitizer sees of a lake: $1"
  exit 0
}

tool=$(command -v compute-sanitizer || ls "${CUDA_HOME:-/usr/local/cuda}"/bin/compute-sanitizer \
  2>/dev/null) || left_out 'there is no compute-sanitizer'
header=$(ls "${CUDA_HOME:-/usr/local/cuda}"/include/nvtx3/nvToolsExtMem.h 2>/dev/null) ||
  left_out 'there is no nvtx3/nvToolsExtMem.h'
${CC:-cc} -std=gnu99 -O1 -g -I. -Ibench -isystem "${header%/nvtx3/*}" tests/gpu/sanitizer.c \
  -o "$dir/sanitizer" -lpthread -ldl >"$dir/out" 2>&1 || left_out "$(cat "$dir/out")"
"$dir/sanitizer" fits >"$dir/out" 2>&1
[ $? != 3 ] || left_out 'there is no GPU'

# errors CASE...: how many the sanitizer counts.
errors() {
  "$tool" --tool memcheck --nvtx yes --force-blocking-launches --report-api-errors no \
    "$dir/sanitizer" "$@" >"$dir/out" 2>&1
  sed -n 's/.*ERROR SUMMARY: \([0-9]*\) error.*/\1/p' "$dir/out"
}

# check HOW LEGAL... -- WRONG...: what is legal is no error, what is wrong is found. HOW is "" for
# mapped memory.
check() {
  how=$1
  shift
  while [ "$1" != -- ]; do
    # shellcheck disable=SC2086
    ok "$1 $how: no error" [ "$(errors "$1" $how)" = 0 ]
    shift
  done
  shift
  for case in "$@"; do
    # shellcheck disable=SC2086
    found=$(errors "$case" $how)
    ok "$case $how: found" [ "${found:-0}" -gt 0 ]
    ok "$case $how: what it is" prints 'Invalid __global__ write'
  done
}

errors fits plain >/dev/null
! grep -q 'nvtxMemHeapRegister failed' "$dir/out" ||
  left_out 'this compute-sanitizer takes no heaps, or was told of none'
check plain fits window buffer -- over rounded freed window_over buffer_over
for case in over rounded freed; do
  ok "$case: not without nvtx.h" [ "$(errors $case bare)" = 0 ]
done

errors fits >/dev/null
if grep -q 'nvtxMemHeapRegister failed' "$dir/out"; then
  echo 'skipped: mapped memory: this compute-sanitizer does not take it as a heap'
else
  check '' fits window buffer -- over rounded freed window_over buffer_over
fi
report
