#!/bin/sh
# usage: plots.sh TRACE...
# Draws the live and the reserved memory of each trace over time, into build/plots/TRACE.png.
# Environment: BUILD is the folder that has the program replay and gets the plots (default: build).
set -eu

build=${BUILD:-build}
out=$build/plots
mkdir -p "$out"
for path in "$@"; do
  name=$(basename "$path" .gz)
  name=${name%.gmtrace}
  for allocator in bfc lake; do
    "$build/replay" --allocator "$allocator" --series "$out/$name.$allocator.csv" "$path" >/dev/null
  done
  # The remarks stand before the first record.
  torch=$(gzip -cdf "$path" | awk '/^[af] / { exit } /^# peak_reserved: / { print $3; exit }')
  {
    cat <<END
set terminal pngcairo size 1200,700 noenhanced
set output "$out/$name.png"
set datafile separator ","
set title "$name"
set xlabel "seconds"
set ylabel "GiB"
set yrange [0:*]
set key outside bottom center horizontal
g = 1024.0 ** 3
plot "$out/$name.lake.csv" using (\$2 / 1e6):(\$3 / g) skip 1 with lines title "live", \\
END
    if [ -n "$torch" ]; then
      echo "  $torch / g with lines dt 2 lw 2 title \"torch, recorded peak\", \\"
    fi
    cat <<END
  "$out/$name.bfc.csv" using (\$2 / 1e6):(\$4 / g) skip 1 with lines lw 2 title "bfc reserved", \\
  "$out/$name.lake.csv" using (\$2 / 1e6):(\$4 / g) skip 1 with lines lw 2 title "lake reserved"
END
  } | gnuplot
  echo "$out/$name.png"
done
