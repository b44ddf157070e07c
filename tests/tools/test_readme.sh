#!/bin/sh
# The code in README.md and in the manuals of the headers compiles without a warning and runs, on
# the mock. A block is a program if it has a main, an implementation file if it defines
# GMLAKE_IMPLEMENTATION, and else a part of one program, in the order of the text. And the programs
# print the figures that bench/RESULTS.md has of them.

. tests/tools/shell.sh
flags='-std=c99 -Wall -Wextra -Wpedantic -Werror -I.'
libs='-lpthread -ldl'

# compile_and_run SOURCE...: with the compiler's flags among them.
compile_and_run() {
  # shellcheck disable=SC2086
  "$CC" $flags "$@" -o "$dir/program" $libs >"$dir/out" 2>&1 && "$dir/program" >"$dir/out" 2>&1
}

# on_cuda SOURCE: the same for a program of the driver's, on the driver without a device.
on_cuda() {
  # shellcheck disable=SC2086
  "$CC" $flags -Itests/cuda_stub "$1" "$build/fake/libcuda.so.1" -o "$dir/program" $libs &&
    LD_LIBRARY_PATH=$build/fake "$dir/program" >"$dir/printed"
}

# What a reader of the examples brings along: streams, kernels, the driver.
cat >"$dir/world.h" <<'END'
#include "gmlake.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef unsigned long long CUdeviceptr;
enum { CUDA_SUCCESS = 0, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1 };
static gmlake_backend *mock;
static inline gmlake_result create_on_mock(const gmlake_desc *desc, gmlake **out_lake) {
  gmlake_desc copy;
  memset(&copy, 0, sizeof copy);
  if (desc) copy = *desc;
  if (!copy.backend) copy.backend = mock;
  return gmlake_create(&copy, out_lake);
}
#define gmlake_create create_on_mock
static inline void launch(void *memory, gmlake_stream stream) {
  (void)stream;
  memset(memory, 1, 1000);
}
static inline void wait_for(gmlake_stream waiting, gmlake_stream other) {
  (void)waiting, (void)other;
}
static inline int cuStreamBeginCapture(gmlake_stream stream, int mode) {
  return mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL || gmlake_mock_capture_begin(mock, stream);
}
static inline int cuStreamEndCapture(gmlake_stream stream, void **graph) {
  *graph = NULL;
  if (gmlake_mock_capture_end(mock, stream)) exit(3);
  return 0;
}
static inline int cuMemAlloc(CUdeviceptr *out_address, size_t bytes) {
  *out_address = (CUdeviceptr)(size_t)malloc(bytes);
  return *out_address ? CUDA_SUCCESS : 2;
}
static inline int cuMemFree(CUdeviceptr address) {
  free((void *)(size_t)address);
  return CUDA_SUCCESS;
}
END
printf '%s\n' '#define GMLAKE_IMPLEMENTATION' '#define GMLAKE_BACKEND_MOCK' '#include "gmlake.h"' \
  >"$dir/lake.c"
printf '%s\n' '#define GMLAKE_BFC_IMPLEMENTATION' '#include "gmlake_bfc.h"' >"$dir/bfc.c"

# write_program OUT DEFINITIONS STATEMENTS: a program of those two files.
write_program() {
  {
    echo "#include \"$dir/world.h\""
    echo '#include "gmlake_bfc.h"'
    cat "$2"
    cat <<'END'
static int guide(gmlake_stream stream, gmlake_stream other_stream, void *graph) {
  (void)stream, (void)other_stream, (void)graph;
END
    cat "$3"
    cat <<'END'
  return 0;
}
int main(void) {
  gmlake_mock_desc desc = {0};
  gmlake_mock_census census;
  gmlake_stream stream, other_stream;
  int status;
  if (gmlake_mock_create(&desc, &mock) || gmlake_mock_stream_create(mock, &stream) ||
      gmlake_mock_stream_create(mock, &other_stream))
    return 2;
  status = guide(stream, other_stream, NULL);
  gmlake_mock_get_census(mock, &census);
  if (census.handle_count || census.mapping_count || census.reservation_count) status = 4;
  gmlake_mock_destroy(mock);
  return status;
}
END
  } >"$1"
}

# ---- README.md ----

awk -v dir="$dir" '
  /^```c$/ { name = sprintf("%s/block.%02d.c", dir, ++count); next }
  /^```/ { name = ""; next }
  name { print >name }
' README.md
echo "gmlake *lake; if (gmlake_create(NULL, &lake)) return 1;" >"$dir/guide.c" # as in the program above it
for block in "$dir"/block.*.c; do
  name="README.md: $(basename "$block" .c)"
  if grep -q 'cuda\.h' "$block"; then
    ok "$name, a program on CUDA" on_cuda "$block"
    ok "$name, what it prints" grep -q '^read 42; held 300 MiB, of them free 300, ' "$dir/printed"
  elif grep -q 'int main' "$block"; then
    ok "$name, a program" compile_and_run "$block"
  elif grep -q 'define GMLAKE_IMPLEMENTATION' "$block"; then
    # shellcheck disable=SC2086
    ok "$name, an implementation" "$CC" $flags -Itests/cuda_stub -c "$block" -o "$dir/block.o"
  else
    cat "$block" >>"$dir/guide.c"
  fi
done
: >"$dir/none.c"
write_program "$dir/readme.c" "$dir/none.c" "$dir/guide.c"
ok 'README.md: the guide' compile_and_run "$dir/readme.c" "$dir/lake.c" "$dir/bfc.c"
ok 'README.md: has a guide' [ "$(wc -l <"$dir/guide.c")" -gt 20 ]

for document in README.md CONTRIBUTING.md bench/RESULTS.md bench/offload/README.md \
  bench/offload/PAPERS.md bench/torch/README.md examples/torch/README.md; do
  grep -o '](\([^):]*\))' "$document" | tr -d ']()' >"$dir/links"
  while read -r file; do # "#heading" is of this document
    name=${file%%#*}
    ok "$document: $file exists" [ -e "$(dirname "$document")/${name:-$(basename "$document")}" ]
  done <"$dir/links"
done
ok 'README.md: at most 240 lines' [ "$(wc -l <README.md)" -le 240 ]

# ---- The manuals ----

# manual HEADER: the section EXAMPLE of its first comment. Statements begin after the last function.
manual() {
  awk '/^EXAMPLE/ { on = 1; next } on && (/^[A-Z]/ || /\*\/$/) { exit } on' "$1" |
    sed 's/^ *#define GMLAKE_BACKEND_CUDA/#define GMLAKE_BACKEND_MOCK/; s/^      //' >"$dir/manual.c"
  ok "$1: has an example" [ "$(wc -l <"$dir/manual.c")" -gt 5 ]
  if [ ! -s "$dir/manual.c" ]; then return; fi
  if grep -q 'int main' "$dir/manual.c"; then
    ok "$1: its example" compile_and_run "$dir/manual.c"
    cp "$dir/out" "$dir/printed"
    return
  fi
  awk -v dir="$dir" '{ lines[NR] = $0 } /^}/ { last = NR } END {
    printf "" >(dir "/definitions.c")
    for (i = 1; i <= NR; i++) print lines[i] >(dir (i <= last ? "/definitions.c" : "/statements.c"))
  }' "$dir/manual.c"
  write_program "$dir/example.c" "$dir/definitions.c" "$dir/statements.c"
  ok "$1: its example" compile_and_run "$dir/example.c" "$dir/lake.c" "$dir/bfc.c"
}

manual gmlake.h
manual gmlake_bfc.h
for header in gmlake_offload.h gmlake_turnip.h; do
  manual $header
  ok "$header: its example prints what it says" grep -q "^ *// $(cat "$dir/printed")\$" $header
done

# ---- The figures of bench/RESULTS.md that are no times of this machine ----

# What the programs print: of each trace a row of the table there, and answers to the questions. The
# paper's policy takes long with two of the traces, which it has each night.
for trace in bench/traces/*.gmtrace.gz; do
  policy=
  case $trace:$whole in *-dyn.*:no) policy='--policy default' ;; esac
  # shellcheck disable=SC2086
  "$build/replay" --once $policy "$trace"
done >"$dir/rows.of.replay" 2>&1
"$build/replay" --once --policy default bench/traces/*.gmtrace.gz >"$dir/replay" 2>&1
"$build/replay" --once --policy default --chunk-mib 32 bench/traces/*.gmtrace.gz >"$dir/replay32" \
  2>&1
"$build/replay" --once --json bench/traces/*.gmtrace.gz | grep '"stream_lag_us": 0, "cross_stream": "wait"' >"$dir/lake"
for allocator in bfc expandable; do
  "$build/replay" --once --json --allocator $allocator bench/traces/*.gmtrace.gz >"$dir/$allocator"
done
tr -d '*' <bench/RESULTS.md >"$dir/results"

# field ALLOCATOR NAME: of each trace, one a line.
field() { sed "s/.*\"$2\": \"*\([^\",}]*\).*/\1/" "$dir/$1"; }

# cell ALLOCATOR: of each trace its peak in GiB, and in brackets its utilization.
cell() {
  field "$1" peak_reserved_bytes >"$dir/peaks"
  field "$1" utilization | paste -d ' ' "$dir/peaks" - |
    awk '{ printf "%.2f (%.3f)\n", $1 / 1073741824, $2 }'
}

# What torch and the paper's policy need, and that policy's driver ms; @: not asked.
shown() {
  awk 'function peak() { return $(NF - 5) == "-" ? "" : $(NF - 5) sprintf(" (%.3f)", $(NF - 4)) }
  $2 == "torch" { torch = peak(); is_due = 1 }
  $2 == "paper" && NF > 8 && (!/ lag / || / lag 0 /) {
    printf "%s\t%s\t%.0f\n", torch, peak(), $(NF - 2)
    is_due = 0
  }
  $2 == "lake" && is_due { printf "%s\t@\t@\n", torch; is_due = 0 }' "$dir/rows.of.replay"
}
shown >"$dir/shown"
field lake trace >"$dir/1"
field lake peak_active_bytes | awk '{ printf "%.2f\n", $1 / 1073741824 }' >"$dir/2"
cut -f 1 "$dir/shown" >"$dir/3"
cell bfc >"$dir/4"
cell expandable >"$dir/5"
cut -f 2 "$dir/shown" >"$dir/6"
cell lake >"$dir/7"
cut -f 3 "$dir/shown" >"$dir/8"
field lake driver_ms | awk '{ printf "%.0f\n", $1 }' >"$dir/9"
field lake stitches >"$dir/10"
paste -d '|' "$dir"/[1-9] "$dir/10" | sed 's/|/ | /g; s/^/| /; s/$/ |/; s/|  |/| |/g' >"$dir/rows"
ok 'RESULTS.md: nine traces' [ "$(wc -l <"$dir/rows")" = 9 ]
while read -r row; do
  ok "RESULTS.md: $row" grep -qx "$(echo "$row" | sed 's/[].[*]/\\&/g; s/@/[^|]*/g')" "$dir/results"
done <"$dir/rows"

# held ALLOCATOR ORDER TRACE: what it holds, by what is used, and the driver's ms.
held() {
  "$build/replay" --once --json --allocator "$1" --cross-stream "$2" "$3" | awk -v used="$used" '{
    gsub(/[",]/, "")
    for (i = 1; i < NF; i++) value[$i] = $(i + 1)
    gib = value["peak_reserved_bytes:"] / 1073741824
    printf "%.2f (%.3f) | %.1f", gib, used / gib, value["driver_ms:"]
  }'
}
for trace in bench/traces/streams/*.gmtrace.gz; do
  name=$(basename "$trace" .gmtrace.gz)
  "$build/replay" --once --report --cross-stream wait "$trace" >"$dir/report"
  used=$(sed -n 's/.*counts too, \([0-9.]*\) GiB.*/\1/p' "$dir/report")
  live=$(sed -n 's/^In the whole trace \([0-9.]*\) GiB.*/\1/p' "$dir/report")
  bfc=$(held bfc wait "$trace")
  expandable=$(held expandable wait "$trace")
  row="| $name | $(printf '%.2f | %.2f' "$live" "$used") | ${bfc% |*} | ${expandable% |*} | \
$(held lake grow "$trace") | $(held lake wait "$trace") |"
  ok "RESULTS.md: $row" grep -qxF "$row" "$dir/results"
done

# answered QUESTION ANSWER: RESULTS.md has a row that begins and ends so.
answered() { grep -F "| $1" "$dir/results" | grep -qF "| $2"; }

# mean ALLOCATOR FILE: the mean utilization and the worst, to three places.
mean() {
  sed -n "s/^$1 .*mean \([0-9.]*\), worst \([0-9.]*\).*/\1 \2/p" "$2" | {
    read -r average worst
    printf '%.3f and %.3f' "$average" "$worst"
  }
}
ratio() { sed -n "s/^lake's driver time: \([0-9.]*\) times.*/\1/p" "$1"; }
ok 'RESULTS.md: utilization' answered 'utilization, mean and worst' \
  "lake $(mean lake "$dir/replay"); bfc $(mean bfc "$dir/replay") |"
ok 'RESULTS.md: driver time' answered 'driver time against segments' "$(ratio "$dir/replay") times |"
average32=$(mean lake "$dir/replay32")
ok 'RESULTS.md: chunks of 32 MiB' answered 'the same with chunks of 32 MiB' \
  "${average32%% *} at $(ratio "$dir/replay32") times |"
ok 'RESULTS.md: no driver calls later' [ "$(grep -E '^(opt|neox).* lake ' "$dir/replay" |
  awk '{ n += $(NF - 1) } END { print NR, n }')" = '5 0' ]

# lags FIRST: the utilization of fsdp2 for lags of 0, 1 and 10 ms and without end.
lags() {
  grep "^fsdp2.* lake $1 lag" "$dir/replay" | awk '{ printf "%s%.3f", (NR > 1 ? ", " : ""), $(NF - 4) }'
}
ok 'RESULTS.md: lags' answered 'fsdp2, work completes 0, 1, 10 ms' \
  "waiting first $(lags wait); growing first $(lags grow) |"
growths=$("$build/test_buffers" 2>&1 | sed -n 's/^growing by 2 MiB: \([0-9.]* us\) at most.*/\1/p' |
  paste -sd, | sed 's/,/, among other calls /')
ok 'RESULTS.md: growing a buffer' answered 'growing a buffer by 2 MiB, modelled' "$growths; 0 where"
for name in peak_metadata_bytes trace peak_live_count chunk_count; do
  field lake $name >"$dir/$name"
done
metadata=$(cd "$dir" && paste -d ' ' peak_metadata_bytes trace peak_live_count chunk_count |
  sort -n | tail -n 1)
ok 'RESULTS.md: host memory' answered 'host memory of the lake' "$(echo "$metadata" | awk '
  function thousands(n) { return n < 1000 ? n : int(n / 1000) "," sprintf("%03d", n % 1000) }
  { printf "%.0f KB (%s: %s live blocks, %s chunks) |", $1 / 1000, $2, thousands($3), thousands($4) }')"

report
