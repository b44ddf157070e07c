#!/bin/sh
# The examples build without a warning, succeed, and print what they are there to show.

. tests/tools/shell.sh

# example NAME LINE...: it exits with 0, and its output has those lines, in that order.
example() {
  name=$1
  shift
  for line; do echo "$line"; done >"$dir/expected"
  ok "$name" eval '"$build/examples/$name" >"$dir/out" 2>&1 &&
    grep -xF -f "$dir/expected" "$dir/out" | diff "$dir/expected" - >"$dir/err"'
}

example hello \
  'the last byte is 42' \
  'asked for 3145828 bytes, got 3146240, the lake holds 4194304 in 2 chunks' \
  'after the free: 0 bytes live, 4194304 kept for the next allocation'
example stitching \
  'the window has 3 pieces' \
  '  4 MiB at offset  0 MiB: wrote a through the window, its home says a' \
  '  4 MiB at offset  4 MiB: wrote b through the window, its home says b' \
  '  4 MiB at offset  8 MiB: wrote c through the window, its home says c' \
  '28 MiB live in 32 MiB of memory'
example two_streams \
  'GMLAKE_GROW_FIRST' \
  '  own stream, same memory: reserved 32 MiB, stream waits 0' \
  '  other stream: reserved 64 MiB, stream waits 0' \
  'GMLAKE_WAIT_FIRST' \
  '  own stream, same memory: reserved 32 MiB, stream waits 0' \
  '  other stream: reserved 32 MiB, stream waits 1'
example graph_capture \
  'captured, reserved 12 MiB' \
  'captured, reserved 12 MiB'
example custom_backend \
  'gmlake_create' \
  '  reserve          GMLAKE_OK, 2.0 us' \
  'gmlake_alloc of 3 MiB' \
  '  create           GMLAKE_OK, 7.5 us' \
  '  map              GMLAKE_OK, 0.5 us' \
  '  create           GMLAKE_OK, 7.5 us' \
  '  map              GMLAKE_OK, 0.5 us' \
  '  set_access       GMLAKE_OK, 40.0 us' \
  'gmlake_free' \
  'gmlake_destroy'
example running_out \
  '8 MiB now: GMLAKE_OK, at once, 8 MiB of new memory' \
  '20 MiB now: GMLAKE_ERROR_LIMIT_REACHED, at once, 0 MiB of new memory' \
  'asked for 20 MiB: dropping a cached block' \
  'asked for 20 MiB: dropping a cached block' \
  'got 20 MiB, 2 blocks are left in the cache' \
  'asked for 40 MiB: dropping a cached block' \
  'asked for 40 MiB: dropping a cached block'
ok 'running_out: why' grep -qx 'GMLAKE_ERROR_LIMIT_REACHED: asked 40, live 20, .*, limit 40 MiB' "$dir/out"
example prewarm \
  'without a profile' \
  '  loading       589 calls,   7.6 ms; 4320 MiB held in 270 chunks' \
  '  first step    348 calls,   4.2 ms; 6720 MiB held in 420 chunks' \
  '  second step     0 calls,   0.0 ms; 6720 MiB held in 420 chunks' \
  'with a profile' \
  '  prewarming    844 calls,  11.8 ms; 6720 MiB held in 420 chunks' \
  '  loading         0 calls,   0.0 ms; 6720 MiB held in 420 chunks' \
  '  first step      0 calls,   0.0 ms; 6720 MiB held in 420 chunks' \
  '  second step     0 calls,   0.0 ms; 6720 MiB held in 420 chunks'
example fallback \
  'gmlake_create: GMLAKE_OK' \
  '3145728 bytes came from gmlake.h' \
  'gmlake_create: GMLAKE_ERROR_UNSUPPORTED' \
  '3145728 bytes came from gmlake_bfc.h'
example snapshot \
  "$build/examples/snapshot.full.json, end.json, asleep.json: open bench/viewer.html and drop them \
on it"
example record \
  "recorded 4 steps of 6 allocations; to replay them: build/replay $build/examples/record.gmtrace"

# The lake serves the other steps from the largest one's memory and a chunk or two.
ok 'the recording of record' eval '"$build/replay" --allocator lake "$build/examples/record.gmtrace" \
  >"$dir/out" 2>&1 && grep -q "^record  *lake  *0\.21  *0\.21  *0\.22 " "$dir/out" &&
  [ "$(grep -cE "^(a|f|m) " $build/examples/record.gmtrace)" = 52 ]'

back='  model b sleeps: 50 MiB given back'
awake='  its graph says a; the lake holds 50 MiB, 50 MiB sleep'
example two_models "$back" "$awake"
pressed='batch of 40 MiB: 3 layers gave way, 3 were loaded; 64 MiB held'
eased='batch of  8 MiB: 0 layers gave way, 3 were loaded; 64 MiB held'
example weights 'batch of  8 MiB: 0 layers gave way, 6 were loaded; 56 MiB held' \
  'batch of 40 MiB: 6 layers gave way, 3 were loaded; 64 MiB held' "$pressed" "$eased"

words='wrong words: 0'
once='  12 graphs were captured, for 6 layers'
bound='the lake held 136 MiB at most, of 136'
example experts '  the lake made the host wait 0 times' "$once" "$bound" "$words"
ok 'experts: hits' grep -qx 'addresses        11.0 experts a layer: 7[0-9.]* % hits, .*' "$dir/out"
# experts ARGUMENT...: it succeeds; its output is in $dir/out.
experts() { "$build/examples/experts" "$@" >"$dir/out" 2>"$dir/err"; }
# hits FROM TO [FIELD]: such a part of the lookups, in percent, finds its expert at its address.
hits() {
  awk -v from="$1" -v to="$2" '$1 == "addresses" && $6 >= from && $6 <= to { right = 1 }
    END { exit !right }' "$dir/out"
}
ok 'experts: the sizes of a large model' experts --large
ok 'experts: of its lookups 67 to 81 % hit, as for llama.cpp' hits 67 81
ok 'experts: as many as fit into 24 GiB' grep -q '^addresses *76.8 experts a layer' "$dir/out"
ok 'experts: without a wait of the host' grep -qx '  the lake made the host wait 0 times' "$dir/out"
ok 'experts: misses at 85 % of the link at least' [ \
  "$(grep -c '^addresses.* at \(8[5-9]\|9.\) % of the link;$' "$dir/out")" = 2 ]
ok 'experts: views hold as many as slots' grep -q '^addresses, views 90.9 experts a layer' "$dir/out"
ok 'experts: and are as fast' grep -q 'a token, 0.83 times .* addresses, 1.00 times .* views$' "$dir/out"
# The figures that were reported: of 512 experts, 10 chosen, with 64 in memory, and with 128.
like='--large --layers 4 --experts 512 --chosen 10 --ahead 0 --trade-mib 64 --reuse 100 --tokens 900'
# shellcheck disable=SC2086
ok 'experts: 64 of 512' eval 'experts $like --limit-mib 2080 && hits 65 69'
# shellcheck disable=SC2086
ok 'experts: 128 of 512' eval 'experts $like --limit-mib 4128 && hits 79 83'
awk 'BEGIN { for (i = 0; i < 360; i++) print i % 6, i % 6 + 7, 20, 31 }' >"$dir/trace"
ok 'experts: a trace' eval 'experts --trace "$dir/trace" && hits 100 100'
for wrong in "--trace $dir/none" "--trace $dir/trace --tokens 46" "--trace $dir/trace --experts 31" \
  '--chosen 17' '--limit-mib 40' '--layers' '--layers x' '--nonsense 1'; do
  # shellcheck disable=SC2086
  experts $wrong
  ok "experts: refused: $wrong" [ $? != 0 ]
  ok "experts: refused: $wrong: says why" [ "$(wc -l <"$dir/err")" -gt 0 ]
done
# plant NAME LINE EDIT: it notices that mistake in its own line, on the mock.
plant() {
  sed "/$2/ $3" examples/experts.c >"$dir/experts.c"
  ok "experts: $1: planted" [ "$(diff examples/experts.c "$dir/experts.c" | grep -c '^<')" = 1 ]
  ok "experts: $1: compiles" "${CC:-cc}" -std=c99 -w -DGMLAKE_IMPLEMENTATION_DONE -I. -Iexamples \
    "$dir/experts.c" "$build/impl/mock.o" -o "$dir/experts" -lpthread -ldl
  "$dir/experts" >"$dir/out" 2>"$dir/err"
  ok "experts: $1: noticed" [ $? = 1 ]
}
plant 'the work does not wait for copies' 'wait_for(s.worker, &s.loaded' d
plant 'an expert leaves while it is used' 'wait_for(s.copier, &s.used' d
plant 'keys leave while they are used' 'wait_for(s.copier, &s.keys_fence' d
plant 'the newest leave' 'uint32_t oldest = s.oldest.class' 's/= s.oldest/= s.newest/'
plant 'a graph is captured twice' 's.how != COPIES .. capture' 's/capture_once(g)/(& || &)/'
plant 'two have one part of a chunk' 's.taken.class...;' d
plant 'more than there is memory for' 's.capacity -= ' 's/-= .*/+= 16;/'

served='70 sequences served; 28 times one waited for memory'
caches='caches: 704 MiB at most; the longest sequence for each slot would take 2048'
memory='memory of the caches, averaged over the steps: 1.037 times the live keys and values'
example kv_server \
  'step   0:  0 running, 70 waiting; caches    0 MiB, committed    0; lake 2360 MiB' \
  'step  64: 16 running, 37 waiting; caches  407 MiB, committed  422; lake 3066 MiB' \
  'step 159:  0 running,  0 waiting; caches    0 MiB, committed    0; lake 3066 MiB' \
  "$served" "$caches" \
  '7680 tokens were forgotten, and their memory given back in the middle of caches' \
  "$memory"

# With less memory it ends too: what does not fit alone is refused, what cannot grow comes again.
for mib in 2364 2432 2480; do
  sed "s/define LIMIT .*/define LIMIT ($mib * MIB)/" examples/kv_server.c >"$dir/kv_server.c"
  ok "kv_server, $mib MiB: compiles" "${CC:-cc}" -std=c99 -I. "$dir/kv_server.c" -o "$dir/kv_server" \
    -lpthread -ldl
  # One that goes on for ever is ended by the pipe.
  "$dir/kv_server" 2>"$dir/err" | head -n 3000 >"$dir/out"
  sed -n 's/^\([0-9]*\) sequences served.*/\1/p; s/^\([0-9]*\) refused.*/\1/p' "$dir/out" >"$dir/sum"
  ok "kv_server, $mib MiB: ends" [ "$(awk '{ n += $1 } END { print n }' "$dir/sum")" = 70 ]
done

# Its batches are those of the trace: prompts, sequences and steps by the sizes allocated.
zcat bench/traces/llama-1b-serve.gmtrace.gz | awk '
  function flush() { if (tokens) print rows ", " tokens / rows ", " steps + 1 }
  $1 == "m" { flush(); tokens = steps = 0; marks++ }
  $1 == "a" && marks && !tokens { tokens = $3 / 8; next }
  $1 == "a" && $3 > 0 && $3 % 256512 == 0 && $3 / 256512 < tokens { rows = $3 / 256512; steps++ }
  END { flush() }' >"$dir/expected"
sed -n '/batches\[\] = /,/};/p' examples/kv_server.c | grep -o '[0-9][0-9]*, [0-9]*, [0-9]*' >"$dir/out"
ok 'the batches of kv_server.c are those of the trace' eval \
  '[ -s "$dir/out" ] && diff "$dir/expected" "$dir/out" >"$dir/err"'

example offload_quarter \
  'in place     4144 MiB, 128.0 ms an iteration, of which   0.0 are waits' \
  'planned       944 MiB, 128.0 ms an iteration, of which   0.0 are waits' \
  'on demand     944 MiB, 191.5 ms an iteration, of which  63.5 are waits' \
  'the results are the same'
optimizer='148 MiB with everything in place, 70 planned'
example offload_optimizer "$optimizer" \
  'ran in 66 MiB; 90 MiB out and 92 MiB in an iteration' \
  '10.50 ms an iteration, of which 0.00 are waits'
example offload_session \
  '26 chunks of memory, 0 copies' \
  'the weights are those of plain C, bit for bit'
ok 'offload_session: half of it' grep -qx '13 chunks of memory, [1-9][0-9]* copies' "$dir/out"

around='100 tensors went around, 3 times the other process died'
left='descriptors: 0 more; exported 0, imported 0 bytes; device memory: as before'
example share "$around" "$left"
nobody='1 process was killed; of the servers 0 died'
example three_servers "$nobody"
ok 'three_servers: all answer' test "$(grep -c '^server [123] answered 100 requests; ' \
  "$dir/out")" = 3
ok 'three_servers: they ask each other for memory' grep -qE \
  '^server [12] .* again, and the others asked it [1-9][0-9]* times$' "$dir/out"
ok 'three_servers: whose caches are admitted drops none' test "$(grep -cE \
  '^server 3 answered 100 requests; .* it began 0 again, and the others asked it 0 times$' \
  "$dir/out")" = 1

example ci_mock # how many calls it makes is the lake's affair
ok 'ci_mock: survives' grep -qx '[1-9][0-9]* failures injected, all survived' "$dir/out"
ok 'ci_mock: both mistakes are found' test "$(grep -cE '^gmlake_free: stream .* may still use |'\
'^GMLAKE_FILL: .*, byte 1000 of a new block' "$dir/out")" = 2

# Where the driver's library cannot be opened, they say so.
mkdir "$dir/no_driver"
: >"$dir/no_driver/libcuda.so.1"
for program in lend_cuda examples/fragmentation examples/kv_server_cuda examples/two_models_cuda \
  examples/weights_cuda examples/experts_cuda examples/share_cuda examples/three_servers_cuda \
  examples/offload_optimizer_cuda; do
  LD_LIBRARY_PATH=$dir/no_driver "$build/$program" >"$dir/out" 2>"$dir/err"
  ok "$program without a driver" [ $? = 1 ]
  ok "$program without a driver: reason" grep -hqE \
    '^this program needs an NVIDIA GPU and its driver, and here is none|^no lake: make doctor says why$' \
    "$dir/out" "$dir/err"
done

# On a driver without a device, of 16 GiB; its granules are cuMemAlloc's pages.
export LD_LIBRARY_PATH="$build/fake${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" FAKE_CUDA_GIB=16
example fragmentation \
  'cuMemAlloc  13125 MiB live (80 %),  15000 held; asked for 2457 more: out of memory' \
  'best fit    13125 MiB live (80 %),  16188 held; asked for 2457 more: out of memory' \
  'lake        13125 MiB live (80 %),  14166 held; asked for 2457 more: served' \
  '           in 14 pieces'

example kv_server_cuda "$served" "$caches" "$memory"
example two_models_cuda "$back" "$awake"
example weights_cuda "$pressed" "$eased"
for FAKE_CUDA_SEED in 1 2; do # copies and kernels take time
  export FAKE_CUDA_SEED
  example experts_cuda "$once" "$bound" "$words"
done
unset FAKE_CUDA_SEED
example share_cuda "$around" "$left"
example three_servers_cuda "$nobody"
example offload_optimizer_cuda "$optimizer"
ok 'offload_optimizer_cuda: what it moves, which depends on when the host looks' grep -qxE \
  'ran in (6[0-9]|70) MiB; [1-9][0-9]+ MiB out and [1-9][0-9]+ MiB in an iteration' "$dir/out"

# code_lines FILE: its lines without comments and empty ones.
code_lines() {
  awk 'inside { inside = !/\*\//; next }
    /^ *\/\// || !NF { next }
    /^ *\/\*/ { inside = !/\*\//; next }
    { lines++ }
    END { print lines + 0 }' "$1"
}

# with_toolkit SOURCE LINES ARGUMENT...: it compiles with nvcc, and what it prints has such lines, or
# what the machine lacks.
with_toolkit() {
  job=$dir/$(basename "$1" | tr . _)
  source=$1
  lines=$2
  shift 2
  nvcc -I. "$@" "$source" -o "$job" >"$dir/out" 2>"$dir/err"
  ok "$source: compiles" [ $? = 0 ]
  "$job" >"$dir/out" 2>&1
  ok "$source: says so" grep -qE "^($lines|cudaSetDevice.0.)" "$dir/out"
}

if command -v nvcc >/dev/null; then
  with_toolkit examples/cuda_hello.cu 'the last element is 3.0039;'
  with_toolkit examples/offload_session.c 'the weights are those of plain C, bit for bit' \
    -x cu --fmad=false
fi

for source in examples/*.c examples/*_*.cpp; do
  example=$(basename "${source%.*}")
  case $example in
  kv_server) longest=361 ;; # a program, not one idea
  experts) longest=880 ;; # and three other ways, to compare it with
  offload_quarter) longest=90 ;; # makes a graph first
  offload_optimizer) longest=157 ;; # for two devices, as the next ones
  offload_session) longest=130 ;; # and a kernel, and a lake on a mock
  two_models) longest=170 ;;
  weights) longest=150 ;;
  share) longest=240 ;; # and two processes
  three_servers) longest=230 ;;
  prewarm) longest=80 ;; # runs a program twice
  record) longest=110 ;; # measures what recording costs, too
  ci_mock) longest=130 ;; # failures, and two mistakes
  snapshot) longest=175 ;; # a server that has something to show
  *) longest=70 ;;
  esac
  lines=$(code_lines "$source")
  ok "$source has a line here, and less than $longest lines of code: $lines" eval \
    'grep -q "^example $example " "$0" && [ "$lines" -gt 0 ] && [ "$lines" -lt "$longest" ]'
done

report
