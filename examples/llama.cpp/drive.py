#!/usr/bin/env python3
"""Parts of measure.sh: drive.py ops PROGRAM SECONDS; server PROGRAM MODEL OUT; table FILE"""

import concurrent.futures
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

OPS_SECONDS = 180  # for all of test-backend-ops, at most


def say(**what):
    print(json.dumps(what), flush=True)


def ops(program, seconds):
    """test-backend-ops, which compares each operator with the CPU's: all of it, or what
    OPS_MATMUL and OPS_ATTENTION leave of two operators and all of the others."""
    matmul, attention = os.environ.get("OPS_MATMUL"), os.environ.get("OPS_ATTENTION")
    groups = {"all": []}
    if matmul and attention:
        listed = subprocess.run([program, "--list-ops"], capture_output=True, text=True).stdout
        names = re.findall(r"^\s*([A-Z][A-Z0-9_]+)\s*$", listed, re.M)
        apart = ("MUL_MAT", "MUL_MAT_ID", "FLASH_ATTN_EXT")
        groups = {
            "MUL_MAT": ["-o", "MUL_MAT,MUL_MAT_ID", "-p", matmul],
            "FLASH_ATTN_EXT": ["-o", "FLASH_ATTN_EXT", "-p", attention],
            "others": ["-o", ",".join(n for n in names if n not in apart)],
        }
    jobs = str(max(1, (os.cpu_count() or 1) // len(groups)))
    end = time.time() + min(OPS_SECONDS, int(seconds))
    running = {}
    for name, more in groups.items():
        log = tempfile.TemporaryFile("w+")
        command = [program, "test", "-b", "CUDA0", "-j", jobs] + more
        running[name] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT), log
    for name, (process, log) in running.items():
        try:
            rc = process.wait(max(1, end - time.time()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            rc = -1
        log.seek(0)
        text = re.sub(r"\x1b\[[0-9;]*m", "", log.read())
        sys.stderr.writelines(re.findall(r"gmlake: .*\n", text))  # that a lake serves
        done = re.findall(r"(\d+)/(\d+) tests passed", text)
        say(what="ops", group=name, rc=rc, ok=len(re.findall(r": OK\b", text)),
            failed=len(re.findall(r": FAIL\b", text)), passed=done[-1] if done else None,
            end="" if rc == 0 else text[-400:])


def ask(port, request):
    data = json.dumps(request).encode()
    http = urllib.request.Request("http://127.0.0.1:%d/completion" % port, data,
                                  {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(http, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise OSError("llama-server answers %d: %s" % (error.code, error.read(500))) from None


BYTES = range(3, 259)  # the tokens of this vocabulary that are single bytes


def request_of(number, length, tokens):
    """Random weights put bytes side by side that are no UTF-8, and to a text that is none
    llama-server answers 500. So tokens that are bytes are forbidden."""
    prompt = [3 + (number * 7919 + i * 104729) % 30000 for i in range(length)]
    return {"prompt": prompt, "n_predict": tokens, "temperature": 0, "ignore_eos": True,
            "cache_prompt": False, "return_tokens": True,
            "logit_bias": [[token, False] for token in BYTES]}


def used_mib():
    if not shutil.which("nvidia-smi"):  # a build for the CPU
        return 0
    got = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                         capture_output=True, text=True).stdout.split()
    return int(got[0]) if got and got[0].isdigit() else 0


def server(program, model, out):
    """Answers one at a time, which do not depend on chance; then 48 from 8 clients at once."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    before = used_mib()
    process = subprocess.Popen([program, "-m", model, "--host", "127.0.0.1", "--port", str(port),
                                "-ngl", "99", "-c", "131072", "-np", "8", "-fa", "on", "-lv", "4"],
                               stdout=sys.stderr)
    failed = 0
    try:
        for _ in range(400):
            if process.poll() is not None:
                raise OSError("llama-server ended with %d before it answered" % process.returncode)
            try:
                urllib.request.urlopen("http://127.0.0.1:%d/health" % port, timeout=2).read()
                break
            except OSError:
                time.sleep(0.1)
        answers = [ask(port, request_of(i, 50 + 230 * i, 40))["tokens"] for i in range(8)]
        json.dump(answers, open(out, "w"))
        begin = time.time()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            jobs = [pool.submit(ask, port, request_of(100 + i, 100 + 97 * (i % 13), 60))
                    for i in range(48)]
            for job in jobs:
                try:
                    failed += job.result()["tokens_predicted"] != 60
                except (OSError, KeyError, ValueError):
                    failed += 1
        say(what="server", requests=8 + 48, failed=failed, seconds=round(time.time() - begin, 2),
            used_mib=used_mib() - before, answered=sum(map(len, answers)))
    finally:
        process.terminate()
        rc = process.wait(20)
    say(what="server_end", rc=rc)
    return failed


def table(path):
    lines = []
    for line in open(path):
        try:
            lines.append(json.loads(line))
        except ValueError:
            pass  # a program ended in the middle of it
    modes = ["off", "lake", "kv"]

    def of(what, mode, **more):
        return [x for x in lines if x["what"] == what and x["mode"] == mode
                and all(x.get(k) == v for k, v in more.items())]

    def row(name, cell):
        print("| %s | %s |" % (name, " | ".join(cell(m) for m in modes)))

    def median(mode, key, form, compares=True):
        """With what it is of ggml's own."""
        got, base = ([x[key] for x in of("speed", m)] for m in (mode, "off"))
        if not got:
            return "-"
        share = " (%.4f)" % (statistics.median(got) / statistics.median(base)) \
            if compares and base and mode != "off" else ""
        return form % statistics.median(got) + share

    print("| | ggml as it is | lake | lake, growing KV cache |\n|---|---:|---:|---:|")
    for model in ("1b-f16", "7b-q4_0"):
        def logits(mode):
            got = of("logits", mode, model=model)
            return ("%d identical" % x["values"] if x["identical"] else "DIFFERENT") \
                if got and (x := got[-1]) else "-"
        row("logits, %s" % model, logits)
    row("prompt of 8,192 tokens, 7B: tokens a second", lambda m: median(m, "prompt_tps", "%.0f"))
    row("generation behind it: tokens a second", lambda m: median(m, "generate_tps", "%.1f"))
    row("that context after 512 tokens: MiB", lambda m: median(m, "short_mib", "%.0f", False))
    row("contexts of 64K with 3,000 tokens that fit into 24 GiB", lambda m: "%d%s" % (
        of("lanes", m)[-1]["contexts"],
        " and more" if of("lanes", m)[-1]["contexts"] == of("lanes", m)[-1]["tried"] else "")
        if of("lanes", m) else "-")
    for key, name in (("used_mib", "they take: MiB"), ("freed_mib", "when they are freed: MiB"),
                      ("ggml_says_free_mib", "and ggml then says is free: MiB")):
        row(name, lambda m: str(of("lanes", m)[-1][key]) if of("lanes", m) else "-")
    row("server: requests, failed, seconds", lambda m: "%(requests)d, %(failed)d, %(seconds).1f" %
        of("server", m)[-1] if of("server", m) else "-")
    row("server's memory: MiB", lambda m: str(of("server", m)[-1]["used_mib"])
        if of("server", m) else "-")
    row("its answers", lambda m: ("identical" if of("answers", m)[-1]["identical"] else "DIFFERENT")
        if of("answers", m) else "-")
    row("test-backend-ops: passed, failed", lambda m: "%d, %d" % (
        sum(x["ok"] for x in of("ops", m)), sum(x["failed"] for x in of("ops", m)))
        if of("ops", m) else "-")
    print()
    for case in dict.fromkeys(x["case"] for x in lines if x["what"] == "memory"):
        for at in dict.fromkeys(x["at"] for x in lines if x.get("case") == case):
            got = [of("memory", m, case=case, at=at) for m in modes]
            print("| %s: %s | %s |" % (case, at, " | ".join(
                str(g[-1]["used_mib"]) if g else "-" for g in got)))
    ends = [x for x in lines if x["what"] == "exit"]
    for x in ends:
        print("exit status %(rc)d: %(mode)s %(command)s" % x)


if __name__ == "__main__":
    sys.exit(globals()[sys.argv[1]](*sys.argv[2:]))
