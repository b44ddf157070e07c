#!/bin/sh
# bench/viewer.html and `build/replay --html`: pages of all shared traces, and snapshots, in a real
# browser where there is one (`sh tests/tools/deps.sh viewer` installs it). Pictures of what it shows
# stay in build/viewer.

. tests/tools/shell.sh
out=$absolute_build/viewer
mkdir -p "$out"
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome)

# page STATUS ARGUMENT...: runs replay, succeeds if it exits so.
page() {
  expected=$1
  shift
  "$build/replay" "$@" >"$dir/out" 2>"$dir/err"
  [ $? = "$expected" ]
}

# ---- What needs no browser ----

trace=bench/traces/opt-1.3b-N.gmtrace.gz
ok 'two traces' page 2 --html "$dir/x.html" "$trace" "$trace"
ok 'two traces: reason' says '--html needs one trace'
ok 'another allocator' page 2 --html "$dir/x.html" --allocator bfc "$trace"
ok 'another allocator: reason' says '--html works only with --allocator lake, not with: bfc'
ok 'no such folder' page 1 --html "$dir/none/x.html" "$trace"
ok 'no such folder: reason' says "$dir/none/x.html: cannot be written"
ok 'elsewhere' eval '(cd "$dir" && ! "$absolute_build/replay" --html x.html "$OLDPWD/$trace" 2>err)'
ok 'elsewhere: reason' says 'bench/viewer.html cannot be read: run replay in the directory of gmlake.h'
ok 'it fetches nothing' eval '! grep -nE "https?://|src=|@import|url\(" bench/viewer.html'

traces=
for trace in bench/traces/*.gmtrace.gz bench/traces/streams/*.gmtrace.gz; do
  known=$(basename "$trace" .gmtrace.gz)
  traces="$traces $known"
  ok "$known: a page" page 0 --html "$out/$known.html" "$trace"
  "$build/replay" --json --once "$trace" >"$out/$known.json"
  ok "$known: the figures" [ -s "$out/$known.json" ]
done

# A recording with labels: replayed, and as it is.
printf '%s\n' 'gmtrace 2' '# label: 1 weights' 'a 1 20000000 0 0' '# of: 1 0 0' 'm step' \
  '# label: 2 <b>"activations' 'a 2 30000000 0 5' '# of: 2 0 0' 'm step' 'a 3 30000000 0 5' \
  '# of: 2 0 0' 'a 4 512 0 1' >"$out/labels.gmtrace"
ok 'labels: a page' page 0 --html "$out/labels.html" "$out/labels.gmtrace"
printf 'gmtrace 2\n# label: 2 x\na 1 5 0 0\n' >"$dir/bad.gmtrace"
ok 'labels: out of order' page 2 --html "$dir/x.html" "$dir/bad.gmtrace"
ok 'labels: out of order: reason' says ':2: labels count from 1 on'
printf 'gmtrace 2\n# label: 1 x\na 1 5 0 0\n# of: 2 0 0\n' >"$dir/bad.gmtrace"
ok 'labels: an unknown one' page 2 --html "$dir/x.html" "$dir/bad.gmtrace"
ok 'labels: an unknown one: reason' says ":4: the label's number is too large"

"${MAKE:-make}" --no-print-directory "$build/examples/snapshot" >"$dir/out" 2>&1
ok 'snapshots' "$build/examples/snapshot" "$out/snapshot"
ok 'a large snapshot' "$build/examples/snapshot" "$out/large" 130000
sed '/id="data">/q' bench/viewer.html | sed '$s/id="data">.*/id="data">/' >"$out/large.html"
cat "$out/large.end.json" >>"$out/large.html"
sed '1,/id="data">/d' bench/viewer.html | sed '1s/^/<\/script>/' >>"$out/large.html"

# ---- The browser ----

if [ -z "$chromium" ] || ! [ -d "$out/node_modules/playwright-core" ] ||
  ! command -v node >/dev/null; then
  echo 'skipped: the browser; sh tests/tools/deps.sh viewer installs one'
  report
  exit
fi
# shellcheck disable=SC2086
node tests/tools/viewer.js "$out/node_modules/playwright-core" "$chromium" "$out" $traces \
  >"$dir/browser" 2>&1
status=$?
cat "$dir/browser"
ok 'the browser ends' [ $status = 0 ]
ok 'the browser: a count' grep -qE '^[0-9]+ passed, [0-9]+ failed$' "$dir/browser"
passed=$((passed + $(awk '/ passed, / { n = $1 } END { print n + 0 }' "$dir/browser")))
failed=$((failed + $(awk '/ passed, / { n = $3 } END { print n + 0 }' "$dir/browser")))
report
