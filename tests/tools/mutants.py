"""Small defects in a header's implementation, one at a time: where they can be, and the text that
has one. Comments, strings, assertions, declarations and what the preprocessor leaves out on this
machine are never touched; no defect changes the number of a line.
"""
import bisect
import collections
import re
import subprocess

MARK = re.compile(r"/\* (==== Users can stop reading here|---- >>)")
KINDS = ("compare", "arithmetic", "constant", "delete", "negate", "logic", "swap", "fence",
         "return", "order")

Token = collections.namedtuple("Token", "kind text start end")
Mutant = collections.namedtuple(
    "Mutant", "header number section line kind before after edits is_dull is_of_threads")

TOKEN = re.compile(
    r"(?P<comment>/\*.*?\*/|//[^\n]*)"
    r"|(?P<directive>(?<![^\n])[ \t]*\#(?:\\\n|[^\n])*)"
    r"|(?P<string>\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*')"
    r"|(?P<number>0[xX][0-9a-fA-F]+[uUlL]*|[0-9]+\.[0-9]*|[0-9]+[uUlL]*)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign><<=|>>=|\.\.\.|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|[^\s\w])",
    re.S)

COMPARE = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*", "%": "/", "<<": ">>", ">>": "<<", "&": "|",
              "|": "&", "^": "|", "+=": "-=", "-=": "+=", "|=": "&=", "&=": "|=", "++": "--",
              "--": "++", "<<=": ">>=", ">>=": "<<=", "*=": "/=", "/=": "*="}
ASSIGN = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>=", "++", "--"}
ASSERTIONS = {"GMLAKE_ASSERT", "GMLAKE_BFC_ASSERT"}
WORDS = {"if", "else", "for", "while", "do", "switch", "case", "default", "return", "goto", "break",
         "continue", "sizeof", "typedef", "struct", "enum", "union", "const", "static", "extern",
         "unsigned", "signed", "int", "char", "long", "short", "void", "inline", "volatile"}
DONE = re.compile(r"^gmlk_(tag_done|run_is_done|place_is_done)$")
FENCE = re.compile(r"^gmlk_(stream_fence|stream_wait|wait_for_\w+|wait_directly|fence_now"
                   r"|fence_if_due|place_wait|drive_stream_wait)$")
# In a function with one of these a defect may be seen by the thread sanitizer alone.
THREADS = re.compile(r"^__(atomic|ATOMIC)_|_(lock|unlock)$|^GMLAKE_MUTEX")
ORDER = re.compile(r"^__ATOMIC_(ACQUIRE|RELEASE|ACQ_REL|SEQ_CST)$")
UNDO = re.compile(r"undo|give|release|destroy|abandon|discard|unreserve|unmap|close|leave"
                  r"|quarantine|revive|free|_end|forget|kill|drop")


def active_text(header, defines):
    """The header's text with spaces where the preprocessor leaves something out."""
    command = ["cc", "-E", "-fdirectives-only", "-I.", "-Itests/cuda_stub", "-x", "c", "-"]
    source = "".join(f"#define {d}\n" for d in defines) + f'#include "{header}"\n'
    done = subprocess.run(command, input=source, stdout=subprocess.PIPE, text=True, check=True)
    with open(header) as stream:
        lines = stream.read().split("\n")
    kept = [False] * (len(lines) + 2)
    number = None
    for line in done.stdout.split("\n"):
        marker = re.match(r'# (\d+) "([^"]*)"', line)
        if marker:
            name = marker.group(2).rsplit("/", 1)[-1]
            number = int(marker.group(1)) if name == header else None
        elif number is not None:
            if number < len(kept) and line.strip():
                kept[number] = True
            number += 1
    return "\n".join(line if kept[i] else " " * len(line) for i, line in enumerate(lines, 1))


def tokenize(text, start):
    tokens = []
    for match in TOKEN.finditer(text, start):
        if match.lastgroup not in ("comment", "directive"):
            tokens.append(Token(match.lastgroup, match.group(), match.start(), match.end()))
    return tokens


def pair_up(tokens):
    """{index of an opening bracket: that of its closing one} and the other way round."""
    pairs, stack = {}, []
    for i, token in enumerate(tokens):
        if token.kind != "sign":
            continue
        if token.text in "([{":
            stack.append(i)
        elif token.text in ")]}" and stack:
            other = stack.pop()
            pairs[i], pairs[other] = other, i
    return pairs


class Function:
    def __init__(self, name, returns, first, last):
        self.name, self.returns, self.first, self.last = name, returns, first, last


def functions(tokens, pairs):
    """Functions, and tables with values at the level of the file (no name)."""
    found = []
    i = 0
    while i < len(tokens):
        if tokens[i].text != "{" or tokens[i].kind != "sign" or i not in pairs:
            i += 1
            continue
        before = tokens[i - 1]
        if before.kind == "string":  # extern "C"
            i += 1
            continue
        if before.text == ")":
            name = pairs[i - 1] - 1
            at = name - 1
            while at >= 0 and tokens[at].text not in ";}":
                at -= 1
            returns = [t.text for t in tokens[at + 1:name]]
            found.append(Function(tokens[name].text, returns, i, pairs[i]))
        elif before.text == "=":
            found.append(Function("", [], i, pairs[i]))
        i = pairs[i] + 1
    return found


class Finder:
    """Finds the mutants of one header."""

    def __init__(self, header, defines):
        self.header = header
        self.text = active_text(header, defines)
        self.start = MARK.search(self.text).start()
        self.tokens = tokenize(self.text, self.start)
        self.pairs = pair_up(self.tokens)
        self.line_starts = [0] + [m.end() for m in re.finditer("\n", self.text)]
        self.sections = [(m.start(), m.group(1))
                         for m in re.finditer(r"/\* ---- >>(\w+)", self.text)]
        self.mutants = []
        self.is_of_threads = False  # the function that is looked at

    def line_of(self, at):
        return bisect.bisect_right(self.line_starts, at)

    def section_of(self, at):
        before = [name for start, name in self.sections if start <= at]
        return before[-1] if before else "base"

    def add(self, kind, *edits):
        """Edits are (start, end, text), in order; a replacement keeps its number of lines."""
        kept = []
        for start, end, text in edits:
            missing = self.text.count("\n", start, end) - text.count("\n")
            kept.append((start, end, text + "\n" * missing))
        start, end = edits[0][0], edits[-1][1]
        before = " ".join(self.text[start:end].split())
        applied = self.apply(kept)
        after = " ".join(applied[start:len(applied) - len(self.text) + end].split())
        self.mutants.append(Mutant(self.header, len(self.mutants), self.section_of(start),
                                   self.line_of(start), kind, before, after, tuple(kept),
                                   self.is_dull(kind, start, before, after),
                                   self.is_of_threads))

    def is_dull(self, kind, start, before, after):
        """Whether it cannot matter: another truth than 1, frees in another order."""
        if kind == "constant":
            return (before, after) == ("1", "2") and self.text[:start].endswith("return ")
        return kind == "swap" and all(re.search(r"\w*(_free|_FREE)\(", half) for half in
                                      before.split(";", 1))

    def apply(self, edits, text=None):
        text = self.text if text is None else text
        for start, end, replacement in reversed(edits):
            text = text[:start] + replacement + text[end:]
        return text

    def replace(self, kind, i, text):
        self.add(kind, (self.tokens[i].start, self.tokens[i].end, text))

    # ---- Signs, numbers, calls ----

    def is_binary(self, i):
        before = self.tokens[i - 1]
        return (before.kind in ("number", "string") or before.text in (")", "]") or
                before.kind == "name" and before.text not in WORDS)

    def is_pointer_or_cast(self, i):
        """A `*` or `&` that is no operation, a sign behind a cast."""
        before, after = self.tokens[i - 1], self.tokens[i + 1]
        if before.text == ")" and re.search(r"(_t|\*|char|long|int|unsigned|_result|void)$",
                                            self.tokens[i - 2].text):
            return True
        if self.tokens[i].text == "*" and before.kind == "name":
            if after.text in (")", "*", ","):
                return True
            return self.is_declared(i)
        return False

    def is_declared(self, i):
        """Whether the statement of this `*` begins with a type."""
        at = i - 1
        while self.tokens[at].kind == "name" or self.tokens[at].text == "*":
            at -= 1
        return self.tokens[at].text in (";", "{", "}", ",", "(") and at + 2 <= i and \
            self.tokens[i + 1].kind == "name" and self.tokens[i + 2].text in ("=", ";", ",", "[",
                                                                                ")")

    def signs(self, i):
        text = self.tokens[i].text
        if text in COMPARE:
            self.replace("compare", i, COMPARE[text])
        elif text in ("&&", "||"):
            self.replace("logic", i, "||" if text == "&&" else "&&")
        elif text in ARITHMETIC:
            is_sign = text in ("+", "-", "*", "&")
            if is_sign and (not self.is_binary(i) or self.is_pointer_or_cast(i)):
                return
            self.replace("arithmetic", i, ARITHMETIC[text])

    def numbers(self, i):
        match = re.match(r"(0[xX])?([0-9a-fA-F]+)([uUlL]*)$", self.tokens[i].text)
        if not match:
            return
        value = int(match.group(2), 16 if match.group(1) else 10)
        if value >= 1 << 24 or self.tokens[i - 1].text == "[" and \
                self.tokens[i - 2].kind == "name" and self.tokens[i - 3].kind == "name":
            return  # a hash's factor; an array's size where it is declared
        form = hex if match.group(1) else str
        self.replace("constant", i, form(value + 1) + match.group(3))
        if value:
            self.replace("constant", i, form(value - 1) + match.group(3))

    def calls(self, i):
        name = self.tokens[i].text
        if self.tokens[i + 1].text != "(" or not (DONE.match(name) or FENCE.match(name)):
            return
        end = self.tokens[self.pairs[i + 1]].end
        value = "1" if DONE.match(name) else "((gmlake_result)0)"
        self.add("fence", (self.tokens[i].start, end, value))

    def conditions(self, i):
        if self.tokens[i].text in ("if", "while") and self.tokens[i + 1].text == "(":
            first, last = i + 1, self.pairs[i + 1]
            self.add("negate", (self.tokens[first].end, self.tokens[first].end, "!("),
                     (self.tokens[last].start, self.tokens[last].start, ")"))

    def returned(self, i, function):
        if self.tokens[i].text != "return" or self.tokens[i + 1].text == ";":
            return
        end = i + 1
        while self.tokens[end].text != ";":
            end = self.pairs[end] + 1 if self.tokens[end].text in ("(", "[", "{") else end + 1
        start, stop = self.tokens[i + 1].start, self.tokens[end].start
        value = self.text[start:stop].strip()
        is_pointer = "*" in function.returns
        if value not in ("0", "NULL", "GMLAKE_OK"):
            self.add("return", (start, stop, "0"))
        if not is_pointer and value not in ("0", "1", "GMLAKE_ERROR_INVALID_ARGUMENT"):
            wider = {"gmlake_result": "(gmlake_result)1"}
            text = wider.get([t for t in function.returns if t != "*"][-1], "1")
            self.add("return", (start, stop, text))

    # ---- Statements ----

    def statements(self, function):
        """(first token, semicolon, index of the `{` around) of what only computes or jumps."""
        found = []
        braces = []
        i = function.first
        begins = False
        while i < function.last:
            text = self.tokens[i].text
            if text == "{":
                braces.append(i)
                begins, i = True, i + 1
            elif text == "}":
                braces.pop()
                begins, i = True, i + 1
            elif ((text in ("if", "for", "while", "switch") or text.startswith("GMLK_FOR_")) and
                  self.tokens[i + 1].text == "("):
                i = self.pairs[i + 1] + 1
                begins = self.tokens[i].text != ";"
            elif text in ("else", "do"):
                begins, i = True, i + 1
            elif text in ("case", "default"):
                while self.tokens[i].text != ":":
                    i += 1
                begins, i = True, i + 1
            else:
                end = i
                while self.tokens[end].text != ";":
                    is_open = self.tokens[end].text in ("(", "[", "{")
                    end = self.pairs[end] + 1 if is_open else end + 1
                if begins:
                    found.append((i, end, braces[-1]))
                begins, i = True, end + 1
        return found

    def is_expression(self, first, end):
        head, second = self.tokens[first], self.tokens[first + 1]
        if head.text in WORDS or head.text in ASSERTIONS:
            return False
        if head.kind == "name" and second.kind == "name":
            return False
        if head.kind == "name" and second.text == "*":
            return False
        inside = self.tokens[first:end]
        return any(t.text in ASSIGN for t in inside) or self.has_call(first, end)

    def has_call(self, first, end):
        return any(self.tokens[i].kind == "name" and self.tokens[i + 1].text == "(" and
                   self.tokens[i].text not in WORDS for i in range(first, end))

    def deletions(self, function):
        for first, end, _ in self.statements(function):
            head = self.tokens[first].text
            is_last = self.tokens[end + 1].text == "}" and end + 1 == function.last
            is_jump = head in ("break", "continue") or \
                head == "return" and not is_last and self.tokens[first - 1].text == ")"
            if is_jump or self.is_expression(first, end):
                self.add("delete", (self.tokens[first].start, self.tokens[end].end, ";"))

    def swaps(self, function):
        statements = self.statements(function)
        for (a, a_end, a_brace), (b, b_end, b_brace) in zip(statements, statements[1:]):
            if b != a_end + 1 or a_brace != b_brace or self.tokens[a - 1].text not in "{;}":
                continue
            in_branch = a_brace != function.first and self.tokens[a_brace - 1].text == ")" and \
                self.tokens[self.pairs[a_brace - 1] - 1].text == "if"
            if not in_branch and not UNDO.search(function.name):
                continue
            if not (self.is_expression(a, a_end) and self.is_expression(b, b_end) and
                    self.has_call(a, a_end) and self.has_call(b, b_end)):
                continue
            texts = [self.text[self.tokens[f].start:self.tokens[e].end]
                     for f, e in ((a, a_end), (b, b_end))]
            between = self.text[self.tokens[a_end].end:self.tokens[b].start]
            self.add("swap", (self.tokens[a].start, self.tokens[b_end].end,
                              texts[1] + between + texts[0]))

    def find(self):
        for function in functions(self.tokens, self.pairs):
            i = function.first
            self.is_of_threads = any(t.kind == "name" and THREADS.search(t.text)
                                     for t in self.tokens[function.first:function.last])
            while i < function.last:
                token = self.tokens[i]
                if token.text in ASSERTIONS:
                    i = self.pairs[i + 1]
                elif token.kind == "number":
                    self.numbers(i)
                elif token.kind == "sign" and function.name:
                    self.signs(i)
                elif token.kind == "name" and function.name:
                    if ORDER.match(token.text):
                        self.replace("order", i, "__ATOMIC_RELAXED")
                    self.calls(i)
                    self.conditions(i)
                    self.returned(i, function)
                i += 1
            if function.name:
                self.deletions(function)
                self.swaps(function)
        return self.mutants


UNITS = {"gmlake.h": ["GMLAKE_IMPLEMENTATION", "GMLAKE_BACKEND_MOCK", "GMLAKE_BACKEND_CUDA"],
         "gmlake_bfc.h": ["GMLAKE_BFC_IMPLEMENTATION"],
         "gmlake_offload.h": ["GMLAKE_OFFLOAD_IMPLEMENTATION", "GMLAKE_OFFLOAD_BACKEND_MOCK",
                              "GMLAKE_OFFLOAD_BACKEND_CUDA", "GMLAKE_IMPLEMENTATION",
                              "GMLAKE_BACKEND_CUDA"]}
UNITS["gmlake_turnip.h"] = UNITS["gmlake_offload.h"] + ["GMLAKE_TURNIP_IMPLEMENTATION"]


class Header:
    """A header in the working directory and its mutants."""

    def __init__(self, name):
        with open(name) as stream:
            self.text = stream.read()
        self.finder = Finder(name, UNITS[name])
        self.mutants = self.finder.find()

    def with_mutant(self, mutant):
        return self.finder.apply(mutant.edits, self.text)
