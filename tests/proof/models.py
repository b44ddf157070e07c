#!/usr/bin/env python3
"""Proves the models of this folder with SPIN, shows that they find mistakes, and compares the
functions of gmlake.h that they stand for with those that they were written after.

A model (*.pml) is run through all its states within its bounds. For each mistake of mistakes.txt
it is run again with a text replaced, and has to fail. models.txt names the functions of gmlake.h
that each model's steps stand for, and a hash of each text without comments and white space: who
changes such a function looks at the model, changes that if it has to be, and says so.

    models.py                             all of it
    models.py --quick                     smaller bounds, and the mistakes that gmlake.h had
    models.py --mistakes WORD...          those alone whose names have one of the words, or a
                                          model's
    models.py --functions [HEADER]        compares the functions alone, of another gmlake.h, too
    models.py --looked-at [FUNCTION...]   enters the hashes of now into models.txt, of all
                                          functions or of these
"""

import argparse
import concurrent.futures
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
HEADER = os.path.join(HERE, '..', '..', 'gmlake.h')
TABLE = os.path.join(HERE, 'models.txt')
MISTAKES = os.path.join(HERE, 'mistakes.txt')
JOBS = min(2, os.cpu_count() or 1)
MEMORY_MIB = 2500  # of one run

# Each model, and OPS, how many calls there are: quick, and in all.
MODELS = {'locks': (3, 4), 'fences': (6, 7), 'ends': (6, 8), 'graphs': (4, 5)}


def read(path):
    with open(path, encoding='utf-8') as file:
        return file.read()


# ---- functions of gmlake.h ----


def functions(header=HEADER):
    """The text of each function of gmlake.h that has a body, without comments and white space."""
    text = re.sub(r'/\*.*?\*/', ' ', read(header), flags=re.S)
    start = re.compile(r'^(?:static|GMLAKE_DEF|GMLK_INLINE)\b[^;{}=]*?\b(gml\w+)\([^;{}]*\)\s*\{',
                       re.M)
    found = {}
    for match in start.finditer(text):
        end = text.find('\n}', match.end())
        if '\n' not in text[match.start():text.find('}', match.end()) + 1].strip():
            end = text.find('}', match.end()) - 1  # a function of one line
        body = re.sub(r'\s+', '', text[match.start():end + 2])
        found.setdefault(match.group(1), '')
        found[match.group(1)] += body  # of several texts, as #if chooses them, all count
    return found


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def table_rows():
    """(line, model, function, hash) of models.txt; other lines have None for the function."""
    for line in read(TABLE).splitlines():
        words = line.split()
        is_row = line.startswith('  ') and len(words) >= 2 and words[0].startswith('gml')
        yield line, words[0] if is_row else None, words[1] if is_row else None


def compare_functions(enters, header=HEADER):
    """Compares the table's functions with the header's, or enters the hashes of those in `enters`,
    of all if it is empty. Returns the failures, and how many functions there are."""
    known, failures, lines, count, model = functions(header), [], [], 0, ''
    for line, name, was in table_rows():
        if line and not line.startswith((' ', '#')):
            model = line.split(':')[0]
        if name and name not in known:
            failures.append(f'{name} is no function of gmlake.h any more, and {model} has a step '
                            'that stands for it: look at the model, and at tests/proof/models.txt')
        elif name:
            now = digest(known[name])
            count += 1
            if enters is not None and (not enters or name in enters):
                line = line.replace(was, now, 1)
            elif now != was:
                failures.append(
                    f'{name} of gmlake.h has changed, and {model} has a step that stands for it: '
                    'look at the model, change it if it has to be, then say so: '
                    f'python3 -B tests/proof/models.py --looked-at {name}')
        lines.append(line)
    if enters is not None:
        with open(TABLE, 'w', encoding='utf-8') as file:
            file.write('\n'.join(lines) + '\n')
    return failures, count


# ---- running SPIN ----


def mistakes():
    """(name, model, whether gmlake.h had it or has it, replacements) of mistakes.txt."""
    found, texts = [], []
    for line in read(MISTAKES).splitlines():
        head = re.match(r'(\w+) \((\w+)(, history)?\): ', line)
        if head:
            texts = []
            found.append((head.group(1), head.group(2), bool(head.group(3)), texts))
        elif line.startswith('    ') and texts:
            texts[-1] += ' ' + line.strip()
        elif line.startswith('  ') and not line.startswith('    '):
            texts.append(line.strip())
    return [m[:3] + ([tuple(part.strip() for part in text.split(' =>', 1)) for text in m[3]],)
            for m in found]


def planted(name, model, replacements):
    """The model's files with texts replaced: the model itself, or the steps that models share."""
    names = (model + '.pml', 'streams.h', 'clocks.h')
    texts = {file: read(os.path.join(HERE, file)) for file in names}
    for was, becomes in replacements:
        pattern = re.compile(r'\s+'.join(re.escape(word) for word in was.split()))
        places = [(file, match) for file, text in texts.items() for match in pattern.finditer(text)]
        if len(places) != 1:
            sys.exit(f'mistakes.txt: {name}: "{was}" stands {len(places)} times in '
                     f'{", ".join(names)}')
        file, match = places[0]
        texts[file] = texts[file][:match.start()] + becomes + texts[file][match.end():]
    return texts


def run(texts, ops):
    """Explores a model. Returns (what is wrong or '', states, seconds)."""
    folder = tempfile.mkdtemp(prefix='gmlake-proof-')
    begin = time.time()
    try:
        for name, text in texts.items():
            name = 'model.pml' if name.endswith('.pml') else name
            with open(os.path.join(folder, name), 'w', encoding='utf-8') as file:
                file.write(text)
        flags = ['-O1', '-w', '-I.', '-DSAFETY', '-DNOFAIR', '-DVECTORSZ=4096',
                 f'-DMEMLIM={MEMORY_MIB}']
        for command in (['spin', f'-DOPS={ops}', '-a', 'model.pml'],
                        ['cc', *flags, '-o', 'pan', 'pan.c']):
            made = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            if made.returncode:
                return 'cannot be built: ' + (made.stdout + made.stderr)[-2000:], 0, 0
        told = subprocess.run(['nice', './pan', '-m1000000', '-n', '-w22'], cwd=folder,
                              capture_output=True, text=True, check=False).stdout
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    states = re.search(r'^\s*(\d+) states, stored', told, re.M)
    error = re.search(r'^pan:\d+: (.*?)(?: \(at depth.*)?$', told, re.M)
    if error:
        wrong = error.group(1)
    elif (not states or 'errors: 0' not in told or 'Search not completed' in told or
          'max search depth too small' in told):
        wrong = 'the search did not end: ' + told[-500:]
    else:
        wrong = ''
    return wrong, int(states.group(1)) if states else 0, time.time() - begin


def prove(model, ops):
    wrong, states, seconds = run(planted(model, model, []), ops)
    print(f'{"FAIL" if wrong else "ok"}  {model}.pml: {states:,} states with {ops} calls, '
          f'{seconds:.0f} s{": " + wrong if wrong else ""}', flush=True)
    return not wrong


def find(name, model, replacements):
    wrong = ''
    for ops in MODELS[model]:
        wrong, _, seconds = run(planted(name, model, replacements), ops)
        if wrong:
            break
    is_found = bool(wrong) and not wrong.startswith(('cannot', 'the search'))
    told = wrong if is_found else 'is not found' + (': ' + wrong if wrong else '')
    print(f'{"ok" if is_found else "FAIL"}  {model}.pml: {name}: {told}', flush=True)
    return is_found


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument('--quick', action='store_true')
    parser.add_argument('--mistakes', nargs='+', metavar='WORD')
    parser.add_argument('--functions', nargs='?', const=HEADER, metavar='HEADER')
    parser.add_argument('--looked-at', nargs='*', metavar='FUNCTION')
    options = parser.parse_args()
    for word in options.mistakes or []:
        if not any(word in m[0] or word == m[1] for m in mistakes()):
            parser.error(f'no mistake has {word} in its name, and no model is called so')
    for name in options.looked_at or []:
        if name not in {row[1] for row in table_rows()}:
            parser.error(f'models.txt has no function {name}')
    failures, count = compare_functions(options.looked_at, options.functions or HEADER)
    for failure in failures:
        print('FAIL ', failure)
    if options.functions or options.looked_at is not None:
        return 1 if failures else 0
    if not shutil.which('spin'):
        print('FAIL  spin is missing: apt-get install spin')
        return 1
    words = options.mistakes or ['']
    chosen = [m for m in mistakes()
              if (m[2] or not options.quick) and any(w in m[0] or w == m[1] for w in words)]
    models = [] if options.mistakes else list(MODELS)
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        proofs = [pool.submit(prove, m, MODELS[m][0 if options.quick else 1]) for m in models]
        finds = [pool.submit(find, m[0], m[1], m[3]) for m in chosen]
        proved = sum(f.result() for f in proofs)
        found = sum(f.result() for f in finds)
    print(f'{proved} proved of {len(models)} models, {found} of {len(chosen)} mistakes found, '
          f'{count - len(failures)} of {count} functions as they were')
    return 0 if proved == len(models) and found == len(chosen) and not failures else 1


if __name__ == '__main__':
    sys.exit(main())
