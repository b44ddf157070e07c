"""Runs bench/torch/batches.py where no GPU is: its workers answer at once, or end the program.

    batches_stub.py FILE WHERE ARGUMENT...

FILE is what batches.py writes. Each way trains with a batch of LARGEST at most, which is its first
guess. WHERE is `search-WAY`: the program dies in that search, after native's was saved; `time-WAY`:
it dies when that way is to be timed; or `no`. Prints `tried` or `timed` and the way for each run.
"""
import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench/torch"))
import batches

LARGEST = {way: 100 * i for i, way in enumerate(batches.WAYS, 1) if way != "managed"}
FILE, WHERE = sys.argv[1:3]
native_saved = threading.Event()


class Worker:
    def __init__(self, program, way, limit_bytes):
        self.way, self.arguments = way, [way, limit_bytes]

    def run(self, batch, steps, seconds):
        is_timed = steps > 3
        if WHERE == ("time-" if is_timed else "search-") + self.way:
            if not is_timed:
                native_saved.wait(10)
            os._exit(9)
        os.write(1, f"{'timed' if is_timed else 'tried'} {self.way}\n".encode())  # in one piece
        if batch > LARGEST.get(self.way, batch):
            return {"batch": batch, "error": "out of memory"}
        return {"batch": batch, "seconds": [9] * 12 + [batch / 100] * 5 if is_timed else [9] * 3}

    def end(self):
        pass


class Holder:
    def kill(self):
        pass

    wait = kill


def save(results, path, former=batches.save):
    former(results, path)
    if "native" in results[-1]["ways"]:
        native_saved.set()


batches.PROGRAMS = {"conv": (None, 384, "", 650, tuple(LARGEST.values()))}
batches.Worker, batches.hold_all_but, batches.save = Worker, lambda left_bytes: Holder(), save
sys.argv[1:] = ["--out", FILE, *sys.argv[3:]]
batches.main()
