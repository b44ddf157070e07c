#!/bin/sh
# usage: MAKE=make build.sh ARGUMENT...
# make ARGUMENT..., which says of each file which of how many it is; with V=1 the commands, too.
set -eu

steps=$(mktemp)
trap 'rm -f "$steps"' EXIT
total=$($MAKE -n --no-print-directory "$@" 'SAY=: step' | grep -c '^: step$') || true
quiet=-s
if [ -n "${V:-}" ]; then quiet=--no-print-directory; fi
$MAKE "$quiet" "$@" "SAY=@echo >>'$steps'; echo \"\$\$(wc -l <'$steps') of $total: \$@\""
