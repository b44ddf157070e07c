#!/bin/sh
# build/gpu_bench over the fake driver: that every section runs and what the figures must be that
# are no times. The times are the host's and mean nothing here.

. tests/tools/shell.sh
bench=$build/gpu_bench
program="env LD_LIBRARY_PATH=$build/fake FAKE_CUDA_GIB=140 $bench --repeat 1 --copy-mib 32 --peer-ops 100"

out_is() { [ "$(cat "$dir/out")" = "$1" ]; }
writes() { grep -qF -- "$1" "$dir/json"; }

# holds TEXT N: the document has the text so often.
holds() { [ "$(grep -oF -- "$1" "$dir/json" | wc -l)" = "$2" ]; }

# A library that cannot be loaded stands before the system's, if it has one.
: >"$dir/libcuda.so.1"
LD_LIBRARY_PATH=$dir "$bench" --json "$dir/json" >"$dir/out" 2>"$dir/err"
ok 'no driver: status' [ $? = 0 ]
ok 'no driver: says so' out_is 'skipped: no GPU'
ok 'no driver: no document' [ ! -e "$dir/json" ]

LD_LIBRARY_PATH=$build/fake FAKE_CUDA_DEVICES=-1 "$bench" >"$dir/out" 2>"$dir/err"
ok 'no device: status' [ $? = 0 ]
ok 'no device: says so' out_is 'skipped: no GPU'

# Chunks of 16 MiB on a device of 140 GiB. Four blocks of two chunks, the first and the third
# freed: the next of four chunks is a window. Then one that has to grow the lake by one chunk.
cat >"$dir/small.gmtrace" <<'END'
gmtrace 1
a 1 33554432 0 0
a 2 33554432 0 0
a 3 33554432 0 0
a 4 33554432 0 0
f 1 0
f 3 0
a 5 67108864 0 0
a 6 1000 0 0
a 7 0 0 0
f 2 0
f 6 0
f 7 0
END
# Two streams; nothing is pending, so the second reuses what the first has freed.
cat >"$dir/streams.gmtrace" <<'END'
gmtrace 1
a 1 268435456 5 0
a 2 512 6 0
f 1 1000
a 3 268435456 6 5000
f 2 1
END
printf 'gmtrace 1\na 1 1024 0 0\na 2 150323855360 0 0\n' >"$dir/large.gmtrace"

ok 'all sections' run 0 --json "$dir/json" "$dir/small.gmtrace" "$dir/streams.gmtrace"
ok 'all: silent' [ ! -s "$dir/err" ]
ok 'all: JSON' is_json "$dir/json"
for section in vmm traces bandwidth operation limit; do
  ok "all: $section" holds "\"$section\": [" 1
done
ok 'head: device' prints ', 140.0 GiB, driver '
ok 'head: granularity' writes '"granularity_bytes": 2097152'
ok 'vmm: handles of all sizes' holds '"call": "cuMemCreate", ' 7
ok 'vmm: ranges' holds '"call": "cuMemSetAccess", "form": "one call for all", ' 12
ok 'vmm: ranges handle by handle' holds '"call": "cuMemSetAccess", "form": "a call for each", ' 6
ok 'vmm: model' writes '"model_us": 20}'
for call in cuMemRelease cuMemMap cuMemUnmap cuMemAddressReserve cuMemAddressFree cuMemAlloc \
  cuMemFree cuMemGetInfo cuEventCreate cuEventRecord cuEventQuery cuEventSynchronize \
  cuStreamWaitEvent cuEventDestroy cuThreadExchangeStreamCaptureMode cuCtxGetCurrent; do
  ok "vmm: $call" writes "\"call\": \"$call\", "
done

ok 'traces: both' holds '"chunk_bytes": 16777216, "chunks_more_than_mock": 0, ' 2
ok 'traces: live' writes '"trace": "small", "operations": 12, "streams": 1, '\
'"live_bytes_peak": 134218752, '
ok 'traces: by cuMemGetInfo' writes '"memory_info_bytes_peak": 150994944, '
grep -E '"allocator": "lake(| on the mock)", "operations": 12' "$dir/json" |
  sed 's/.*"reserved_bytes_peak"/"reserved_bytes_peak"/; s/"driver_ms.*"stitches"/"stitches"/' |
  sort -u >"$dir/lakes"
ok 'traces: the mock says the same' [ "$(wc -l <"$dir/lakes")" = 1 ]
ok 'traces: nine chunks' grep -qF '"reserved_bytes_peak": 150994944, ' "$dir/lakes"
ok 'traces: a window' grep -qF '"stitches": 1, ' "$dir/lakes"
ok 'traces: all passes' holds '"allocator": "lake", "operations": 12, "passes": 5, "error": "", ' 1
ok 'traces: two streams' writes '"memory_info_bytes_peak": 285212672, '
ok 'traces: capped' holds '"allocator": "cuMemAlloc", "operations": 12, "passes": 1, ' 1
ok 'traces: calls' writes '"entry": "set_access", '
ok 'bandwidth: kinds' holds '"by": "kernel", ' 5
ok 'bandwidth: pieces of 16 MiB' holds '"kind": "window of 16 MiB chunks", "bytes": 33554432, '\
'"pieces": 2, ' 2
ok 'bandwidth: pieces of 2 MiB' holds '"kind": "window of 2 MiB chunks", "bytes": 33554432, '\
'"pieces": 16, ' 2
ok 'operation: both' holds '"warm_ns_per_op_single_threaded": ' 2
ok 'limit: chunks of 2 MiB' holds '"limit_bytes": 8589934592, "chunk_bytes": 2097152, ' 2
ok 'limit: reserved' holds '"reserved_bytes_peak": 136314880, ' 2
ok 'limit: runs' holds '"passes": 2, "error": "", ' 4

ok 'one section' run 0 --json "$dir/json" --limit-gib 1 limit "$dir/small.gmtrace" \
  "$dir/large.gmtrace"
ok 'one section: no other' holds '"vmm"' 0
ok 'one section: JSON' is_json "$dir/json"
ok 'one section: ran' prints 'both passes ran'
ok 'one section: too large' prints 'does not fit'
ok 'Markdown' run 0 --markdown --chunk-mib 2 traces "$dir/small.gmtrace" "$dir/large.gmtrace"
ok 'Markdown: row' prints '| small | 0.13 | 0.13 | 0.13 | 0 | '
ok 'Markdown: rule' prints '|---|---:|'
ok 'too large' prints 'large does not fit: 140.00 GiB live'

fails 'no such trace' 1 "$dir/none.gmtrace: No such file or directory" operation \
  "$dir/none.gmtrace"
ok 'unwritable document' run 1 --json "$dir/none/x" bandwidth

report
