"""The rules with shorter windows: an hour of them becomes five minutes, and nothing else changes.

Every `[window]`, `offset` and `for:` is divided by twelve. Expressions, thresholds, names (a rule stays `ratio1h`) and
numbers of seconds within expressions are as shipped.
"""

import re

FACTOR = 12
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
WINDOW = re.compile(r"(?P<before>\[|\boffset |\bfor: )(?P<count>\d+)(?P<unit>[smhdw])\b")


def shorten(rules):
    def shorter(match):
        seconds = int(match["count"]) * SECONDS[match["unit"]]
        if seconds % FACTOR:
            raise ValueError(f"{match[0]} does not divide by {FACTOR}")
        return f"{match['before']}{seconds // FACTOR}s"

    return WINDOW.sub(shorter, rules)
