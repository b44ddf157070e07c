#!/bin/sh
# bench/reports: the loops give what their page says on the mock, and run with a torch.

. tests/tools/shell.sh
program='python3 -B bench/reports/run.py'
count=$(find bench/reports -name '*.py' ! -name run.py | wc -l)

mkdir "$dir/traces"
ok 'mock' run 0 --traces "$dir/traces" --out "$dir/results.json"
ok 'mock: a row each' [ "$(wc -l <"$dir/out")" = $((count + 2)) ]
ok 'mock: a trace each' [ "$(find "$dir/traces" -name '*.gmtrace' | wc -l)" = "$count" ]
ok 'mock: results' is_json "$dir/results.json"
ok 'mock: results are called so' grep -q '^ "mock": true,$' "$dir/results.json"
tail -n +3 "$dir/out" | cut -d '|' -f 1-5 >"$dir/rows"
ok 'page: what torch holds' [ "$(grep -cFf "$dir/rows" bench/reports/README.md)" = "$count" ]
ok 'mock: the lake' \
  awk -F '|' 'NR > 2 && ($6 + 0 < .97 || $6 + .001 < $5 + 0) { exit 1 }' "$dir/out"
ok 'mock: native is worse' awk -F '|' 'NR > 2 && $4 + 0 > .7 { exit 1 }' "$dir/out"
for report in bench/reports/*.py; do
  name=$(basename "$report" .py)
  [ "$name" = run ] && continue
  ok "page: $name" grep -q "^- \[$name.py\]($name.py): .*https://github.com/.*/issues/[0-9]" \
    bench/reports/README.md
done
gives 'one' '| growing_workspaces | 0.39 |' growing_workspaces
ok 'one: no other' [ "$(wc -l <"$dir/out")" = 3 ]
fails 'unknown' 2 'there is no report nonsense: converted_weights ' nonsense
refused 'no folder for traces' 2 "there is no folder $dir/none" --traces "$dir/none"
refused 'no folder for results' 2 "there is no folder $dir/none" --out "$dir/none/results.json"
BUILD=$dir/none refused 'no replay' 2 "$dir/none/replay is not there: make build/replay"

# A torch that counts, twice what is live is reserved; of a lake what is live.
mkdir "$dir/torch"
cat >"$dir/torch/__init__.py" <<'END'
import os
uint8 = "uint8"
class cuda:
    live = peak = 0
    factor = 2
    settings = os.environ["PYTORCH_CUDA_ALLOC_CONF"]
    def memory_stats():
        if cuda.settings == "backend:cudaMallocAsync":
            raise SystemExit("no such backend")
        factor = 4 if cuda.settings == "expandable_segments:True" else cuda.factor
        return {"active_bytes.all.peak": cuda.peak, "reserved_bytes.all.peak": factor * cuda.peak}
class empty:
    def __init__(self, size, dtype, device):
        assert (dtype, device) == ("uint8", "cuda")
        self.size = size
        cuda.live += size
        cuda.peak = max(cuda.peak, cuda.live)
    def __del__(self):
        cuda.live -= self.size
END
printf 'import torch\ndef enable(): torch.cuda.factor = 1\n' >"$dir/gmlake_torch.py"
export PYTHONPATH="$dir"
ok 'gpu' run 0 --gpu growing_workspaces
ok 'gpu: each in its way' prints \
  '| growing_workspaces | 0.39 | 0.500 (0.78) | 0.250 (1.56) | failed | 1.000 (0.39) |'
ok 'gpu: why one failed' says 'growing_workspaces, async: no such backend'
echo 'raise SystemExit("no GPU here")' >"$dir/torch/__init__.py"
fails 'gpu: all fail' 1 'growing_workspaces, lake: no GPU here' --gpu growing_workspaces
report
