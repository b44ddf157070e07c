"""Two engines on one GPU under one ledger: llama.cpp serves, torch trains, either is killed.

    python3 bench/real/two_engines.py --out two.json --server llama.cpp/build/bin/llama-server \\
        --model model.gguf --minutes 10 --kills 20

The server is llama.cpp with the patch (examples/llama.cpp). It gets requests of random length, up
to --clients at once, in waves: so its caches grow and shrink. The trainer is run.py's trainer_lora
on a lake, or --trainer COMMAND. Both name one ledger (examples/ledger.h), with the floors and
weights given. Every 5 ms the ledger is read.

Written: how often memory ran out, by what each said; what both held at most; how long it took until
what was asked of one had been given back, for each GiB; seconds to the first token; and whether the
device has as much free at the end as at the beginning, and the ledger no entry.
"""
import argparse
import json
import os
import random
import shlex
import signal
import statistics
import struct
import subprocess
import sys
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
# ledger.h's page: its version and the device's bytes, then an entry for each slot.
HEAD, ENTRY, SLOTS, VERSION = struct.Struct("=QQ"), struct.Struct("=8Q"), 32, 2
FIELDS = ("is_used", "floor", "weight", "wish", "held", "asked", "given", "admitted")
SHORT = ("out of memory", "OUT_OF_DEVICE_MEMORY", "LIMIT_REACHED")


def entries(page):
    """The entries of a ledger's page by slot, as dicts; those that are used."""
    found = {}
    if len(page) < HEAD.size or HEAD.unpack_from(page)[0] != VERSION:
        return found  # it is being made
    for slot in range(min(SLOTS, (len(page) - HEAD.size) // ENTRY.size)):
        values = ENTRY.unpack_from(page, HEAD.size + slot * ENTRY.size)
        entry = dict(zip(FIELDS, values))
        if entry["is_used"]:
            found[slot] = entry
    return found


class Moves:
    """Follows what is asked of each slot, and how long it takes until that has been given back."""

    def __init__(self):
        self.open, self.done, self.held_peak = {}, [], 0

    def see(self, found, now):
        self.held_peak = max(self.held_peak, sum(entry["held"] for entry in found.values()))
        for slot in set(self.open) - set(found):
            del self.open[slot]  # it was killed
        for slot, entry in found.items():
            begun = self.open.get(slot)
            if entry["asked"] and not begun:
                self.open[slot] = (now, entry["asked"], entry["given"])
            elif begun and not entry["asked"]:
                given = entry["given"] - begun[2]
                self.done.append({"asked": begun[1], "given": given, "seconds": now - begun[0]})
                del self.open[slot]

    def ms_a_gib(self):
        """The median over moves of at least 64 MiB; None: there was none."""
        large = [m for m in self.done if m["given"] >= 1 << 26]
        return statistics.median(
            m["seconds"] * 1e3 * 2**30 / m["given"] for m in large
        ) if large else None


class Engine:
    """A process that is started again when it has been killed."""

    def __init__(self, name, command, environment, folder):
        self.name, self.command = name, command
        self.environment = {**os.environ, **environment}
        self.path, self.starts, self.process = os.path.join(folder, f"{name}.log"), 0, None

    def start(self):
        with open(self.path, "ab") as log:
            self.process = subprocess.Popen(
                self.command, env=self.environment, stdout=log, stderr=log
            )
        self.starts += 1

    def keep_up(self):
        if self.process.poll() is not None:
            self.start()

    def end(self, how=signal.SIGKILL):
        self.process.send_signal(how)
        self.process.wait()

    def shortages(self):
        with open(self.path, errors="replace") as log:
            return sum(any(text in line for text in SHORT) for line in log)


def ask_server(url, draw, firsts, failed):
    """One request, whose first token is timed."""
    words = " ".join(draw.choice(("river", "stone", "light")) for _ in range(draw.randint(8, 1500)))
    body = {"prompt": words, "n_predict": draw.randint(8, 200), "stream": True}
    request = urllib.request.Request(
        f"{url}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    start = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            for line in answer:
                if line.startswith(b"data:"):
                    firsts.append(time.monotonic() - start)
                    break
            answer.read()
    except OSError:
        failed.append(1)  # the server starts, or was killed


def clients(url, given, draw, firsts, failed, ends):
    """Waves of clients, until the event."""
    while not ends.is_set():
        wave = [
            threading.Thread(
                target=ask_server, args=(url, random.Random(draw.random()), firsts, failed)
            )
            for _ in range(draw.randint(1, given.clients))
        ]
        for thread in wave:
            thread.start()
        for thread in wave:
            thread.join()
        ends.wait(draw.random() * 3)


def free_mib():
    text = subprocess.check_output(
        ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"], text=True
    )
    return int(text.split()[0])


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True, help="llama-server, with the patch")
    parser.add_argument("--model", required=True, help="a .gguf file")
    parser.add_argument("--trainer", help="instead of trainer_lora on a lake")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--kills", type=int, default=0, help="at random moments")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--floors", type=int, nargs=2, default=(4096, 4096), help="MiB, of each")
    parser.add_argument("--weights", type=int, nargs=2, default=(1, 1))
    parser.add_argument("--port", type=int, default=8123)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default="two_engines.json")
    return parser.parse_args()


def main():
    given = parse()
    draw, firsts, failed, ends = random.Random(given.seed), [], [], threading.Event()
    ledger = f"/dev/shm/gmlake_two_engines.{os.getpid()}"
    folder = os.path.dirname(os.path.abspath(given.out))
    server = [given.server, "-m", given.model, "-ngl", "999", "-c", "65536", "-fa", "on"]
    server += ["--parallel", str(given.clients), "--port", str(given.port)]
    trainer = [sys.executable, os.path.join(HERE, "run.py"), "--work", "lake", "trainer_lora"]
    trainer += ["--steps", "1000000"]
    rows = list(zip(given.floors, given.weights))
    engines = [
        Engine("server", server, {
            "GGML_CUDA_GMLAKE": "kv",
            "GGML_CUDA_GMLAKE_LEDGER": f"{ledger},{rows[0][0]},{rows[0][1]}",
        }, folder),
        Engine("trainer", shlex.split(given.trainer) if given.trainer else trainer, {
            "GMLAKE_TORCH_LEDGER": ledger,
            "GMLAKE_TORCH_LEDGER_FLOOR_BYTES": str(rows[1][0] << 20),
            "GMLAKE_TORCH_LEDGER_WEIGHT": str(rows[1][1]),
        }, folder),
    ]
    before, moves, start = free_mib(), Moves(), time.monotonic()
    for engine in engines:
        engine.start()
    load = threading.Thread(
        target=clients,
        args=(f"http://127.0.0.1:{given.port}", given, draw, firsts, failed, ends),
    )
    load.start()
    until = 60 * given.minutes
    kills = sorted(draw.uniform(60, max(61, until)) for _ in range(given.kills))
    while (now := time.monotonic() - start) < until:
        if os.path.exists(f"{ledger}.0"):
            with open(f"{ledger}.0", "rb") as page:
                moves.see(entries(page.read()), now)
        if kills and now >= kills[0]:
            kills.pop(0)
            draw.choice(engines).end()
        for engine in engines:
            engine.keep_up()
        time.sleep(0.005)
    ends.set()
    for engine in engines:
        engine.end()
    load.join()
    time.sleep(5)
    with open(f"{ledger}.0", "rb") as page:
        left = entries(page.read())
    os.unlink(f"{ledger}.0")
    found = {
        "minutes": given.minutes, "starts": {engine.name: engine.starts for engine in engines},
        "shortages": {engine.name: engine.shortages() for engine in engines},
        "held_peak": moves.held_peak, "free_mib_before": before, "free_mib_after": free_mib(),
        "moves": len(moves.done), "ms_a_gib": moves.ms_a_gib(), "requests": len(firsts),
        "requests_failed": len(failed), "entries_left": len(left),
        "first_token_s": statistics.median(firsts) if firsts else None,
    }
    with open(given.out, "w") as file:
        json.dump(found, file, indent=1)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
