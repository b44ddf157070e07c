#!/bin/sh
# build/gpu_test and gpu_play over the driver without a device (fake_cuda.h): all passes, without a
# driver or a device they say so, and defects planted in gmlake.h are noticed.

. tests/tools/shell.sh
program="env LD_LIBRARY_PATH=$build/fake"
FAKE_CUDA_DEVICES=2
FAKE_CUDA_GIB=1
FAKE_CUDA_SEED=1
export FAKE_CUDA_DEVICES FAKE_CUDA_GIB FAKE_CUDA_SEED

ends_with() { [ "$(tail -n 1 "$dir/out")" = "$1" ]; }

# What tests/gpu/sanitizer.sh runs on a GPU touches memory of the lake alone.
ok 'sanitizer: compiles' ${CC:-cc} -std=gnu99 -I. -Ibench -Itests/cuda_stub \
  tests/gpu/sanitizer.c -o "$dir/sanitizer" -lpthread -ldl
for case in fits over rounded freed window window_over buffer buffer_over; do
  ok "sanitizer: $case" run 0 "$dir/sanitizer" "$case"
  ok "sanitizer: $case, plain" run 0 "$dir/sanitizer" "$case" plain
done

ok 'all cases' run 0 "$build/gpu_test"
ok 'all cases: none failed' ends_with '7 passed, 0 failed'
ok 'all cases: none skipped' [ "$(grep -c ': ok (' "$dir/out")" = 7 ]
ok 'play' run 0 "$build/gpu_play" --lakes 150
ok 'play: passed' ends_with passed
ok 'play: graphs' grep -qE '[1-9][0-9]* launches, [1-9][0-9]* sleeps, [1-9]' "$dir/out"
ok 'play: a seed and seconds' run 0 "$build/gpu_play" --lakes 2 --seed 1000 --mood 2 --seconds 1
ok 'play: a line' run 0 "$build/gpu_play" --trace --play '{} P0 BA:0/0 +a=2@A ua@A EA j0@A'
ok 'play: a line: traced' prints 'gmlake_capture_end: GMLAKE_OK'
ok 'play: no line' run 1 "$build/gpu_play" --play '{} nonsense'
FAKE_CUDA_SEED=1
FAKE_CUDA_DEVICES=1
gives 'one device' 'peers: skipped (' "$build/gpu_test" peers
ok 'table' run 0 "$build/gpu_test" --table misuse
ok 'table: rows' [ "$(grep -c '^  ' "$dir/out")" -gt 40 ]
FAKE_CUDA_DEVICES=-1
ok 'no device' run 0 "$build/gpu_test"
ok 'no device: says so' ends_with 'skipped: no GPU'
gives 'no device to play' 'skipped: no GPU' "$build/gpu_play"
FAKE_CUDA_DEVICES=2

# no_driver: the library is nowhere to be found.
no_driver() { LD_LIBRARY_PATH=$dir "$build/gpu_test" >"$dir/out" 2>"$dir/err"; }
if /sbin/ldconfig -p 2>/dev/null | grep -qF 'libcuda.so.1 '; then
  echo 'a driver is installed: not tried without one'
else
  ok 'no driver' no_driver
  ok 'no driver: says so' ends_with 'skipped: no GPU'
fi

# plant NAME EDIT FINDING: gpu_play finds that if gmlake.h has this defect.
plant() {
  sed "$2" gmlake.h >"$dir/gmlake.h"
  ok "$1: planted" [ "$(diff gmlake.h "$dir/gmlake.h" | grep -c '^>')" = 1 ]
  ok "$1: built" "${CC:-cc}" -std=c99 -w -I"$dir" -I. -Ibench -Itests -Itests/cuda_stub \
    tests/gpu/gpu_play.c -o "$dir/gpu_play" -lpthread -ldl
  ok "$1: noticed" run 1 "$dir/gpu_play" --lakes 150
  ok "$1: found" grep -qE "$3" "$dir/out"
}
plant 'no wait is queued' \
  's/call.code = call.cuda->fn.StreamWaitEvent(.*/(void)stream, (void)event;/' \
  'a kernel has read what no kernel wrote'
plant 'windows are unmapped under kernels' \
  '/^static gmlake_result gmlk_evict(/,/^}/ s/if (gmlk_alias_is_done(.*{$/if (1) {/' \
  'unmapped (while work may still use it|under a graph)'
plant 'recorded streams are forgotten' \
  '/gmlake_record_stream(gmlake \*l, /,/^}/ s/if (!b) return gmlk_leave/return gmlk_leave/' \
  '(handed over|unmapped) while work may still use it|a kernel has read'

# The mock lets addresses go that are mapped; the driver beside it does not.
sed 's/ && !found->mapping_count;/;/' gmlake.h >"$dir/gmlake.h"
ok 'a lax mock: planted' [ "$(diff gmlake.h "$dir/gmlake.h" | grep -c '^>')" = 1 ]
ok 'a lax mock: built' "${CC:-cc}" -std=c99 -w -shared -fPIC -fvisibility=hidden -I"$dir" -I. \
  -Itests/cuda_stub tests/gpu/fake_cuda.c -o "$dir/libcuda.so.1" -Wl,-soname,libcuda.so.1 -lpthread -ldl
ok 'a lax mock: noticed' run 1 "$build/gpu_test" --fake "$dir/libcuda.so.1" misuse
ok 'a lax mock: which row' grep -q '^  free addresses that are mapped .*the mock accepts' "$dir/out"

# ---- The doctor ----

# doctor: build/doctor with what the environment says of the fake driver.
doctor() { run 0 "$build/doctor"; }
FAKE_CUDA_DEVICES=2
ok 'doctor' doctor
ok 'doctor: two devices' [ "$(grep -c '^device ' "$dir/out")" = 2 ]
ok 'doctor: all works' [ "$(grep -cE '(stitching|buffers|dropped|kept|mapped twice) +works$' \
  "$dir/out")" = 9 ]
ok 'doctor: what does not' prints 'does not: GMLAKE_ERROR_UNSUPPORTED: the device has none'
ok 'doctor: how many' ends_with '2 features do not work here'
FAKE_CUDA_DEVICES=1
ok 'doctor: one device' doctor
ok 'doctor: one device: one' ends_with '1 feature does not work here'
integrated() { run 0 env FAKE_CUDA_INTEGRATED=1 "$build/doctor"; }
ok 'doctor: an integrated device' integrated
ok 'doctor: an integrated device: its memory' prints " GiB of the host's, "
ok 'doctor: an integrated device: sleep' prints "has no host memory but the device's own; use GMLAKE_SLEEP_DROP"
ok 'doctor: an integrated device: two' ends_with '2 features do not work here'
no_driver() { LD_LIBRARY_PATH=$dir "$build/doctor" >"$dir/out" 2>"$dir/err"; }
ok 'doctor: no driver' no_driver
if ! grep -q '^device ' "$dir/out"; then # this machine has none
  ok 'doctor: no driver: says so' prints 'GMLAKE_ERROR_NO_DRIVER: the file is missing'
fi
refused 'doctor: an argument' 2 'doctor: all: it takes no argument' "$build/doctor" all

report
