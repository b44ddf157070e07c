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
ok 'a policy: a page' page 0 --policy paper --html "$out/paper.html" "$out/labels.gmtrace"
printf 'gmtrace 2\n# label: 2 x\na 1 5 0 0\n' >"$dir/bad.gmtrace"
ok 'labels: out of order' page 2 --html "$dir/x.html" "$dir/bad.gmtrace"
ok 'labels: out of order: reason' says ':2: labels count from 1 on'
printf 'gmtrace 2\n# label: 1 x\na 1 5 0 0\n# of: 2 0 0\n' >"$dir/bad.gmtrace"
ok 'labels: an unknown one' page 2 --html "$dir/x.html" "$dir/bad.gmtrace"
ok 'labels: an unknown one: reason' says ":4: the label's number is too large"

ok 'snapshots' "$build/examples/snapshot" "$out/snapshot"
ok 'a large snapshot' "$build/examples/snapshot" "$out/large" 130000
sed '/id="data">/q' bench/viewer.html | sed '$s/id="data">.*/id="data">/' >"$out/large.html"
cat "$out/large.end.json" >>"$out/large.html"
sed '1,/id="data">/d' bench/viewer.html | sed '1s/^/<\/script>/' >>"$out/large.html"

# ---- What is refused ----

# bad NAME LINE REASON TEXT: the page refuses that trace as build/replay does.
count=0
bad() {
  count=$((count + 1))
  # shellcheck disable=SC2059
  printf "$4" >"$dir/$count.gmtrace"
  printf '%s\n' "$dir/$count.gmtrace: line $2: $3" >>"$dir/wanted"
}
. tests/tools/wrong_traces.sh
# wrong FIELD TEXT: a replay in which that field is something else.
wrong() {
  count=$((count + 1))
  printf '{"format": "gmlake replay", "version": 1, "name": "x", "chunk_bytes": 2097152, %s}' "$2" \
    >"$dir/$count.gmtrace.json"
  printf '%s\n' "$dir/$count.gmtrace.json: $1 is " >>"$dir/wanted"
}
begin='"dt": [1, 1], "marks": [0], "streams": [0], "windows": [], "labels": ["x"]'
wrong dt '"dt": "x"'
wrong 'dt[0]' '"dt": [-1]'
wrong blocks "$begin"
wrong 'blocks.at[0]' "$begin, \"blocks\": {\"begin\": [0], \"until\": [1], \"bytes\": [8], \"stream\": [0],
  \"at\": [-5]}"
wrong 'blocks.begin[0]' "$begin, \"blocks\": {\"begin\": [1e9], \"until\": [1], \"bytes\": [8],
  \"stream\": [0], \"at\": [0]}"
wrong 'blocks.bytes[0]' "$begin, \"blocks\": {\"begin\": [0], \"until\": [1], \"bytes\": [1e18],
  \"stream\": [0], \"at\": [0]}"
if command -v node >/dev/null; then
  # shellcheck disable=SC2046
  node tests/tools/viewer_reading.js $(sed 's/: .*//' "$dir/wanted") "$out"/snapshot.*.json \
    "$out/labels.gmtrace" >"$dir/refused" 2>&1
  while read -r line; do
    ok "refused: $line" eval 'cut -c "1-${#line}" "$dir/refused" | grep -qxF "$line"'
  done <"$dir/wanted"
  ok 'what is right is read' [ "$(grep -c ': read$' "$dir/refused")" = \
    $(($(find "$out" -name 'snapshot.*.json' | wc -l) + 1)) ]
else
  echo 'skipped: what the page refuses: there is no node'
fi

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
