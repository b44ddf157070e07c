#!/bin/sh
# build/gpu_test over the driver without a device (fake_cuda.h): every case passes, without a driver
# or a device it says so, and defects planted in gmlake.h are noticed.

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

small='--operations 3000 --replays 60 --recaptures 40'
# shellcheck disable=SC2086
ok 'all cases' run 0 "$build/gpu_test" $small
ok 'all cases: none failed' ends_with '21 passed, 0 failed'
ok 'all cases: none skipped' [ "$(grep -c ': ok (' "$dir/out")" = 21 ]
for seed in 2 3 4; do
  FAKE_CUDA_SEED=$seed
  ok "traffic, seed $seed" run 0 "$build/gpu_test" --operations 3000 --seed $seed traffic
done
ok 'traffic in rounds' run 0 "$build/gpu_test" --operations 500 --rounds 2 traffic
ok 'traffic in rounds: two' grep -qF ') 2 rounds: ' "$dir/out"
ok 'traffic for seconds' run 0 "$build/gpu_test" --operations 500 --seconds 1 traffic
ok 'traffic for seconds: rounds' grep -qE '\) [1-9][0-9]* rounds: ' "$dir/out"
FAKE_CUDA_SEED=5
ok 'captures, another seed' run 0 "$build/gpu_test" --seed 5 --replays 60 capture other-thread
ok 'one process' run 0 "$build/gpu_test" --no-fork --seed 5 trim contexts destroy fault
ok 'one process: nothing is lost there' ends_with '3 passed, 0 failed'
FAKE_CUDA_SEED=1
FAKE_CUDA_DEVICES=1
gives 'one device' 'peers: skipped (' "$build/gpu_test" peers
ok 'table' run 0 "$build/gpu_test" --table misuse
ok 'table: rows' [ "$(grep -c '^  ' "$dir/out")" -gt 40 ]
FAKE_CUDA_DEVICES=-1
ok 'no device' run 0 "$build/gpu_test"
ok 'no device: says so' ends_with 'skipped: no GPU'
FAKE_CUDA_DEVICES=2

# no_driver: the library is nowhere to be found.
no_driver() { LD_LIBRARY_PATH=$dir "$build/gpu_test" >"$dir/out" 2>"$dir/err"; }
if /sbin/ldconfig -p 2>/dev/null | grep -qF 'libcuda.so.1 '; then
  echo 'a driver is installed: not tried without one'
else
  ok 'no driver' no_driver
  ok 'no driver: says so' ends_with 'skipped: no GPU'
fi

for arguments in '--operations' '--operations 0' '--replays x' '--seed 1x' '--fake' \
  'nonsense'; do
  # shellcheck disable=SC2086
  ok "refused: $arguments" run 2 "$build/gpu_test" $arguments
  ok "refused: $arguments: silent" [ ! -s "$dir/out" ]
done

# plant NAME EDIT: the traffic case fails if gmlake.h has this defect.
plant() {
  sed "$2" gmlake.h >"$dir/gmlake.h"
  ok "$1: planted" [ "$(diff gmlake.h "$dir/gmlake.h" | grep -c '^>')" = 1 ]
  ok "$1: built" "${CC:-cc}" -std=c99 -w -I"$dir" -I. -Ibench -Itests -Itests/cuda_stub \
    tests/gpu/gpu_test.c -o "$dir/gpu_test" -lpthread -ldl
  ok "$1: noticed" run 1 "$dir/gpu_test" --operations 3000 traffic
  ok "$1: by words or faults" grep -qE '[0-9] wrong words|answers 700|DEVICE_LOST' "$dir/out"
}
plant 'no wait is queued' \
  's/call.code = call.cuda->fn.StreamWaitEvent(.*/(void)stream, (void)event;/'
plant 'windows are unmapped under kernels' \
  '/^static gmlake_result gmlk_evict(/,/^}/ s/if (gmlk_alias_is_done(.*{$/if (1) {/'
plant 'recorded streams are forgotten' \
  '/^static gmlake_result gmlk_record_stream/,/^}/ s/if (!b) return result;/return result;/'

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
no_driver() { LD_LIBRARY_PATH=$dir "$build/doctor" >"$dir/out" 2>"$dir/err"; }
ok 'doctor: no driver' no_driver
if ! grep -q '^device ' "$dir/out"; then # this machine has none
  ok 'doctor: no driver: says so' prints 'GMLAKE_ERROR_NO_DRIVER: the file is missing'
fi
refused 'doctor: an argument' 2 'doctor: all: it takes no argument' "$build/doctor" all

report
