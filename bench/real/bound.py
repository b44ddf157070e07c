"""About the fewest bytes that a program's step moves under a limit, if nothing is executed again:
by farthest next use, over a recording of its session's calls.

    with gmlake_torch.offload(limit_bytes=130 << 30, recomputes="never") as session:
        session.record("calls.gmcalls")
        ...                                      # a few steps, in which nothing has to leave
        session.record(None)
    python3 bench/real/bound.py calls.gmcalls 6.3

A line for each iteration: GB to the host and back, and the milliseconds that a link of --link GB/s
takes for the larger of both. What is needed and away comes back; for it those leave whose next use
is farthest. What leaves is copied if it was written since the last copy. That chunks are whole does
not count, nor that what leaves and what comes back may have to wait for each other: a session takes
longer.
"""
import argparse
import bisect
import heapq
import statistics

NEVER = 1 << 60


class Recording:
    """Its calls, by number: what they are and the tensors that they name. Each allocation makes a
    tensor of its own."""

    def __init__(self, path):
        self.calls, self.sizes, self.uses, self.others = [], [], [], 0
        now = {}  # the tensor that has a number of the session's
        with open(path) as file:
            if file.readline().split()[:1] != ["gmcalls"]:
                raise SystemExit(f"{path}: this is no recording of a session's calls")
            for line in file:
                what, _, *rest = line.split()
                numbers = [int(number) for number in rest]
                if what == "alloc":
                    now[numbers[0]] = len(self.sizes)
                    self.sizes.append(numbers[1])
                    self.uses.append([])
                    self.calls.append((what, [now[numbers[0]]], 0))
                elif what == "begin":
                    named = [now[number] for number in numbers[3:]]
                    for tensor in set(named):
                        self.uses[tensor].append(len(self.calls))
                    self.calls.append((what, named, numbers[2]))
                elif what in ("free", "pin", "unpin"):
                    self.calls.append((what, [now[numbers[0]]], 0))
                elif what in ("mark", "end"):
                    self.calls.append((what, [], 0))
                elif what == "others":
                    self.others = numbers[0]

    def next_use(self, tensor, call):
        uses = self.uses[tensor]
        at = bisect.bisect_right(uses, call)
        return uses[at] if at < len(uses) else NEVER


class Device:
    """Its memory, and what has moved since an iteration began."""

    def __init__(self, recording, limit):
        self.recording, self.left, self.call = recording, limit - recording.others, 0
        self.there, self.written, self.host = set(), set(), set()  # tensors; host: has their bytes
        self.pins, self.open = {}, set()  # and these stay
        self.heap, self.moved = [], [0, 0]

    def rank(self, tensor):
        heapq.heappush(self.heap, (-self.recording.next_use(tensor, self.call), tensor))

    def leave(self, tensor):
        self.there.discard(tensor)
        self.left += self.recording.sizes[tensor]

    def bring(self, tensor):
        if tensor in self.there:
            return
        size, stays = self.recording.sizes[tensor], []
        while self.left < size and self.heap:
            rank, other = heapq.heappop(self.heap)
            if other not in self.there or -rank != self.recording.next_use(other, self.call):
                continue  # it was used since
            if other in self.open or self.pins.get(other):
                stays.append((rank, other))
                continue
            self.leave(other)
            self.moved[0] += self.recording.sizes[other] if other in self.written else 0
            self.written.discard(other)
            self.host.add(other)
        for item in stays:
            heapq.heappush(self.heap, item)
        if self.left < size:
            raise SystemExit("the limit is too small for one step of the recording")
        self.left -= size
        self.there.add(tensor)
        self.moved[1] += size if tensor in self.host else 0

    def play(self, what, tensors, read_count):
        """A call. Returns what has moved if an iteration begins."""
        if what == "begin":
            self.open = set(tensors)
        for tensor in tensors if what in ("begin", "alloc", "pin") else ():
            self.bring(tensor)
            self.rank(tensor)
        for tensor in tensors[read_count:] if what in ("begin", "alloc") else ():
            self.written.add(tensor)
            self.host.discard(tensor)
        for tensor in tensors:
            if what == "free" and tensor in self.there:
                self.leave(tensor)
            if what in ("pin", "unpin"):
                self.pins[tensor] = self.pins.get(tensor, 0) + (1 if what == "pin" else -1)
        if what == "end":
            self.open = set()
        if what == "mark":
            moved, self.moved = self.moved, [0, 0]
            return moved
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("recording", help="a .gmcalls file of a session in which all fits")
    parser.add_argument("limit", type=float, help="GiB of the device")
    parser.add_argument("--link", type=float, default=55, help="GB/s in each direction (55)")
    args = parser.parse_args()
    try:
        recording = Recording(args.recording)
    except OSError as error:
        parser.error(f"{args.recording}: {error.strerror}")
    device, found = Device(recording, int(args.limit * 2**30)), []
    for device.call, call in enumerate(recording.calls):
        moved = device.play(*call)
        if moved:
            found.append(max(moved) / args.link / 1e6)
            print(f"{moved[0] / 1e9:8.3f} out {moved[1] / 1e9:8.3f} in {found[-1]:9.3f} ms")
    if found:
        last = found[len(found) // 2:]
        print(f"{statistics.median(last):.3f} ms: the median of the last {len(last)}")


if __name__ == "__main__":
    main()
