"""Whether the schedule was kept: every due start either happened or was counted as skipped, and none twice.

usage: starts.py LOG STEPS

The sweeps of the log are due every second. Their due instants, in the order in which they were dealt with, must each be a
second after the one before; what is missing in between must have been counted as passed over, at once. The clock went back as
many times as it was set back.
"""

import datetime
import re
import sys

log, steps = sys.argv[1], int(sys.argv[2])
LINE = re.compile(r'msg="sweep (started|skipped)" sweep=(\S+) due="?([^" ]+)')
PASSED = re.compile(r'msg="due starts passed by.*" sweep=(\S+) starts=(\d+)')
sweeps, passed = {}, {}
with open(log, encoding="utf-8", errors="replace") as lines:
    for line in lines:
        if found := PASSED.search(line):
            sweep, count = found.groups()
            passed[sweep] = passed.get(sweep, 0) + int(count)
        if found := LINE.search(line):
            what, sweep, due = found.groups()
            sweeps.setdefault(sweep, []).append((what, datetime.datetime.fromisoformat(due)))

bad = False
for sweep, dealt in sorted(sweeps.items()):
    gaps = [(after - before).total_seconds() for (_, before), (_, after) in zip(dealt, dealt[1:])]
    missing = sum(gap - 1 for gap in gaps if gap > 1)
    back = sum(gap < 0 for gap in gaps)
    doubled = len(dealt) - len({due for _, due in dealt})
    starts = sum(what == "started" for what, _ in dealt)
    late = passed.get(sweep, 0)
    print(
        f"{sweep}: {len(dealt) + late} due = {starts} started + {len(dealt) - starts} skipped + {late} passed over "
        f"({missing:.0f} missing in the log); the clock went back {back} times with {steps} steps, {doubled} doubled"
    )
    bad |= missing != late or back > (steps + 1) // 2 or doubled > 0 or starts == 0
sys.exit(bad or not sweeps)
