#!/usr/bin/env python3
"""Shows that a commit which only moves or renames things changed no compiled function.

usage: same_code.py [--cc CC] [--define NAME[=VALUE]]... [--diff] OLD NEW
       same_code.py [--cc CC] [--define NAME[=VALUE]]... [--diff] --since REVISION HEADER...

OLD and NEW are two versions of a header, or one from which functions moved to the other; or two .c
files; or two .s files that gcc wrote. --since compares each HEADER as it is now with the one that
git has at REVISION, for example
    python3 tests/tools/same_code.py --since HEAD~1 gmlake.h gmlake_offload.h
Headers are compiled with their implementation and both backends, gmlake_turnip.h with all of
gmlake_offload.h. --define adds a macro, for example
--define GMLAKE_SINGLE_THREADED. CC is gcc unless it is given.

Each file is compiled at -O0 with NDEBUG, so that a function's code follows its source line by line
and assertions do not count. Two functions are the same where their instructions are the same, and
what they call and what data they use is the same in turn. Names of static functions, of static data
and of types do not count, nor does the order in which functions stand in the file. Names of
functions with external linkage and of the C library do count.

Prints one line if all is the same, and exits with 0. Else it names the functions that differ, with
--diff also their instructions, and exits with 1. It exits with 2 if a file cannot be compiled."""
import argparse
import collections
import difflib
import hashlib
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FLAGS = ['-std=gnu99', '-O0', '-DNDEBUG', '-w', '-S', '-fno-asynchronous-unwind-tables',
         '-fcf-protection=none', '-fno-common']
SYMBOL = re.compile(r'(?<![\w.$%])[A-Za-z_.][\w.$]*')
STRING = re.compile(r'"(?:\\.|[^"\\])*"')
SECTION = re.compile(r'\s*\.(section|text|data|bss|globl|local|comm|type|size)\b')
IGNORED = re.compile(r'\s*\.(file|ident|section|text|data|bss|globl|local|type|align|p2align)\b')


class Refused(Exception):
    """A file that cannot be compiled, or read."""


def assembly(path, options):
    """The text that the compiler writes for the file."""
    if path.endswith('.s'):
        with open(path, encoding='utf-8') as file:
            return file.read()
    with tempfile.TemporaryDirectory() as folder:
        source, out = path, os.path.join(folder, 'out.s')
        if path.endswith('.h'):
            source = os.path.join(folder, 'unit.c')
            with open(source, 'w', encoding='utf-8') as file:
                for macro in implementation_macros(path):
                    file.write(f'#define {macro}\n')
                file.write(f'#include "{os.path.abspath(path)}"\n')
        command = [options.cc, *FLAGS, '-I' + ROOT, '-I' + os.path.join(ROOT, 'tests', 'cuda_stub')]
        command += ['-D' + define for define in options.define] + [source, '-o', out]
        if subprocess.run(command, check=False).returncode != 0:
            raise Refused(f'{path} cannot be compiled')
        with open(out, encoding='utf-8') as file:
            return file.read()


def implementation_macros(path):
    name = os.path.basename(path)
    if 'bfc' in name:
        return ['GMLAKE_BFC_IMPLEMENTATION']
    prefix = 'GMLAKE_OFFLOAD_' if 'offload' in name or 'turnip' in name else 'GMLAKE_'
    return ['GMLAKE_TURNIP_IMPLEMENTATION',
            *(prefix + macro for macro in ('IMPLEMENTATION', 'BACKEND_MOCK', 'BACKEND_CUDA'))]


def number_labels(body):
    """Labels inside a function get numbers in the order in which they are named."""
    numbers = {}

    def number(match):
        return '.L' + str(numbers.setdefault(match.group(0), len(numbers)))

    return [re.sub(r'\.L(?!C)\w+', number, line) for line in body]


def replace_symbols(line, replace):
    """The line with each symbol outside of strings replaced."""
    parts, at = [], 0
    for text in STRING.finditer(line):
        parts += [SYMBOL.sub(replace, line[at:text.start()]), text.group(0)]
        at = text.end()
    return ''.join(parts) + SYMBOL.sub(replace, line[at:])


class Unit:
    """The functions and data of one file: bodies[name] has the lines of each."""

    def __init__(self, text):
        kinds = dict(re.findall(r'^\t\.type\t([\w.$]+), @(\w+)', text, re.M))
        self.functions = {name for name, kind in kinds.items() if kind == 'function'}
        self.external = set(re.findall(r'^\t\.globl\t([\w.$]+)', text, re.M))
        self.bodies = {name: ['zeros ' + size]
                       for name, size in re.findall(r'^\t\.comm\t([\w.$]+),(.*)', text, re.M)}
        self.read(text, kinds)
        for name in self.functions:
            self.bodies[name] = number_labels(self.bodies[name])
        self.own = {name: self.digest(name, lambda other: '@') for name in self.bodies}
        self.full = self.own

    def read(self, text, kinds):
        function = current = None
        for line in text.split('\n'):
            label = re.match(r'([\w.$]+):$', line)
            name = label.group(1) if label else ''
            if function is None and (name in kinds or name.startswith('.LC')):
                current = self.bodies[name] = []
                function = name if name in self.functions else None
            elif function is not None:
                if re.match(r'\s*\.size\s+' + re.escape(function) + ',', line):
                    function = current = None
                elif not IGNORED.match(line):
                    current.append(line.strip())
            elif SECTION.match(line):
                current = None
            elif current is not None and not IGNORED.match(line):
                current.append(line.strip())

    def digest(self, name, of):
        """Of the body, where each symbol of this file is replaced by what `of` says."""
        def replace(match):
            other = match.group(0)
            if other not in self.bodies:
                return other
            return other if other in self.external else of(other)

        lines = [replace_symbols(line, replace) for line in self.bodies[name]]
        own = name if name in self.external else ''
        return hashlib.sha256('\n'.join([own, *lines]).encode()).hexdigest()

    def refine(self):
        """From now on what each body uses counts one level deeper."""
        self.full = {name: self.digest(name, self.full.__getitem__) for name in self.bodies}


def refine(a, b):
    """Refines both until no two bodies, of either file, are told apart that were not before."""
    kinds, before = 0, -1
    while kinds != before:
        before = kinds
        a.refine()
        b.refine()
        kinds = len({*a.full.values(), *b.full.values()})


def left_over(a, b, of):
    """The functions of a that have no counterpart in b."""
    counts = collections.Counter(of(b)[name] for name in b.functions)
    names = []
    for name in sorted(a.functions):
        if counts[of(a)[name]] > 0:
            counts[of(a)[name]] -= 1
        else:
            names.append(name)
    return names


def compare(old, new, title, options):
    """Prints what differs; whether nothing does."""
    a, b = Unit(assembly(old, options)), Unit(assembly(new, options))
    refine(a, b)
    if not left_over(a, b, lambda u: u.full) and not left_over(b, a, lambda u: u.full):
        print(f'{title}: the same {len(a.functions)} functions')
        return True
    gone, come = left_over(a, b, lambda u: u.own), left_over(b, a, lambda u: u.own)
    print(f'{title}: {len(a.functions)} functions, now {len(b.functions)}')
    for text, names in (('only in the old one', gone), ('only in the new one', come)):
        for name in names:
            print(f'  {text}: {name}')
    if not gone and not come:
        for name in left_over(a, b, lambda u: u.full):
            print(f'  uses other functions or data than before: {name}')
    for name in sorted(set(gone) & set(come)) if options.diff else []:
        lines = difflib.unified_diff(a.bodies[name], b.bodies[name], name, name, '', '', 2, '')
        print('\n'.join(lines))
    return False


def at_revision(revision, header, folder):
    path = os.path.join(folder, os.path.basename(header))
    command = ['git', '-C', ROOT, 'show', f'{revision}:./{os.path.relpath(header, ROOT)}']
    text = subprocess.run(command, check=False, capture_output=True)
    if text.returncode != 0:
        raise Refused(text.stderr.decode().strip())
    with open(path, 'wb') as file:
        file.write(text.stdout)
    return path


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split('\n\n')[1].replace('usage: ', ''))
    parser.add_argument('--cc', default='gcc')
    parser.add_argument('--define', action='append', default=[])
    parser.add_argument('--diff', action='store_true')
    parser.add_argument('--since')
    parser.add_argument('files', nargs='+')
    options = parser.parse_args()
    if options.since is None and len(options.files) != 2:
        parser.error('two files are needed: the old one and the new one')
    try:
        if options.since is None:
            return 0 if compare(*options.files, options.files[1], options) else 1
        with tempfile.TemporaryDirectory() as folder:
            same = [compare(at_revision(options.since, header, folder), header, header, options)
                    for header in options.files]
        return 0 if all(same) else 1
    except (OSError, Refused) as error:
        print(f'same_code.py: {error}', file=sys.stderr)
        return 2


if __name__ == '__main__':
    sys.exit(main())
