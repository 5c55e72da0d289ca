#!/usr/bin/env python3
"""Holds the dashboards to the rules that github.com/grafana/dashboard-linter publishes.

usage: lint.py. The rules have the linter's names and meanings (those for Loki aside, which is not asked here) and read its
file of exclusions, grafana/dashboards/.lint; one that excludes nothing is a failure, too. Needs Python's standard
library; whether a query is valid is left to promtool, where it is installed.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent / "dashboards"
# The kinds of panels that the linter looks into, by rule.
PLAIN = {"stat", "singlestat", "graph", "table", "timeseries", "gauge"}
ASKING = {"singlestat", "gauge", "table", "stat", "state-timeline", "timeseries"}
SOURCED = {"singlestat", "graph", "table", "timeseries"}
# Those of the linter's units that occur here.
UNITS = {"none", "short", "percent", "percentunit", "s", "bytes", "reqps", "dateTimeFromNow", "string"}
# Stand for variables where a query would not be valid with a word.
PLACEHOLDERS = {"quantile": "0.95", "__rate_interval": "1m", "__interval": "1m", "__range": "1h", "window": "5m"}
METRIC = re.compile(r"(?<![\w:$])(?P<name>(?:tokenprobe|process|scrape)_\w+|\w+:tokenprobe_\w+:\w+|ALERTS)(?:\{(?P<matchers>[^}]*)\})?")


def dashboard_rules(board):
    variables = board["templating"]["list"]
    sources = [each for each in variables if each["type"] == "datasource"]
    if [(each["name"], each["label"]) for each in sources] != [("datasource", "Data source")]:
        yield "template-datasource-rule", "no templated data source of that name and label"
    for name in ("job", "instance"):
        found = [each for each in variables if each["name"] == name]
        if not found:
            yield f"template-{name}-rule", "missing"
        for each in found:
            wanted = {"type": "query", "label": name.title(), "multi": True, "allValue": ".+"}
            if any(each.get(key) != value for key, value in wanted.items()) or each["datasource"]["uid"] != "${datasource}":
                yield f"template-{name}-rule", f"must have {wanted}"
    for each in variables:
        if each["type"] == "query":
            if not re.fullmatch(r"(label_names|label_values|metrics|query_result)\(.+\)", each["query"]["query"]):
                yield "template-label-promql-rule", each["name"]
            if each["refresh"] != 2:
                yield "template-on-time-change-reload-rule", each["name"]
    if board["editable"]:
        yield "uneditable-dashboard", "is editable"


def panel_rules(panel):
    if panel["type"] in SOURCED and panel["datasource"]["uid"] != "${datasource}":
        yield "panel-datasource-rule", "not the templated data source"
    if panel["type"] in PLAIN:
        if not panel.get("title") or not panel.get("description"):
            yield "panel-title-description-rule", "title or description is missing"
        if not panel.get("targets"):
            yield "panel-no-targets-rule", "no targets"
        yield from ((("panel-units-rule", f"unit {unit}")) for unit in units(panel) if unit not in UNITS)


def units(panel):
    config = panel["fieldConfig"]
    yield config["defaults"].get("unit")
    yield from (each["value"] for override in config["overrides"] for each in override["properties"] if each["id"] == "unit")


def target_rules(panel, expr):
    for found in METRIC.finditer(expr):
        matchers = (found["matchers"] or "").split(",")
        for label in ("job", "instance"):
            if f'{label}=~"${label}"' not in matchers:
                yield f"target-{label}-rule", found[0]
        counted = re.search(r"\b(rate|irate|increase)\($", expr[: found.start()]) and expr[found.end():].startswith("[")
        if found["name"].endswith("_total") and not counted:
            yield "target-counter-agg-rule", found[0]
    if panel["type"] in ASKING:
        for window in re.findall(r"\bi?rate\([^\[]*\[([^\]]+)\]", expr):
            if window != "$__rate_interval":
                yield "target-rate-interval-rule", window


def invalid(queries):
    """What promtool says of the queries, if it is there to be asked."""
    if not (promtool := shutil.which("promtool")):
        return []
    filled = [re.sub(r"\$\{?(\w+)\}?", lambda name: PLACEHOLDERS.get(name[1], "x"), expr) for expr in queries]
    rules = [{"record": f"query:{index}", "expr": expr} for index, expr in enumerate(filled)]
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "queries.yaml")
        # JSON is YAML.
        file.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
        checked = subprocess.run([promtool, "check", "rules", "--lint=none", file], capture_output=True, text=True)
    return [("target-promql-rule", None, None, checked.stdout + checked.stderr)] if checked.returncode else []


def findings():
    queries = []
    for file in sorted(HERE.glob("*.json")):
        board = json.loads(file.read_text())
        title = board["title"]
        yield from ((rule, title, None, what) for rule, what in dashboard_rules(board))
        for panel in board["panels"]:
            yield from ((rule, title, panel["title"], what) for rule, what in panel_rules(panel))
            for target in panel.get("targets", []):
                queries.append(target["expr"])
                yield from ((rule, title, panel["title"], what) for rule, what in target_rules(panel, target["expr"]))
    yield from invalid(queries)


def main():
    exclusions = json.loads((HERE / ".lint").read_text())["exclusions"]
    unused = {(rule, json.dumps(entry)) for rule, each in exclusions.items() for entry in each["entries"]}
    bad = 0
    for rule, board, panel, what in findings():
        matched = {(rule, json.dumps(entry)) for entry in exclusions.get(rule, {}).get("entries", [])
                   if entry["dashboard"] == board and entry.get("panel") == panel}
        unused -= matched
        if not matched:
            bad += 1
            print(f"{rule}: {board} / {panel}: {what}")
    for rule, entry in sorted(unused):
        print(f"{rule}: excludes nothing: {entry}")
    sys.exit(bool(bad or unused))


main()
