#!/bin/sh
# build/offload_gpu over the driver without a device (fake_cuda.h): what its figures must be that are
# no times, and that it notices wrong bytes.

. tests/tools/shell.sh
offload=$build/offload_gpu
program="env LD_LIBRARY_PATH=$build/fake $offload"
FAKE_CUDA_GIB=1
export FAKE_CUDA_GIB

# row WAY FIELD: that field of the way's line in $dir/out.
row() { sed -n "s/.*\"way\":\"$1\".*\"$2\":\"*\([^\",}]*\).*/\1/p" "$dir/out"; }

# train NAME US [KIND]: a step of training whose operators take so long. Ten layers, each keeps what it made
# for the way back. Sizes and times are sixteen times what the runs below divide them to.
train() {
  awk -v us="$2" -v kind="${3:-}" 'BEGIN {
    print "gmgraph 1"
    for (i = 0; i < 10; i++) print "t", i, 16 * (100000 + 8 * i), "p"
    print "t 10", 16 * 300001, "i"
    for (i = 0; i < 10; i++) print "t", 11 + i, 16 * (400000 + 1000 * i), "a"
    print "t 21", 16 * 70000, "a"
    print "m step"
    for (i = 0; i < 10; i++) print "o forth", us * 32000, "r", 10 + i, i, "w", 11 + i
    print "o loss", us * 16000, "r 20 w 21"
    for (i = 9; i >= 0; i--) {
      print "o back" kind, us * 48000, "r", 11 + i, i, 21, "w 21"
      print "o update", us * 16000, "r", 21, i, "w", i
    }
    print "m step"
  }' >"$dir/$1.gmgraph"
}
train train 20
train hasty .1
train random 20 .rand

: >"$dir/libcuda.so.1"
LD_LIBRARY_PATH=$dir "$offload" >"$dir/out" 2>"$dir/err"
ok 'no driver' [ $? = 0 ]
ok 'no driver: says so' prints 'skipped: no GPU'
FAKE_CUDA_DEVICES=-1
export FAKE_CUDA_DEVICES
ok 'no device' run 0
ok 'no device: says so' prints 'skipped: no GPU'
unset FAKE_CUDA_DEVICES

for seed in 0 1 2; do
  FAKE_CUDA_SEED=$seed
  export FAKE_CUDA_SEED
  ok "seed $seed" run 0 --json --divide 16 --iterations 3 --settle 2 --ahead "$seed" --fixed \
    "$dir/train.gmgraph"
  ok "seed $seed: silent" [ ! -s "$dir/err" ]
  ok "seed $seed: link" prints '{"out_bytes_per_s":'
  ok "seed $seed: nothing moved" [ "$(row none out_bytes) $(row none in_bytes)" = '0 0' ]
  ok "seed $seed: right bytes" [ "$(row none state) $(row tensile+ state)" = 'ok ok' ]
  ok "seed $seed: all bytes" [ "$(row tensile+ looked_at)" = 1.0000 ]
  ok "seed $seed: persistent tensors" [ "$(row tensile+ digests)" = 44 ]
  # 10 weights, the input, what the layers keep and the sum on the way back.
  ok "seed $seed: in half of the memory" [ "$(row tensile+ peak_bytes)" -le 2707680 ]
  # What is cheaper depends on the times that were measured.
  ok "seed $seed: by moving or recomputing" \
    [ "$(row tensile+ out_bytes)" -gt 1000000 -o "$(row tensile+ recomputed)" -gt 0 ]
  for way in turnip turnip-sim turnip-ops turnip-fixed; do
    ok "seed $seed: $way: right bytes" [ "$(row $way state) $(row $way digests)" = 'ok 44' ]
    ok "seed $seed: $way: in half of the memory" [ "$(row $way peak_bytes)" -le 2707680 ]
    ok "seed $seed: $way: by moving" [ "$(row $way in_bytes)" -gt 1000000 ]
    ok "seed $seed: $way: as much as by the mock" \
      [ "$(row $way in_bytes)" = "$(row $way mock_in_bytes)" ]
  done
done
# One CUDA graph. It has an odd number of operators; some are random.
FAKE_CUDA_SEED=1
ok 'a CUDA graph' run 0 --json --divide 16 --iterations 3 --settle 2 --graph "$dir/random.gmgraph"
ok 'a CUDA graph: right bytes' \
  [ "$(row turnip-graph state) $(row turnip-graph digests)" = 'ok 44' ]
ok 'a CUDA graph: moves what nodes move' \
  [ "$(row turnip-graph in_bytes)" = "$(row turnip-graph mock_in_bytes)" ]
ok 'a CUDA graph: by moving' [ "$(row turnip-graph in_bytes)" -gt 1000000 ]
ok 'a CUDA graph: no stalls are known' [ "$(row turnip-graph stall_ms)" = null ]

# A made-up graph on two GPUs.
FAKE_CUDA_DEVICES=2
export FAKE_CUDA_DEVICES
for seed in 0 1; do
  FAKE_CUDA_SEED=$seed
  ok "two GPUs: seed $seed" run 0 --json --iterations 1 --settle 0 --fixed product:2:2:1536
  ok "two GPUs: seed $seed: silent" [ ! -s "$dir/err" ]
  ok "two GPUs: seed $seed: from one to the other" prints '{"peer_bytes_per_s":'
  ok "two GPUs: seed $seed: no plan" [ -z "$(row tensile+ state)" ]
  for way in none turnip turnip-sim turnip-ops turnip-fixed; do
    ok "two GPUs: seed $seed: $way: right bytes" [ "$(row $way state) $(row $way digests)" = 'ok 32' ]
    ok "two GPUs: seed $seed: $way: moves as much as by the mock" \
      [ "$(row $way in_bytes)" = "$(row $way mock_in_bytes)" ]
  done
  ok "two GPUs: seed $seed: by moving" [ "$(row turnip in_bytes)" -gt 1000000 ]
done
# Transfers carry what was written in part, in tensors of 64 KiB or more.
ok 'two GPUs: parts' run 0 --json --iterations 1 --settle 0 --divide 16 transformer:2:2:512:1024
ok 'two GPUs: parts: right bytes' [ "$(row none state) $(row turnip state)" = 'ok ok' ]
unset FAKE_CUDA_DEVICES
fails 'too few GPUs' 1 'product:2:2:1536: it takes 2 GPUs' product:2:2:1536

ok 'still' run 0 --json --divide 16 --iterations 2 --settle 0 "$dir/train.gmgraph"
still=$(row none mock_ms)
ok 'jitter' run 0 --json --divide 16 --iterations 2 --settle 0 --jitter .9 "$dir/train.gmgraph"
ok 'jitter: right bytes' [ "$(row none state) $(row turnip state)" = 'ok ok' ]
ok 'jitter: of the mock too' [ "$(row none mock_ms)" != "$still" ]

ok 'a budget' run 0 --json --divide 16 --iterations 1 --settle 0 --budget-gib .002 \
  "$dir/train.gmgraph"
ok 'a budget: is kept' [ "$(row turnip peak_bytes)" -le 2147483 ]
ok 'a budget: for memgraphs' [ "$(row tensile+ peak_bytes)" -gt 2147483 ]
ok 'too small a budget' run 1 --divide 16 --iterations 1 --settle 0 --budget-gib .0005 \
  "$dir/train.gmgraph"
ok 'too small a budget: says so' says 'no memgraph: GMLAKE_OFFLOAD_ERROR_OUT_OF_DEVICE_MEMORY'
ok 'an operator too short to read it all' run 0 --json --divide 16 --iterations 2 --settle 1 \
  "$dir/hasty.gmgraph"
ok 'an operator too short: says so' awk -v part="$(row tensile+ looked_at)" \
  'BEGIN { exit !(part > 0 && part < 1) }'
gives 'a table' 'train                tensile+ ' --divide 16 --iterations 1 --settle 0 --part .9 \
  "$dir/train.gmgraph"

fails 'no file' 1 "$dir/none.gmgraph: No such file or directory" --divide 16 "$dir/none.gmgraph"

# plant NAME EDIT [GRAPH]: the bytes are wrong if gmlake_offload.h has this defect. The seed is the
# order in which the fake driver takes work up; plans depend on measured times, so that one order
# may not show a defect.
plant() {
  cp gmlake_turnip.h "$dir" # which includes what is beside it
  sed "$2" gmlake_offload.h >"$dir/gmlake_offload.h"
  ok "$1: planted" [ "$(diff gmlake_offload.h "$dir/gmlake_offload.h" | grep -c '^>')" = 1 ]
  ok "$1: built" "${CC:-cc}" -std=gnu99 -w -I"$dir" -I. -Itests/cuda_stub bench/offload/gpu.c \
    -o "$dir/offload_gpu" -lz -lpthread -ldl
  program="env LD_LIBRARY_PATH=$build/fake $dir/offload_gpu"
  for FAKE_CUDA_SEED in 2 3 4 5 6 7; do
    export FAKE_CUDA_SEED
    run 1 --divide 16 --iterations 1 --settle 1 "${3:-$dir/train.gmgraph}" && break
  done
  ok "$1: noticed" prints 'WRONG BYTES'
}
plant 'copies end when they begin' \
  's/event_query(of, event, out_done, &code) != GMLAKE_OK;/event_query(of, event, out_done, \&code) != 0 || !(*out_done = 1);/'
plant 'the last word is left behind' \
  's/HtoDAsync(address, copy->host_ptr, copy->bytes,/HtoDAsync(address, copy->host_ptr, copy->bytes - 8,/'
plant 'operators do not wait for copies' 's/ && q == gmlo_queue_of(r->memgraph, other);/;/'
FAKE_CUDA_DEVICES=2
export FAKE_CUDA_DEVICES
plant 'transfers leave the last word behind' \
  's/^\( *\)tensor.bytes, stream) != CUDA_SUCCESS;/\1tensor.bytes - 8, stream) != CUDA_SUCCESS;/' \
  product:2:2:1536

report
