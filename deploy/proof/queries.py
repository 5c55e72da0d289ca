"""Asks a Prometheus every recording rule and every query of the dashboards, as Grafana would, and prints what comes back.

A query that has no answer must say why where it is written (`empty` in grafana/generate.py); one that says so and has an
answer is out of date. Both are failures.
"""

import pathlib
import re

import generate

# Rules cannot bear a remark.
RULES_EMPTY = {rule: generate.NO_LAST_WEEK for rule in (
    "cell:tokenprobe_level_ttft_seconds:ratio_to_last_week",
    "cell:tokenprobe_level_tpot_seconds:ratio_to_last_week",
    "cell:tokenprobe_level_throughput_tokens_per_second:ratio_to_last_week",
)}
# What Grafana fills in; a variable that is not here stands for all. A panel may set the least interval.
VARIABLES = {"quantile": "0.95", "baseline_target": "chat", "baseline_model": "qwen3-8b", "window": "5m", "__rate_interval": "1m",
             "__interval": "15s", "__range": "15m"}
LABEL_VALUES = re.compile(r"label_values\((?P<series>.+), (?P<label>\w+)\)")


def ask_all(server):
    """How many have no answer that should, or one that they should not."""
    bad = 0
    for title, asked in [("recording rules", recorded()), *dashboards()]:
        print(f"\n{title}")
        for name, expr, reason in asked:
            answer, good = look(server, expr, reason)
            bad += not good
            print(f"  {'ok' if good else 'NO'}  {name[:66]:66}  {answer}")
            if not good:
                print(f"      {expr}")
    return bad


def check():
    if strange := set(RULES_EMPTY) - {name for name, *_ in recorded()}:
        raise SystemExit(f"no rules: {sorted(strange)}")


def recorded():
    text = pathlib.Path("deploy/prometheus/rules/tokenprobe-recording.yaml").read_text()
    return [(name, name, RULES_EMPTY.get(name)) for name in re.findall(r"record: (\S+)", text)]


def dashboards():
    for board in generate.dashboards():
        asked = [(f"variable {each['name']}", filled(each["definition"]), None)
                 for each in board["templating"]["list"] if each["type"] == "query"]
        asked += [(f"annotation {each['name']}", filled(each["target"]["expr"]), None)
                  for each in board["annotations"]["list"] if "target" in each]
        asked += [(f"{panel['title']} {target['refId']}", filled(target["expr"], panel.get("interval")), target.get("empty"))
                  for panel in board["panels"] for target in panel.get("targets", [])]
        yield f"dashboard {board['title']}", asked


def filled(expr, interval=None):
    values = VARIABLES | ({"__interval": interval} if interval else {})
    return re.sub(r"\$\{?(\w+)\}?", lambda match: values.get(match[1], ".+"), expr)


def look(server, expr, reason):
    try:
        count, what = values_of(server, expr)
    except ValueError as error:
        return str(error), False
    if count and reason:
        return f"{what}, although it is said: {reason}", False
    return (f"{what}: {reason}" if reason else what), bool(count or reason)


def values_of(server, expr):
    if asked := LABEL_VALUES.fullmatch(expr):
        values = server.get(f"label/{asked['label']}/values", **{"match[]": asked["series"]})
        return len(values), ", ".join(values) or "no value"
    numbers, series = server.numbers(expr)
    if numbers:
        return len(numbers), f"{len(numbers)} series, {min(numbers):.6g} to {max(numbers):.6g}"
    return 0, f"{series} series, no number" if series else "empty"
