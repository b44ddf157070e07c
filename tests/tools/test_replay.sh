#!/bin/sh
# build/replay: what it prints for a trace worked out by hand, and how it answers bad input.

. tests/tools/shell.sh
program=$build/replay

file_is() { [ "$(cat "$1")" = "$2" ]; }

# bad NAME LINE REASON TEXT: a trace of that text (printf's escapes) is refused so, with status 2
# and nothing on stdout.
bad() {
  path=$dir/bad.gmtrace
  # shellcheck disable=SC2059
  printf "$4" >"$path"
  refused "$1" 2 "$path:$2: $3" --json --allocator native "$path"
}

. tests/tools/wrong_traces.sh

fails 'no file' 2 "$dir/none.gmtrace: No such file or directory" "$dir/none.gmtrace"
fails 'directory' 2 "$dir: Is a directory" "$dir"

{
  echo 'gmtrace 1'
  awk 'BEGIN { for (i = 0; i < 20000; i++) print "a", i, (i * 7919) % 100000 * 512, 0, i % 3 }'
} >"$dir/long.gmtrace"
gzip -k "$dir/long.gmtrace"
head -c 9000 "$dir/long.gmtrace.gz" >"$dir/cut.gmtrace.gz"
fails 'truncated gzip' 2 'the compressed data is truncated' "$dir/cut.gmtrace.gz"
size=$(wc -c <"$dir/long.gmtrace.gz")
head -c $((size - 4)) "$dir/long.gmtrace.gz" >"$dir/cut.gmtrace.gz"
fails 'gzip without its end' 2 'the compressed data is truncated' "$dir/cut.gmtrace.gz"
{
  head -c 5000 "$dir/long.gmtrace.gz"
  printf 'not deflated'
  tail -c +5013 "$dir/long.gmtrace.gz"
} >"$dir/cut.gmtrace.gz"
ok 'damaged gzip' run 2 "$dir/cut.gmtrace.gz"

# Two blocks of 3 MiB and 1 byte live at the peak: 3 MiB + 512 live, 4 + 2 MiB from the driver.
# Three marks: the last two iterations are the second half.
cat >"$dir/small.gmtrace" <<'END'
gmtrace 1
# workload: by hand
# peak_requested: 1
# peak_active: 3146240
# peak_reserved: 6291456
m start
a 7 3145728 0 10
m middle
a 9 1 0 5
f 7 5
a 7 0 0 0
m end
f 9 1
f 7 0
END
gzip -k "$dir/small.gmtrace"
ok 'native' run 0 --json --allocator native "$dir/small.gmtrace"
ok 'native: all but time' prints '{"trace": "small", "allocator": "native", "events": 6, '\
'"peak_active_bytes": 3146240, "peak_reserved_bytes": 6291456, "utilization": 0.500081, '\
'"driver_calls": 4, "driver_ms": 0.106, "driver_calls_second_half": 3, "stitches": 0, '\
'"stitch_reuses": 0, "stream_waits": 0, "ns_per_op": '
ok 'native: the rest' prints '"peak_metadata_bytes": 0, "peak_live_count": 2, "chunk_count": 0, '\
'"streams": 1, "stream_lag_us": 0, "cross_stream": "wait", "torch_reserved_bytes": 6291456}'
gives 'gzipped' '{"trace": "small", ' --json --allocator native "$dir/small.gmtrace.gz"
mkdir "$dir/windows"
sed 's/$/\r/' "$dir/small.gmtrace" >"$dir/windows/small.gmtrace"
sed 's/"ns_per_op.*metadata//' "$dir/out" >"$dir/native"
ok 'CR LF' run 0 --json --allocator native "$dir/windows/small.gmtrace"
ok 'CR LF: the same' [ "$(sed 's/"ns_per_op.*metadata//' "$dir/out")" = "$(cat "$dir/native")" ]
ok 'bfc' run 0 --json --allocator bfc "$dir/small.gmtrace"
ok 'bfc: a 20 MiB and a 2 MiB segment' prints '"peak_reserved_bytes": 23068672, '
ok 'bfc: keeps its segments' prints '"driver_calls": 2, '
# Expandable segments: pages of 20 and of 2 MiB. Behind 30 MiB lie 30 MiB; 35 MiB find no room where
# the first were freed. With 80 MiB the one page that is wholly free there is unmapped first.
# The smaller free block is left alone where addresses for more lie behind it.
ok 'expandable' run 0 --json --allocator expandable "$dir/small.gmtrace"
ok 'expandable: a page of each' prints '"peak_reserved_bytes": 23068672, '
ok 'expandable: its calls' prints '"driver_calls": 6, "driver_ms": 0.056, '
printf 'gmtrace 1\na 1 3145728 0 0\na 2 9 0 0\na 3 3145728 1 0\na 4 9 1 0\n' >"$dir/two.gmtrace"
gives 'expandable: for each stream' "\"peak_reserved_bytes\": $((44 << 20)), " --json --allocator \
  expandable "$dir/two.gmtrace"
mib() { awk '/^a/ { $3 *= 1048576 } { print }'; }
printf 'gmtrace 1\na 1 30 0 0\na 2 30 0 0\nf 1 0\na 3 35 0 0\n' | mib \
  >"$dir/grows.gmtrace"
for limit in 100 80; do
  gives "expandable: $limit MiB" "\"peak_reserved_bytes\": $((limit << 20)), " --json --allocator \
    expandable --limit-mib $limit "$dir/grows.gmtrace"
done
refused 'expandable: too little' 1 'grows: expandable failed at event 3 (allocation of 36700160 ' \
  --json --allocator expandable --limit-mib 70 "$dir/grows.gmtrace"
# Of 50 MiB that are free two pages are wholly free, from 20 on.
printf 'gmtrace 1\na 1 10 0 0\na 2 50 0 0\na 3 20 0 0\nf 2 0\na 4 55 0 0\n' | mib \
  >"$dir/part.gmtrace"
ok 'expandable: pages in part' run 0 --json --once --allocator expandable --limit-mib 100 \
  "$dir/part.gmtrace"
ok 'expandable: pages in part: held' prints "\"peak_reserved_bytes\": $((100 << 20)), "
ok 'expandable: pages in part: calls' prints '"driver_calls": 22, "driver_ms": 0.196, '
printf 'gmtrace 1\na 1 20 0 0\na 2 2 0 0\nf 1 0\na 3 15 0 0\na 4 20 0 0\n' | mib \
  >"$dir/tail.gmtrace"
gives 'expandable: spares what can grow' "\"peak_reserved_bytes\": $((60 << 20)), " --json \
  --allocator expandable "$dir/tail.gmtrace"
# What these programs held on an H200, to the byte: the last two have several streams.
for name in opt-1.3b-LRO gpt2-xl-R-dyn streams/prefetch-dyn streams/opt-1.3b-LRC-dyn; do
  python3 -c 'import json, sys
runs = [run for path in sys.argv[2:] for run in json.load(open(path))["runs"]]
print(*{run["peak_reserved_bytes"] for run in runs
        if (run["workload"], run["allocator"]) == (sys.argv[1], "expandable")})' \
    "${name#*/}" bench/torch/h200.json bench/torch/streams.json >"$dir/life"
  gives "expandable: $name" "\"peak_reserved_bytes\": $(cat "$dir/life"), " --json --once \
    --allocator expandable bench/traces/$name.gmtrace.gz
done
gives 'bfc: limit' "\"peak_reserved_bytes\": $((66 << 20)), " --json --once --allocator bfc \
  --limit-mib 66 "$dir/grows.gmtrace"
refused 'native: limit' 1 'grows: native failed at event 1 ' --json --allocator native \
  --limit-mib 59 "$dir/grows.gmtrace"
ok 'lake' run 0 --json "$dir/small.gmtrace"
ok 'lake: default' prints '"allocator": "lake", "events": 6, "peak_active_bytes": 3146240, '
ok 'lake: one chunk of 16 MiB' prints '"peak_reserved_bytes": 16777216, '
gives 'lake: chunk size' '"peak_reserved_bytes": 4194304, ' --json --chunk-mib 2 \
  "$dir/small.gmtrace"
ok 'lake: costs' run 0 --json --costs replayed "$dir/small.gmtrace"
ok 'lake: costs: one chunk created, mapped and set, one reservation' \
  prints '"driver_ms": 0.045, '
gives 'lake: costs: busy' '"driver_ms": 0.081, ' --json --costs busy "$dir/small.gmtrace"
ok 'lake: limit' run 0 --json --chunk-mib 2 --limit-mib 4 "$dir/small.gmtrace"
ok 'lake: limit too low' run 1 --json --chunk-mib 2 --limit-mib 2 "$dir/small.gmtrace"
ok 'lake: profile' run 0 --json --chunk-mib 2 --save-profile "$dir/profile" "$dir/small.gmtrace"
ok 'lake: profile: written' grep -q '^gmlake profile 2 peak 4194304$' "$dir/profile"
gives 'lake: prewarmed' '"peak_reserved_bytes": 4194304, ' --json --chunk-mib 2 --profile \
  "$dir/profile" "$dir/small.gmtrace"
ok 'lake: no profile' run 1 --json --profile "$dir/small.gmtrace" "$dir/small.gmtrace"
ok 'bfc: no profile' run 2 --allocator bfc --profile "$dir/profile" "$dir/small.gmtrace"
ok 'table' run 0 "$dir/small.gmtrace"
ok 'table: torch' prints 'torch (recorded)'
ok 'table: expandable' prints ' expandable '
ok 'table: a legend' prints \
  'used: live, or freed and still used by recorded streams, as torch counts'
ok 'table: mean' prints 'lake   1 traces of one stream: utilization mean 0.1875, worst 0.1875'
ok 'one row' run 0 --allocator bfc "$dir/small.gmtrace"
ok 'one row: no summary' [ "$(wc -l <"$dir/out")" = 3 ]

ok 'series' run 0 --allocator native --series "$dir/series.csv" "$dir/small.gmtrace"
ok 'series: points' file_is "$dir/series.csv" 'event,time_us,live_bytes,reserved_bytes
0,10,3145728,4194304
1,15,3146240,6291456
2,20,512,2097152
3,20,512,2097152
4,21,0,0
5,21,0,0'
{
  echo 'gmtrace 1'
  awk 'BEGIN {
    for (i = 0; i < 9999; i++) print "a", i, 512 + 512 * (i % 97 == 96), 0, 1 "\nf", i, 1
  }'
} >"$dir/many.gmtrace"
ok 'long series' run 0 --allocator native --series "$dir/series.csv" "$dir/many.gmtrace"
ok 'long series: decimated' [ "$(wc -l <"$dir/series.csv")" -le 4001 ]
ok 'long series: peaks kept' [ "$(grep -c ',1024,' "$dir/series.csv")" = 103 ]

# A block of stream 5 is freed long before stream 6 asks for one of the same size.
cat >"$dir/streams.gmtrace" <<'END'
gmtrace 1
a 1 268435456 5 0
a 2 512 6 0
f 1 1000
a 3 268435456 6 5000
f 3 1
f 2 1
END
one=$((272 << 20))
two=$((528 << 20))
ok 'lag 0' run 0 --json --stream-lag-us 0 --cross-stream grow "$dir/streams.gmtrace"
ok 'lag 0: reused' prints "\"peak_reserved_bytes\": $one, "
ok 'never, grow' run 0 --json --stream-lag-us never --cross-stream grow "$dir/streams.gmtrace"
ok 'never, grow: grows' prints "\"peak_reserved_bytes\": $two, "
ok 'never, grow: lag' prints '"stream_lag_us": null, "cross_stream": "grow"'
ok 'never, wait' run 0 --json --stream-lag-us never --cross-stream wait "$dir/streams.gmtrace"
ok 'never, wait: reused' prints "\"peak_reserved_bytes\": $one, "
ok 'never, wait: waits' prints '"stream_waits": 1, '
ok 'short lag' run 0 --json --stream-lag-us 4000 --cross-stream grow "$dir/streams.gmtrace"
ok 'short lag: reused' prints "\"peak_reserved_bytes\": $one, "
ok 'long lag' run 0 --json --stream-lag-us 7000 --cross-stream grow "$dir/streams.gmtrace"
ok 'long lag: grows' prints "\"peak_reserved_bytes\": $two, "
ok 'all lags' run 0 "$dir/streams.gmtrace"
ok 'all lags: rows' [ "$(grep -c '^streams *lake' "$dir/out")" = 8 ]
ok 'all lags: bfc' [ "$(grep -c '^streams *bfc' "$dir/out")" = 1 ]

# The same, told when the free's work was complete, by a lake that held 300 MiB.
# told DONE_US: after so many us.
told() {
  cat <<END
gmtrace 2
# recorder: gmlake
# peak_reserved: 314572800
a 1 268435456 5 0
a 2 512 6 0
f 1 5 1000
d 5 $1 $1
a 3 268435456 6 $((5000 - $1))
f 3 6 1
f 2 6 1
END
}
told 4999 >"$dir/told.gmtrace"
ok 'told: in time' run 0 --json --cross-stream grow "$dir/told.gmtrace"
ok 'told: in time: reused' prints "\"peak_reserved_bytes\": $one, "
ok 'told: in time: by the trace' prints '"stream_lag_us": "recorded", "cross_stream": "grow", '\
'"lake_reserved_bytes": 314572800, '
ok 'told: named' run 0 --json --cross-stream grow --stream-lag-us 7000 "$dir/told.gmtrace"
ok 'told: named: grows' prints "\"peak_reserved_bytes\": $two, "
ok 'told: named: the lag' prints '"stream_lag_us": 7000, '
told 2000 | sed 's/^d.*/m x/; /^a 3/a d 5 3001 1' >"$dir/late.gmtrace"
ok 'told: too late' run 0 --json --cross-stream grow "$dir/late.gmtrace"
ok 'told: too late: grows' prints "\"peak_reserved_bytes\": $two, "
ok 'told: no factor' [ "$(grep -c machine_factor "$dir/out")" = 0 ]
# Chunks of 272 MiB in all took 1,020 us: 60 us each, where 30 or so are modelled.
{
  cat "$dir/told.gmtrace"
  printf '# grow_ns: 1020000\n# grown_bytes: 285212672\n'
} >"$dir/slow.gmtrace"
ok 'told: factor' run 0 --json --once "$dir/slow.gmtrace"
ok 'told: factor: two' grep -q '"machine_factor": 2\.[01]' "$dir/out"
ok 'told: factor: only with one pass' run 0 --json "$dir/slow.gmtrace"
ok 'told: factor: none' [ "$(grep -c machine_factor "$dir/out")" = 0 ]
bad 'a figure of growth' 2 "the peak is not a number: 'x'" 'gmtrace 2\n# grow_ns: x\n'
ok 'told: rows' run 0 "$dir/told.gmtrace"
ok 'told: rows: two of the lake' [ "$(grep -c '^told *lake .* told ' "$dir/out")" = 2 ]
ok 'told: rows: of the recording' prints 'lake (recorded)'
# Told is that what was queued at 0 took no time, and what was queued after 2,000 us took 8,000. So
# the free, after 1,000, takes half as long, until 5,000.
between() {
  cat <<END
gmtrace 2
a 1 268435456 5 0
a 2 512 6 0
d 5 0 0
f 1 5 1000
a 3 268435456 6 $(($1 - 1000))
d 5 8000 $((10000 - $1))
END
}
between 4990 >"$dir/before.gmtrace"
between 5010 >"$dir/after.gmtrace"
ok 'told: between: before' run 0 --json --cross-stream grow "$dir/before.gmtrace"
ok 'told: between: before: grows' prints "\"peak_reserved_bytes\": $two, "
ok 'told: between: after' run 0 --json --cross-stream grow "$dir/after.gmtrace"
ok 'told: between: after: reused' prints "\"peak_reserved_bytes\": $one, "

# A trace that tells one and the same lag of all work replays as with that lag.
awk 'BEGIN {
  srand(4)
  for (i = 0; i < 3000; i++) {
    t += int(200 * rand())
    if (i >= 60) { print t, i ".1", "f", i - 60, stream[i - 60]; at = t + 3000; freed = stream[i - 60]
      print at, i ".3", "d", freed, 3000 }
    stream[i] = 1 + int(3 * rand())
    print t, i ".2", "a", i, 512 * int(40000 * rand() * rand()), stream[i]
  }
}' | sort -n -k1,1 -k2,2 >"$dir/events"
{
  echo 'gmtrace 2'
  awk '{ dt = $1 - last; last = $1; $1 = $2 = ""; sub(/^ */, ""); print $0, dt }' "$dir/events"
} >"$dir/constant.gmtrace"
for order in grow wait; do
  ok "told: constant: $order" run 0 --json --once --cross-stream $order "$dir/constant.gmtrace"
  sed 's/"stream_lag.*//' "$dir/out" >"$dir/by_trace"
  ok "told: constant: $order: named" run 0 --json --once --cross-stream $order --stream-lag-us 3000 \
    "$dir/constant.gmtrace"
  ok "told: constant: $order: the same" [ "$(sed 's/"stream_lag.*//' "$dir/out")" = \
    "$(cat "$dir/by_trace")" ]
  ok "told: constant: $order: no lag" run 0 --json --once --cross-stream $order --stream-lag-us 0 \
    "$dir/constant.gmtrace"
  ok "told: constant: $order: differs" [ "$(sed 's/"stream_lag.*//' "$dir/out")" != \
    "$(cat "$dir/by_trace")" ]
done

# A block is used on stream 6 too, which is busy longer than its own.
uses() {
  cat <<END
gmtrace 2
a 1 268435456 5 0
a 2 512 6 0
$1
f 1 5 1000
d 5 0 1
a 3 268435456 5 2000
d 6 7001 5000
f 3 5 1
f 2 6 1
END
}
uses '# no use' >"$dir/unused.gmtrace"
uses 'u 1 6 0' >"$dir/used.gmtrace"
ok 'uses: none' run 0 --json --cross-stream grow "$dir/unused.gmtrace"
ok 'uses: none: reused' prints "\"peak_reserved_bytes\": $one, "
ok 'uses: one' run 0 --json --cross-stream grow "$dir/used.gmtrace"
ok 'uses: one: grows' prints "\"peak_reserved_bytes\": $two, "
ok 'uses: the table' run 0 --once --allocator lake --cross-stream grow \
  bench/traces/streams/fsdp2-llama-7b-LR-dyn.gmtrace.gz
ok 'uses: the table: what recorded streams hold' grep -qE ' 17\.20 +17\.58 ' "$dir/out"
ok 'uses: profile' run 0 --json --once --cross-stream grow --save-profile "$dir/profile" \
  "$dir/used.gmtrace"
ok 'uses: profile: of a table' run 0 --once --cross-stream grow --save-profile "$dir/of_table" \
  "$dir/used.gmtrace"
ok 'uses: profile: of the run that was asked for' cmp "$dir/profile" "$dir/of_table"
for allocator in native bfc expandable; do
  ok "uses: $allocator" run 0 --json --allocator $allocator "$dir/used.gmtrace"
done
# Torch keeps such a block until stream 6 has used it too, or memory runs out.
uses 'u 1 5 0' >"$dir/own.gmtrace"
uses 'u 1 6 0
u 1 7 0' >"$dir/both.gmtrace"
uses 'u 1 7 0
u 1 6 0' >"$dir/both_other.gmtrace"
# Stream 6 still uses the first block that is freed, not the second one.
cat >"$dir/second.gmtrace" <<END
gmtrace 2
a 1 134217728 5 0
a 2 268435456 5 0
u 1 6 0
u 2 7 0
f 1 5 1000
f 2 5 1
d 7 2 1
a 3 268435456 5 2000
d 6 9000 10000
END
sed 's/^f 1 5/f 1 -/' "$dir/used.gmtrace" >"$dir/finished.gmtrace"
# keeps ALLOCATOR ONE TWO SECOND: its peaks in MiB where the block is reused, where it is not, and
# of the last trace.
keeps() {
  reused="_reserved_bytes\": $(($2 << 20))," more="_reserved_bytes\": $(($3 << 20)),"
  with="--json --allocator $1"
  # shellcheck disable=SC2086
  {
    for name in unused own finished; do
      gives "kept: $1: $name" "$reused" $with "$dir/$name.gmtrace"
    done
    gives "kept: $1" "$more" $with "$dir/used.gmtrace"
    gives "kept: $1: two" "$more" $with "$dir/both.gmtrace"
    gives "kept: $1: two, in turn" "$more" $with "$dir/both_other.gmtrace"
    gives "kept: $1: never" "$more" $with --stream-lag-us never "$dir/used.gmtrace"
    gives "kept: $1: never, own stream" "$reused" $with --stream-lag-us never "$dir/own.gmtrace"
    gives "kept: $1: the second" "_reserved_bytes\": $(($4 << 20))," $with "$dir/second.gmtrace"
    gives "kept: $1: 2001 us" "$reused" $with --stream-lag-us 2001 "$dir/used.gmtrace"
    gives "kept: $1: 2002 us" "$more" $with --stream-lag-us 2002 "$dir/used.gmtrace"
    gives "kept: $1: no memory" "$reused" $with --limit-mib 300 "$dir/used.gmtrace"
  }
}
keeps bfc 258 514 384
keeps expandable 262 522 400
# What no stream freed serves every stream.
sed 's/^f 1 5/f 1 -/; /^d/d; s/^a 3 268435456 5/a 3 268435456 6/' "$dir/unused.gmtrace" \
  >"$dir/none.gmtrace"
ok 'no stream' run 0 --json --cross-stream grow --stream-lag-us never "$dir/none.gmtrace"
ok 'no stream: reused' prints "\"peak_reserved_bytes\": $one, "
# With streams that may end each free has an event of its own.
for flag in 0 1; do
  {
    printf 'gmtrace 2\n# streams_may_end: %s\na 1 512 6 0\na 2 512 7 0\n' $flag
    awk 'BEGIN { for (i = 10; i < 110; i++) print "a", i, 512, 6, 1 "\nf", i, 6, 1 }'
  } >"$dir/ends$flag.gmtrace"
  ok "streams may end: $flag" run 0 --json "$dir/ends$flag.gmtrace"
  calls=$(sed 's/.*"driver_calls": \([0-9]*\).*/\1/' "$dir/out")
  ok "streams may end: $flag: calls" [ $((calls > 100)) = $flag ]
  ok "streams may end: $flag: stay" run 0 --json --streams-stay "$dir/ends$flag.gmtrace"
  calls=$(sed 's/.*"driver_calls": \([0-9]*\).*/\1/' "$dir/out")
  ok "streams may end: $flag: stay: calls" [ "$calls" -lt 100 ]
done

# Buffers: memory follows what they commit. Other allocators hold all that a buffer may need.
cat >"$dir/buffers.gmtrace" <<'END'
gmtrace 2
b 1 104857600 2097152 0
b 2 104857600 2097152 0
c 1 0 20971520 5 1
x 1 0 20971520 5 1
c 2 83886080 20971520 5 1
a 3 4194304 5 0
f 3 5 1
f 2 5 1
c 1 0 4194304 - 1
END
ok 'buffers' run 0 --json "$dir/buffers.gmtrace"
ok 'buffers: live' prints '"peak_active_bytes": 25165824, '
ok 'buffers: chunks serve the next buffer' prints "\"peak_reserved_bytes\": $((36 << 20)), "
for allocator in native bfc expandable; do
  ok "buffers: $allocator" run 0 --json --allocator $allocator "$dir/buffers.gmtrace"
  ok "buffers: $allocator: all addresses" [ "$(sed 's/.*reserved_bytes": \([0-9]*\),.*/\1/' \
    "$dir/out")" -ge $((204 << 20)) ]
done
ok 'buffers: series' run 0 --allocator lake --series "$dir/series.csv" "$dir/buffers.gmtrace"
ok 'buffers: series: live' [ "$(cut -d, -f3 "$dir/series.csv" | tr '\n' ' ')" = \
  'live_bytes 0 0 20971520 0 20971520 25165824 20971520 0 4194304 ' ]
gives 'buffers: report' ', for the allocation of 4194304 bytes on stream 5.' --report --once \
  "$dir/buffers.gmtrace"

# The report: its bytes add up, and its calls.
adds_up() {
  awk -v reserved="$1" -v calls="$2" '
    / GiB .* %$/ { bytes += $(NF - 3) }
    rows { for (i = 9; i <= NF; i++) sum += $i }
    /^iteration/ { rows = 1 }
    END { exit !(bytes > reserved - .003 && bytes < reserved + .003 && sum == calls) }' "$dir/out"
}
ok 'report' run 0 --report --once --cross-stream grow "$dir/used.gmtrace"
ok 'report: when' prints 'The lake holds most after event 3, at 0.003 s: 0.516 GiB, for the '\
'allocation of 268435456 bytes on stream 5.'
ok 'report: both counts' prints 'In the whole trace 0.250 GiB are live at most (0.4848 of that)'
ok 'report: torch counts more' prints 'still use, which torch counts too, 0.500 GiB (0.9697).'
ok 'report: live' prints '  live                                                  0.250 GiB  48.48 %'
ok 'report: pending' prints '  freed, recorded streams still use it: stream 5        0.250 GiB  48.48 %'
ok 'report: adds up' adds_up 0.516 "$(awk '/^used/ { print $7 }' "$dir/out")"
ok 'report: tags' run 0 --report --once --cross-stream grow "$dir/late.gmtrace"
ok 'report: tags: of whole chunks' prints '  free, whole chunks, still used by stream 5            0.250 GiB '
ok 'report: tags: the rest' prints '  free, in holes below a chunk                          0.016 GiB '
# Two streams' blocks lie in turn in ten chunks. After that, windows of one size take turns.
{
  printf 'gmtrace 2\na 100 512 6 0\nm one\n'
  awk 'BEGIN {
    for (i = 0; i < 30; i++) print "a", i, 8388608, i % 3 == 1 ? 6 : 5, 1
    for (i = 0; i < 30; i++) print "f", i, i % 3 == 1 ? 6 : 5, 1
    print "m two\na 50 167772160 5 1"
  }'
} >"$dir/turns.gmtrace"
ok 'report: streams in turn' run 0 --report --once --cross-stream grow --stream-lag-us never \
  "$dir/turns.gmtrace"
ok 'report: streams in turn: adds up' adds_up 0.391 "$(awk '/^turns/ { print $7 }' "$dir/out")"
ok 'report: streams in turn: neither may have them' [ "$(sed -n \
  's/^  free, whole chunks that several streams share *\(0.[0-9]*\) GiB .*/\1/p' "$dir/out")" != 0.000 ]
ok 'report: iterations' [ "$(grep -c '^        [0-9] ' "$dir/out")" = 3 ]
# Stream 6 has nothing to do when it is made to wait for stream 5, until 3 ms later.
sed 's/^d.*/d 5 6000 3000/' "$dir/late.gmtrace" >"$dir/still.gmtrace"
ok 'report: stands still' run 0 --report --once --cross-stream wait "$dir/still.gmtrace"
ok 'report: stands still: so long' grep -q '^        1 .* 1   3.00 ' "$dir/out"
ok 'report: stands still: not growing first' run 0 --report --once --cross-stream grow \
  "$dir/still.gmtrace"
ok 'report: stands still: zero' grep -q '^        1 .* 0   0.00 ' "$dir/out"
ok 'report: of all traces' run 0 --report --once "$dir/used.gmtrace" "$dir/turns.gmtrace"
ok 'report: of all traces: both' [ "$(grep -c 'The lake holds most' "$dir/out")" = 2 ]
ok 'report: nothing' sh -c "printf 'gmtrace 2\na 1 0 0 0\n' >'$dir/zero.gmtrace'"
gives 'report: of nothing' 'The lake held nothing.' --report --once "$dir/zero.gmtrace"

printf 'gmtrace 1\na 1 1024 0 0\na 2 150323855360 0 0\n' >"$dir/large.gmtrace"
for allocator in native bfc expandable lake; do
  refused "$allocator: out of memory" 1 "large: $allocator failed at event 1 (allocation of " \
    --json --allocator $allocator "$dir/large.gmtrace"
done
# A larger device than an H200.
printf 'gmtrace 2\na 1 150323855360 5 0\nu 1 6 0\nf 1 5 1\na 2 512 6 1\nf 2 6 1\n' \
  >"$dir/larger.gmtrace"
ok 'larger' run 0 --once --allocator lake --limit-mib 200000 --html "$dir/larger.html" \
  "$dir/larger.gmtrace"
ok 'larger: what is used' grep -q '^larger  *lake  *140\.00  *140\.00 ' "$dir/out"
sed -n 's/.*id="data">\([^<]*\).*/\1/p' "$dir/larger.html" | base64 -d | gzip -dc >"$dir/out"
ok 'larger: its page' prints "\"device_bytes\":$((200000 << 20)),"
ok 'goes on after a failure' run 2 --json "$dir/large.gmtrace" "$dir" "$dir/small.gmtrace"
ok 'goes on: last trace' prints '{"trace": "small", '

# Policies. Two blocks of 4 MiB are freed that do not lie together; then come requests of 8 and 2.
cat >"$dir/policy.gmtrace" <<'END'
gmtrace 1
a 0 512 0 0
m one
a 1 4194304 0 1
a 2 2097152 0 1
a 3 4194304 0 1
a 4 2097152 0 1
f 1 1
f 3 1
m two
a 5 8388608 0 1
f 5 1
m three
a 6 8388608 0 1
f 6 1
a 7 2097152 0 1
f 7 1
END
ok 'policy: default' run 0 --json --policy default --set chunk_mib=2 "$dir/policy.gmtrace"
ok 'policy: default: its name' prints '"policy": "default", "state_count": ['
ok 'policy: default: its knob' prints '"chunk_count": 8, '
ok 'policy: knobs of the default without its name' run 0 --json --set chunk_mib=4 \
  "$dir/policy.gmtrace"
ok 'policy: that knob' prints '"chunk_count": 6, '
ok 'policy: an option goes before a knob' run 0 --json --chunk-mib 2 --set chunk_mib=4 \
  "$dir/policy.gmtrace"
ok 'policy: that option' prints '"chunk_count": 8, '
ok 'policy: paper' run 0 --json --policy paper --set limit_mib=2 \
  --iterations "$dir/iterations" "$dir/policy.gmtrace"
ok 'policy: paper: S1, S2, S3, S4' prints '"policy": "paper", "state_count": [1, 1, 1, 5, 0]'
ok 'policy: paper: 12 MiB and a slab' prints '"peak_reserved_bytes": 14680064, '
ok 'iterations' file_is "$dir/iterations" "$(printf '%s\n' \
  'iteration requests from_2mib s1 s2 s3 s4 s5 stitches driver_calls driver_ms reserved_bytes' \
  '0 1 0 0 0 0 0 0 0 4 0.030 2097152' '1 4 4 0 0 0 4 0 0 17 0.171 14680064' \
  '2 1 1 0 0 1 0 0 1 5 0.082 14680064' '3 2 2 1 1 0 0 0 1 6 0.042 14680064' | tr ' ' '\t')"
gives 'policy: limit' '"stitches": 0, ' --json --policy paper "$dir/policy.gmtrace"
ok 'policy: all rows' run 0 "$dir/policy.gmtrace"
ok 'policy: a row of the paper' [ "$(grep -c '^policy *paper ' "$dir/out")" = 1 ]
ok 'policy: and its mean' prints 'paper  1 traces of one stream: utilization mean '
ok 'policy: one instead of both' run 0 --policy paper "$dir/policy.gmtrace"
ok 'policy: no row of the lake' [ "$(grep -c '^policy *lake ' "$dir/out")" = 0 ]
worst_fit=$build/policy_worst_fit.so
ok 'policy: library' run 0 --json --policy $worst_fit --set chunk_mib=2 "$dir/policy.gmtrace"
ok 'policy: library: its name' prints '"stitches": 0, '
ok 'policy: library: its name' prints '"policy": "worst_fit", '
cp $worst_fit "$dir/p.so"
ok 'policy: library in this directory' sh -c \
  "cd '$dir' && '$absolute_build/replay' --once --policy p.so '$dir/policy.gmtrace' >out 2>err"
ok 'policy: library: its row' prints 'worst_fit  1 traces'
ok 'policy: help' run 0 --help --policy $worst_fit
ok 'policy: help: of the paper' prints '--set limit_reading '
ok 'policy: help: of the library' prints '--policy worst_fit: the largest free block'

# decided N PATTERN...: so many lines have all the patterns.
decided() {
  wanted=$1
  shift
  cp "$dir/told" "$dir/some"
  for pattern; do
    grep -F -- "$pattern" "$dir/some" >"$dir/fewer"
    mv "$dir/fewer" "$dir/some"
  done
  [ "$(wc -l <"$dir/some")" = "$wanted" ]
}

# decisions_are_json: all of them, and every operation of the trace has one.
decisions_are_json() {
  n='[0-9][0-9]*'
  ! grep -vx "{\"op\": $n, \"kind\": \"[a-z]*\", \"state\": [0-5], \"request\": $n, \
\"address\": \"0x[0-9a-f]*\", \"bytes\": $n, \"asked\": $n, \"stream\": \($n\|null\), \
\"reason\": \"\([^\"\\\\]\|\\\\.\)*\", \"driver_ns\": $n, \
\"reserved\": $n, \"active\": $n}" "$dir/told" &&
    [ "$(sed 's/{"op": \([0-9]*\).*/\1/' "$dir/told" | uniq | tr '\n' ' ')" = "$1 " ]
}
ok 'decisions' run 0 --json --policy paper --set limit_mib=2 --decisions "$dir/told" \
  "$dir/policy.gmtrace"
ok 'decisions: one pass' prints '"ns_per_op": null'
ok 'decisions: the same figures' prints '"policy": "paper", "state_count": [1, 1, 1, 5, 0]'
ok 'decisions: lines' decisions_are_json '0 1 2 3 4 5 6 7 8 9 10 11 12'
for states in '1 1' '2 1' '3 1' '4 5' '5 0'; do
  ok "decisions: state and count: $states" \
    decided "${states#* }" '"kind": "alloc"' "\"state\": ${states% *}, "
done
ok 'decisions: frees' decided 5 '"kind": "free"' '"reason": "free for the stream that it was freed on"'
ok 'decisions: one is stitched, and a former' decided 2 '"kind": "stitch"' '"stream": 0'
ok 'decisions: reasons of the policy' decided 2 '"bytes": 8388608' '"reason": "exact sBlock"'
ok 'decisions: 12 MiB and a slab at the end' [ "$(sed -n '$s/.*"reserved": \([0-9]*\).*/\1/p' \
  "$dir/told")" = 14680064 ]
ok 'decisions: by the lake, without its name' run 0 --chunk-mib 2 --decisions "$dir/told" \
  "$dir/policy.gmtrace"
ok 'decisions: one row' [ "$(wc -l <"$dir/out")" = 3 ]
ok 'decisions: its lines' decisions_are_json '0 1 2 3 4 5 6 7 8 9 10 11 12'
ok 'decisions: reasons of its own' decided 1 '"state": 2' '"reason": "the smallest free range that is larger"'
ok 'decisions: none left over' decided 0 '"op": 13'

# refuses MESSAGE ARGUMENT...: with status 2, and says so.
refuses() {
  message=$1
  shift
  refused "refused: $*" 2 "$message" "$@" "$dir/policy.gmtrace"
}
refuses '--policy takes default, paper or the path of a file.so, not: torch' --policy torch
refuses 'No such file' --policy "$dir/none.so"
echo 'int nothing;' >"$dir/empty.c"
ok 'empty library' gcc -shared -fPIC "$dir/empty.c" -o "$dir/empty.so"
refuses 'the library does not define gmlake_replay_policy, see bench/policy.h' --policy "$dir/empty.so"
refuses 'the policy paper has the settings official, chunk_mib, limit_mib, ' --policy paper --set chunk=2
refuses 'the policy default has the settings chunk_mib, stitch_min_mib, stitched_max_mib, '\
'driver_free_min_mib, not: limit_mib=2' --set limit_mib=2
refuses 'the policy worst_fit has the settings chunk_mib, not: x=1' --policy $worst_fit --set x=1
refuses "--allocator takes lake|bfc|native|expandable, not 'torch'" --allocator torch
refuses "--stream-lag-us takes a whole number of microseconds, or never, not '1x'" --stream-lag-us 1x
refuses "--costs takes alone|replayed|busy, not 'dear'" --costs dear
refuses "--limit-mib takes a whole number from 1 to 1048576, not '0'" --limit-mib 0
refuses 'the value does not fit (limit_reading is what it limits: request, exact, block, whole' \
  --policy paper --set limit_reading=none
refuses '--set takes KEY=VALUE, not: chunk_mib' --set chunk_mib
for knob in chunk_mib=3 chunk_mib=2x chunk_mib= stitch_min_mib=-1; do
  refuses "): $knob" --set $knob
done
for knob in chunk_mib=1 chunk_mib=0 limit_reading=none limit_mib=x keeps_former=2 \
  reuse_percent=99; do
  refuses "): $knob" --policy paper --set $knob
done
refuses 'the value does not fit (chunk_mib is the chunk, a power of two, 2 to 1024): chunk_mib=1' \
  --policy "$worst_fit" --set chunk_mib=1
lake_only='work only with --allocator lake, not with:'
refuses "--policy and --set $lake_only bfc" --allocator bfc --policy paper
refuses "--policy and --set $lake_only native" --allocator native --set chunk_mib=2
refuses '--iterations needs one trace' --iterations "$dir/x" "$dir/policy.gmtrace"
ok 'unwritable iterations' run 1 --json --iterations "$dir/none/x" "$dir/policy.gmtrace"
refuses '--decisions works only with --allocator lake, not with: bfc' --allocator bfc --decisions "$dir/x"
refuses '--report works only with --allocator lake, not with: bfc' --allocator bfc --report
refuses '--report works only without --json' --json --report
refuses '--decisions needs one trace' --decisions "$dir/x" "$dir/small.gmtrace"
refuses '--series needs --allocator and one trace' --series x.csv
fails 'decisions that cannot be opened' 1 "$dir/none/x: No such file or directory" --decisions \
  "$dir/none/x" "$dir/policy.gmtrace"
fails 'unwritable decisions' 1 '/dev/full: cannot be written' --decisions /dev/full \
  "$dir/policy.gmtrace"
ok 'decisions: a request that fails' run 1 --chunk-mib 2 --limit-mib 2 --decisions "$dir/told" \
  "$dir/policy.gmtrace"
ok 'decisions: its lines' decisions_are_json '0 1'
ok 'decisions: in state 5' decided 1 '"op": 1' '"state": 5' '"reason": "the lake could not serve the request"'

sh bench/random_trace.sh 1 300 >"$dir/random.gmtrace"
ok 'random trace' run 0 --json --chunk-mib 2 "$dir/random.gmtrace"
ok 'random trace: 8 GiB live at most' [ "$(sed 's/.*"peak_active_bytes": \([0-9]*\).*/\1/' \
  "$dir/out")" -le $((8 << 30)) ]
# figure NAME: what --json says of it; told PATTERN: so many decisions.
figure() { sed "s/.*\"$1\": \([0-9]*\|\[[^]]*\]\)[,}].*/\1/" "$dir/out"; }
told() { grep -c "$1" "$dir/told" || true; }
for policy in default paper; do
  ok "decisions of $policy" run 0 --json --policy $policy --set chunk_mib=2 \
    --decisions "$dir/told" "$dir/random.gmtrace"
  ok "decisions of $policy: states" [ "$(figure state_count)" = "$(for state in 1 2 3 4 5; do
    told "\"kind\": \"alloc\", \"state\": $state,"
  done | paste -sd, | sed 's/,/, /g; s/.*/[&]/')" ]
  ok "decisions of $policy: stitches" [ "$(figure stitches)" = "$(told '"stitch"')" ]
  ok "decisions of $policy: reuses" [ "$(figure stitch_reuses)" = "$(told '"reuse"')" ]
  ok "decisions of $policy: waits" [ "$(figure stream_waits)" = "$(told ': "this stream waits on the device')" ]
  ok "decisions of $policy: peak" [ "$(figure peak_reserved_bytes)" = "$(
    sed 's/.*"reserved": \([0-9]*\).*/\1/' "$dir/told" | sort -n | tail -n 1)" ]
done
sh bench/random_trace.sh 2 300 >"$dir/random2.gmtrace"
ok 'random trace: seeds differ' [ "$(cksum <"$dir/random.gmtrace")" != "$(cksum <"$dir/random2.gmtrace")" ]
ok 'random trace: no seed' [ "$(sh bench/random_trace.sh 2>/dev/null || echo $?)" = 2 ]

report
