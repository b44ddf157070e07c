"""What a session plans, as one page of text and as one picture. session.py asks for both; nothing
here needs torch.

A plan is what gmlake_torch_offload_plan_json returns: steps (begin_ns, time_ns, unplanned_bytes,
planned_bytes, region, is_again), tensors (first_step, step_count, bytes, copy_bytes) and moves
(tensor, step, is_in, is_copy, begin_ns, end_ns, stays). gmlake_offload.h says what they are."""
import collections
import re
import statistics
import textwrap
import time

PARTS = 8  # of an iteration whose phases are not known
ROWS = 12  # of phases; where there are more, those of one name are one row
STEP_BEGIN, STEP_TIME, STEP_UNPLANNED, STEP_PLANNED, STEP_REGION, STEP_AGAIN = range(6)
MOVE_TENSOR, MOVE_STEP, MOVE_IN, MOVE_COPY, MOVE_BEGIN, MOVE_END, MOVE_STAYS = range(7)

Phase = collections.namedtuple("Phase", "name begin end")  # steps [begin, end)


class Phases:
    """Which steps of an iteration are forward, backward and the optimizer's, and how long the last
    iterations took. Steps are told as the session counts them: all that have begun."""

    def __init__(self):
        self._found = {}  # by the number of an iteration's steps: names and first steps
        self._first, self._since, self._notes, self._depth = None, 0, [], 0
        self.seconds = collections.deque(maxlen=16)

    def mark(self, count):
        now = time.monotonic()
        if self._first is not None and count > self._first:
            self._found.pop(count - self._first, None)
            self._found[count - self._first] = self._notes
            self.seconds.append(now - self._since)
            if len(self._found) > 16:
                self._found.pop(next(iter(self._found)))
        self._first, self._since, self._notes = count, now, [("forward", 0)]

    def note(self, name, count):
        if self._first is not None:
            self._notes.append((name, count - self._first))

    def of(self, step_count):
        """The phases of an iteration of so many steps."""
        notes = self._found.get(step_count, ())
        if len(notes) < 2:  # neither a backward pass nor an optimizer
            parts = min(PARTS, step_count)
            ends = [step_count * i // parts for i in range(parts + 1)]
            return [Phase(f"steps {a}-{b - 1}", a, b) for a, b in zip(ends, ends[1:])]
        phases = []
        for (name, begin), (after, end) in zip(notes, [*notes[1:], ("", step_count)]):
            if name == "forward" and after in ("optimizer", "") and phases:
                name = "optimizer"  # what clips gradients
            if phases and phases[-1].name == name:
                phases[-1] = phases[-1]._replace(end=end)
            elif end > begin:
                phases.append(Phase(name, begin, end))
        return phases


# ---- Figures ----


def busy_ns(moves, is_in, begin, end, round_ns):
    """How long copies of that direction take from begin to end, both within an iteration."""
    ns = 0
    for move in moves:
        if move[MOVE_COPY] and bool(move[MOVE_IN]) == is_in:
            for turn in range(2):  # what ends behind the iteration's end goes on at its begin
                a, b = (move[x] - turn * round_ns for x in (MOVE_BEGIN, MOVE_END))
                ns += max(0, min(b, end) - max(a, begin))
    return ns


def exists(tensor, step, step_count):
    return (step - tensor[0]) % step_count < tensor[1]


class Row:
    """What a phase is planned to do."""

    def __init__(self, plan, phase):
        steps, moves, tensors = plan["steps"], plan["moves"], plan["tensors"]
        inside = range(phase.begin, phase.end)
        begins = [step[STEP_BEGIN] for step in steps] + [plan["time_ns"]]
        begin, end = begins[phase.begin], begins[phase.end]
        own = [move for move in moves if move[MOVE_STEP] in inside]
        top = max(inside, key=lambda i: steps[i][STEP_UNPLANNED])
        moved = {move[MOVE_TENSOR] for move in moves}
        self.name, self.count = phase.name, phase.end - phase.begin
        self.ns = end - begin
        self.wait_ns = self.ns - sum(steps[i][STEP_TIME] for i in inside)
        self.again_ns = sum(steps[i][STEP_TIME] for i in inside if steps[i][STEP_AGAIN])
        self.need = steps[top][STEP_UNPLANNED]
        self.there = max(steps[i][STEP_PLANNED] for i in inside)
        self.stays = sum(
            tensor[2] for i, tensor in enumerate(tensors)
            if i not in moved and exists(tensor, top, len(steps))
        )
        self.leaves = sum(
            tensors[m[MOVE_TENSOR]][2] for m in own if not m[MOVE_IN] and not m[MOVE_STAYS]
        )
        self.copied = sum(
            tensors[m[MOVE_TENSOR]][3] for m in own if m[MOVE_COPY] and not m[MOVE_IN]
        )
        self.back = sum(tensors[m[MOVE_TENSOR]][3] for m in own if m[MOVE_IN])
        self.out_ns = busy_ns(moves, False, begin, end, plan["time_ns"])
        self.in_ns = busy_ns(moves, True, begin, end, plan["time_ns"])

    def add(self, other):
        for name in ("need", "there"):
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        self.stays = min(self.stays, other.stays)
        for name in ("count", "ns", "wait_ns", "again_ns", "leaves", "copied", "back", "out_ns",
                     "in_ns"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


def rows_of(plan, phases):
    rows = [Row(plan, phase) for phase in phases]
    if len(rows) <= ROWS:
        return rows
    by_name = {}
    for row in rows:
        if row.name in by_name:
            by_name[row.name].add(row)
        else:
            by_name[row.name] = row
    return list(by_name.values())


# ---- The page ----


def size(count):
    for unit, bytes in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= bytes:
            return f"{count / bytes:.2f} {unit}"
    return f"{count} bytes"


def took(ns):
    if not ns:
        return "0 s"
    for unit, length in (("s", 1e9), ("ms", 1e6)):
        if ns >= length:
            return f"{ns / length:.3f} {unit}"
    return f"{ns / 1e3:.1f} us"


def percent(part, whole):
    return f"{100 * part / whole:.0f}" if whole else "0"


MODES = {
    "learning": "it learns what an iteration does, and nothing is planned yet",
    "planned": "the plan is followed",
    "drifted": "this iteration goes another way than the one that was planned",
}


def page(plan, stats, phases, limit_bytes, seconds, device):
    """plan: None as long as there is none."""
    lines = [f"gmlake_torch.offload on {device}: {MODES[stats['mode']]}.", ""]
    told = {"Memory": [*memory(plan, stats, limit_bytes)], "Time": [*times(plan, stats, seconds)],
            "Link": [*link(plan, stats)], "Host": [*host(stats)]}
    for label, sentences in told.items():
        if sentences:
            lines.append(filled(label, " ".join(sentences)))
    if plan:
        rows = rows_of(plan, phases)
        lines += ["", *table(rows), *longest_waits(plan, phases)]
    return "\n".join(lines) + "\n"


def filled(label, said):
    """A paragraph. No line ends between a number and its unit."""
    said = re.sub(r"(?<=\d) (?=\D)", "\0", said)
    said = textwrap.fill(said, 100, initial_indent=f"{label:8}", subsequent_indent=" " * 8)
    return said.replace("\0", " ")


def memory(plan, stats, limit_bytes):
    others = stats["others_bytes"]
    if not limit_bytes:
        yield f"There is no limit. Others than the session's tensors take {size(others)}."
    else:
        yield (f"The limit is {size(limit_bytes)}: {size(others)} for others (small tensors, "
               f"workspaces) and {size(max(0, limit_bytes - others))} for the session's tensors.")
    if plan:
        yield (f"Of these an iteration needs {size(stats['unplanned_bytes'])} at once if nothing "
               f"moves, and {size(stats['planned_bytes'])} by the plan.")


def times(plan, stats, seconds):
    if plan:
        steps, total = plan["steps"], plan["time_ns"]
        busy = sum(step[STEP_TIME] for step in steps)
        again = sum(step[STEP_TIME] for step in steps if step[STEP_AGAIN])
        yield (f"An iteration of {len(steps)} steps takes {took(total)} by the plan: operators "
               f"{took(busy - again)}, recomputation {took(again)}, waiting {took(total - busy)}. "
               "Every plan for this limit waits for copies for at least "
               f"{took(max(0, stats['least_ns'] - stats['step_ns']))}.")
    if seconds:
        yield (f"By the host's clock the last {len(seconds)} took "
               f"{took(1e9 * statistics.median(seconds))} (median).")
    if stats["region_count"]:
        kept = stats["kept_region_count"]
        yield (f"Of {stats['region_count']} checkpointed regions {kept} are kept, and "
               f"{stats['region_count'] - kept} are executed again.")
    yield (f"{stats['drift_count']} of {stats['iteration_count']} iterations went another way than "
           f"the one before. So far {stats['demand_in_count']} tensors came back and "
           f"{stats['demand_out_count']} left by no plan, when that was needed.")


def link(plan, stats):
    for name in ("out", "in") if plan else ():
        ns = busy_ns(plan["moves"], name == "in", 0, plan["time_ns"], plan["time_ns"])
        yield (f"{name.capitalize()}: {size(stats[f'plan_{name}_bytes'])} an iteration at "
               f"{stats[f'{name}_bytes_per_s'] / 1e9:.1f} GB/s, busy "
               f"{percent(ns, plan['time_ns'])} % of the time.")
    if plan:
        yield f"All copies take at least {took(stats['link_bound_ns'])} of an iteration."
        ends = [move[MOVE_END] for move in plan["moves"] if move[MOVE_COPY] and not move[MOVE_IN]]
        if max(ends, default=0) > plan["time_ns"]:
            yield (f"Those out go on for {took(max(ends) - plan['time_ns'])} behind the last step: "
                   "a program that waits for the device there (torch.cuda.synchronize) waits for "
                   "them, too.")


def host(stats):
    yield (f"{size(stats['host_bytes'])} are pinned, at most {size(stats['host_bytes_peak'])} so "
           f"far. Planning took about {took(10 * stats['plan_work'])} of processor so far, for "
           f"{stats['plan_count']} plans; in one call at most "
           f"{took(10 * stats['plan_work_max'])}.")


def table(rows):
    unit, length = ("GiB", 1 << 30) if max(row.need for row in rows) >= 1 << 28 else \
        ("MiB", 1 << 20)
    yield (f"{'phase':15} {'steps':>6} {'ms':>8} {'wait':>7} {'again':>7} {'need':>6} {'there':>6} "
           f"{'stays':>6} {'leaves':>6} {'copied':>6} {'back':>6} {'out %':>5} {'in %':>4}")
    for row in rows:
        bytes = (row.need, row.there, row.stays, row.leaves, row.copied, row.back)
        yield (f"{row.name:15} {row.count:6} {row.ns / 1e6:8.2f} {row.wait_ns / 1e6:7.2f} "
               f"{row.again_ns / 1e6:7.2f} " + " ".join(f"{x / length:6.2f}" for x in bytes)
               + f" {percent(row.out_ns, row.ns):>5} {percent(row.in_ns, row.ns):>4}")
    yield (f"ms: all, waiting, executed again. {unit}: needed at once if nothing moves; there at "
           "once by the")
    yield ("plan; of what is needed never moves; leaves in the phase, is copied for that, comes "
           "back. %: of")
    yield "the time the link is busy."


def longest_waits(plan, phases):
    """The longest waits, and before which steps."""
    steps, waits = plan["steps"], []
    for i, step in enumerate(steps):
        end = steps[i + 1][STEP_BEGIN] if i + 1 < len(steps) else plan["time_ns"]
        waits.append((end - step[STEP_BEGIN] - step[STEP_TIME], (i + 1) % len(steps)))
    waits = [(ns, i) for ns, i in sorted(waits, reverse=True)[:3] if ns > plan["time_ns"] / 1000]
    if waits:
        names = {i: phase.name for phase in phases for i in range(phase.begin, phase.end)}
        said = ", ".join(f"{took(ns)} before step {i} ({names[i]})" for ns, i in waits)
        yield f"The longest waits: {said}."


# ---- The picture ----

WIDTH, LEFT, RIGHT = 1000, 80, 20  # of all; of what is beside the curves
TOP, MEMORY, LANE, GAP = 60, 320, 36, 14  # heights
COLOURS = {"out": "#b4561f", "in": "#0b57c2", "wait": "#c2185b", "again": "#8a6d00"}


def columns(spans, round_ns, count):
    """Which part of each of so many equal parts of the iteration the spans cover."""
    found, part = [0.0] * count, round_ns / count
    for begin, end in spans:
        at = begin
        while at < end:
            i = int(at / part)
            to = min(end, (i + 1) * part)
            if to <= at:  # rounding
                to, i = at + part, i + 1
            found[i % count] += (min(to, end) - at) / part
            at = to
    return [min(1.0, x) for x in found]


def levels(plan, field, count):
    """The most bytes in each of so many equal parts of the iteration."""
    found, part = [0] * count, plan["time_ns"] / count
    begins = [step[STEP_BEGIN] for step in plan["steps"]] + [plan["time_ns"]]
    for step, begin, end in zip(plan["steps"], begins, begins[1:]):
        for i in range(int(begin / part), min(count - 1, int(end / part)) + 1):
            found[i] = max(found[i], step[field])
    return found


def text(x, y, said, more=""):
    said = said.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{said}</text>'


def curve(heights, top, height, style):
    """A filled curve; heights: from 0 to 1, of each pixel."""
    bottom = top + height
    levels = [0, *(round(height * x, 1) for x in heights), 0]
    points = []
    for i, (before, after) in enumerate(zip(levels, levels[1:])):
        if before != after:
            points += [f"{LEFT + i},{bottom - before:g}", f"{LEFT + i},{bottom - after:g}"]
    return f'<polygon points="{" ".join(points)}" {style}/>'


def picture(plan, stats, phases, limit_bytes, device):
    """An SVG: memory over an iteration, with and without the plan; below it what travels, where the
    device waits and what it executes again."""
    count, total = WIDTH - LEFT - RIGHT, plan["time_ns"]
    share = max(0, limit_bytes - stats["others_bytes"]) if limit_bytes else 0
    need, there = (levels(plan, field, count) for field in (STEP_UNPLANNED, STEP_PLANNED))
    most = max(max(need), share, 1) * 1.05
    parts = list(phase_parts(plan, phases))
    parts.append(curve([x / most for x in need], TOP, MEMORY, 'fill="#d3d8e0"'))
    parts.append(curve([x / most for x in there], TOP, MEMORY, 'fill="#5f8fd0"'))
    if share:
        y = TOP + MEMORY * (1 - share / most)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
                     'stroke="#1a1c20" stroke-dasharray="6 4"/>')
        parts.append(text(WIDTH - RIGHT, y - 4, f"limit {size(share)} for these tensors",
                          'text-anchor="end"'))
    for part in (0, .25, .5, .75, 1):
        anchor = {0: "start", 1: "end"}.get(part, "middle")
        y = TOP + MEMORY * (1 - part)
        parts.append(text(LEFT - 6, y + 4, size(int(part * most)), 'text-anchor="end"'))
        parts.append(text(LEFT + part * count, TOP + MEMORY + 16, took(part * total),
                          f'text-anchor="{anchor}"'))
    y = TOP + MEMORY + 30
    for name, spans in lanes(plan):
        parts.append(text(LEFT - 6, y + LANE / 2 + 4, name, 'text-anchor="end"'))
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{count}" height="{LANE}" fill="#f4f5f7"/>')
        parts.append(curve(columns(spans, total, count), y, LANE, f'fill="{COLOURS[name]}"'))
        y += LANE + GAP
    head = (f"An iteration on {device}: {size(stats['unplanned_bytes'])} of tensors (grey) in "
            f"{size(stats['planned_bytes'])} (blue), {took(total)}")
    foot = "out, in: the link is busy. wait: the device waits. again: it recomputes."
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 16}" '
        f'viewBox="0 0 {WIDTH} {y + 16}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{y + 16}" fill="#ffffff"/>',
        text(LEFT, 20, head, 'font-size="15"'), *parts, text(LEFT, y + 6, foot), "</svg>", ""])


def phase_parts(plan, phases):
    scale = (WIDTH - LEFT - RIGHT) / plan["time_ns"]
    begins = [step[STEP_BEGIN] for step in plan["steps"]] + [plan["time_ns"]]
    for i, phase in enumerate(phases):
        x, width = LEFT + begins[phase.begin] * scale, scale * (
            begins[phase.end] - begins[phase.begin])
        if i % 2:
            yield (f'<rect x="{x:.1f}" y="{TOP - 20}" width="{width:.1f}" height="{MEMORY + 20}" '
                   'fill="#f4f5f7"/>')
        if width > 7 * len(phase.name):
            yield text(x + width / 2, TOP - 6, phase.name, 'text-anchor="middle"')


def lanes(plan):
    steps, waits = plan["steps"], []
    begins = [step[STEP_BEGIN] for step in steps] + [plan["time_ns"]]
    for step, end in zip(steps, begins[1:]):
        waits.append((step[STEP_BEGIN] + step[STEP_TIME], end))
    for name in ("out", "in"):
        yield name, [
            (move[MOVE_BEGIN], move[MOVE_END]) for move in plan["moves"]
            if move[MOVE_COPY] and bool(move[MOVE_IN]) == (name == "in")
        ]
    yield "wait", waits
    yield "again", [
        (step[STEP_BEGIN], step[STEP_BEGIN] + step[STEP_TIME]) for step in steps if step[STEP_AGAIN]
    ]
