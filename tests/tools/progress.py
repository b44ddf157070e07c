"""How far long work is, on standard error: on a terminal one line that changes, in a log a line for
each tenth of it, with the time that it took and about will take."""
import sys
import threading
import time


def in_words(seconds):
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class Progress:
    def __init__(self, total, stream=sys.stderr, clock=time.monotonic):
        self.total, self.done, self.told = total, 0, 0
        self.stream, self.clock, self.start = stream, clock, clock()
        self.lock = threading.Lock()

    def step(self, name):
        """One more is done, the one of that name."""
        with self.lock:
            self.done += 1
            took = self.clock() - self.start
            left = took / self.done * max(self.total - self.done, 0)
            line = (f"{self.done} of {self.total}: {name}; {in_words(took)}, "
                    f"about {in_words(left)} left")
            if self.stream.isatty():
                end = "\r" if self.done < self.total else "\n"
                self.stream.write(f"\r\033[K{line[:100]}{end}")
            elif self.done * 10 // max(self.total, 1) > self.told:
                self.told = self.done * 10 // max(self.total, 1)
                self.stream.write(line + "\n")
            self.stream.flush()
