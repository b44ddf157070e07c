#!/bin/sh
# The manual as one page: it has every public name and every example, no link leads nowhere, its
# markup is whole, and it needs no other file.

. tests/tools/shell.sh

if ! command -v python3 >/dev/null; then
  echo 'skipped: there is no python3'
  report
  exit
fi
page="$dir/a folder/manual.html"
ok 'manual' eval 'python3 -B bench/manual.py "$page" >"$dir/out" 2>"$dir/err"'
cat >"$dir/judge.py" <<'END'
import html.parser, re, sys
text = open(sys.argv[1], encoding="utf-8").read()
class Judge(html.parser.HTMLParser):
    open_tags, ids, links, wrong = [], [], [], []
    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        if tag not in ("meta", "input"):
            self.open_tags.append(tag)
        if "id" in named:
            self.ids.append(named["id"])
        for name in ("href", "src"):
            if name in named:
                self.links.append(named[name])
    def handle_endtag(self, tag):
        if not self.open_tags or self.open_tags.pop() != tag:
            self.wrong.append(f"</{tag}> in line {self.getpos()[0]}")
judge = Judge()
judge.feed(text)
names = []
for header in "gmlake.h", "gmlake_bfc.h", "gmlake_offload.h", "gmlake_turnip.h":
    public = open(header, encoding="utf-8").read().partition("IMPLEMENTATION_DONE")[0]
    names += re.findall(r"^GMLAKE_(?:BFC_|OFFLOAD_)?DEF [^;]*?\b(gmlake\w*)\(", public, re.M)
    names += re.findall(r"^} (gmlake_\w+);", public, re.M)
said = {
    "markup": judge.wrong + judge.open_tags,
    "twice": sorted({i for i in judge.ids if judge.ids.count(i) > 1}),
    "links": [l for l in judge.links if not (l[0] == "#" and l[1:] in judge.ids)],
    "names": [n for n in names if n not in judge.ids],
    "count": [] if len(names) > 150 else [len(names)],
}
print("\n".join(f"{what}: {found or 'right'}" for what, found in said.items()))
END
python3 -B "$dir/judge.py" "$page" >"$dir/out" 2>"$dir/err"
ok 'markup' prints 'markup: right'
ok 'no anchor twice' prints 'twice: right'
ok 'links' prints 'links: right'
ok 'names: all' prints 'names: right'
ok 'names: some' prints 'count: right'
for example in examples/*.c examples/*_*.cpp examples/*.hpp; do
  ok "example: $example" grep -qF "id=\"example-${example#examples/}\"" "$page"
done
ok 'says how it is used' eval '! python3 -B bench/manual.py a b >"$dir/out" 2>"$dir/err" &&
  says "usage: manual.py [FILE]"'

report
