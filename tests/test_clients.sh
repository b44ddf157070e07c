#!/bin/sh
# The libraries that torch and CuPy load, over the driver without a device; ggml's pool and buffers,
# on the mock; that what Python there is compiles, and runs where a stub can stand in for torch.

. tests/shell.sh
library=build/gmlake_torch.so

# fake VARIABLE=VALUE... COMMAND...: runs it over the fake driver.
fake() {
  LD_LIBRARY_PATH=build/fake FAKE_CUDA_GIB=1 env "$@" >"$dir/out" 2>"$dir/err"
}

silent() { [ ! -s "$dir/err" ]; }

# ---- torch ----

for case in memory grow record_stream empty_cache stats threads; do
  ok "torch: $case" fake build/client_torch "$library" "$case"
  ok "torch: $case: silent" silent
done
ok 'torch: wait' fake GMLAKE_TORCH_CROSS_STREAM=wait build/client_torch "$library" wait
ok 'torch: grow, named' fake GMLAKE_TORCH_CROSS_STREAM=grow build/client_torch "$library" grow
ok 'torch: devices' fake FAKE_CUDA_DEVICES=3 GMLAKE_TORCH_PEERS=0,1 build/client_torch \
  "$library" devices
ok 'torch: limit' fake GMLAKE_TORCH_LIMIT_BYTES=8388608 GMLAKE_TORCH_CHUNK_BYTES=4194304 \
  build/client_torch "$library" limit
ok 'torch: empty variables' fake GMLAKE_TORCH_LIMIT_BYTES= GMLAKE_TORCH_CROSS_STREAM= \
  GMLAKE_TORCH_PEERS= build/client_torch "$library" grow
for variable in LIMIT_BYTES=8G LIMIT_BYTES=-1 LIMIT_BYTES=99999999999999999999 CHUNK_BYTES=0x10 \
  DRIVER_FREE_BYTES=1.5 CROSS_STREAM=yes 'PEERS=0,' PEERS=0,x PEERS=64 PEERS=-1; do
  ok "torch: $variable" fake "GMLAKE_TORCH_$variable" build/client_torch "$library" refused
  ok "torch: $variable: says so" says "GMLAKE_TORCH_${variable%%=*} cannot be read: ${variable#*=}"
done
ok 'torch: a chunk that cannot be' fake GMLAKE_TORCH_CHUNK_BYTES=1000 build/client_torch \
  "$library" refused
ok 'torch: a chunk that cannot be: says so' says 'gmlake_create: GMLAKE_ERROR_INVALID_ARGUMENT'
ok 'torch: no device' fake FAKE_CUDA_DEVICES=-1 build/client_torch "$library" refused
ok 'torch: no device: says so' says 'device 0: gmlake_create: GMLAKE_ERROR_NO_DEVICE'
# recorded FILE LINE...: it holds those records, their times left out.
recorded() {
  file=$dir/$1
  shift
  printf '%s\n' "$@" >"$dir/err"
  grep '^[af] ' "$file" | sed 's/ [0-9]*$//' | cmp - "$dir/err" >"$dir/out"
}
ok 'torch: record' fake "GMLAKE_TORCH_RECORD=$dir/memory" build/client_torch "$library" memory
ok 'torch: record: silent' silent
ok 'torch: record: what' recorded memory.0.gmtrace 'a 0 3145729 0' 'f 0' 'a 1 3145729 0'
ok 'torch: record: streams' fake "GMLAKE_TORCH_RECORD=$dir/grow" build/client_torch "$library" grow
ok 'torch: record: streams: what' recorded grow.0.gmtrace 'a 0 4194304 1' 'f 0' 'a 1 4194304 2'
ok 'torch: record: devices' fake FAKE_CUDA_DEVICES=3 GMLAKE_TORCH_PEERS=0,1 \
  "GMLAKE_TORCH_RECORD=$dir/devices" build/client_torch "$library" devices
ok 'torch: record: devices: the first' recorded devices.0.gmtrace 'a 0 3145728 0' 'f 0'
ok 'torch: record: devices: the second' recorded devices.1.gmtrace 'a 0 5242880 0' 'f 0'
ok 'torch: record: no lake' fake GMLAKE_TORCH_CHUNK_BYTES=1000 "GMLAKE_TORCH_RECORD=$dir/none" \
  build/client_torch "$library" refused
ok 'torch: record: no such folder' fake "GMLAKE_TORCH_RECORD=$dir/none/run" build/client_torch \
  "$library" refused
ok 'torch: record: no such folder: says so' says \
  "GMLAKE_TORCH_RECORD cannot be written: $dir/none/run: No such file or directory"
if [ -e /dev/full ]; then
  ln -s /dev/full "$dir/full.0.gmtrace"
  ok 'torch: record: full' fake "GMLAKE_TORCH_RECORD=$dir/full" build/client_torch "$library" memory
  ok 'torch: record: full: says so' says 'the recording is not complete: No space left on device'
fi
ok 'torch: misuse' fake build/client_torch "$library" misuse
ok 'torch: misuse: says so' [ "$(grep -cE \
  '^gmlake_torch: .*(UNKNOWN_POINTER|DOUBLE_FREE|gmlake_torch.pool)' "$dir/err")" = 5 ]
ok 'torch: exports nothing else' [ "$(nm -D --defined-only "$library" |
  grep -cv ' T gmlake_torch_')" = 0 ]

# command_of FILE: runs the command in the file's first comment, into a directory of its own.
command_of() {
  sed -n '/^   cc /,/-ldl$/p' "$1" | sed 's/\\$//' | tr '\n' ' ' |
    sed "s|-I/usr/local/cuda/include|-Itests/cuda_stub|; s|-o |-o $dir/|" >"$dir/command"
  sh -e "$dir/command" >"$dir/out" 2>"$dir/err"
}
ok 'torch: the command in the file' command_of examples/torch/gmlake_torch.c
ok 'torch: its library' fake build/client_torch "$dir/gmlake_torch.so" memory
ok 'cupy: the command in the file' command_of examples/cupy/gmlake_cupy.c
ok 'cupy: its library' fake build/client_torch "$dir/gmlake_cupy.so" cupy
ok 'cupy' fake build/client_torch build/gmlake_cupy.so cupy

# ---- Python ----

if command -v python3 >/dev/null; then
  for source in examples/*/*.py bench/torch/*.py tests/*.py tests/clients/*.py; do
    ok "python: $source" python3 -c 'import sys
compile(open(sys.argv[1]).read(), sys.argv[1], "exec")' "$source"
    ok "python: $source: lines" [ "$(awk 'length($0) > 100' "$source" | wc -l)" = 0 ]
  done
  mkdir "$dir/lib"
  cat >"$dir/c10.c" <<'C'
#include <string.h>
static char raised[1024];
void _ZN3c106detail14torchCheckFailEPKcS2_jS2_(const char *function, const char *file,
                                               unsigned line, const char *message) {
  (void)function, (void)file, (void)line;
  strncpy(raised, message, sizeof raised - 1);
}
const char *text(void) { return raised; }
C
  ok 'python: the stub' "${CC:-cc}" -w -shared -fPIC "$dir/c10.c" -o "$dir/lib/libc10.so"
  ok 'python: gmlake_torch.py' fake python3 -B tests/clients/torch_stub.py "$library" "$dir"
fi

# ---- What was measured ----

# in_readme NAME: every line of that document's tables is in bench/torch/README.md.
in_readme() {
  python3 -B bench/torch/report.py "bench/torch/$1.json" >"$dir/out" 2>"$dir/err" &&
    grep -q 'opt-1.3b' "$dir/out" && ! grep -vxF -f bench/torch/README.md "$dir/out" | grep -q .
}
if command -v python3 >/dev/null; then
  for document in h200 h200x2 limit; do
    ok "bench/torch/README.md: the tables of $document.json" in_readme "$document"
  done
fi

# ---- ggml ----

ggml() { build/client_ggml >"$dir/out" 2>"$dir/err"; }
ok 'ggml' ggml

report
