#!/bin/sh
# build/offload and build/turnip: how they answer bad graphs, and that plans and memgraphs save what
# they have to, by the mock's clock, which is the same everywhere.

. tests/tools/shell.sh
program=$build/offload

# bad NAME LINE REASON TEXT: a graph of that text (printf's escapes) is refused so.
bad() {
  path=$dir/bad.gmgraph
  # shellcheck disable=SC2059
  printf "$4" >"$path"
  refused "$1" 1 "$path:$2: $3" --json "$path"
}

h='gmgraph 1\nt 0 512 a\nt 1 512 p\n'
bad 'empty' 1 'the file is empty' ''
bad 'not a graph' 1 'not a graph' 'gmtrace 1\n'
bad 'no operators' 3 'the graph has no operators' "$h"
bad 'unknown record' 4 "unknown record 'x'" "${h}x\n"
bad 'an id left out' 4 'id 2 expected' "${h}t 3 512 a\n"
bad 'unknown kind' 4 "the kind is none of p, i, a: 'q'" "${h}t 2 512 q\n"
bad 'no kind' 4 "the kind is none of p, i, a: ''" "${h}t 2 512\n"
bad 'size of 2^60' 4 'the size is too large' "${h}t 2 1152921504606846976 a\n"
bad 'negative time' 4 "the time is not a number: '-1'" "${h}o x -1 r w\n"
bad 'no reads' 4 "'r' is missing" "${h}o x 1 w 0\n"
bad 'no writes' 4 "'w' is missing" "${h}o x 1 r 1\n"
bad 'unknown tensor' 4 'unknown tensor 2' "${h}o x 1 r 2 w 0\n"
bad 'word for an id' 4 "an id is not a number: 'b'" "${h}o x 1 r b w 0\n"
bad 'text behind a tensor' 4 "text after the record: 'x'" "${h}t 2 5 a 1 x\n"
bad 'word for a device' 4 "the device is not a number: 'x'" "${h}t 2 5 a x\n"
bad 'ninth device' 4 'the device is too large: 8' "${h}t 2 5 a 8\n"
bad 'truncated line' 4 'the last line is truncated' "${h}o x 1 r 1 w 0"
ok 'no file' run 1 "$dir/none.gmgraph"
vgg2=bench/graphs/vgg16-b2.gmgraph.gz
gives 'options behind a graph' '"jobs":2,' "$vgg2" --json --iterations=1 --jobs 2
ok 'no name behind -- but a graph' run 0 --json --iterations=1 -- "$vgg2"

# A graph that takes no time and no memory has figures all the same, or none.
printf 'gmgraph 1\nt 0 0 p\nt 1 0 a\no x 0 r 0 w 1\no y 0 r 1 0 w 0\n' >"$dir/zero.gmgraph"
cat >"$dir/instant.gmgraph" <<'END'
gmgraph 1
t 0 9000000 p
t 1 90000000 a
t 2 90000000 a
t 3 90000000 a
o conv 0 r 0 w 1
o relu 0 r 1 w 2
o relu_backward 0 r 2 w 3
o conv_backward 0 r 1 3 0 w 0
END
for name in offload turnip; do
  program=$build/$name
  for file in zero instant; do
    for json in --json ''; do
      # shellcheck disable=SC2086
      ok "$name $json: $file" run 0 $json "$dir/$file.gmgraph"
      ok "$name $json: $file: figures" [ "$(grep -cE 'nan|inf' "$dir/out")" = 0 ]
    done
  done
  gives "$name: no such figure" '":null,' --json "$dir/instant.gmgraph"
done
ok 'turnip: a divisor that is no power of two' run 0 --json --seeds 1 --budget .5 \
  --divisor 5000 "$vgg2"
program=$build/offload

# row WAY FIELD: that field of the way's line in $dir/out.
row() { sed -n "s/.*\"way\":\"$1\".*\"$2\":\([^,}]*\).*/\1/p" "$dir/out"; }

# within WAY SAVED OVERHEAD: it saved at least so much, at no more than that overhead.
within() {
  awk -v saved="$(row "$1" saved)" -v overhead="$(row "$1" overhead)" -v least="$2" -v most="$3" \
    'BEGIN { exit !(saved >= least && overhead <= most) }'
}

all_ok() { ! grep -v '"state":"ok"' "$dir/out"; }

vgg=bench/graphs/vgg16-b64.gmgraph.gz
ok 'vgg16-b64' run 0 --json "$vgg"
ok 'vgg16-b64: right bytes' all_ok
ok 'vgg16-b64: paper mode waits for nothing' within paper .07 0
ok 'vgg16-b64: paper mode with recomputation' within 'paper+r' .19 .0971
ok 'vgg16-b64: saved' within 'tensile+' .32 .0501
ok 'vgg16-b64: saved at no cost' within tensile .13 .0005
ok 'vgg16-b64: vDNN' within vdnn-conv .2 1.2
ok 'vgg16-b64: vDNN, all feature maps' within vdnn-all .2 2.3
ok 'vgg16-b64: Capuchin' within capuchin .32 1.6
ok 'vgg16-b64, 2 %' run 0 --json --overhead .02 "$vgg"
ok 'vgg16-b64, 2 %: saved' within 'tensile+' .2241 .0201
ok 'two jobs' run 0 --json --jobs 2 "$vgg"
ok 'two jobs: right bytes' all_ok
ok 'two jobs: no baselines of one job' [ -z "$(row vdnn-conv saved)$(row capuchin saved)" ]
ok 'two jobs: saved' within 'tensile+' .2295 .06
ok 'different jobs' run 0 --json --iterations 2 --together "$vgg" "$vgg2"
ok 'different jobs: right bytes' all_ok
ok 'different jobs: two' prints '"graph":"together","jobs":2,'
ok 'different jobs: saved' within 'tensile+' .2 .07
fails 'together: no graph' 1 '--together takes 1 to 16 graphs, not 0' --together
ok 'jitter' run 0 --json --jitter .2 "$vgg"
ok 'jitter: right bytes' all_ok
ok 'vgg16-b2' run 0 --json bench/graphs/vgg16-b2.gmgraph.gz
ok 'vgg16-b2: saved' within 'tensile+' .07 .0501
ok 'resnet50-b64' run 0 --json bench/graphs/resnet50-b64.gmgraph.gz
ok 'resnet50-b64: saved' within 'tensile+' .54 .0501
ok 'llama-7b-prefill' run 0 --json --iterations 1 bench/graphs/llama-7b-prefill-4k.gmgraph.gz
ok 'llama-7b-prefill: saved at no cost' within tensile .41 .0005
ok 'llama-7b-prefill: Capuchin has nothing to move' \
  awk -v bytes="$(row capuchin short_bytes)" 'BEGIN { exit !(bytes > 13e9) }'

# What takes long, each night.
if [ "$whole" = yes ]; then
  ok 'three jobs' run 0 --json --jobs 3 "$vgg"
  ok 'three jobs: right bytes' all_ok
  ok 'three jobs: saved' within 'tensile+' .2767 .06
  ok 'densenet121-b64' run 0 --json bench/graphs/densenet121-b64.gmgraph.gz
  ok 'densenet121-b64: right bytes' all_ok
  ok 'densenet121-b64: saved' within 'tensile+' .59 .0501
  ok 'densenet121-b64: saved at no cost' within tensile .2061 .0005
  ok 'llama-7b-lora' run 0 --json --iterations 1 bench/graphs/llama-7b-lora-b8-1k.gmgraph.gz
  ok 'llama-7b-lora: saved' within 'tensile+' .8 .0501
fi

# ---- build/turnip ----

program=$build/turnip

# field NAME: of the only row.
field() { sed -n "s/.*\"$1\":\([^,}]*\).*/\1/p" "$dir/out"; }

# at_least NAME VALUE, at_most NAME VALUE: a field of the only row.
at_least() { awk -v a="$(field "$1")" -v b="$2" 'BEGIN { exit !(a != "" && a >= b) }'; }
at_most() { awk -v a="$(field "$1")" -v b="$2" 'BEGIN { exit !(a != "" && a <= b) }'; }

cat >"$dir/two.gmgraph" <<'END'
gmgraph 1
t 0 9000000 p
t 1 9000000 a 0
t 2 9000000 a 1
t 3 9000000 a 1
o there 1000000 r 0 w 1
o transfer 1000000 r 1 w 2
o here 1000000 r 2 w 3
END
ok 'turnip: a file of two devices' run 0 --json --seeds 1 --budget 2 --jitter 0 --copy-jitter 0 \
  --executions 5 "$dir/two.gmgraph"
ok 'turnip: a file of two devices: one after the other' prints '"none_ms":3.000,'
echo 'o wrong 1 r 0 3 w 1' >>"$dir/two.gmgraph"
refused 'turnip: an operator of two devices' 1 \
  'operator 3, tensor 3: the operator uses a tensor of another device' --json "$dir/two.gmgraph"
refused 'turnip: no such product' 1 'product:9:2:64: no such graph' --json product:9:2:64
refused 'turnip: no such size' 1 'product:1:1:4294967295: no such graph' --json \
  product:1:1:4294967295
ok 'turnip: no such transformer' run 1 --json transformer:0:1:1:1
refused 'turnip: no such random graph' 1 'random:1:10:4097:1: no such graph' --json \
  random:1:10:4097:1
ok 'turnip: no file' run 1 "$dir/none.gmgraph"
path=bench/graphs/llama-7b-lora-b8-1k.gmgraph.gz
ok 'turnip: a slow link' run 0 --json --seeds 1 --budget 6 --link 5 "$path"
ok 'turnip: a slow link: time' at_least over .5
ok 'turnip: LoRA in 6 GiB' run 0 --json --seeds 1 --budget 6 "$path"
ok 'turnip: LoRA in 6 GiB: right bytes' all_ok
ok 'turnip: LoRA in 6 GiB: time' at_most over .05
devices=2
if [ "$whole" = yes ]; then devices='2 4'; fi
for devices in $devices; do
  graph=transformer:$devices:32:4096:4096
  ok "turnip: $graph" run 0 --json --seeds 3 --budget .5 --executions 20 "$graph"
  ok "turnip: $graph: right bytes" all_ok
  ok "turnip: $graph: time" at_most over .05
  ok "turnip: $graph: any order" at_least gain .14
done
ok 'turnip: a product' run 0 --json --seeds 1 --budget .5 --executions 20 product:8:4:4096
ok 'turnip: a product: right bytes' all_ok
ok 'turnip: in paper mode' run 0 --json --seeds 1 --paper --executions 20 product:2:4:4096
ok 'turnip: in paper mode: right bytes' all_ok
if [ "$whole" = yes ]; then
  ok 'turnip: 19,319 operators' run 0 --json --seeds 1 --budget .5 transformer:4:420:512:1024
  ok 'turnip: thousands of tensors' run 0 --json --seeds 1 --budget .5 random:1:20000:4096:1
  ok 'turnip: thousands of tensors: right bytes' all_ok
fi

# Sessions: what is planned is what happens, and at what cost; each night of both graphs.
graphs=bench/graphs/resnet50-b64.gmgraph.gz
if [ "$whole" = yes ]; then graphs="$graphs bench/graphs/llama-7b-lora-b8-1k.gmgraph.gz"; fi
# shellcheck disable=SC2086
if "$build/offload_session" --mock --json --iterations 4 $graphs >"$dir/out" 2>"$dir/err"; then
  # of GRAPH FIELD LEAST MOST: the row with a limit has a figure in that range.
  of() {
    awk -v "graph=\"$1\"" -v "field=\"$2\":" -v "least=$3" -v "most=$4" '
      index($0, graph) && index($0, "\"way\":\"part\"") {
        at = substr($0, index($0, field) + length(field)) + 0
        found = at >= least && at <= most
      }
      END { exit !found }' "$dir/out"
  }
  ok 'session, resnet50: nothing leaves on demand' of resnet50-b64 demand_out 0 0
  ok 'session, resnet50: nothing comes back on demand' of resnet50-b64 demand_in 0 0
  ok 'session, resnet50: the time that every plan takes' of resnet50-b64 least_ms 85 138
  ok 'session, resnet50: its time' of resnet50-b64 ratio 1 1.91
  if [ "$whole" = yes ]; then ok 'session, llama: its time' of llama-7b-lora-b8-1k ratio 1 1.01; fi
else
  failed=$((failed + 1))
  cat "$dir/err"
fi

report
