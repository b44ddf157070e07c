#!/bin/sh
# usage: plots.sh TRACE...
# Draws the memory of each trace over time, into build/plots/TRACE.png: what is live, and what the
# lake, torch's native rules (gmlake_bfc.h) and a model of its expandable segments hold.
# Environment: BUILD is the folder that has the program replay and gets the plots (default: build).
set -eu

build=${BUILD:-build}
out=$build/plots
mkdir -p "$out"
for path in "$@"; do
  name=$(basename "$path" .gz)
  name=${name%.gmtrace}
  for allocator in bfc expandable lake; do
    "$build/replay" --allocator "$allocator" --series "$out/$name.$allocator.csv" "$path" >/dev/null
  done
  words=$(awk -F '\t' -v name="$name" '$1 == name { print $2 }' bench/names.tsv)
  # The last of each curve and the most that is live, in GiB; and at which heights the words stand,
  # each so far above the next lower one that they can be read.
  where=$(awk -F , -v OFS=' ' 'FNR == 1 { file++; next }
    { end = $2 / 1e6; held[file] = $4 / 2^30; if ($3 > live) live = $3
      if (held[file] > top) top = held[file] }
    END {
      for (i = 1; i <= 3; i++) at[i] = held[i]
      for (round = 0; round < 3; round++)
        for (i = 1; i <= 3; i++)
          for (k = 1; k <= 3; k++)
            if (held[k] < held[i] && at[i] < at[k] + top * .11) at[i] = at[k] + top * .11
      print end, live / 2^30, held[1], held[2], held[3], at[1], at[2], at[3]
    }' "$out/$name.lake.csv" "$out/$name.expandable.csv" "$out/$name.bfc.csv")
  set_words() {
    end=$1 live=$2 lake=$3 expandable=$4 native=$5 lake_at=$6 expandable_at=$7 native_at=$8
  }
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
set label 1 sprintf("torch native holds\n%.1f GiB", $native) at graph 1.01, first $native_at textcolor rgb native noenhanced
set label 5 sprintf("expandable segments\n%.1f GiB", $expandable) at graph 1.01, first $expandable_at textcolor rgb expandable
set label 2 sprintf("the lake holds\n%.1f GiB", $lake) at graph 1.01, first $lake_at textcolor rgb lake
set label 3 sprintf("live, at most %.1f GiB", $live) at graph .62, first $live * .1 center front textcolor rgb "#ffffff"
plot "$out/$name.bfc.csv" using (\$2 / 1e6):(\$3 / g):(\$4 / g) skip 1 with filledcurves fc rgb native fs transparent solid .18, \\
  "$out/$name.lake.csv" using (\$2 / 1e6):(\$3 / g):(\$4 / g) skip 1 with filledcurves fc rgb lake fs transparent solid .35, \\
  "$out/$name.lake.csv" using (\$2 / 1e6):(\$3 / g) skip 1 with filledcurves x1 fc rgb live, \\
  "$out/$name.bfc.csv" using (\$2 / 1e6):(\$4 / g) skip 1 with lines lw 3 lc rgb native, \\
  "$out/$name.expandable.csv" using (\$2 / 1e6):(\$4 / g) skip 1 with lines lw 3 lc rgb expandable, \\
  "$out/$name.lake.csv" using (\$2 / 1e6):(\$4 / g) skip 1 with lines lw 3 lc rgb lake
END
  } | gnuplot
  echo "$out/$name.png"
done
