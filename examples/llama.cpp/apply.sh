#!/bin/sh
# Puts gmlake into a checkout of llama.cpp: apply.sh LLAMA_DIRECTORY
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -ne 1 ] || [ ! -d "$1/ggml/src/ggml-cuda" ]; then
  echo "usage: $0 LLAMA_DIRECTORY (a checkout of llama.cpp b10361)" >&2
  exit 2
fi
cd "$1"
patch -p1 -N < "$here/gmlake.patch"
cp "$here/../../gmlake.h" "$here/gmlake_ggml.h" "$here/gmlake-cuda.cuh" "$here/gmlake.cu" \
  ggml/src/ggml-cuda/
cp "$here/llama-kv-grow.h" src/
