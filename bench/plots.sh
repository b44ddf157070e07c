#!/bin/sh
# usage: plots.sh TRACE...
# Draws the memory of each trace over time, into build/plots/TRACE.png: what is live, and what the
# lake and torch's native rules (gmlake_bfc.h) hold; what they hold beyond it is shaded.
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
  words=$(awk -F '\t' -v name="$name" '$1 == name { print $2 }' bench/names.tsv)
  # The last and the largest of each curve, in GiB: where the words stand.
  where=$(awk -F , -v OFS=' ' 'FNR == 1 { file++; next }
    { end = $2 / 1e6; held[file] = $4 / 2^30; if ($3 > live) live = $3 }
    END { print end, held[1], held[2], live / 2^30 }' "$out/$name.lake.csv" "$out/$name.bfc.csv")
  set_words() { end=$1 lake=$2 native=$3 live=$4; }
  # shellcheck disable=SC2086
  set_words $where
  {
    cat <<END
load "bench/style.gp"
set output "$out/$name.png"
set datafile separator ","
set label 4 "${words:-$name}: memory over time, in GiB" at graph -.06, graph 1.06 textcolor rgb ink
set xlabel "seconds" textcolor rgb ink
set rmargin 24
set xrange [0:$end]
set yrange [0:*]
g = 1024.0 ** 3
top = $lake > $native ? $lake : $native
near = abs($lake - $native) < .12 * top ? .06 * top : 0
set label 1 sprintf("torch native holds\n%.1f GiB", $native) at graph 1.01, first $native + ($native < $lake ? -near : near) textcolor rgb native noenhanced
set label 2 sprintf("the lake holds\n%.1f GiB", $lake) at graph 1.01, first $lake + ($lake <= $native ? -near : near) textcolor rgb lake
set label 3 sprintf("live, at most %.1f GiB", $live) at graph .62, first $live * .1 center front textcolor rgb "#ffffff"
plot "$out/$name.bfc.csv" using (\$2 / 1e6):(\$3 / g):(\$4 / g) skip 1 with filledcurves fc rgb native fs transparent solid .18, \\
  "$out/$name.lake.csv" using (\$2 / 1e6):(\$3 / g):(\$4 / g) skip 1 with filledcurves fc rgb lake fs transparent solid .35, \\
  "$out/$name.lake.csv" using (\$2 / 1e6):(\$3 / g) skip 1 with filledcurves x1 fc rgb live, \\
  "$out/$name.bfc.csv" using (\$2 / 1e6):(\$4 / g) skip 1 with lines lw 3 lc rgb native, \\
  "$out/$name.lake.csv" using (\$2 / 1e6):(\$4 / g) skip 1 with lines lw 3 lc rgb lake
END
  } | gnuplot
  echo "$out/$name.png"
done
