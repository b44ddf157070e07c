#!/bin/sh
# Puts gmlake into a checkout of llama.cpp: apply.sh [--bfc] LLAMA_DIRECTORY
# --bfc: only the pool for devices that cannot map memory, gmlake-bfc.patch.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
name=gmlake
if [ "${1-}" = --bfc ]; then
  name=gmlake-bfc
  shift
fi
if [ $# -ne 1 ] || [ ! -d "$1/ggml/src/ggml-cuda" ]; then
  echo "usage: $0 [--bfc] LLAMA_DIRECTORY (a checkout of llama.cpp b10361)" >&2
  exit 2
fi
cd "$1"
patch -p1 -N < "$here/$name.patch"
if [ $name = gmlake-bfc ]; then
  cp "$here/../../gmlake_bfc.h" "$here/gmlake_bfc_pool.h" "$here/gmlake-bfc.cuh" ggml/src/ggml-cuda/
else
  cp "$here/../../gmlake.h" "$here/../ledger.h" "$here/../ledger.hpp" "$here/gmlake_ggml.h" \
    "$here/gmlake-cuda.cuh" "$here/gmlake.cu" ggml/src/ggml-cuda/
  cp "$here/llama-kv-grow.h" src/
fi
