#!/bin/sh
# Writes a made-up trace to standard output. Sizes are random from 1 KiB to 464 MiB, their logarithm
# is uniform. At most 8 GiB are live; random blocks are freed to make room. For a device of 16 GB,
# whose chunks have 2 MiB:
#   sh bench/random_trace.sh 1 >build/random1.gmtrace
#   build/replay --json --chunk-mib 2 build/random1.gmtrace
# usage: random_trace.sh SEED [ALLOCATIONS]
set -eu

case "${1:-}${2:-}" in
'' | *[!0-9]*)
  echo 'usage: random_trace.sh SEED [ALLOCATIONS]' >&2
  exit 2
  ;;
esac

# The generator is Park and Miller's: its products fit awk's doubles exactly.
awk -v seed="$1" -v count="${2:-20000}" '
function draw() {
  state = state * 16807 % 2147483647
  return state / 2147483647
}
BEGIN {
  live = held = 0
  state = seed % 2147483646 + 1
  for (i = 0; i < 16; i++) draw() # small seeds begin alike
  least = 1024
  most = 464 * 1048576
  limit = 8 * 1024 * 1048576
  print "gmtrace 1"
  for (id = 0; id < count; id++) {
    if (id % int(count / 4 + 1) == 0) print "m quarter"
    bytes = int(least * exp(draw() * log(most / least)))
    while (live + bytes > limit) {
      slot = int(draw() * held)
      live -= size[slot]
      print "f", name[slot], 0
      held--
      name[slot] = name[held]
      size[slot] = size[held]
    }
    name[held] = id
    size[held++] = bytes
    live += bytes
    print "a", id, sprintf("%d", bytes), 0, 100
  }
}'
