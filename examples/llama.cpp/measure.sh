#!/bin/bash
# Builds a checkout that apply.sh has patched, runs it with and without the lake, and prints the
# tables of README.md:
#   measure.sh LLAMA_DIRECTORY
#   OUT=DIRECTORY    where the results go (default: LLAMA_DIRECTORY/gmlake-out)
#   MODELS=DIRECTORY where the models of random weights are, or are written to (9 GB)
#   LIMIT=SECONDS    stop after so long (default 560)
#   LANES=NUMBER     how many contexts of 64K are tried (default 36)
#   OPS_MATMUL, OPS_ATTENTION  regular expressions: which cases of test-backend-ops to run
#   PARTS="check lanes server speed ops"
# A run with the lake in which no lake serves is a failure, and its results are left out.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
llama=$(cd "${1:?usage: measure.sh LLAMA_DIRECTORY}" && pwd)
OUT=${OUT:-$llama/gmlake-out} MODELS=${MODELS:-$llama/gmlake-models} LIMIT=${LIMIT:-560}
PARTS=${PARTS:-check lanes server speed ops}
bin=$llama/build/bin
mkdir -p "$OUT" "$MODELS"
begin=$(date +%s)
results=$OUT/llama_results.jsonl
: > "$results"
rm -f "$OUT/llama_errors.txt" "$OUT"/server-*.json
left() { echo $((LIMIT - ($(date +%s) - begin))); }
say() { echo "[$(($(date +%s) - begin)) s] $*"; }
cuda=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")

for m in 7b-q4_0 3b-q8_0 1b-f16; do
  [ -e "$MODELS/$m.gguf" ] || python3 "$here/random_model.py" "$MODELS/$m.gguf" "${m%-*}" \
    "${m#*-}" "$llama/models/ggml-vocab-llama-spm.gguf" &
done

build() {
  # shellcheck disable=SC2086  # CMAKE_MORE is several words
  cmake -S "$llama" -B "$llama/build" -DCMAKE_BUILD_TYPE=Release -DGGML_CUDA=ON \
    -DGGML_CUDA_NCCL=OFF -DCMAKE_CUDA_ARCHITECTURES="${ARCHITECTURE:-native}" \
    -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF \
    -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF ${CMAKE_MORE:-} &&
    cmake --build "$llama/build" -j "$(nproc)" --target llama llama-server test-backend-ops
}
if ! build > "$OUT/llama_build.txt" 2>&1; then
  tail -20 "$OUT/llama_build.txt"
  exit 1
fi
g++ -std=c++17 -O2 -I"$llama/include" -I"$llama/ggml/include" "$here/measure.cpp" \
  -o "$bin/measure" -L"$bin" -lllama -lggml -lggml-base -ldl -Wl,-rpath,"$bin" \
  -Wl,--allow-shlib-undefined || exit 1
wait
say "built; the models are there"
export LD_LIBRARY_PATH=$bin:$cuda/lib64:${LD_LIBRARY_PATH:-}

# MODE SECONDS COMMAND...: off, lake or kv. What it prints as JSON goes to the results.
in_mode() {
  local mode=$1 seconds=$2 value rc
  shift 2
  case $mode in off) value= ;; lake) value=1 ;; kv) value=kv ;; esac
  [ "$(left)" -gt 5 ] || { say "out of time: $mode $*"; return 1; }
  [ "$seconds" -lt "$(left)" ] || seconds=$(left)
  GGML_CUDA_GMLAKE=$value timeout -k 5 "$seconds" "$@" \
    > "$OUT/last.$mode.out" 2> "$OUT/last.$mode.err"
  rc=$?
  if [ $mode != off ] && ! grep -qs 'gmlake: device 0: a lake serves' "$OUT/last.$mode.err"; then
    echo 'no lake serves' >> "$OUT/last.$mode.err"
    [ $rc -ne 0 ] || rc=99
  else
    sed -n "s/^{/{\"mode\":\"$mode\",/p" "$OUT/last.$mode.out" >> "$results"
  fi
  if [ $rc -ne 0 ]; then
    printf '{"mode":"%s","what":"exit","rc":%d,"command":"%s"}\n' "$mode" $rc "${1##*/} ${2-}" \
      >> "$results"
    { echo "== $mode, exit status $rc: $*"; tail -15 "$OUT/last.$mode.err"; } \
      >> "$OUT/llama_errors.txt"
  fi
  return $rc
}

for part in $PARTS; do
  say "$part"
  case $part in
    check)
      for model in 1b-f16 7b-q4_0; do
        for mode in off lake kv; do
          in_mode $mode 60 "$bin/measure" check "$MODELS/$model.gguf" "$MODELS/logits-$mode" ||
            continue
          [ $mode = off ] || {
            same=false
            cmp -s "$MODELS/logits-off" "$MODELS/logits-$mode" && same=true
            echo "{\"mode\":\"$mode\",\"what\":\"logits\",\"model\":\"$model\",\"values\":$((\
$(stat -c %s "$MODELS/logits-off") / 4)),\"identical\":$same}" >> "$results"
          }
        done
      done
      rm -f "$MODELS"/logits-* ;;
    speed)
      for _ in 1 2 3 4 5; do
        for mode in off lake kv; do
          in_mode $mode 40 "$bin/measure" speed "$MODELS/7b-q4_0.gguf"
        done
      done ;;
    lanes)
      for mode in off lake kv; do
        in_mode $mode 60 "$bin/measure" lanes "$MODELS/3b-q8_0.gguf" 24 "${LANES:-36}"
      done ;;
    ops)
      for mode in off lake; do
        in_mode $mode 200 python3 "$here/drive.py" ops "$bin/test-backend-ops" $(($(left) - 20)) &
      done
      wait ;;
    server)
      for mode in off lake kv; do
        in_mode $mode 60 python3 "$here/drive.py" server "$bin/llama-server" \
          "$MODELS/1b-f16.gguf" "$OUT/server-$mode.json" || continue
        [ $mode = off ] || {
          same=false
          cmp -s "$OUT/server-off.json" "$OUT/server-$mode.json" && same=true
          echo "{\"mode\":\"$mode\",\"what\":\"answers\",\"identical\":$same}" >> "$results"
        }
      done ;;
  esac
done
rm -f "$OUT"/last.* "$OUT"/server-*.json
[ ! -e "$OUT/llama_errors.txt" ] || cat "$OUT/llama_errors.txt"
python3 "$here/drive.py" table "$results"
say "done"
