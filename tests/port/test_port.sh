#!/bin/sh
# Other systems than the one the tests run on: Windows by mingw-w64 and wine, aarch64 by a
# cross-compiler and qemu. What is not installed is left out; the walk runs here in any case.
# The mock has memory on Linux alone: Windows maps a section inside a reservation only where that is
# a placeholder, and the VirtualAlloc2 of Debian 12's wine knows none. So what runs there keeps books
# alone, and the header's example is refused.

. tests/tools/shell.sh
level=-O0 # what runs is short; each night has it optimised
if [ "$whole" = yes ]; then level=-O1; fi
strict="$level -Wall -Wextra -Wpedantic -Werror"
names="$dir/names"

# Every public function is called, but those of the CUDA backend: by the walk, or by random programs
# under the judge of tests/play, which keep books alone.
sed '/IMPLEMENTATION_DONE/,$d' gmlake.h | tr '\n' ' ' | grep -oE 'GMLAKE_DEF [^;]*;' |
  grep -oE 'gmlake_[a-z_0-9]+\(' | grep -v '^gmlake_cuda' | sort -u >"$names"
ok 'it knows the functions' [ "$(wc -l <"$names")" -gt 40 ]
while read -r name; do
  ok "called: $name" grep -qF "$name" tests/port/walk.c tests/play/*.h
done <"$names"

# runs COMMAND...: the walk, or the programs, print their line.
runs() { "$@" >"$dir/out" 2>"$dir/err" && tr -d '\r' <"$dir/out" | grep -qxE 'every (function works|program holds)'; }
programs=200
if [ "$whole" = yes ]; then programs=5000; fi
play="$level -w -I. -Ibench -Itests -D_GNU_SOURCE tests/port/play.c"

# shellcheck disable=SC2086
ok 'here' $CC -std=c99 $strict -I. tests/port/walk.c -o "$dir/walk" -lpthread -ldl
ok 'here: walk' runs "$dir/walk"

# told FILE: a replay's rows without times of this machine.
told() { tr -d '\r' <"$1" | sed -E 's/"(ns|peak_metadata)[a-z_]*": [0-9.nul]+,? ?//g'; }
trace=bench/traces/opt-1.3b-LRO.gmtrace.gz

# implementations SYSTEM COMPILER: each header's once, for all programs of that system.
implementations() {
  for header in '' _bfc _offload; do
    macros=GMLAKE$(echo "$header" | tr '[:lower:]' '[:upper:]')
    # shellcheck disable=SC2086
    ok "$1: gmlake$header.h" "$2" -std=c99 $strict -I. "-D${macros}_IMPLEMENTATION" \
      "-D${macros}_BACKEND_MOCK" -x c -c "gmlake$header.h" -o "$dir/$1$header.o"
  done
}
done='-I. -D_GNU_SOURCE -DGMLAKE_IMPLEMENTATION_DONE -DGMLAKE_BFC_IMPLEMENTATION_DONE'
done="$done -DGMLAKE_OFFLOAD_IMPLEMENTATION_DONE"

# ---- Windows ----

windows=x86_64-w64-mingw32-gcc
if command -v $windows >/dev/null; then
  implementations Windows $windows
  # shellcheck disable=SC2086
  ok 'Windows: walk' $windows -std=c99 $strict $done tests/port/walk.c "$dir"/Windows*.o \
    -o "$dir/walk.exe"
  # shellcheck disable=SC2086
  ok 'Windows: programs' $windows -std=c99 $play -include tests/port/windows/posix.h -o "$dir/play.exe"
  for example in hello kv_server stitching two_streams two_models weights running_out \
    custom_backend offload_quarter; do
    # shellcheck disable=SC2086
    ok "Windows: $example" $windows -std=c99 $strict $done "examples/$example.c" \
      "$dir"/Windows*.o -o "$dir/$example.exe"
  done
  sed -n '/^EXAMPLE$/,/^WHAT/s/^      //p' gmlake.h >"$dir/header.c"
  # shellcheck disable=SC2086
  ok "Windows: the header's example" $windows -std=gnu99 $strict -I. "$dir/header.c" \
    -o "$dir/header.exe"
else
  echo "skipped: Windows, as there is no $windows"
fi
if command -v $windows >/dev/null && command -v wine >/dev/null; then
  WINEPREFIX=$dir/wine
  WINEDEBUG=-all
  export WINEPREFIX WINEDEBUG
  wine cmd /c exit >/dev/null 2>&1 # sets its folder up
  ok 'wine: walk' runs wine "$dir/walk.exe"
  ok 'wine: programs' runs wine "$dir/play.exe" $programs
  ok 'wine: offload_quarter' eval 'wine "$dir/offload_quarter.exe" >"$dir/out" 2>"$dir/err"'
  ok 'wine: kv_server' eval 'wine "$dir/kv_server.exe" >"$dir/out" 2>"$dir/err"'
  ok 'wine: kv_server: says that there is no memory' prints 'the mock has no memory on this system'
  tr -d '\r' <"$dir/out" | sed 1d >"$dir/windows.kv"
  ok 'wine: kv_server: the figures are those of here' eval \
    '"$CC" -std=c99 $level -I. examples/kv_server.c -o "$dir/kv_server" -lpthread -ldl &&
    "$dir/kv_server" | cmp - "$dir/windows.kv"'
  wine "$dir/header.exe" >"$dir/out" 2>"$dir/err"
  ok "wine: the header's example is refused" [ $? = 1 ]
  wine "$dir/hello.exe" >"$dir/out" 2>"$dir/err"
  ok 'wine: a mock with memory says that there is none' eval \
    'cat "$dir/out" "$dir/err" | grep -q GMLAKE_ERROR_UNSUPPORTED'
  if [ -f /usr/x86_64-w64-mingw32/lib/libz.a ]; then
    # shellcheck disable=SC2086
    ok 'Windows: replay' $windows -std=gnu99 $level -Wall -Wextra -Werror $done \
      -Itests/port/windows bench/replay.c "$dir"/Windows*.o -o "$dir/replay.exe" -l:libz.a -Wl,-Bstatic -lwinpthread
    wine "$dir/replay.exe" --json --once $trace >"$dir/out" 2>"$dir/err"
    told "$dir/out" >"$dir/windows.json"
    "$build/replay" --json --once $trace >"$dir/out" 2>"$dir/err"
    told "$dir/out" >"$dir/here.json"
    ok 'wine: replay' [ -s "$dir/windows.json" ]
    ok 'wine: replay decides as here' cmp "$dir/windows.json" "$dir/here.json"
  fi
  wineserver -k >/dev/null 2>&1
else
  echo 'skipped: wine, which is missing'
fi

# ---- aarch64 ----

arm=aarch64-linux-gnu-gcc
if command -v $arm >/dev/null && command -v qemu-aarch64 >/dev/null; then
  implementations aarch64 $arm
  # shellcheck disable=SC2086
  ok 'aarch64: walk' $arm -std=c99 $strict $done tests/port/walk.c "$dir"/aarch64*.o \
    -o "$dir/walk.arm" -static
  ok 'qemu: walk' runs qemu-aarch64 "$dir/walk.arm"
  # shellcheck disable=SC2086
  ok 'aarch64: programs' $arm -std=c99 $play -o "$dir/play.arm" -static
  ok 'qemu: programs' runs qemu-aarch64 "$dir/play.arm" $programs
  # shellcheck disable=SC2086
  ok 'aarch64: stitching' $arm -std=c99 $strict $done examples/stitching.c "$dir"/aarch64*.o \
    -o "$dir/stitching" -static
  ok 'qemu: stitching, with memory mapped twice' eval \
    'qemu-aarch64 "$dir/stitching" >"$dir/out" 2>"$dir/err"'
  # With cmocka of that system (libcmocka-dev:arm64), which few machines have.
  if [ -f /usr/lib/aarch64-linux-gnu/libcmocka.so ]; then
    ok 'aarch64: test_rows' $arm -std=c99 $level -w -I. -Ibench -Itests -I/usr/include \
      tests/play/test_rows.c -o "$dir/program" -lcmocka -lpthread -ldl
    ok 'qemu: test_rows' eval 'qemu-aarch64 "$dir/program" >"$dir/out" 2>"$dir/err"'
  fi
else
  echo 'skipped: aarch64, as the cross-compiler or qemu is missing'
fi

report
