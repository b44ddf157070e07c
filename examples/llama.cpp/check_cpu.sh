#!/bin/sh
# Compares what a patched llama.cpp computes on the CPU with and without a growing KV cache, which
# lies on gmlake's mock; needs no GPU and takes minutes:
#   check_cpu.sh LLAMA_DIRECTORY [BUILD_DIRECTORY]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
llama=$(cd "${1:?usage: check_cpu.sh LLAMA_DIRECTORY [BUILD_DIRECTORY]}" && pwd)
build=${2:-$llama/build-cpu}
cmake -S "$llama" -B "$build" -DCMAKE_BUILD_TYPE=Release -DLLAMA_BUILD_COMMON=OFF \
  -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF > "$build.log" 2>&1
cmake --build "$build" -j "$(nproc)" --target llama >> "$build.log" 2>&1
printf '#define GMLAKE_IMPLEMENTATION\n#define GMLAKE_BACKEND_MOCK\n#include "gmlake.h"\n' \
  > "$build/gmlake_mock.c"
cc -O2 -c -I"$here/../.." "$build/gmlake_mock.c" -o "$build/gmlake_mock.o"
g++ -std=c++17 -O1 -Wall -Wextra -DMEASURE_MOCK -I"$here" -I"$here/../.." -I"$llama/include" \
  -I"$llama/ggml/include" -I"$llama/ggml/src" "$here/measure.cpp" "$build/gmlake_mock.o" \
  -o "$build/measure" -L"$build/bin" -lllama -lggml -lggml-base -lggml-cpu -ldl -lpthread \
  -Wl,-rpath,"$build/bin"
python3 "$here/random_model.py" "$build/tiny.gguf" tiny f16 \
  "$llama/models/ggml-vocab-llama-spm.gguf"
"$build/measure" check "$build/tiny.gguf" "$build/logits-off"
GROWING=1 "$build/measure" check "$build/tiny.gguf" "$build/logits-kv"
cmp "$build/logits-off" "$build/logits-kv"
echo "the same $(($(wc -c < "$build/logits-off") / 4)) logits"
