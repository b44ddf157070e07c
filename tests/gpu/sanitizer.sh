#!/bin/sh
# What compute-sanitizer finds in the blocks of a lake that examples/nvtx.h shows it. It needs a
# GPU, nvtx3/nvToolsExtMem.h and a compute-sanitizer that takes mapped memory as a heap; where one is
# missing it says so and succeeds. `make gpu-test` runs it. The last line is `N passed, N failed`.

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

errors fits >/dev/null
! grep -q 'nvtxMemHeapRegister failed' "$dir/out" ||
  left_out 'this compute-sanitizer does not take mapped memory as a heap'
for case in fits window buffer; do
  ok "$case: no error" [ "$(errors $case)" = 0 ]
done
for case in over rounded freed window_over buffer_over; do
  found=$(errors $case)
  ok "$case: found" [ "${found:-0}" -gt 0 ]
  ok "$case: what it is" prints 'Invalid __global__ write'
  ok "$case: not without nvtx.h" [ "$(errors $case bare)" = 0 ]
done
report
