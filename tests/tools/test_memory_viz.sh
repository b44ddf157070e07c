#!/bin/sh
# examples/memory_viz.py: what it makes of snapshots has the fields that torch's viewer reads, only
# what its unpickler knows, and each byte that the lake holds once.

. tests/tools/shell.sh
ok 'snapshots' "$build/examples/snapshot" "$dir/s"
cat >"$dir/look.py" <<'END'
import json, pickle, pickletools, sys
told = json.load(open(sys.argv[1]))
data = open(sys.argv[2], "rb").read()
known = set("""PROTO APPEND APPENDS LIST TUPLE NEWFALSE NEWTRUE NONE BINGET BININT BININT1 BININT2
  EMPTY_DICT EMPTY_LIST FRAME LONG1 LONG_BINGET MARK MEMOIZE BINPUT LONG_BINPUT SETITEMS SETITEM DICT
  SHORT_BINUNICODE BINUNICODE STOP EMPTY_TUPLE TUPLE1 TUPLE2 TUPLE3 BINFLOAT""".split())
strange = {op.name for op, _, _ in pickletools.genops(data)} - known
assert not strange, strange
out = pickle.loads(data)
for s in out["segments"]:
    at = s["address"]
    assert s["blocks"] and s["device"] == 0 and len(s["segment_pool_id"]) == 2
    for b in s["blocks"]:
        assert b["address"] == at and b["size"] > 0, "blocks tile their segment"
        assert b["state"] in ("active_allocated", "active_pending_free", "inactive")
        assert 0 < b["requested_size"] <= b["size"] and b["frames"]
        at += b["size"]
    assert at == s["address"] + s["total_size"]
ends = sorted((s["address"], s["address"] + s["total_size"]) for s in out["segments"])
assert all(x[1] <= y[0] for x, y in zip(ends, ends[1:])), "segments do not overlap"
stats = told["stats"]
assert sum(s["total_size"] for s in out["segments"]) == stats["reserved_bytes"]
sizes = {"active_allocated": 0, "active_pending_free": 0, "inactive": 0}
for s in out["segments"]:
    for b in s["blocks"]:
        sizes[b["state"]] += b["size"]
assert sizes["active_allocated"] == stats["active_bytes"]
assert sizes["active_pending_free"] == stats["pending_bytes"]
assert sum(s["active_size"] for s in out["segments"]) == stats["active_bytes"] + stats["pending_bytes"]
blocks = {b["address"]: b for s in out["segments"] for b in s["blocks"]}
made = {s["address"]: s["total_size"] for s in out["segments"]}
for e in out["device_traces"][0]:
    if e["action"] == "oom":
        assert e["size"] == told["error"]["asked_bytes"] and "addr" not in e
        continue
    if e["action"] == "segment_alloc":
        assert made.pop(e["addr"]) == e["size"] and e["frames"]
        continue
    assert not made, "the segments come first, each once"
    assert blocks[e["addr"]]["size"] == e["size"], "each block of the history is in a segment"
    pending = blocks[e["addr"]]["state"] == "active_pending_free"
    assert e["action"] == "alloc" or pending
allocs = sorted(e["addr"] for e in out["device_traces"][0] if e["action"] == "alloc")
live = sorted(b["address"] for b in blocks.values() if b["state"] != "inactive")
assert allocs == live, "the viewer needs an event for each block"
assert len(live) >= len(told["blocks"])
names = {f["name"] for b in blocks.values() for f in b["frames"]}
assert {"weights", "logits", "kv cache", "tenant's"} <= names, names
if told["windows"]:
    assert any("idle window" in n for n in names), names
END
for which in full end; do
  ok "$which: it converts" python3 -B examples/memory_viz.py "$dir/s.$which.json" "$dir/$which.pickle"
  python3 -B "$dir/look.py" "$dir/s.$which.json" "$dir/$which.pickle" >"$dir/out" 2>&1
  ok "$which: it is what the lake holds" [ $? = 0 ]
done
printf '{"format": "gmlake replay"}' >"$dir/other.json"
python3 -B examples/memory_viz.py "$dir/other.json" "$dir/x.pickle" >"$dir/out" 2>"$dir/err"
ok 'another document: status' [ $? = 1 ]
ok 'another document: reason' says "$dir/other.json: not a snapshot of examples/snapshot.h, version 1"
ok 'another document: nothing is written' [ ! -e "$dir/x.pickle" ]
cat >"$dir/wrong.py" <<'END'
import copy, json, sys
sys.path.insert(0, "examples")
import memory_viz
whole = json.load(open(sys.argv[1]))
def tried(snapshot):
    try:
        memory_viz.convert(snapshot)
    except ValueError:
        pass
for key in whole:
    tried({k: v for k, v in whole.items() if k != key})
    for value in (None, 7, -1, 1e99, float("nan"), "x", [], [7], {}, {"x": 1}, [[]], [["x"] * 20]):
        tried(dict(whole, **{key: value}))
for value in (None, 7, "x", [], [whole], {}):
    tried(value)
END
ok 'any wrong part is refused in words' python3 -B "$dir/wrong.py" "$dir/s.full.json"
for wrong in null '[1]' '{"format": "gmlake snapshot", "version": 1}'; do
  echo "$wrong" >"$dir/other.json"
  python3 -B examples/memory_viz.py "$dir/other.json" "$dir/x.pickle" >"$dir/out" 2>"$dir/err"
  ok "$wrong: status" [ $? = 1 ]
  ok "$wrong: reason" says "$dir/other.json: "
done
report
