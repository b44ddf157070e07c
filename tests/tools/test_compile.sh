#!/bin/sh
# The headers compile without a warning as C and C++ with gcc and clang, whatever their macros say
# and however often and in whatever order they are included; they export and define nothing they
# should not, and keep to the measures of the sources.

. tests/tools/shell.sh
warnings='-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wundef -Wshadow -Werror'
flags="$warnings -I. -Itests/cuda_stub"
both='-DGMLAKE_BACKEND_MOCK -DGMLAKE_BACKEND_CUDA -DGMLAKE_OFFLOAD_BACKEND_MOCK'
both="$both -DGMLAKE_OFFLOAD_BACKEND_CUDA"
libs='-lpthread -ldl'

# job NAME COMMAND: notes a command of the shell, which passes if it succeeds.
job() { printf '%s|%s\n' "$1" "$(echo "$2" | tr '\n' ' ')" >>"$dir/jobs"; }

# source_file NAME: writes standard input to that file, as C and as C++.
source_file() {
  cat >"$dir/$1.c"
  cp "$dir/$1.c" "$dir/$1.cpp"
}

# each_compiler: prints the pairs of compiler and standard, with the file extension and what is tried
# with each: `all` modes, or `one` with all backends. Without TEST_MATRIX=all, which is what each
# night has, one pair of each compiler.
each_compiler() {
  if [ "${TEST_MATRIX:-}" != all ]; then
    printf '%s\n' 'gcc c99 c one' 'clang c17 c all' 'g++ c++11 cpp one' 'clang++ c++20 cpp one'
    return
  fi
  for standard in c99:all c11:one c17:all; do
    echo "gcc ${standard%:*} c ${standard#*:}"
    echo "clang ${standard%:*} c ${standard#*:}"
  done
  for standard in c++11:all c++14:one c++17:one c++20:all; do
    echo "g++ ${standard%:*} cpp ${standard#*:}"
    echo "clang++ ${standard%:*} cpp ${standard#*:}"
  done
}

source_file lake <<'END'
#define GMLAKE_IMPLEMENTATION
#include "gmlake.h"
END
source_file bfc <<'END'
#define GMLAKE_BFC_IMPLEMENTATION
#include "gmlake_bfc.h"
END
source_file offload <<'END'
#if defined(GMLAKE_OFFLOAD_BACKEND_CUDA)
#define GMLAKE_IMPLEMENTATION
#endif
#define GMLAKE_OFFLOAD_IMPLEMENTATION
#include "gmlake_offload.h"
END
source_file turnip <<'END'
#if defined(GMLAKE_OFFLOAD_BACKEND_CUDA)
#define GMLAKE_IMPLEMENTATION
#endif
#define GMLAKE_OFFLOAD_IMPLEMENTATION
#define GMLAKE_TURNIP_IMPLEMENTATION
#include "gmlake_turnip.h"
END
source_file alone <<'END'
#define GMLAKE_TURNIP_IMPLEMENTATION
#include "gmlake_turnip.h"
END
source_file declarations <<'END'
#include "gmlake.h"
#include "gmlake.h"
#include "gmlake_bfc.h"
#include "gmlake_bfc.h"
#include "gmlake_offload.h"
#include "gmlake_turnip.h"
#include "gmlake_turnip.h"
#include "gmlake_offload.h"
END
source_file late <<'END'
#include "gmlake.h"
#include "gmlake_bfc.h"
#include "gmlake_turnip.h"
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BFC_IMPLEMENTATION
#define GMLAKE_OFFLOAD_IMPLEMENTATION
#include "gmlake_offload.h"
#include "gmlake_bfc.h"
#include "gmlake.h"
#define GMLAKE_TURNIP_IMPLEMENTATION
#include "gmlake_turnip.h"
#include "gmlake_bfc.h"
#include "gmlake.h"
#include "gmlake_offload.h"
#include "gmlake_turnip.h"
END

source_file record <<'END'
#include <stdio.h>
#include "gmlake.h"
#include "examples/record.h"
#include "examples/metrics.h"
#include "examples/snapshot.h"
size_t metrics(gmlake *lake);
size_t metrics(gmlake *lake) { return gmlake_metrics_write(lake, "0", NULL, 0, NULL, 0); }
int snapshot(gmlake *lake, const char *path);
int snapshot(gmlake *lake, const char *path) { return gmlake_snapshot_save(lake, path); }
int record(const char *path);
int record(const char *path) { return gmlake_recorder_close(gmlake_recorder_open(path)); }
END

# Calls that a compiler may inline where all is static.
source_file static_use <<'END'
#define GMLAKE_IMPLEMENTATION
#include "gmlake.h"
int main(void) {
  gmlake_buffer_desc d;
  gmlake_buffer_info info;
  gmlake_map_entry block;
  gmlake_budget budget;
  gmlake_buffer *b;
  gmlake_pool *pool;
  gmlake *l;
  void *p;
  size_t n;
  memset(&d, 0, sizeof d);
  d.max_bytes = 1 << 20;
  if (gmlake_create(NULL, &l) || gmlake_buffer_create(l, &d, &b) ||
      gmlake_buffer_get_info(l, b, &info) || gmlake_pool_create(l, NULL, &pool) ||
      gmlake_alloc(l, info.max_bytes, NULL, &p) || gmlake_get_pieces(l, p, NULL, 0, &n) ||
      gmlake_find(l, p, &block) || gmlake_get_budget(l, &budget) ||
      gmlake_free(l, p, NULL) || block.piece_count != 1 || gmlake_pool_destroy(l, pool) ||
      n > budget.total_bytes || gmlake_buffer_destroy(l, b, NULL))
    return 1;
  return gmlake_destroy(l) != GMLAKE_OK;
}
END

# ---- The matrix ----

# every_mode COMPILE NAME EXTENSION: each header with each backend and mode.
every_mode() {
  for mode in '' -DGMLAKE_STATIC -DNDEBUG; do
    for backends in -DGMLAKE_BACKEND_MOCK -DGMLAKE_BACKEND_CUDA "$both"; do
      job "gmlake.h: $2 $backends $mode" "$1 $backends $mode $dir/lake.$3"
    done
    mode=$(echo "$mode" | sed s/GMLAKE/GMLAKE_BFC/)
    job "gmlake_bfc.h: $2 $mode" "$1 $mode $dir/bfc.$3"
    mode=$(echo "$mode" | sed s/GMLAKE_BFC/GMLAKE_OFFLOAD/)
    for backend in '' -DGMLAKE_OFFLOAD_BACKEND_MOCK -DGMLAKE_OFFLOAD_BACKEND_CUDA; do
      job "gmlake_offload.h: $2 $mode $backend" "$1 $mode $backend $dir/offload.$3"
      job "gmlake_turnip.h: $2 $mode $backend" "$1 $mode $backend $dir/turnip.$3"
    done
  done
}

matrix() {
  each_compiler | while read -r compiler standard extension modes; do
    compile="$compiler -std=$standard $flags -fsyntax-only"
    if [ "$modes" = all ]; then
      every_mode "$compile" "$compiler $standard" "$extension"
    else
      for header in lake bfc offload turnip; do
        job "$header: $compiler $standard" "$compile $both $dir/$header.$extension"
      done
    fi
    job "declarations alone: $compiler $standard" "$compile $dir/declarations.$extension"
    job "record.h, metrics.h, snapshot.h: $compiler $standard" "$compile $dir/record.$extension"
    # In strict C the first header of a file fixes what the system's headers declare.
    job "declared, then implemented, twice: $compiler $standard" \
      "$compile -D_GNU_SOURCE $both $dir/late.$extension"
    case $extension in c)
      job "the mock behind another header: $compiler $standard" \
        "! $compile -include stdio.h -DGMLAKE_BACKEND_MOCK $dir/lake.c >$dir/behind.$compiler.$standard 2>&1 &&
 grep -q 'before any other header, or define _GNU_SOURCE' $dir/behind.$compiler.$standard"
        job "offloading behind another header: $compiler $standard" \
          "$compile -D_POSIX_C_SOURCE=200809L -include stdio.h -DGMLAKE_OFFLOAD_BACKEND_CUDA $dir/offload.c" ;;
    esac
  done
}

# Warnings that gcc gives as it optimises, and with that what is static is inlined and left out; clang
# gives its warnings before. gcc is tried each night: -O1 has what the tests compile at that level.
optimised() {
  job "clang++, no exceptions" \
    "clang++ -std=c++20 -fno-exceptions -fno-rtti $flags $both -fsyntax-only $dir/lake_first.cpp"
  job "clang, static" "clang -std=c99 $flags -DGMLAKE_STATIC \
 -DGMLAKE_BACKEND_MOCK -c $dir/static_use.c -o $dir/static.clang.o"
  if [ "${TEST_MATRIX:-}" != all ]; then return; fi
  job "gcc -O2" "gcc -std=c99 -O2 $flags $both -c $dir/lake_first.c -o $dir/gcc.o"
  for level in -Og -O1 -Os -O3; do
    job "gcc $level, static" "gcc -std=c99 $level $flags -DGMLAKE_STATIC \
 -DGMLAKE_BACKEND_MOCK -c $dir/static_use.c -o $dir/static.gcc$level.o"
  done
  job "g++ -O2 -DNDEBUG" \
    "g++ -std=c++11 -O2 -DNDEBUG $flags $both -c $dir/lake_first.cpp -o $dir/gxx.o"
}

# ---- Programs of several files ----

cat >"$dir/use.h" <<'END'
#if defined(__cplusplus)
extern "C" {
#endif
int first(void);
int second(void);
#if defined(__cplusplus)
}
#endif
END
source_file use <<'END'
#include "gmlake.h"
#include "gmlake_bfc.h"
#include "gmlake_turnip.h"
#include "use.h"
#include <stdlib.h>
#include <string.h>

static void *take(void *user, size_t bytes) {
  (void)user;
  return malloc(bytes);
}

static void give(void *user, void *segment, size_t bytes) {
  (void)user;
  (void)bytes;
  free(segment);
}

static int use_lake(void) {
  gmlake_mock_desc mock;
  gmlake_desc desc;
  gmlake_backend *backend;
  gmlake *lake;
  void *ptr;
  memset(&mock, 0, sizeof mock);
  memset(&desc, 0, sizeof desc);
  if (gmlake_mock_create(&mock, &backend) != GMLAKE_OK) return 1;
  desc.backend = backend;
  if (gmlake_create(&desc, &lake) != GMLAKE_OK) return 1;
  if (gmlake_alloc(lake, 1000, NULL, &ptr) != GMLAKE_OK) return 1;
  if (gmlake_free(lake, ptr, NULL) != GMLAKE_OK) return 1;
  if (gmlake_destroy(lake) != GMLAKE_OK) return 1;
  gmlake_mock_destroy(backend);
  return 0;
}

static int use_offload(void) {
  gmlake_offload_graph *graph;
  if (gmlake_offload_memgraph_check(NULL, NULL) != GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT) return 1;
  if (gmlake_offload_graph_create(NULL, &graph) != GMLAKE_OFFLOAD_OK) return 1;
  if (gmlake_offload_graph_seal(graph) != GMLAKE_OFFLOAD_ERROR_INVALID_ARGUMENT) return 1;
  gmlake_offload_graph_destroy(graph);
  return 0;
}

int USE(void) {
  gmlake_bfc_desc desc;
  gmlake_bfc *bfc;
  void *ptr;
  memset(&desc, 0, sizeof desc);
  desc.segment_alloc = take;
  desc.segment_free = give;
  if (gmlake_bfc_create(&desc, &bfc) != GMLAKE_BFC_OK) return 1;
  if (gmlake_bfc_alloc(bfc, 1000, NULL, &ptr) != GMLAKE_BFC_OK) return 1;
  if (gmlake_bfc_free(bfc, ptr) != GMLAKE_BFC_OK) return 1;
  return gmlake_bfc_destroy(bfc) != GMLAKE_BFC_OK || use_lake() || use_offload();
}
END
source_file main <<'END'
#include "use.h"
int main(void) { return first() || second(); }
END
source_file lake_first <<'END'
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BFC_IMPLEMENTATION
#define GMLAKE_OFFLOAD_IMPLEMENTATION
#define GMLAKE_TURNIP_IMPLEMENTATION
#include "gmlake.h"
#include "gmlake_bfc.h"
#include "gmlake_turnip.h"
END
source_file bfc_first <<'END'
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BFC_IMPLEMENTATION
#define GMLAKE_OFFLOAD_IMPLEMENTATION
#define GMLAKE_TURNIP_IMPLEMENTATION
#include "gmlake_turnip.h"
#include "gmlake_bfc.h"
#include "gmlake.h"
END

# program NAME USERS IMPLEMENTATION: two files that use the headers, C or C++ (c, cpp), and one that
# implements both; linked and run.
program() {
  compile="-DGMLAKE_BACKEND_MOCK $flags -I$dir -c"
  c="gcc -std=c99 $compile"
  cpp="g++ -std=c++11 $compile"
  users=$c
  if [ "$2" = cpp ]; then users=$cpp; fi
  implementer=$c
  if [ "${3##*.}" = cpp ]; then implementer=$cpp; fi
  out=$dir/program.$2.$3
  job "$1" "$users -DUSE=first $dir/use.$2 -o $out.1.o &&
 $users -DUSE=second $dir/use.$2 -o $out.2.o &&
 $implementer $dir/$3 -o $out.3.o && $users $dir/main.$2 -o $out.4.o &&
 g++ $out.?.o -o $out $libs && $out"
}

programs() {
  program 'C, implemented in C++, gmlake_bfc.h first' c bfc_first.cpp
  program 'C++, implemented in C, gmlake_bfc.h first' cpp bfc_first.c
  if [ "${TEST_MATRIX:-}" = all ]; then
    program 'C, implemented in C, gmlake.h first' c lake_first.c
    program 'C++, implemented in C++, gmlake.h first' cpp lake_first.cpp
  fi
  statics='-DGMLAKE_STATIC -DGMLAKE_IMPLEMENTATION -DGMLAKE_BFC_STATIC -DGMLAKE_BFC_IMPLEMENTATION'
  statics="$statics -DGMLAKE_OFFLOAD_STATIC -DGMLAKE_OFFLOAD_IMPLEMENTATION"
  statics="$statics -DGMLAKE_TURNIP_IMPLEMENTATION"
  compile="clang -std=c99 -DGMLAKE_BACKEND_MOCK $statics $flags -I$dir -c"
  job 'static copies in two files' "$compile -DUSE=first $dir/use.c -o $dir/static.1.o &&
 $compile -DUSE=second $dir/use.c -o $dir/static.2.o &&
 gcc -I$dir $dir/main.c $dir/static.?.o -o $dir/static $libs && $dir/static &&
 test \"\$(nm -g --defined-only $dir/static.1.o | awk '{ print \$3 }')\" = first"
}

# ---- Macros ----

# refused NAME HEADER MESSAGE MACRO: with that macro there is an #error that says so.
refused() {
  job "$1" "gcc -std=c99 -I. -DGMLAKE_BACKEND_MOCK '-D$4' -fsyntax-only $dir/$2.c 2>&1 |
 grep -qF '#error \"$3'"
}

macros() {
  text='define both GMLAKE_MALLOC(bytes) and GMLAKE_FREE(ptr), or neither'
  refused 'MALLOC without FREE' lake "$text" 'GMLAKE_MALLOC(bytes)=malloc(bytes)'
  refused 'FREE without MALLOC' lake "$text" 'GMLAKE_FREE(ptr)=free(ptr)'
  mkdir "$dir/old_cuda"
  echo '#define CUDA_VERSION 10010' >"$dir/old_cuda/cuda.h"
  job 'a cuda.h that is too old' \
    "gcc -std=c99 -I. -I$dir/old_cuda -DGMLAKE_BACKEND_CUDA -fsyntax-only $dir/lake.c 2>&1 |
 grep -qF '#error \"cuda.h is too old: gmlake.h needs that of CUDA 10.2, or a later one\"'"
  mkdir "$dir/narrow"
  printf '#include_next <stdint.h>\n#undef SIZE_MAX\n#define SIZE_MAX 4294967295u\n' \
    >"$dir/narrow/stdint.h"
  for header in lake offload; do
    job "$header: a size_t of 32 bits" \
      "gcc -std=c99 -I. -I$dir/narrow $both -Itests/cuda_stub -fsyntax-only $dir/$header.c 2>&1 |
 grep -qF 'needs a size_t of 64 bits'"
  done
  text='define both GMLAKE_BFC_MALLOC and GMLAKE_BFC_FREE, or neither'
  refused 'bfc: MALLOC without FREE' bfc "$text" 'GMLAKE_BFC_MALLOC(bytes)=malloc(bytes)'
  refused 'bfc: FREE without MALLOC' bfc "$text" 'GMLAKE_BFC_FREE(ptr)=free(ptr)'
  text='define both GMLAKE_OFFLOAD_MALLOC and GMLAKE_OFFLOAD_FREE, or neither'
  refused 'offload: MALLOC without FREE' offload "$text" \
    'GMLAKE_OFFLOAD_MALLOC(bytes)=malloc(bytes)'
  refused 'offload: FREE without MALLOC' offload "$text" 'GMLAKE_OFFLOAD_FREE(ptr)=free(ptr)'
  refused 'turnip: without offload' alone 'define GMLAKE_OFFLOAD_IMPLEMENTATION, too' NDEBUG
  refused 'a mutex without its functions' lake 'define all of GMLAKE_MUTEX' GMLAKE_MUTEX=int
  refused 'bfc: a mutex without its functions' bfc 'define all of GMLAKE_BFC_MUTEX_TYPE' \
    GMLAKE_BFC_MUTEX_TYPE=int
}

source_file own <<'END'
#include <stddef.h>
static void *own_malloc(size_t bytes);
static void own_free(void *ptr);
static void own_lock(int *mutex) { *mutex += 1; }
static void own_unlock(int *mutex) { *mutex -= 1; }
static void own_assert(int condition) { (void)condition; }

#define GMLAKE_MALLOC(bytes) own_malloc(bytes)
#define GMLAKE_FREE(ptr) own_free(ptr)
#define GMLAKE_ASSERT(condition) own_assert((condition) ? 1 : 0)
#define GMLAKE_MUTEX int
#define GMLAKE_MUTEX_INIT(mutex) (*(mutex) = 0)
#define GMLAKE_MUTEX_DESTROY(mutex) (*(mutex) = 0)
#define GMLAKE_MUTEX_LOCK(mutex) own_lock(mutex)
#define GMLAKE_MUTEX_UNLOCK(mutex) own_unlock(mutex)
#define GMLAKE_BFC_MALLOC(bytes) own_malloc(bytes)
#define GMLAKE_BFC_FREE(ptr) own_free(ptr)
#define GMLAKE_BFC_ASSERT(condition) own_assert((condition) ? 1 : 0)
#define GMLAKE_BFC_MUTEX_TYPE int
#define GMLAKE_BFC_MUTEX_INIT(mutex) (*(mutex) = 0)
#define GMLAKE_BFC_MUTEX_DESTROY(mutex) (*(mutex) = 0)
#define GMLAKE_BFC_MUTEX_LOCK(mutex) own_lock(mutex)
#define GMLAKE_BFC_MUTEX_UNLOCK(mutex) own_unlock(mutex)
#define GMLAKE_OFFLOAD_MALLOC(bytes) own_malloc(bytes)
#define GMLAKE_OFFLOAD_FREE(ptr) own_free(ptr)
#define GMLAKE_OFFLOAD_ASSERT(condition) own_assert((condition) ? 1 : 0)
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BFC_IMPLEMENTATION
#define GMLAKE_OFFLOAD_IMPLEMENTATION
#define GMLAKE_TURNIP_IMPLEMENTATION
#include "gmlake.h"
#include "gmlake_bfc.h"
#include "gmlake_turnip.h"

static void *own_malloc(size_t bytes) { return malloc(bytes); }
static void own_free(void *ptr) { free(ptr); }
END

replaced() {
  job 'every macro replaced: C' \
    "gcc -std=c99 -D_GNU_SOURCE $flags $both -fsyntax-only $dir/own.c"
  job 'every macro replaced: C++' \
    "clang++ -std=c++11 $flags $both -fsyntax-only $dir/own.cpp"
}

# ---- Symbols ----

# symbols NAME COMPILER EXTENSION: what the object of the headers defines.
symbols() {
  object=$dir/symbols.$2.o
  job "$1" "$2 $flags $both -fno-pic -O0 -c $dir/lake_first.$3 -o $object &&
 nm -g --defined-only $object >$object.global && nm --defined-only $object >$object.all &&
 test -s $object.global && ! awk '\$3 !~ /^(gmlake_|DW\\.)/' $object.global | grep . &&
 ! awk '\$2 ~ /^[bBdDcCsS]\$/' $object.all | grep . &&
 ! awk '\$2 == \"t\" && \$3 !~ /^(gmlk_|gmlkb_|gmlo_|_ZL[0-9]+gml(kb?|o)_)/' $object.all | grep ."
}

# ---- Sources ----

# Macros of the headers begin with their prefix; GMLAKE_BFC_ ones stay in gmlake_bfc.h.
cat >"$dir/prefix.awk" <<'AWK'
/^ *# *define / {
  sub(/^ *# *define +/, "")
  sub(/[^A-Za-z0-9_].*/, "")
  if ($0 !~ prefix) { print; bad = 1 }
}
END { exit bad }
AWK

# Lines have 100 columns at most. A function is what begins at the left margin with a line that
# ends in an opening brace, and is no type, table or linkage block; it has 60 lines at most, those
# of a list of tests not counted.
cat >"$dir/measures.awk" <<'AWK'
function say(what) { print FILENAME ":" FNR ": " what; bad = 1 }
length($0) > 100 { say("more than 100 columns") }
/[ \t]$/ { say("space at the end of the line") }
/\t/ { say("tab") }
FNR == 1 { start = 0 }
/^[A-Za-z].*[(,]$/ || /^[A-Za-z].*\)$/ { first = FNR }
/\{$/ && !start && !/^#/ && !/^ .*[^)] \{$/ {
  if (/^[A-Za-z]/) { first = FNR }
  if (!/^(static )?(typedef|struct|enum|union|extern|class|namespace)[^()]*\{$/ && !/= *\{$/) start = first
}
/^    +cmocka_unit_test/ { start += start > 0 }
/^}/ {
  if (start && FNR - start + 1 > 60) say("a function of " FNR - start + 1 " lines")
  if (start) functions++
  start = 0
}
END {
  if (functions < 1 && FILENAME !~ /\/((fake_cuda|fake_play|locks|peer|([a-z]+_)?rows|(small_)?lake)\.h|(step_count|test_cuda_rows|test_cuda_faults)\.c|torch_pool\/lake\.c)$/) { print FILENAME ": no function found"; bad = 1 }
  exit bad
}
AWK

measures() {
  for file in *.h bench/*.[ch] bench/*.cpp bench/*/*.[ch] tests/*.h tests/*/*.[ch] \
    tests/clients/*.cpp examples/*.[ch] examples/*_*.cpp examples/*/*.c; do
    case $file in tests/cuda_stub/*) continue ;; esac # declarations alone
    job "measures of $file" "awk -f $dir/measures.awk $file"
  done
  job 'the planted defects fit gmlake.h' 'python3 tests/tools/planted.py --list'
  job 'the defects of the proofs fit the headers' 'python3 -B tests/proof/proof.py --list'
  job 'the macros of gmlake.h' \
    "awk -v 'prefix=^(GMLAKE_|GMLK_|gmlk_|_GNU_SOURCE\$)' -f $dir/prefix.awk gmlake.h"
  job 'the macros of gmlake_bfc.h' \
    "awk -v 'prefix=^(GMLAKE_BFC_|GMLKB_)' -f $dir/prefix.awk gmlake_bfc.h"
  job 'the macros of gmlake_offload.h' \
    "awk -v 'prefix=^(GMLAKE_OFFLOAD_|GMLO_|_GNU_SOURCE\$)' -f $dir/prefix.awk gmlake_offload.h"
  job 'the macros of gmlake_turnip.h' \
    "awk -v 'prefix=^(GMLAKE_TURNIP_|GMLO_|GMLAKE_OFFLOAD_IMPLEMENTATION\$)' -f $dir/prefix.awk \
 gmlake_turnip.h"
}

# ---- Running them ----

optimised
programs
symbols 'symbols: gcc' gcc c
symbols 'symbols: clang' clang c
symbols 'symbols: g++' g++ cpp
macros
replaced
measures
matrix

# shellcheck disable=SC2016
run_job='if out=$(eval "${1#*|}" 2>&1); then echo passed
else printf "FAILED: %s\n%s\n" "${1%%|*}" "$(echo "$out" | head -n 20)"; fi'
xargs -d '\n' -n 1 -P 2 sh -c "$run_job" job <"$dir/jobs" >"$dir/results"
passed=$(grep -cx passed "$dir/results")
failed=$(($(wc -l <"$dir/jobs") - passed))
grep -vx passed "$dir/results"
report
