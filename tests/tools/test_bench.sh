#!/bin/sh
# build/bench with few operations: that every section runs, what it writes, and how it answers bad
# input. Its times mean nothing here.

. tests/tools/shell.sh
program="$absolute_build/bench --repeat 1 --ops 2000"

# holds TEXT N: the document, as one line, has the text so often.
holds() { [ "$(tr -d '\n' <"$dir/json" | grep -oF -- "$1" | wc -l)" = "$2" ]; }

# figure ALLOCATOR NAME: that figure of the first workload's allocator.
figure() {
  tr -d '\n' <"$dir/json" | grep -oE "\"allocator\": \"$1\", [^]]*" | head -n 1 |
    sed -nE "s/.*\"$2\": ([-+.e0-9a-z]+).*/\1/p"
}

# compare ALLOCATOR NAME OPERATOR VALUE: by numbers; what is no number fails.
compare() {
  awk -v a="$(figure "$1" "$2")" -v b="$4" -v by="$3" 'BEGIN {
    if (a !~ /^[-0-9]/ || b !~ /^[-0-9]/) exit 1
    exit !(by == ">" ? a + 0 > b + 0 : by == "<=" ? a + 0 <= b + 0 : a + 0 == b + 0)
  }'
}

# ordered ALLOCATOR CALL: its percentiles.
ordered() {
  tr -d '\n' <"$dir/json" | grep -oE "\"allocator\": \"$1\", [^]]*" | head -n 1 |
    sed -E "s/.*\"$2\": \{\"p50\": ([^,]*), \"p99\": ([^,]*), \"p99_9\": ([^}]*)\}.*/\1 \2 \3/" |
    awk '{ exit !(NF == 3 && $1 > 0 && $1 <= $2 && $2 <= $3) }'
}

# ---- Sections ----

# Blocks of all kinds of segments, split and merged. On stream 2 the third is what remains of the
# two before.
cat >"$dir/small.gmtrace" <<'END'
gmtrace 1
a 1 3145728 0 0
a 2 700 0 0
a 3 1048576 1 0
a 4 15000000 1 0
f 1 0
a 5 5000000 0 0
a 6 16000000 0 0
f 5 0
a 7 0 0 0
a 8 600 0 0
f 2 0
f 3 0
f 4 0
f 7 0
f 8 0
a 9 9437184 2 0
a 10 9961472 2 0
a 11 1310720 2 0
a 12 10485760 3 0
END
ok 'all sections' run 0 --json "$dir/json" --scale-blocks 100000 "$dir/small.gmtrace" random-64 \
  lifo threads scale
ok 'all: silent' [ ! -s "$dir/err" ]
ok 'all: JSON' is_json "$dir/json"
for section in traces loads threads scale; do
  ok "all: $section" holds "\"$section\": [" 1
done
for allocator in loop lake lake_single_threaded bfc malloc bfc_set; do
  ok "all: $allocator" holds "\"allocator\": \"$allocator\", \"error\": \"\", " 3
done
ok 'trace: its size' holds '{"name": "small", "operations": 1914, "blocks": 6, "streams": 4, ' 1
ok 'trace: lake' compare lake ns_per_op '>' 5
ok 'trace: lake: range' compare lake ns_per_op_min '<=' "$(figure lake ns_per_op_max)"
ok 'trace: lake: no less than what is live' compare lake reserved_bytes_peak '>' 47194304
ok 'trace: lake: metadata' compare lake metadata_bytes_per_block '>' 64
ok 'trace: bfc: 2 x 20 + 2 x 16 + 10 + 2 x 2 MiB' compare bfc reserved_bytes_peak = $((86 << 20))
ok 'trace: bfc_set: the same' compare bfc_set reserved_bytes_peak = $((86 << 20))
ok 'trace: bfc_set: a ratio' compare bfc_set lake_ratio '>' 0.01
ok 'trace: bfc_set: one without the lock' compare bfc_set lake_single_threaded_ratio '>' 0.01
for allocator in loop lake lake_single_threaded bfc malloc bfc_set; do
  ok "trace: $allocator: percentiles of alloc" ordered $allocator alloc_ns
  ok "trace: $allocator: percentiles of free" ordered $allocator free_ns
done
ok 'loads: random-64' holds '{"name": "random-64", "operations": 2000, "blocks": 64, ' 1
ok 'loads: lifo' holds '{"name": "lifo", "operations": 2048, "blocks": 1024, ' 1
ok 'threads: a lake each' holds '"allocator": "a lake each", "threads": ' 4
ok 'threads: one lake' holds '"allocator": "one lake", "threads": ' 4
ok 'scale: sizes' holds '"error": "", "blocks": [' 2
ok 'scale: blocks' holds '"blocks": [102734], ' 1
ok 'scale: blocks of a hundredth' holds '"blocks": [1026], ' 1
ok 'scale: windows' holds '"windows": [0], ' 0
ok 'scale: metadata' holds '"metadata_bytes": [' 2
ok 'tables: ratios' prints 'lake / bfc_set'
ok 'tables: scale' prints 'ns: an allocation that stitches'

# The yardstick reserves what gmlake_bfc.h does, on a recorded program too.
ok 'recorded' run 0 --json "$dir/json" opt-1.3b-LRO
ok 'recorded: bfc' compare bfc reserved_bytes_peak '>' 1000000000
ok 'recorded: bfc_set' compare bfc_set reserved_bytes_peak = "$(figure bfc reserved_bytes_peak)"

ok 'Markdown' run 0 --markdown --floor-divisor 1 one-64k
ok 'Markdown: rule' prints '|---|---:|'
ok 'Markdown: row' prints '| one-64k | 1024 | '
ok 'Markdown: divisor' prints 'asked for 1/1 of each size'

# ---- Peers ----

# peer NAME DEFINITIONS: a library of them.
peer() {
  printf '#include "peer.h"\nstatic char memory[64];\n%s\n' "$2" >"$dir/peer.c"
  ${CC:-cc} -shared -fPIC -Ibench "$dir/peer.c" -o "$dir/$1"
}

opens='void *peer_open(size_t bytes, size_t blocks, size_t streams) {
  return bytes >> 20 == 143154 && blocks == 64 && streams == 1 ? memory : 0;
}'
takes='void *peer_alloc(void *self, size_t bytes, size_t stream) {
  return self == memory && bytes >= 512 && stream == 0 ? memory + 1 : 0;
}'
gives='int peer_free(void *self, void *ptr) { return self != memory || ptr != memory + 1; }'
ok 'a peer' peer peer_other.x.so "$opens $takes $gives"
ok 'a peer: runs' run 0 --json "$dir/json" --peer "$dir/peer_other.x.so" random-64
ok 'a peer: its figures' holds '"allocator": "other", "error": "", "ns_per_op": ' 1
ok 'a peer: no peak' [ "$(figure other reserved_bytes_peak)" = null ]
ok 'a peer: a column' prints 'lake / other'
gives 'a peer: once' 'random-64, other: ' --once other random-64 --peer "$dir/peer_other.x.so"
gives 'observed: once' 'random-64, lake: ' --observe --once lake random-64

ok 'a peer that fails' peer out.so \
  "$opens $gives void *peer_alloc(void *self, size_t bytes, size_t stream) { return 0; }"
ok 'a peer that fails: the rest runs' run 0 --json "$dir/json" --peer "$dir/out.so" random-64
ok 'a peer that fails: which operation' says 'random-64: out: allocation 0 failed ('
ok 'a peer that fails: null' [ "$(figure out ns_per_op)" = null ]
ok 'a peer that is not opened' run 0 --peer "$dir/out.so" random-1024
ok 'a peer that is not opened: reason' says 'out: cannot be opened: peer_open answers NULL'
ok 'no peer' peer part.so "$opens $takes"
refused 'no peer: refused' 2 'part.so: it lacks a function of bench/peer.h' --peer "$dir/part.so" \
  random-64
ok 'no library' run 2 --peer "$dir/small.gmtrace" random-64

# A library that cannot be loaded stands before the system's, if it has one.
for name in libmimalloc.so.2 libmimalloc.so.3 libmimalloc.so; do : >"$dir/$name"; done
LD_LIBRARY_PATH=$dir
export LD_LIBRARY_PATH
gives 'no mimalloc' 'no libmimalloc.so.2 here: left out' --json "$dir/json" --peer \
  "$dir/peer_other.x.so" random-64 threads
ok 'no mimalloc: in nothing' holds 'mimalloc' 0
ok 'no mimalloc: a peer' compare other ns_per_op_max '>' -99
ok 'no mimalloc: threads' holds '"allocator": "malloc", "threads": ' 4
unset LD_LIBRARY_PATH

cd "$dir" || exit 1
ok 'elsewhere' run 0 random-64
if [ "$build" != "$absolute_build" ]; then
  ok 'elsewhere: no yardstick' prints "no $build/peer_bfc_set.so here: left out"
fi
ok 'elsewhere: a peer without a folder' run 0 --peer out.so random-64
cd "$OLDPWD" || exit 1

# ---- Bad input ----

for arguments in 'random-65' '--peer none.so' '--once lake' '--once torch random-64' \
  '--once lake loads' '--once lake lifo fifo'; do
  # shellcheck disable=SC2086
  ok "refused: $arguments" run 2 $arguments
  ok "refused: $arguments: silent" [ ! -s "$dir/out" ]
  ok "refused: $arguments: reason" [ -s "$dir/err" ]
done
printf 'gmtrace 1\na 1 1024 0 0\nx\n' >"$dir/bad.gmtrace"
printf 'gmtrace 1\na 1 0 0 0\n' >"$dir/empty.gmtrace"
fails 'bad trace' 2 "$dir/bad.gmtrace:3: " "$dir/bad.gmtrace"
ok 'bad trace: once' run 2 --once lake "$dir/bad.gmtrace"
ok 'empty trace' run 2 "$dir/empty.gmtrace" "$dir/small.gmtrace"
ok 'empty trace: reason' says "$dir/empty.gmtrace: the trace allocates nothing"
ok 'empty trace: the next one runs' prints 'small '
printf 'gmtrace 1\na 1 1024 0 0\na 2 150323855360 0 0\n' >"$dir/large.gmtrace"
fails 'too large' 1 'large: lake: allocation 1 failed (150323855360 bytes)' "$dir/large.gmtrace"
ok 'too large: once' run 1 --once lake "$dir/large.gmtrace"
ok 'unwritable document' run 1 --json "$dir/none/x" random-64

report
