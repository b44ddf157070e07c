"""What would a step cost under a limit? gmlake_torch.plan records a few steps without a limit and
asks here; so can a shell, of calls that GMLAKE_TORCH_RECORD_SESSION has written:

    PYTHONPATH=examples/torch python3 -m gmlake_torch.planning run.gmcalls --limit-gib 9 12

build/offload_session plays the calls on a clock of its own, without a GPU: first with all the
memory that they want, then under each limit. Behind the recorded iterations it plays the last whole
one 16 times more: by then the session has planned it and timed it again. Operators take the time
that they took when they were recorded. The link has the speed that was measured, that was given, or
an H200's; a call of the driver takes what it takes there. Not in the times is what it takes to pin
memory for the first time, and a host that is slower than an H200's. What was executed again when
the steps were recorded is executed again. Of blocks that a session would find by itself, where its
plan is slow, nothing is; of all of them with recomputes="always".

Where there is no build/offload_session, or an old one, programs.py makes one.
"""
import argparse
import collections
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile

from . import programs
from .explain import size
from .programs import Failed

STEPS = 4  # until the times of one like the others are known
REPEAT = 16  # of the last iteration: until it is planned, and timed once more
LINK_BYTES_PER_S = 55e9  # an H200's, in each direction
NO_LIMIT_MIB = 1 << 24

Row = collections.namedtuple("Row", "limit_bytes seconds out_bytes in_bytes pinned_bytes error")


class Plan:
    """What gmlake_torch.plan returns. print() shows it as a table. rows: of each limit; where error
    is not None nothing else is known of it. Bytes are those of a step, but for the limits and for
    what is pinned."""

    def __init__(self, native, rows, others_bytes, link_bytes_per_s, is_link_given):
        self.native_seconds, self.native_bytes = native
        self.rows, self.others_bytes = rows, others_bytes
        self.link_bytes_per_s, self._is_link_given = link_bytes_per_s, is_link_given

    def __str__(self):
        unit, length = ("GiB", 1 << 30) if self.native_bytes >= 1 << 28 else ("MiB", 1 << 20)
        lines = [
            f"A step takes {self.native_seconds:.4g} s natively, with "
            f"{self.native_bytes / length:.2f} {unit} of tensors and "
            f"{self.others_bytes / length:.2f} {unit} for others.",
            f"{f'limit {unit}':>10} {'step s':>9} {'by native':>9} {f'out {unit}':>8} "
            f"{f'in {unit}':>8} {f'pinned {unit}':>10}",
        ]
        for row in self.rows:
            lines.append(f"{row.limit_bytes / length:10.2f} ")
            if row.error is not None:
                lines[-1] += f"does not run: {row.error}"
                continue
            bytes = (row.out_bytes, row.in_bytes, row.pinned_bytes)
            lines[-1] += f"{row.seconds:9.4g} {row.seconds / self.native_seconds:9.3f} "
            lines[-1] += "{:8.2f} {:8.2f} {:10.2f}".format(*(x / length for x in bytes))
        whose = "as measured or given" if self._is_link_given else "an H200's"
        lines.append(f"The link moves {self.link_bytes_per_s / 1e9:.1f} GB/s in each direction, "
                     f"{whose}. Simulated: planning.py says what with.")
        return "\n".join(lines)


# ---- Recording ----


def of_step(own, step, limit_bytes, setup=None, link_bytes_per_s=None, path=None):
    """own: a session that is not open yet, without a limit."""
    with tempfile.TemporaryDirectory() as folder:
        path = path or os.path.join(folder, "step.gmcalls")
        own.split_for(min(limits_of(limit_bytes)))
        chunk_bytes = record(own, step, setup, path)
        return of_file(path, limit_bytes, link_bytes_per_s, chunk_bytes=chunk_bytes)


def record(own, step, setup, path):
    """Records some steps. Returns the bytes of the session's chunks."""
    with own:
        own.record(path)
        try:
            made = setup() if setup else None
            if not isinstance(made, tuple):
                made = () if made is None else (made,)
            own.mark()
            for _ in range(STEPS):
                before = own.mark_count
                step(*made)
                synchronize(own.device)
                if own.mark_count == before:  # no optimizer did
                    own.mark()
        except BaseException:
            own._calls.record(None)  # what went wrong first is told
            raise
        own.record(None)
        return own.stats()["chunk_bytes"]


def synchronize(device):
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)


def measured_link(device, bytes=64 << 20):
    """Bytes a second of the slower direction between pinned memory and the GPU."""
    import torch

    there = torch.empty(bytes, dtype=torch.uint8, device=device)
    here = torch.empty(bytes, dtype=torch.uint8, pin_memory=True)
    best = [0.0, 0.0]
    for i in range(8):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record(torch.cuda.current_stream(device))
        (here if i % 2 else there).copy_(there if i % 2 else here, non_blocking=True)
        end.record(torch.cuda.current_stream(device))
        end.synchronize()
        best[i % 2] = max(best[i % 2], bytes / (begin.elapsed_time(end) / 1e3))
    return min(best)


# ---- Playing ----


def limits_of(limit_bytes):
    return list(limit_bytes) if hasattr(limit_bytes, "__iter__") else [limit_bytes]


def of_file(path, limit_bytes, link_bytes_per_s=None, chunk_bytes=16 << 20):
    """The same of recorded calls. Their name has .gmcalls in it."""
    if ".gmcalls" not in os.path.basename(os.fspath(path)):
        raise Failed(f"{path}: a file of a session's calls has .gmcalls in its name")
    program, _ = programs.find("offload_session", "gmlake_torch.plan")
    command = [program, "--json", "--repeat", str(REPEAT)]
    command += ["--chunk-mib", str(min(512, max(2, chunk_bytes >> 20)))]
    if link_bytes_per_s:
        command += ["--link-gb", f"{link_bytes_per_s / 1e9:g}"]
    others = others_in(path)
    native, error = play([*command, "--limit-mib", str(NO_LIMIT_MIB), path])
    if error:
        raise Failed(error)
    peak = max(row["peak_gb"] for row in native)
    native = middle(native, "ms") / 1e3, int(peak * 1e9)
    rows = []
    for limit in limits_of(limit_bytes):
        if limit <= others:
            error = f"others than the session's tensors need {size(others)}"
            rows.append(Row(limit, None, None, None, None, error))
            continue
        mib = max(1, (limit - others) >> 20)
        found, error = play([*command, "--limit-mib", str(mib), path])
        if error:
            rows.append(Row(limit, None, None, None, None, error))
            continue
        rows.append(Row(limit, middle(found, "ms") / 1e3, int(middle(found, "out_gb") * 1e9),
                        int(middle(found, "in_gb") * 1e9), int(found[-1]["pinned_gb"] * 1e9), None))
    return Plan(native, rows, others, link_bytes_per_s or LINK_BYTES_PER_S, bool(link_bytes_per_s))


def others_in(path):
    """What others than the session needed when the calls were recorded; 0 if they do not say so."""
    found = 0
    with (gzip.open if os.fspath(path).endswith(".gz") else open)(path, "rt") as file:
        for line in file:
            if line.startswith("others "):
                found = int(line.split()[2])
    return found


def play(command):
    """The rows of the iterations that were played on; and why it failed, or None."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return None, lines[-1] if lines else f"{command[0]} ended with status {done.returncode}"
    return [json.loads(line) for line in done.stdout.splitlines()][-REPEAT:], None


def middle(rows, name):
    """The median of the last half."""
    return statistics.median(row[name] for row in rows[len(rows) // 2 :])


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="gmlake_torch.planning",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("file", help="what was recorded, with .gmcalls in its name; may be .gz")
    parser.add_argument("--limit-gib", type=float, nargs="+", required=True, help="of the device")
    parser.add_argument("--link-gb", type=float, help="GB/s of the link in each direction")
    parser.add_argument("--chunk-mib", type=int, default=16, help="of the session's chunks")
    given = parser.parse_args(arguments)
    link = given.link_gb and given.link_gb * 1e9
    try:
        limits = [int(limit * 2**30) for limit in given.limit_gib]
        print(of_file(given.file, limits, link, given.chunk_mib << 20))
    except (Failed, OSError) as error:
        sys.exit(f"planning: {error}")


if __name__ == "__main__":
    main()
