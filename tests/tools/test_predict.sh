#!/bin/sh
# gmlake_torch.predict: what it makes of snapshots with known answers, and of files that are none.

. tests/tools/shell.sh
trace=bench/traces/opt-1.3b-LRO.gmtrace.gz
ok 'files' python3 -B tests/tools/snapshots.py "$dir" $trace
# Nothing imports torch.
mkdir "$dir/site" "$dir/site/torch"
echo 'raise SystemExit("torch is imported")' >"$dir/site/torch/__init__.py"
export PYTHONPATH="$dir/site:examples/torch" XDG_CACHE_HOME="$dir/cache"
program='python3 -B -m gmlake_torch.predict'

# held NAME BYTES: the row has so many bytes, in the JSON that was printed last.
held() {
  python3 -c 'import json, sys
found = json.load(open(sys.argv[1]))["bytes"].get(sys.argv[2])
sys.exit(0 if str(found) == sys.argv[3] else str(found))' "$dir/out" "$1" "$2" 2>"$dir/err"
}
# row FILE NAME BYTES: likewise, of a file.
row() {
  ok "$1: $2" run 0 --json "$dir/$1"
  ok "$1: $2: bytes" held "$2" "$3"
}
native="native, by torch's rules"
model='expandable segments, a model'
mib() { echo $(($1 << 20)); }

row small.pickle live $((3 * 1048576 + 512))
ok 'small: recorded' held 'recorded: native' "$(mib 22)"
ok 'small: native' held "$native" "$(mib 22)"
ok 'small: expandable' held "$model" "$(mib 22)"
ok 'small: lake' held lake "$(mib 16)"
cat >"$dir/wanted" <<END
gmtrace 2
# label: 1 my_model.py:42
a 1073741824 3145728 0 0
# of: 1 0 0
a 2147483648 1 0 20
f 2147483648 0 20
END
ok 'small: its trace' cmp "$dir/wanted" "$dir/small.pickle.gmtrace"
ok 'small: its page' grep -q 'id="data">[A-Za-z0-9+/]' "$dir/small.pickle.html"
gives 'small: in words' '2 allocations, 1 stream, device 0.' "$dir/small.pickle"
ok 'small: a row' prints 'lake                                 0.016   0.188'
gives 'small: other places' "Trace: $dir/t" --trace "$dir/t" --html "$dir/p" "$dir/small.pickle"
ok 'small: other places: trace' [ -s "$dir/t" ]
ok 'small: other places: page' [ -s "$dir/p" ]
gives 'small: gzipped' '2 allocations, 1 stream, device 0.' "$dir/small.pickle.gz"
gives 'two devices: the longest history' '2 allocations, 1 stream, device 1.' "$dir/two.pickle"
ok 'two devices: no segments: nothing recorded' [ "$(grep -c recorded "$dir/out")" = 0 ]
gives 'two devices: named' '1 allocation, 1 stream, device 0.' --device 0 "$dir/two.pickle"
refused 'two devices: a third' 1 'it has no history of device 2' --device 2 "$dir/two.pickle"

gives 'before' '- 2 blocks, 11.0 MiB, were there when recording began.' "$dir/before.pickle"
ok 'before: odd ones' prints '- 2 events do not fit those before them'
cat >"$dir/wanted" <<END
gmtrace 2
a 100 4194304 0 0
a 200 7340032 1 0
f 100 0 0
a 100 512 0 10
a 300 512 0 0
f 300 0 30
f 100 0 20
a 100 1024 0 0
END
ok 'before: its trace' cmp "$dir/wanted" "$dir/before.pickle.gmtrace"

row late.pickle live "$(mib 12)"
gives 'late' '- 2 frees were of blocks that recorded streams still used, at most 4.0 MiB at ' \
  "$dir/late.pickle"
ok 'late: settings' prints 'with PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64_;'
ok 'late: streams' prints 'when work on a stream has ended is not told'
for lake in 'if work ends at once' 'if it never ends' 'waiting first'; do
  ok "late: $lake" prints "lake, $lake "
done
row pools.pickle "$native" "$(mib 60)"
gives 'pools' '- 40.0 MiB belong to pools of graphs or to MemPools.' "$dir/pools.pickle"

# 64 MiB are refused where 96 of 241 are free, in three places.
gives 'fragments' 'First 64.0 MiB were asked for while 144.0 MiB were live, of 241.0 MiB that '\
'there were: enough, but for fragments.' "$dir/fragments.pickle"
ok 'fragments: native fails, too' prints "$native         fails: bfc failed at event 9 "
ok 'fragments: not the lake' prints 'lake                                 0.234   1.000'
ok 'fragments: is asked for' prints '1 of these requests are asked for in the replay, too.'
ok 'fragments: given back' [ "$(tail -n 1 "$dir/fragments.pickle.gmtrace" | cut -c 1)" = f ]
gives 'fragments: limit' 'Each allocator had 512.0 MiB.' --limit-gib .5 "$dir/fragments.pickle"
gives 'too little' 'of 241.0 MiB that there were: too little for anybody.' "$dir/too little.pickle"
ok 'too little: not asked for' [ "$(grep -c 'asked for in' "$dir/out")" = 0 ]
row small.pickle lake "$(mib 16)"
gives 'too little for what ran' "$native         fails: bfc failed" --limit-gib .001 \
  "$dir/small.pickle"
ok 'too little for what ran: nothing is by it' [ "$(grep -c '1\.000$' "$dir/out")" = 0 ]
ok 'too little for what ran: no page' prints 'Page: none: the lake fails'
ok 'too little for what ran: nothing to divide' grep -qx 'recorded: native  *0.021 *' "$dir/out"

row expandable.pickle 'recorded: expandable segments' "$(mib 20)"
row 'of a lake.pickle' 'recorded: a lake' "$(mib 20)"
row rmm.csv live $((8 * 1048576 + 512))
gives 'rmm' '3 allocations, 2 streams, device 0.' "$dir/rmm.csv"
ok 'rmm: times' grep -q '^a 512 8388608 1 7$' "$dir/rmm.csv.gmtrace"
ok 'rmm: a failure' prints 'Memory ran out 1 time. First 99 bytes were asked for while'
row night.csv live 512
ok 'rmm: midnight' grep -q '^f 256 0 20$' "$dir/night.csv.gmtrace"
row vma.json 'recorded: VMA' "$(mib 65)"
ok 'vma: live' held live "$(mib 5)"
ok 'vma: label' grep -q '^# label: . my_mesh$' "$dir/vma.json.gmtrace"

# The same program gives the same figures, by way of a snapshot.
ok 'replayed' run 0 --json "$dir/replayed.pickle"
cp "$dir/out" "$dir/predicted"
for allocator in bfc expandable lake; do
  "$build/replay" --json --once --allocator $allocator $trace >"$dir/direct"
  cp "$dir/predicted" "$dir/out"
  case $allocator in bfc) name=$native ;; expandable) name=$model ;; *) name=lake ;; esac
  ok "replayed: $allocator" held "$name" \
    "$(sed 's/.*"peak_reserved_bytes": \([0-9]*\),.*/\1/' "$dir/direct")"
done

# ---- What is refused ----

cat >"$dir/read_all.py" <<'END'
import glob, sys
from gmlake_torch import predict
for path in sorted(glob.glob(sys.argv[1] + "/*.bad")):
    try:
        predict.main([path])
    except SystemExit as error:
        print(error)
END
python3 -B "$dir/read_all.py" "$dir" >"$dir/out" 2>"$dir/err"
ok 'refused: no other word' [ ! -s "$dir/err" ]
ok 'refused: a line each' [ "$(wc -l <"$dir/out")" = "$(find "$dir" -name '*.bad' | wc -l)" ]
# bad NAME TEXT
bad() { ok "refused: $1" prints "predict: $dir/$1.bad: $2"; }
for name in system:posix.system stack:builtins.eval inst:os.system; do
  bad "${name%%:*}" "it asks for ${name#*:}. A snapshot is of numbers, texts, lists and dicts alone"
done
ok 'nothing was run' [ ! -e "$dir/executed" ]
for name in extension persistent build cut empty text; do
  bad $name 'it is no pickle, or a damaged one: '
done
bad gzip 'its gzip is damaged: '
bad deflate 'its gzip is damaged: '
bad field 'it is no CSV: '
bad json 'it is no JSON: '
bad rows 'row 1: it has no action, pointer, size, time and stream'
bad list 'it is no snapshot: '
bad none 'the snapshot: device_traces is no list'
bad 'no history' 'it has no history, so only a moment.'
bad trace 'the snapshot: device_traces[0] is no list'
bad 'action 5' 'entry 0: action is no text'
bad 'addr x' 'entry 0: addr is no number'
bad 'size -1' 'entry 0: size is no number of bytes'
bad 'size 11805' 'entry 0: size is no number'
bad 'size True' 'entry 0: size is no number'
bad 'stream None' 'the stream of an entry is no number'
bad 'time_us 1.5' 'entry 0: time_us is no number'
bad entry 'entry 0: action is no text'
bad segment 'segment 0: device is no number'
bad blocks 'segment 0: blocks is no list'
bad address 'segment 0, block 0: address is no number'
refused 'no file' 1 "predict: [Errno 2] No such file or directory: '$dir/none'" "$dir/none"
refused 'nowhere to write' 1 'predict: [Errno 2]' --trace "$dir/none/x" "$dir/small.pickle"
fails 'nowhere to draw' 1 "predict: $dir/none/x: cannot be written" --html "$dir/none/x" \
  "$dir/small.pickle"
for limit in -1 0 nan inf 1025; do
  refused "a limit of $limit" 2 "--limit-gib: it takes a number from 1/1024 to 1024, not '$limit'" \
    "--limit-gib=$limit" "$dir/small.pickle"
done

# ---- Building replay ----

# without_replay ARGUMENT...: as if it had not been built.
without_replay() {
  BUILD=$dir/none CC="$CC -O0" python3 -B -m gmlake_torch.predict "$@" >"$dir/out" 2>"$dir/err"
}
if [ "$whole" = yes ]; then # installed, with the sources that setup.py names
  mkdir "$dir/installed"
  cp -r examples/torch/gmlake_torch "$dir/installed"
  sed -n 's/^REPLAY = (\(.*\))$/\1/p' examples/torch/setup.py | tr -d '",' >"$dir/named"
  # shellcheck disable=SC2046
  tar cf - bench/*.h $(cat "$dir/named") |
    (mkdir "$dir/installed/gmlake_torch/source" && tar xf - -C "$dir/installed/gmlake_torch/source")
  PYTHONPATH=$dir/site:$dir/installed XDG_CACHE_HOME=$dir/kept
  ok 'it builds replay' without_replay --json "$dir/small.pickle"
  ok 'it builds replay: says so' says 'predict: building replay, once ...'
  ok 'it builds replay: the same' held lake "$(mib 16)"
  ok 'it keeps replay' without_replay "$dir/small.pickle"
  ok 'it keeps replay: silent' [ ! -s "$dir/err" ]
  ok 'its page' grep -q 'id="data">[A-Za-z0-9+/]' "$dir/small.pickle.html"
fi
CC=$dir/none XDG_CACHE_HOME=$dir/other
ok 'no compiler' [ "$(without_replay "$dir/small.pickle"; echo $?)" = 1 ]
ok 'no compiler: says so' says 'and no C compiler: '
report
