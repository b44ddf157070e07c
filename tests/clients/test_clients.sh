#!/bin/sh
# The libraries that torch and CuPy load, over the driver without a device; llama.cpp's pool and
# cache, on the mock; that what Python there is compiles, and runs where a stub can stand in for
# torch.

. tests/tools/shell.sh
library=$build/gmlake_pluggable.so
# torch's threads wait for each other by spinning.
export OMP_NUM_THREADS=1

# A compiler that optimises nothing, whatever it is told; each night they do as they are told.
printf '#!/bin/sh\nexec "%s" "$@" %s\n' "$CC" "$([ "$whole" = yes ] || echo '-O0 -g0')" >"$dir/cc"
chmod +x "$dir/cc"

# fake VARIABLE=VALUE... COMMAND...: runs it over the fake driver.
fake() {
  LD_LIBRARY_PATH=$build/fake FAKE_CUDA_GIB=1 env "$@" >"$dir/out" 2>"$dir/err"
}

silent() { [ ! -s "$dir/err" ]; }

# ---- torch ----

# pluggable LIBRARY CASE: the case with a library of torch's or CuPy's allocator.
pluggable() {
  fake python3 -B tests/clients/torch_pluggable.py --case "$2" "$1"
}
ok 'torch: gmlake_pluggable.so, and gmlake_cupy.so' fake python3 -B tests/clients/torch_pluggable.py \
  "$build"
ok 'torch: its own allocator' fake FAKE_CUDA_SEED=1 FAKE_CUDA_DEVICES=3 "$build/client_torch_allocator"
ok 'torch: its own allocator: silent' silent
ok 'torch: its own allocator, as torch 2.11 has it' fake FAKE_CUDA_SEED=3 FAKE_CUDA_DEVICES=3 \
  "$build/client_torch_allocator_old" enable memory history trackers graphs checkpoints sources
ok 'torch: its own allocator, as torch 2.11 has it: silent' silent
# played FILE: twelve iterations, of steps that take 1 ms each, which are planned in the end.
played() {
  "$build/offload_session" --json --chunk-mib 2 "$1" >"$dir/out" 2>"$dir/err" &&
    python3 -B -c '
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])][1:-1]
assert len(rows) == 12 - 1, rows
assert all(row["steps"] == 24 and row["steps_ms"] == 24 for row in rows[1:]), rows
assert rows[0]["plans"] == 0 and sum(row["plans"] for row in rows) > 0, rows
assert all(row["mode"] == 1 and row["demand_in"] <= 2 and row["out_gb"] > .05 for row in rows[5:])
' "$dir/out"
}
echo kept >"$dir/run.gmcalls"
ok 'torch: the calls of a session' fake FAKE_CUDA_SEED=1 \
  "GMLAKE_TORCH_RECORD_SESSION=$dir/run.gmcalls" "$build/client_torch_allocator" train
ok 'torch: the calls of a session: no file is overwritten' grep -qx kept "$dir/run.gmcalls"
sed 's/^time \([0-9]*\) .*/time \1 1000000/' "$dir/run.gmcalls.2" >"$dir/even.gmcalls"
ok 'torch: the calls of a session, played' played "$dir/even.gmcalls"
sed 's/^begin \([0-9]* [0-9]* [0-9]*\) 1 /begin \1 9 /' "$dir/run.gmcalls.2" >"$dir/wrong.gmcalls"
ok 'torch: calls that are wrong are refused in words' eval '! played "$dir/wrong.gmcalls" &&
  grep -q "wrong.gmcalls:[0-9]*: fewer tensors than it reads" "$dir/err"'
awk 'BEGIN {
  print "gmcalls 1"
  for (i = 0; i < 5000; i++) { print "alloc 0", i, 4096, 0; ids = ids " " i }
  print "begin 0 7 0 4999" ids "\nend 0"
}' >"$dir/many.gmcalls"
program=$build/offload_session
gives 'torch: the calls of a session: a step of many tensors' '"iteration":0,"steps":1,' --json \
  "$dir/many.gmcalls"
# The last iteration goes on behind the recorded ones, with tensors like those that it began with.
gives 'torch: the calls of a session: 17 iterations of 12' '"iteration":16,"steps":24,"ms":24.0' \
  --json --chunk-mib 2 --repeat 5 --limit-mib 200 "$dir/even.gmcalls"
ok 'torch: the calls of a session: no more than that' [ "$(grep -c iteration "$dir/out")" = 17 ]
gives 'torch: the calls of a session: a slow link' '"bound_ms":112.' --json --chunk-mib 2 \
  --repeat 5 --link-gb 1 "$dir/even.gmcalls"
# calls_of LINE...: numbers stand for times.
calls_of() {
  printf 'gmcalls 1\n' >"$dir/again.gmcalls"
  printf '%s\n' "$@" >>"$dir/again.gmcalls"
}
calls_of 'alloc 0 0 4096 0' 'mark 1' 'begin 2 7 0 1 0' 'end 3' 'alloc 4 1 4096 0' 'free 5 0 0' 'mark 6'
gives 'torch: the calls of a session: another tensor each time' '"iteration":4,"steps":1,' --json \
  --repeat 3 "$dir/again.gmcalls"
calls_of 'alloc 0 0 4096 0' 'mark 1' 'alloc 2 1 8192 0' 'free 3 0 0' 'mark 4'
fails 'torch: the calls of a session: nothing to play again' 1 \
  'its last iteration does not end with the tensors with which it begins' --repeat 1 \
  "$dir/again.gmcalls"
# Four iterations in which eight regions are executed twice: a session that is told so would decide
# that they need not be, which these calls do not follow.
awk 'BEGIN {
  m = 1048576
  print "gmcalls 1"
  for (i = 0; i < 9; i++) print "alloc 0", i, 4 * m, "0\nbegin 0 1 0 0", i "\nend 0"
  for (turn = 0; turn < 4; turn++) {
    print "mark 0"
    for (i = 0; i < 8; i++) {
      print "region 0\nbegin 0 2 0 2", i, 8 + i "\nalloc 0 17", 4 * m, "0\nend 0\nbegin 0 3 0 1 17"
      print "alloc 0 18", 8 * m, "0\nend 0\nbegin 0 4 0 1 18\nalloc 0", 9 + i, 4 * m, "0\nend 0"
      print "region_end 0 0\nfree 0 17 0\nfree 0 18 0"
    }
    for (i = 7; i >= 0; i--) {
      print "again 0", 8 * turn + i + 1 "\nbegin 0 2 0 2", i, 8 + i "\nalloc 0 17", 4 * m, "0"
      print "end 0\nbegin 0 3 0 1 17\nalloc 0 18", 8 * m, "0\nend 0\nregion_end 0 0"
      print "begin 0 5 0 3 17 18", 8 + i, i "\nend 0\nfree 0 17 0\nfree 0 18 0\nfree 0", 9 + i, 0
    }
  }
  print "mark 0"
  for (i = 0; i < 48; i++) print "time 0 1000000"
}' >"$dir/regions.gmcalls"
gives 'torch: the calls of a session: regions' '"steps":48' --json --chunk-mib 2 --limit-mib 100 \
  --repeat 24 "$dir/regions.gmcalls"
ok 'torch: the calls of a session: regions stay as they are' \
  [ "$(grep -c '"steps":48.*"drifts":0' "$dir/out")" = 28 ]
fails 'torch: the calls of a session: no whole iteration' 1 'it has no whole iteration' --repeat 1 \
  "$dir/many.gmcalls"
ok 'torch: exports nothing else' [ "$(nm -D --defined-only "$library" |
  grep -cv ' T gmlake_torch_')" = 0 ]

# command_of FILE: runs the command in the file's first comment, into a directory of its own.
command_of() {
  sed -n '/^   cc /,/-ldl$/p' "$1" | sed 's/\\$//' | tr '\n' ' ' |
    sed "s|-I/usr/local/cuda/include|-Itests/cuda_stub|; s|-o |-o $dir/|; s|^ *cc|$dir/cc|" \
      >"$dir/command"
  sh -e "$dir/command" >"$dir/out" 2>"$dir/err"
}
ok 'torch: the command in the file' command_of examples/torch/gmlake_pluggable.c
ok 'torch: its library' pluggable "$dir/gmlake_pluggable.so" memory
ok 'cupy: the command in the file' command_of examples/cupy/gmlake_cupy.c
ok 'cupy: its library' pluggable "$dir/gmlake_cupy.so" cupy

# ---- Python ----

if command -v python3 >/dev/null; then
  for source in examples/*/*.py bench/torch/*.py bench/re*/*.py tests/*/*.py; do
    ok "python: $source" python3 -c 'import sys
compile(open(sys.argv[1]).read(), sys.argv[1], "exec")' "$source"
    ok "python: $source: lines" [ "$(awk 'length($0) > 100' "$source" | wc -l)" = 0 ]
  done
  program='python3 -B bench/real/run.py'
  fails 'bench/real: no such program' 2 'there is no program nonsense: trainer_lora' nonsense
  for way in nonsense offload offload: offload:x; do
    fails "bench/real: --ways $way" 2 "there is no way $way: native" --ways "$way"
  done
  for python in python3 /usr/bin/python3; do # where a wheel can be made
    if "$python" -c 'import setuptools, pip, wheel' 2>/dev/null; then
      mkdir -p "$dir/tree/tests" "$dir/tree/bench" "$dir/toolkit/include/crt"
      cp -r ./*.h LICENSE packaging examples "$dir/tree"
      cp bench/*.h bench/replay.c bench/viewer.html "$dir/tree/bench"
      mkdir "$dir/tree/bench/offload"
      cp bench/offload/*.h bench/offload/session.c "$dir/tree/bench/offload"
      cp -r tests/cuda_stub "$dir/tree/tests"
      cp tests/cuda_stub/cuda.h tests/clients/torch_stub/cuda_runtime_api.h "$dir/toolkit/include"
      touch "$dir/toolkit/include/crt/host_defines.h"
      # wheel_of FOLDER [VARIABLE=VALUE...]: of what its setup.py's sdist packs, of nothing else.
      wheel_of() {
        ok "python: $python: source of $1" sh -c "cd '$dir/tree/examples/$1' &&
          '$python' setup.py -q sdist >'$dir/out' 2>'$dir/err'"
        archive=$(echo "$dir/tree/examples/$1"/dist/*.tar.gz)
        shift
        ok "python: $python: ${archive##*/}" env "CC=$dir/cc" "$@" "$python" -m pip -q wheel \
          --no-build-isolation --no-deps --no-index -w "$dir/wheel" "$archive"
      }
      wheel_of torch_pool
      wheel_of torch "BUILD=$absolute_build" "CUDA_HOME=$dir/toolkit" \
        "PYTHONPATH=$PWD/tests/clients/torch_stub"
      ok "python: $python: for every Python" [ -e "$dir"/wheel/gmlake_pool-*-py3-none-*.whl ]
      pip() { "$python" -m pip -q --python "$dir/venv/bin/python" "$@" >"$dir/out" 2>"$dir/err"; }
      ok "python: $python: installed" eval '"$python" -m venv --without-pip "$dir/venv" &&
        pip install --no-index --no-deps "$dir"/wheel/*.whl'
      # in_venv VARIABLE=VALUE CODE
      in_venv() {
        fake "PYTHONPATH=$PWD/tests/clients/torch_stub" "$1" "$dir/venv/bin/python" -B -c "$2"
      }
      site=$(echo "$dir"/venv/lib/python3*/site-packages)
      ok "python: $python: gmlake_pool's library" pluggable "$site/gmlake_pool/_lake.so" memory
      ok "python: $python: the packages" in_venv GMLAKE_TORCH= 'import gmlake_pool, gmlake_torch
assert gmlake_pool.stats(0) is None and gmlake_torch.stats(0) is None'
      ok "python: $python: built for another torch" in_venv GMLAKE_TORCH= 'import gmlake_torch, torch
torch.version.git_version = "other"
try: gmlake_torch.stats(0)
except ImportError as error: assert "built for torch 2.12.0 stub" in str(error), error'
      ok "python: $python: what predict compiles" "${CC:-cc}" -fsyntax-only -std=gnu99 \
        -I "$site/gmlake_torch/source" "$site/gmlake_torch/source/bench/replay.c"
      # Of the sources in the package; it needs no torch.
      planned() {
        env "CC=$dir/cc" "BUILD=$dir/none" "XDG_CACHE_HOME=$dir/cache" "$dir/venv/bin/python" -B \
          -m gmlake_torch.planning "$dir/even.gmcalls" --chunk-mib 2 --limit-gib .0625 .001 \
          >"$dir/out" 2>"$dir/err"
      }
      ok "python: $python: what plan compiles" planned
      ok "python: $python: what plan compiles: says so" says \
        'gmlake_torch.plan: building offload_session, once ...'
      ok "python: $python: what plan says" eval 'prints "A step takes 0.024 s natively" &&
        grep -q "^     64.00 *0.02[0-9]* *1\.[01]" "$dir/out" &&
        prints "      1.02 does not run: others than the session"'
      ok "python: $python: its page" [ -s "$site/gmlake_torch/source/bench/viewer.html" ]
      for value in 0 1; do
        ok "python: $python: the .pth file: $value" in_venv "GMLAKE_TORCH=$value" \
          "import sys; assert ('_gmlake_torch_hook' in sys.modules) == $value"
      done
      ok "python: $python: uninstalled" pip uninstall -y gmlake-pool gmlake-torch
      ok "python: $python: nothing is left" [ -z "$(find "$dir/venv" -iname '*gmlake*')" ]
      break
    fi
  done
  mkdir -p "$dir/site/torch"
  echo 'x = 1' >"$dir/site/torch/__init__.py"
  echo 'import torch; torch.x += 1' >"$dir/site/gmlake_torch.py"
  # hooked VALUE EXPECTED: what torch.x is with GMLAKE_TORCH=VALUE.
  hooked() {
    GMLAKE_TORCH=$1 PYTHONPATH=$dir/site:examples/torch python3 -B -c "
exec(open('examples/torch/gmlake_torch.pth').read())
import importlib.util, sys
assert 'torch' not in sys.modules and 'gmlake_torch' not in sys.modules
for _ in range(2): assert importlib.util.find_spec('torch')  # as libraries do that can do without
assert 'torch' not in sys.modules
import torch
assert not any(type(finder).__name__ == '_Finder' for finder in sys.meta_path) or $2 == 1
assert torch.x == $2, torch.x" >"$dir/out" 2>"$dir/err"
  }
  ok 'python: GMLAKE_TORCH=1' hooked 1 2
  ok 'python: GMLAKE_TORCH=0' hooked 0 1
  cp "$dir/site/gmlake_torch.py" "$dir/lakes.py"
  echo 'raise ImportError("built for another torch")' >"$dir/site/gmlake_torch.py"
  ok 'python: GMLAKE_TORCH=1: no lakes' hooked 1 1
  ok 'python: GMLAKE_TORCH=1: no lakes: says so' says \
    'GMLAKE_TORCH=1: torch runs without lakes: built for another torch'
  cp "$dir/lakes.py" "$dir/site/gmlake_torch.py"
  for python in python3 /usr/bin/python3; do # where there is a torch
    if "$python" -c 'import torch' 2>/dev/null; then
      ok "python: $python: real operators" "$python" -B tests/clients/torch_dispatch.py "$dir"
      ok "python: $python: their graph" "$build/offload" "$dir/meta.gmgraph"
      # Its headers may be in a package of their own.
      flags=$("$python" -c 'from os.path import exists, join
from sysconfig import get_paths
from torch.utils.cpp_extension import include_paths, library_paths
includes = [*include_paths(), get_paths()["include"]]
for name in (join("torch", "library.h"), "Python.h"):
    assert any(exists(join(path, name)) for path in includes)
print(*["-I" + path for path in includes], *["-L" + path for path in library_paths()])' 2>"$dir/err")
      if [ -n "$flags" ]; then
        # shellcheck disable=SC2086
        ok 'python: operators.cpp' "$CXX" -std=c++17 -w -shared -fPIC -fvisibility=hidden \
          examples/torch/operators.cpp -o "$dir/operators.so" $flags -ltorch_cpu -ltorch_python -lc10
        ok 'python: a judge of accesses' "$CC" -O1 -shared -fPIC -fvisibility=hidden \
          tests/clients/torch_judge.c -o "$dir/judge.so"
        ok "python: $python: every access is seen" env LD_PRELOAD="$dir/judge.so" \
          "$python" -B tests/clients/torch_dispatch.py "$dir" "$dir/judge.so" "$dir/operators.so"
        ok 'python: a judge of all of them' "$CC" -O1 -shared -fPIC -fvisibility=hidden \
          -DLARGE=1 tests/clients/torch_judge.c -o "$dir/judge_all.so"
        ok "python: $python: every access of torch's operators" env LD_PRELOAD="$dir/judge_all.so" \
          "$python" -B tests/clients/torch_operators.py "$dir/judge_all.so" "$dir/operators.so"
        ok "python: the CPU's memory as a session's" "$CXX" -std=c++17 -shared -fPIC \
          -fvisibility=hidden -I. tests/clients/torch_session.cpp -o "$dir/session.so"
        ok "python: $python: half of the memory" env LD_PRELOAD="$dir/session.so" \
          "$python" -B tests/clients/torch_dispatch.py "$dir" "$dir/session.so" "$dir/operators.so"
        ok "python: $python: blocks that repeat" env LD_PRELOAD="$dir/session.so" \
          "$python" -B tests/clients/torch_blocks.py "$dir/session.so" "$dir/operators.so"
      fi
      break
    fi
  done
  ok 'python: gmlake_cupy.py' fake FAKE_CUDA_SEED=1 \
    "GMLAKE_CUPY_LIBRARY=$absolute_build/gmlake_cupy.so" python3 -B tests/clients/cupy_stub.py
  ok 'python: gmlake_cupy.py: silent' silent
  if python3 -c 'import setuptools' 2>/dev/null; then
    # As pip does, with the toolkit's headers in the place that is named.
    cupy_package() {
      mkdir -p "$dir/cuda/include" && cp tests/cuda_stub/cuda.h "$dir/cuda/include" &&
        (cd examples/cupy && CC=$dir/cc CUDA_HOME=$dir/cuda python3 -B setup.py -q build -b "$dir/cupy") &&
        fake FAKE_CUDA_SEED=1 python3 -B tests/clients/cupy_stub.py "$(echo "$dir"/cupy/lib*)"
    }
    ok 'python: the package of examples/cupy' cupy_package
    if ! python3 -c 'import setuptools.command.bdist_wheel' 2>/dev/null; then
      mkdir "$dir/bare" && python3 -c 'import os, setuptools
print(os.path.dirname(os.path.dirname(setuptools.__file__)))' >"$dir/setuptools"
      for package in setuptools pkg_resources _distutils_hack; do
        ln -s "$(cat "$dir/setuptools")/$package" "$dir/bare"
      done
      # shellcheck disable=SC2016
      ok 'python: a package without wheel' eval '! (cd examples/cupy && CUDA_HOME=$dir/cuda \
        PYTHONPATH=$dir/bare python3 -B -S setup.py -q bdist_wheel -d "$dir" 2>"$dir/err")'
      ok 'python: a package without wheel: says so' says 'needs the package wheel to make one'
    fi
  fi
  ok 'python: rmm.py' fake GMLAKE_TORCH_LIMIT_BYTES=8388608 python3 -B tests/clients/rmm_stub.py \
    "$library"
  ok 'python: rmm.py: says that there is no memory' prints 'gmlake has no 10485760 bytes'
fi

# ---- What was measured ----

# in_readme NAME: every line of that document's tables is in bench/torch/README.md.
in_readme() {
  python3 -B bench/torch/report.py "bench/torch/$1.json" >"$dir/out" 2>"$dir/err" &&
    grep -q '^| [A-Za-z0-9.-]* | [0-9]' "$dir/out" && ! grep -vxF -f bench/torch/README.md "$dir/out" | grep -q .
}
if command -v python3 >/dev/null; then
  for document in h200 h200x2 limit streams streams2; do
    ok "bench/torch/README.md: the tables of $document.json" in_readme "$document"
  done
fi

# bench/real/pairs.py of made-up programs: the lake's steps take twice as long, one ends early, one
# with an error.
if command -v python3 >/dev/null; then
  mkdir -p "$dir/made_up"
  cat >"$dir/made_up/workloads.py" <<'PY'
import time
NAMES = ["steady", "short", "wrong"]
def run(job, turn):
    for i in range(job["count"] - (job["workload"] == "short")):
        if not i:
            turn.wait()
        begun = time.perf_counter()
        time.sleep(.02 if job["allocator"] == "gmlake" else .01)
        turn.tell(time.perf_counter() - begun)
    return {"error": "lost" if job["workload"] == "wrong" else None, "losses": [],
            "peak_live_bytes": 3 << 30, "peak_reserved_bytes": 4 << 30}
PY
  pairs() { PYTHONPATH="$dir/made_up" python3 -B bench/real/pairs.py "$@" >"$dir/out" 2>"$dir/err"; }
  pairs --steps 12 --out "$dir/pairs.json" --ranks 2 short steady wrong nobody
  ok 'pairs.py: failures are told' [ $? = 1 ]
  ok 'pairs.py: held' grep -q '^| steady | native | 4.00 (0.750) | 0.' "$dir/out"
  ok 'pairs.py: twice the time' grep -q '^| steady | gmlake | 4.00 (0.750) | [12]\.[0-9]* | ' "$dir/out"
  ok 'pairs.py: ended early' grep -qx 'short: it ended before its last step' "$dir/out"
  ok 'pairs.py: an error at the end' grep -qx 'wrong: lost' "$dir/out"
  ok 'pairs.py: no such program' grep -q '^nobody: there is no such program: trainer_lora' "$dir/out"
  ok 'pairs.py: the table again' pairs --show "$dir/pairs.json"
  ok 'pairs.py: one row an allocator' [ "$(grep -c '^| steady' "$dir/out")" = 2 ]
  program='python3 -B bench/real/pairs.py'
  fails 'pairs.py: no program' 2 'name a program: trainer_lora' --steps 12
  fails 'pairs.py: few steps' 2 'give 10 or more' --steps 9 gaussian
  fails 'pairs.py: no GPU' 2 '--ranks 0: at least 1' --ranks 0 gaussian
  fails 'pairs.py: no such way' 2 'there is no way lak: native' --ways lak -- gaussian
fi

# bench/real/bound.py: what a step makes takes the place of the tensor that it does not read, which
# comes back behind it.
if command -v python3 >/dev/null; then
  printf '%s\n' 'gmcalls 1' 'limit 0 0' 'alloc 0 0 1073741824 0' 'alloc 1 1 1073741824 0' 'mark 2' \
    'begin 3 5 0 1 0' 'alloc 4 2 1073741824 0' 'end 5' 'free 6 2 0' 'begin 7 5 0 1 1' 'end 8' \
    'mark 9' 'others 10 1024' >"$dir/two.gmcalls"
  program='python3 -B bench/real/bound.py'
  ok 'bench/real/bound' run 0 "$dir/two.gmcalls" 2.001
  ok 'bench/real/bound: figures' prints '1.074 out    1.074 in    19.523 ms'
  ok 'bench/real/bound: median' prints '19.523 ms: the median of the last 1'
  ok 'bench/real/bound: all fits' run 0 "$dir/two.gmcalls" 4
  ok 'bench/real/bound: nothing moves' prints '0.000 ms: the median of the last 1'
  fails 'bench/real/bound: no room' 1 'the limit is too small' "$dir/two.gmcalls" 1
  fails 'bench/real/bound: no recording' 1 'this is no recording' bench/real/bound.py 1
fi

# What bench/real/run.py writes of made-up runs, and report.py makes of it.
if command -v python3 >/dev/null; then
  real='import run, sys
sys.argv[1:] = ["--out", sys.argv[1], "--repeat", "3", "gaussian", "--ways", *run.WAYS.split()[:-1],
                "offload:2"]
took = {"native": 2, "lake": 2.2, "lake-wait": 1}
run.run = lambda program, way, steps, seconds: (
    {"error": "no memory"} if way == "tuned" else
    {"seconds": [9] * 3 + [took.get(way, 4)] * 5, "losses": [1.5],
     "peak_live_bytes": 3 << 30, "peak_reserved_bytes": (4 + (way == "native")) << 30})
run.main()'
  ways='import os, run, subprocess
os.environ.update(PYTORCH_ALLOC_CONF="x", PYTORCH_CUDA_ALLOC_CONF="x", GMLAKE_TORCH_PEERS="0")
given = []
run.subprocess.run = lambda command, env, **more: given.append(env) or subprocess.CompletedProcess(
    command, 0, "", "")
for way in ("native", "tuned", "lake", "lake-wait"):
    run.run("gaussian", way, 1, 1)
print([{name: env[name] for name in env if "ALLOC_CONF" in name or name.startswith("GMLAKE_")}
       for env in given] == [
    {}, {"PYTORCH_CUDA_ALLOC_CONF": run.SETTINGS["tuned"]}, {},
    {"GMLAKE_TORCH_CROSS_STREAM": "wait"}])'
  ok 'bench/real: only the way is set' sh -c \
    "cd bench/real && python3 -B -c '$ways' >'$dir/out' && grep -qx True '$dir/out'"
  ok 'bench/real: runs' sh -c "cd bench/real && python3 -B -c '$real' '$dir/real.json' >'$dir/out'"
  ok 'bench/real: one that failed' grep -q '^gaussian  *tuned  *no memory$' "$dir/out"
  ok 'bench/real: their tables' sh -c \
    "python3 -B bench/torch/report.py '$dir/real.json' >'$dir/out'"
  ok 'bench/real: memory' grep -qxF \
    '| gaussian | 3.00 | 5.00 (0.600) | 4.00 (0.750) | 4.00 (0.750) | 4.00 (0.750) | 4.00 (0.750) | 4.00 (0.750) |' \
    "$dir/out"
  ok 'bench/real: time' grep -qxF '| gaussian | lake | 1.100 | 1.100 | 1.100 |' "$dir/out"
  ok 'bench/real: time, waiting first' grep -qxF \
    '| gaussian | lake, waiting first | 0.500 | 0.500 | 0.500 |' "$dir/out"
  ok 'bench/real: runs without lakes' sh -c \
    "sed 's/\"gmlake\"/\"offload:9\"/; s/\"native\"/\"offload:8\"/' '$dir/real.json' >'$dir/few.json' &&
     python3 -B bench/torch/report.py '$dir/few.json' >'$dir/out'"
  ok 'bench/real: runs without lakes: memory' grep -qF '| workload | live | native | expandable' "$dir/out"
fi

# What bench/real/two_engines.py sees of a ledger, whose page is as in ledger.h.
if command -v python3 >/dev/null; then
  printf '%s\n' '#define _GNU_SOURCE' '#include "examples/ledger.h"' '#include <stdio.h>' \
    'int main(void) {' \
    'static ledger_page page = {LEDGER_VERSION, 9, {{1, 2, 3, 4, 5, 6, 7, 8}}};' \
    'return fwrite(&page, sizeof page, 1, stdout) != 1; }' >"$dir/page.c"
  ok 'two_engines.py: a page' sh -c "'$CC' -w -I. -o '$dir/page' '$dir/page.c' && '$dir/page' >'$dir/page.bin'"
  ok 'two_engines.py: follows it' sh -c "cd bench/real && python3 -B -c 'import sys, two_engines as t
page = open(sys.argv[1], \"rb\").read()
assert t.entries(page) == {0: dict(zip(t.FIELDS, range(1, 9)))} and t.entries(page[8:]) == {}
moves, gib = t.Moves(), 1 << 30
for now, held, asked, given in ((0, 5, 0, 0), (1, 5, 1, 0), (1.5, 5, 1, 0), (2, 4, 0, 1)):
    moves.see({3: {\"held\": held * gib, \"asked\": asked * gib, \"given\": given * gib}}, now)
assert moves.ms_a_gib() == 1000 and moves.held_peak == 5 * gib, moves.done
moves.see({3: {\"held\": 0, \"asked\": 1, \"given\": 0}}, 3)
moves.see({}, 4)
assert not moves.open and len(moves.done) == 1' '$dir/page.bin'"
fi

# What driver calls took, and intervals, of made-up runs.
if command -v python3 >/dev/null; then
  mkdir "$dir/calls"
  printf 'step\tcall\tcount\tus\n\tcreate\t3\t30\nstep 0\tmap\t3\t9\nstep 0\tset_access\t1\t60\n%s\n' \
    "$(printf 'step 4\tevent_query\t10\t15000')" >"$dir/calls/w.gmlake.0.0.tsv"
  awk 'BEGIN {
    printf "{\"runs\": ["
    for (i = 0; i < 4; i++)
      for (lake = 0; lake < 2; lake++)
        printf "%s{\"workload\": \"w\", \"allocator\": \"%s\", \"repeat\": %d, \"error\": null, " \
          "\"seconds\": [9, 9, 9, %.2f, 1], \"peak_live_bytes\": 1, \"peak_reserved_bytes\": 1}", \
          i + lake ? ", " : "", lake ? "gmlake" : "native", i, lake ? 1.02 + i / 50 : 1
    printf "]}"
  }' >"$dir/runs.json"
  ok 'calls.py' sh -c "python3 -B bench/torch/calls.py '$dir/runs.json' '$dir/calls' >'$dir/out'"
  ok 'calls.py: what' grep -qxF \
    '| w | gmlake | 1.88 | 0.18 % | 1 | 10.00 | 3.00 | 20.00 |  |  |  | 1500.00 |' "$dir/out"
  ok 'report.py: pairs' sh -c "cd bench/torch && python3 -B -c 'import json, report, sys
print(*report.paired(json.load(open(sys.argv[1]))), sep=chr(10))' '$dir/runs.json' >'$dir/out'"
  ok 'report.py: pairs: the interval' grep -qxF '| w | lake | 1.025 | 1.004 | 1.046 |' "$dir/out"
  sed 's/"seconds": .9, 9, 9, \([0-9.]*\), 1./"before_seconds": 3, "seconds": [\1]/g' "$dir/runs.json" \
    >"$dir/first.json"
  ok 'report.py: first steps' sh -c \
    "python3 -B bench/torch/report.py '$dir/first.json' >'$dir/out'"
  ok 'report.py: first steps: both' grep -qxF '| w | 1.00 | 1.050 | 4.00 | 1.013 |' "$dir/out"
  # Every largest batch from any guess, to within a sixteenth.
  ok 'batches.py: search' sh -c "cd bench/torch && python3 -B -c 'import batches
for most in (0, 1, 2, 17, 100, 513):
    for guess in (1, 16, 1000):
        found, _ = batches.search(lambda n: {} if n <= most else {\"error\": 1}, guess)
        assert found <= most <= found + max(1, found // 16) - (not most), (most, guess, found)'"
  printf '[{"program": "conv", "ways": {%s}, "managed": [%s]}]' \
    '"native": {"batch": 4, "step": 2}, "offload": {"batch": 9, "step": 3},
    "recompute": {"batch": 400, "step": 4, "equal": {"batch": 300, "step": 2}}' \
    '{"batch": 4, "step": 8}, {"batch": 9, "error": "too slow"}' >"$dir/batches.json"
  ok 'batches.py: table' sh -c \
    "python3 -B bench/torch/batches.py --table '$dir/batches.json' >'$dir/out'"
  ok 'batches.py: table: by native' grep -qxF \
    '| conv | gmlake_torch.offload | 9 | 3 | 3.0 | 1.50 |' "$dir/out"
  ok 'batches.py: table: the equal batch' grep -qxF '| conv | checkpointing | 300 | 150.0 |' \
    "$dir/out"
  ok 'batches.py: table: managed' grep -qxF '| conv | managed memory | 4 | 8 | 0.5 | 0.25 |' "$dir/out"
  ok 'batches.py: plot' sh -c "python3 -B bench/torch/batches.py --plot '$dir/batches.png' \
    '$dir/batches.json' >'$dir/out'"
  ok 'batches.py: plot: a point' sh -c "sed -n '/^.offload <</,/^END/p' '$dir/out' |
    grep -qx '2.2500 1.5000 7'"
fi

# ---- Preload ----

# preloaded WHOSE HOW CASE [VARIABLE=VALUE...]: the program over the fake driver of two devices
preloaded() {
  whose=$1 how=$2 case=$3
  shift 3
  fake FAKE_CUDA_DEVICES=2 FAKE_CUDA_SEED=1 "LD_PRELOAD=$(cd "$build" && pwd)/libgmlake_preload.so" \
    "$@" "$build/client_preload" "$how" "$whose" "$case"
}
for case in memory pools streams capture fork; do
  ok "preload: without: $case" fake FAKE_CUDA_DEVICES=2 FAKE_CUDA_SEED=1 "$build/client_preload" \
    linked driver "$case"
  for how in linked dlsym proc; do
    ok "preload: $how: $case" preloaded lake "$how" "$case"
    ok "preload: $how: $case: silent" silent
    ok "preload: $how: $case: off" preloaded driver "$how" "$case" GMLAKE_PRELOAD=0
  done
done
# Before the driver is loaded its names are not there; afterwards they are.
cat >"$dir/before.py" <<'END'
import ctypes
assert not hasattr(ctypes.CDLL(None), "cuMemAllocAsync")
driver = ctypes.CDLL("libcuda.so.1", ctypes.RTLD_LOCAL)
context, address = ctypes.c_void_p(), ctypes.c_uint64()
assert not driver.cuInit(0)
assert not driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
assert not driver.cuCtxSetCurrent(context)
assert not driver.cuMemAllocAsync(ctypes.byref(address), ctypes.c_size_t(1 << 20), None)
END
for value in 0 1; do
  ok "preload: before the driver: GMLAKE_PRELOAD=$value" fake FAKE_CUDA_DEVICES=2 \
    "LD_PRELOAD=$(cd "$build" && pwd)/libgmlake_preload.so" "GMLAKE_PRELOAD=$value" \
    python3 -B "$dir/before.py"
done
mkdir "$dir/old" # a driver that does not export the function
sed s/cuStreamGetId/cuStreamGotId/g "$build/fake/libcuda.so.1" >"$dir/old/libcuda.so.1"
ok 'preload: a driver without ids' preloaded lake linked streams "LD_LIBRARY_PATH=$dir/old"
ok 'preload: a driver without ids: says so' says 'older than CUDA 12 and gives streams no ids'
ok 'preload: short' preloaded lake proc short GMLAKE_PRELOAD_REPORT=1
ok 'preload: short: report' says '1 blocks were kept for graphs that free them, 1 of them until'
ok 'preload: report' preloaded lake proc memory GMLAKE_PRELOAD_REPORT=1
ok 'preload: report: the lake' says 'device 0: 2 allocations, peak live 3 MiB, peak held 4 MiB'
ok 'preload: report: the driver' says '0 allocations went to the driver, 0 blocks were kept'
ok 'preload: compare' fake python3 -B examples/preload/compare.py \
  --library "$build/libgmlake_preload.so" -- "$build/client_preload" proc lake nothing
ok 'preload: compare: says so' prints 'the same'
ok 'preload: compare: differs' eval '! fake python3 -B examples/preload/compare.py \
  --library "$build/libgmlake_preload.so" -- "$build/client_preload" proc lake memory'
ok 'preload: compare: says how' prints 'exit status 1 without, 0 with'

# ---- Adapters ----

adapters() { "$build/client_adapters" >"$dir/out" 2>"$dir/err"; }
ok 'adapters' adapters
ok 'adapters: all' prints 'the adapters serve'
ok 'adapters: silent' silent

# ---- ggml ----

ggml() { "$build/client_ggml" >"$dir/out" 2>"$dir/err"; }
ok 'ggml' ggml
# lake_of_ggml CASE [VARIABLE=VALUE...]
lake_of_ggml() {
  case=$1
  shift
  ok "ggml: the lake: $case" fake "$@" "$build/client_ggml_cuda" "$case"
}
lake_of_ggml off
lake_of_ggml off GGML_CUDA_GMLAKE=
lake_of_ggml off GGML_CUDA_GMLAKE=1 GGML_CUDA_ENABLE_UNIFIED_MEMORY=1
lake_of_ggml lake GGML_CUDA_GMLAKE=1
lake_of_ggml kv GGML_CUDA_GMLAKE=kv
lake_of_ggml peers GGML_CUDA_GMLAKE=1 GGML_CUDA_P2P=1
lake_of_ggml unsupported GGML_CUDA_GMLAKE=1
lake_of_ggml ledger GGML_CUDA_GMLAKE=1 "FILE=$dir/ledger" "GGML_CUDA_GMLAKE_LEDGER=$dir/ledger,3,2"
for ledger in "$dir/x,3,0" "$dir/x,-1" "$dir/x,1,2x" "$dir/x,"; do
  lake_of_ggml ledger_refused GGML_CUDA_GMLAKE=1 "GGML_CUDA_GMLAKE_LEDGER=$ledger"
done
lake_of_ggml bfc GGML_CUDA_GMLAKE_BFC=1
lake_of_ggml bfc GGML_CUDA_GMLAKE_BFC=1 GGML_CUDA_DISABLE_GRAPHS=1
lake_of_ggml refused GGML_CUDA_GMLAKE=1

report
