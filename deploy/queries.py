#!/usr/bin/env python3
"""Asks a Prometheus every recording rule and every dashboard query, as Grafana would, and prints what comes back.

usage: queries.py PROMETHEUS JOB. A query without an answer is a failure unless it is listed here with its reason.
Needs nothing but Python's standard library.
"""

import json
import math
import pathlib
import re
import sys
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).parent.parent
VARIABLES = {"job": None, "baseline_target": "chat", "baseline_model": "qwen3-8b", "window": "5m",
             "__rate_interval": "1m", "__interval": "15s", "__range": "15m"}

# What may be empty on a demo that has run for minutes, and why. The first part that occurs in the query counts.
EMPTY = [
    ("ratio_to_last_week", "needs a week of history"),
    ("offset 1w", "needs a week of history"),
    ("tokenprobe_down:bool", "nothing is down"),
    ("ALERTS", "nothing is wrong"),
    ("tokenprobe_budget_remaining", "the demo has no budget"),
    ("tokenprobe_cost_total", "the demo has no prices"),
    ("tokenprobe_connection_phase_seconds", "no connection was opened within the range: they are reused"),
    ("tokenprobe_ladder_knee_concurrency", "the last ladder had no knee"),
    ("tokenprobe_ladder_safe_concurrency", "the last ladder had no knee"),
    ("tokenprobe_level_skips_total", "no level was left out"),
    ("tokenprobe_request_failures_total", "nothing failed"),
    ("tokenprobe_sweep_skips_total", "no start was skipped"),
    ("tokenprobe_cached_prompt_tokens_total", "every prompt is new, so that no cache can answer"),
    ("tokenprobe_reasoning_tokens_total", "the demo's models do not reason"),
]


def main():
    server, VARIABLES["job"] = sys.argv[1:]
    missing = 0
    for title, queries in [("recording rules", recorded())] + dashboards():
        print(f"\n{title}")
        for name, expr in queries:
            answer, good = look(server, expr)
            missing += not good
            print(f"  {'ok ' if good else 'NO '} {name[:64]:64}  {answer}")
            if not good:
                print(f"       {expr}")
    print(f"\n{missing} queries without an answer that should have one")
    return 1 if missing else 0


def recorded():
    text = (ROOT / "deploy/prometheus/rules/tokenprobe-recording.yaml").read_text()
    return [(name, f'{name}{{job="{VARIABLES["job"]}"}}') for name in re.findall(r"record: (\S+)", text)]


def dashboards():
    found = []
    for file in sorted((ROOT / "grafana/dashboards").glob("*.json")):
        board = json.loads(file.read_text())
        queries = [(panel["title"] + " " + target["refId"], filled(target["expr"], panel.get("interval")))
                   for panel in board["panels"] for target in panel.get("targets", [])]
        found.append((f"dashboard {board['title']}", queries))
    return found


def filled(expr, interval):
    """Every variable that has no value of its own stands for all; a panel may set the least interval."""
    values = VARIABLES | ({"__interval": interval} if interval else {})
    return re.sub(r"\$\{?(\w+)\}?", lambda match: values.get(match[1], ".+"), expr)


def look(server, expr):
    url = f"http://{server}/api/v1/query?" + urllib.parse.urlencode({"query": expr})
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            series = json.load(answer)["data"]["result"]
    except urllib.error.HTTPError as error:
        return json.load(error).get("error", str(error)), False
    values = [float(one["value"][1]) for one in series]
    known = [value for value in values if not math.isnan(value)]
    if known:
        return f"{len(known)} series, {min(known):.6g} to {max(known):.6g}", True
    reason = next((reason for part, reason in EMPTY if part in expr), None)
    what = f"{len(values)} series, no number" if values else "empty"
    return (f"{what}: {reason}", True) if reason else (what, False)


if __name__ == "__main__":
    sys.exit(main())
