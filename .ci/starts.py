"""Whether the schedule was kept: every due start either happened or was counted as skipped, and none twice.

usage: starts.py LOG STEPS

The sweeps of the log are due every second. Their due instants, in the order in which they were dealt with, must each be a
second after the one before, but for as many jumps as the clock made.
"""

import datetime
import re
import sys

log, steps = sys.argv[1], int(sys.argv[2])
LINE = re.compile(r'msg="sweep (started|skipped)" sweep=(\S+) due="?([^" ]+)')
sweeps = {}
with open(log, encoding="utf-8", errors="replace") as lines:
    for line in lines:
        if found := LINE.search(line):
            what, sweep, due = found.groups()
            sweeps.setdefault(sweep, []).append((what, datetime.datetime.fromisoformat(due)))

bad = False
for sweep, dealt in sorted(sweeps.items()):
    gaps = [after - before for (_, before), (_, after) in zip(dealt, dealt[1:])]
    jumps = [gap.total_seconds() for gap in gaps if gap.total_seconds() != 1]
    lost = [gap for gap in jumps if abs(abs(gap) - 3600) > 60]
    doubled = len(dealt) - len({due for _, due in dealt})
    starts = sum(what == "started" for what, _ in dealt)
    print(
        f"{sweep}: {len(dealt)} due = {starts} started + {len(dealt) - starts} skipped; "
        f"{len(jumps)} jumps with {steps} steps of the clock, {len(lost)} gaps besides, {doubled} doubled"
    )
    bad |= len(jumps) - len(lost) > steps or bool(lost) or doubled > 0 or starts == 0
sys.exit(bad or not sweeps)
