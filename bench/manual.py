"""Writes the manual as one HTML page, from the comments of the headers and the examples: every
public name with its contract, and a link wherever it is mentioned. No file but the page is needed
to read it.

usage: manual.py [FILE]    FILE: build/manual.html by default
"""
import html
import os
import re
import sys

HEADERS = ["gmlake.h", "gmlake_bfc.h", "gmlake_offload.h", "gmlake_turnip.h"]
EXAMPLES = [
    "hello.c", "two_streams.c", "stitching.c", "graph_capture.c", "kv_server.c", "two_models.c",
    "weights.c", "experts.c", "share.c", "three_servers.c", "ledger.h", "ledger.hpp",
    "running_out.c", "snapshot.c", "fragmentation.c", "fallback.c", "custom_backend.c", "record.c",
    "prewarm.c", "ci_mock.cpp", "gmlake.hpp", "offload_quarter.c", "offload_optimizer.c",
    "offload_session.c",
]
NAME = re.compile(r"\b(?:gmlake|GMLAKE)_[A-Za-z0-9_]*[A-Za-z0-9]\b|\bgmlake\b(?=\()")
STYLE = """
:root{--ink:#1a1c20;--paper:#fff;--line:#d8dce3;--code:#f4f5f7;--link:#0b57c2}
@media (prefers-color-scheme:dark){:root{--ink:#e4e6ea;--paper:#15171b;
--line:#343943;--code:#1e2127;--link:#7fb2ff}}
body{margin:0;color:var(--ink);background:var(--paper);font:16px/1.55 system-ui,sans-serif;
display:flex}
nav{flex:0 0 19rem;height:100vh;overflow:auto;position:sticky;top:0;padding:1rem;
box-sizing:border-box;border-right:1px solid var(--line);font-size:14px}
nav input{width:100%;box-sizing:border-box;padding:.4rem;font:inherit;color:inherit;
background:var(--code);border:1px solid var(--line);border-radius:4px}
nav a{display:block;overflow-wrap:anywhere}nav h2{font-size:14px;margin:1rem 0 .2rem}
main{flex:1;min-width:0;padding:1rem 2.5rem 6rem;max-width:56rem}
a{color:var(--link);text-decoration:none}a:hover{text-decoration:underline}
h1{font-size:1.8rem}h2{border-bottom:1px solid var(--line);margin-top:3rem}
h3{margin:2rem 0 .5rem}h4{margin:1.6rem 0 .3rem;font-family:ui-monospace,monospace}
pre,code{font:13.5px/1.45 ui-monospace,monospace}
pre{background:var(--code);padding:.7rem .9rem;border-radius:6px;overflow-x:auto}
dt{font-family:ui-monospace,monospace;font-size:14px}dd{margin:0 0 .5rem 1.5rem}
ul{margin:.3rem 0;padding-left:1.4rem}ul.steps{list-style:none;padding-left:.4rem}
summary{cursor:pointer}
@media (max-width:60rem){body{display:block}nav{position:static;height:auto;max-height:16rem;
border-right:0;border-bottom:1px solid var(--line)}main{padding:1rem}}
"""
SCRIPT = """
const box=document.querySelector('nav input');
box.addEventListener('input',()=>{const wanted=box.value.toLowerCase();
document.querySelectorAll('nav a').forEach(a=>{
a.hidden=!a.textContent.toLowerCase().includes(wanted)})});
"""


def leading(line):
    return len(line) - len(line.lstrip(" "))


class Page:
    def __init__(self):
        self.parts, self.index, self.names = [], [], {}

    def linked(self, text):
        """Escaped, with a link at each public name that the page declares."""
        def link(match):
            name = match.group(0)
            where = self.names.get(name)
            return f'<a href="#{where}">{name}</a>' if where else name
        return NAME.sub(link, html.escape(text, quote=False))

    def put(self, tag, text):
        self.parts.append(f"<{tag}>{text}</{tag.split()[0]}>")

    def head(self, level, anchor, text, listed=True):
        self.parts.append(f'<h{level} id="{anchor}">{html.escape(text)}</h{level}>')
        if listed:
            self.index.append((level, anchor, text))

    def close(self, kind, block):
        """Puts what prose has collected."""
        text = self.linked(" ".join(line.strip() for line in block))
        if kind == "pre":
            first = min(leading(line) for line in block if line.strip())
            self.put("pre", self.linked("\n".join(line[first:] for line in block).rstrip()))
        elif kind == "li":
            self.put("ul", f"<li>{text}</li>")
        elif kind == "step":
            self.put("ul class=steps", f"<li>{text}</li>")
        elif kind == "dl":
            term, _, rest = block[0].strip().partition("  ")
            body = " ".join([rest] + block[1:]).split()
            self.parts.append(f"<dl><dt>{self.linked(term)}</dt>"
                              f"<dd>{self.linked(' '.join(body))}</dd></dl>")
        elif block:
            self.put("p", text)

    def prose(self, lines, base=None):
        """Text as the headers write it: paragraphs, lists, terms in a column, and code, which is
        set in by three columns or more, or by two behind a colon. base: the column of paragraphs."""
        lines = [line.rstrip() for line in lines]
        if base is None:
            base = min((leading(line) for line in lines if line.strip()), default=0)
        block, kind = [], None
        for number, line in enumerate(lines + [""]):
            text, depth = line.strip(), leading(line) - base
            following = lines[number + 1] if number + 1 < len(lines) else ""
            item = re.match(r"(-|[0-9]+\.) +(.*)", text)
            same = block and leading(line) == leading(block[0])
            if not text and kind == "pre":
                block.append("")
                continue
            if not text:
                new = None
            elif kind == "pre" and depth >= 2:
                new = "pre"
            elif item and depth <= 2:
                new = "li" if item.group(1) == "-" else "step"
                text = item.group(2) if new == "li" else text
            elif (depth >= 3 and not kind) or (depth >= 2 and kind == "p" and
                                              block[-1].endswith(":")):
                new = "pre"
            elif re.match(r"\S.*? {2,}\S", text) and (kind != "dl" or same) and kind not in (
                    "li", "step"):
                new = "dl"
            elif not kind and leading(following) - leading(line) >= 8:
                new = "dl"
            elif kind == "dl" and same and leading(following) - leading(line) >= 8:
                new = "dl"
            elif kind in ("li", "step", "dl") and (depth >= 2 and not (kind == "dl" and same)):
                block.append(line)
                continue
            else:
                new = "p"
            if new != kind or new not in ("p", "pre"):
                self.close(kind, block)
                block = []
            kind = new
            if new:
                block.append(line if new in ("pre", "dl") else
                             " " * leading(line) + text)
        self.close(kind, block)


def declarations(text):
    """(comment lines, declaration, names) of each public declaration, and section titles."""
    text = re.sub(r"\\\n", "  ", text)
    lines, comment, i, title = text.split("\n"), [], 0, None
    while i < len(lines):
        line = lines[i]
        section = re.match(r"/\* ---- (.*?) -+ \*/$", line)
        if section:
            title, comment = section.group(1), []
            yield title, None, None
        elif line.startswith("/*"):
            begin = i
            while "*/" not in lines[i]:
                i += 1
            comment = [part.replace("/*", "  ", 1) if k == 0 else part
                       for k, part in enumerate(lines[begin:i + 1])]
            comment[-1] = comment[-1].replace("*/", "")
        elif re.match(r"(typedef|[A-Z_]+_DEF\b|#define GMLAKE_)", line):
            begin, depth = i, 0
            while True:
                bare = re.sub(r"/\*.*?(\*/|$)", "", lines[i])
                depth += bare.count("{") - bare.count("}")
                if line.startswith("#") or (depth <= 0 and ";" in bare):
                    break
                i += 1
            code = "\n".join(lines[begin:i + 1])
            names = []
            if line.startswith("#define"):
                names = re.findall(r"^#define (GMLAKE_(?!DEF|\w+_DEF|\w*INCLUDED)\w+)", code)
            elif line.startswith("typedef"):
                names = re.findall(r"(gmlake\w*)(?:;|\)\()", code)[-1:] or \
                    re.findall(r"\(\*(gmlake\w*)\)", code)
                names += re.findall(r"^\s+(GMLAKE_[A-Z0-9_]+)", code, re.M)
            else:
                names = re.findall(r"\b(gmlake\w*)\(", code)[:1]
            if names:
                yield comment, code, names
            comment = []
        elif not line.strip():
            if comment and title:
                yield comment, None, []
            comment = []
        i += 1


def public_part(text):
    """The manual, and what stands between it and the implementation."""
    manual, _, rest = text.partition("*/")
    end = re.search(r"^#endif /\* GMLAKE_\w*H(_INCLUDED)? \*/|_IMPLEMENTATION_DONE", rest, re.M)
    return manual, rest[:end.start()] if end else rest


def write_header(page, file):
    text = open(file, encoding="utf-8").read()
    manual, public = public_part(text)
    page.head(2, file, file)
    lines = manual.replace("/* ", "", 1).split("\n")
    page.put("p", page.linked(lines[0]))
    block, base = [], 0
    for line in lines[1:] + [None]:
        heading = line is not None and re.match(r"([A-Z][A-Z0-9 ,:'()-]+[A-Z)])(?: {2,}(.*))?$", line)
        if heading or line is None:
            page.prose(block, base)
            block, base = [], 2
            if heading:
                title = heading.group(1).strip()
                anchor = f"{file}-{title}".replace(" ", "-")
                page.head(3, anchor, title.capitalize())
                if heading.group(2):
                    page.put("p", html.escape(heading.group(2)))
        else:
            block.append(line)
    for comment, code, names in declarations(public):
        if names is None:
            page.head(3, f"{file}-{comment}".replace(" ", "-"), comment)
            continue
        if code is not None:
            page.head(4, names[0], names[0])
            page.put("pre", page.linked(code))
        page.prose(comment)


def write_examples(page):
    page.head(2, "examples", "Examples")
    for name in EXAMPLES:
        path = os.path.join("examples", name)
        if not os.path.exists(path):
            continue
        text = open(path, encoding="utf-8").read()
        page.head(3, f"example-{name}", name)
        if text.startswith("/*"):
            comment = text[2:].partition("*/")[0].split("\n")
        else:
            comment = [line[2:] for line in text.split("\n") if line.startswith("//")]
        page.prose([("   " if k == 0 else "") + line for k, line in enumerate(comment)])
        page.parts.append("<details><summary>The program</summary>")
        page.put("pre", page.linked(text))
        page.parts.append("</details>")


def write(out):
    page = Page()
    for file in HEADERS:
        for _, _, names in declarations(public_part(open(file, encoding="utf-8").read())[1]):
            for name in names or []:
                page.names.setdefault(name, names[0])
    for file in HEADERS:
        write_header(page, file)
    write_examples(page)
    nav = []
    for level, anchor, text in page.index:
        entry = f'<a href="#{anchor}">{html.escape(text)}</a>'
        nav.append(f"<h2>{entry}</h2>" if level == 2 else entry)
    os.makedirs(os.path.dirname(out) or ".", exist_ok=True)
    with open(out, "w", encoding="utf-8") as file:
        file.write(
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width"><title>gmlake: manual</title>'
            f"<style>{STYLE}</style></head><body>\n<nav aria-label=\"Contents\">"
            '<input type="search" placeholder="Find a name" aria-label="Find a name">'
            + "\n".join(nav) + "</nav>\n<main><h1>gmlake: manual</h1>\n"
            + "\n".join(page.parts) + f"</main><script>{SCRIPT}</script></body></html>\n")


if __name__ == "__main__":
    if len(sys.argv) > 2 or sys.argv[1:2] in (["-h"], ["--help"]):
        sys.exit(__doc__.strip())
    write(sys.argv[1] if len(sys.argv) == 2 else "build/manual.html")
