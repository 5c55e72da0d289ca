#!/usr/bin/env python3
"""Writes grafana/dashboards/*.json. With --check, only says whether they are current (exit code 1 if not).

Needs nothing but Python's standard library. One function per dashboard; a panel is a question (its title), how
to read the answer (its description) and the queries. Layout flows from left to right in a grid of 24 columns.
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent / "dashboards"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
PROBER = 'job=~"$job",instance=~"$instance"'
MODEL = PROBER + ',target=~"$target",model=~"$model"'
SWEEP = PROBER + ',sweep=~"$sweep"'
LADDER = MODEL + ',sweep=~"$sweep",prompt_tokens=~"$prompt_tokens"'
CELL = LADDER + ',concurrency=~"$concurrency"'
# Rules have no instance: replicas of a prober are one.
RULED = 'job=~"$job",target=~"$target",model=~"$model"'

BLUE, GREEN, YELLOW, ORANGE, RED, GREY = "blue", "green", "yellow", "orange", "red", "text"
QUANTILES = {"0.5": ("P50", BLUE), "0.95": ("P95", ORANGE), "0.99": ("P99", RED)}
GOOD_RATIO = [(None, RED), (0.95, YELLOW), (0.99, GREEN)]


class Panels:
    """Places panels from left to right and gives them ids."""

    def __init__(self):
        self.panels, self.x, self.y, self.line = [], 0, 0, 0

    def row(self, title):
        self._break()
        self.panels.append({"type": "row", "title": title, "collapsed": False, "panels": [],
                            "gridPos": {"x": 0, "y": self.y, "w": 24, "h": 1}, "id": len(self.panels) + 1})
        self.y += 1

    def add(self, panel, w, h):
        if self.x + w > 24:
            self._break()
        panel |= {"gridPos": {"x": self.x, "y": self.y, "w": w, "h": h}, "id": len(self.panels) + 1}
        self.panels.append(panel)
        self.x, self.line = self.x + w, max(self.line, h)

    def _break(self):
        self.x, self.y, self.line = 0, self.y + self.line, 0


def steps(levels):
    return {"mode": "absolute", "steps": [{"value": value, "color": color} for value, color in levels]}


def targets(queries, **extra):
    made = []
    for index, query in enumerate(queries):
        expr, legend = query if isinstance(query, tuple) else (query, "__auto")
        made.append({"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": " ".join(expr.split()),
                     "legendFormat": legend, "editorMode": "code", **extra})
    return made


def panel(kind, title, description, queries, unit, defaults=None, overrides=(), options=None, **rest):
    query = {k: rest.pop(k) for k in ("instant", "range", "format") if k in rest}
    return {
        "type": kind, "title": title, "description": description, "datasource": SOURCE,
        "targets": targets(queries, **query),
        "fieldConfig": {"defaults": {"unit": unit, "noValue": "no data", **(defaults or {})},
                        "overrides": list(overrides)},
        "options": options or {}, **rest,
    }


def series(title, description, queries, unit, colors=None, dashes=(), bars=False, custom=None, **rest):
    """Lines over time; `colors` and `dashes` by series name."""
    style = {"drawStyle": "line", "lineWidth": 2, "fillOpacity": 4, "showPoints": "never", "spanNulls": False,
             "lineInterpolation": "stepAfter", "axisSoftMin": 0}
    if bars:
        # Bars side by side, each with the events of its own span.
        style |= {"drawStyle": "bars", "fillOpacity": 80, "lineWidth": 0, "stacking": {"mode": "normal", "group": "A"}}
        rest |= {"interval": "2m", "maxDataPoints": 90}
    overrides = [override(name, ("color", {"mode": "fixed", "fixedColor": color}))
                 for name, color in (colors or {}).items()]
    overrides += [override(name, ("custom.lineStyle", {"fill": "dash", "dash": [8, 6]}), ("custom.lineWidth", 1),
                           ("custom.fillOpacity", 0), ("color", {"mode": "fixed", "fixedColor": GREY}))
                  for name in dashes]
    defaults = {"custom": style | (custom or {}), "color": {"mode": "palette-classic"}} | rest.pop("defaults", {})
    options = {"legend": {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []},
               "tooltip": {"mode": "multi", "sort": "desc"}}
    return panel("timeseries", title, description, queries, unit, defaults, overrides, options, **rest)


def states(title, description, query, mappings):
    """A band per series over time, coloured by state."""
    options = {"showValue": "never", "mergeValues": True, "alignValue": "left", "rowHeight": 0.8, "perPage": 20,
               "legend": {"showLegend": False, "displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "single", "sort": "none"}}
    defaults = {"mappings": mappings, "color": {"mode": "thresholds"}, "thresholds": steps([(None, GREY)]),
                "custom": {"fillOpacity": 80, "lineWidth": 0}}
    return panel("state-timeline", title, description, [query], "none", defaults, (), options)


def stat(title, description, query, unit, levels=((None, BLUE),), **rest):
    options = {"colorMode": "value", "graphMode": "none", "justifyMode": "auto", "textMode": "auto",
               "orientation": "auto", "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    defaults = {"thresholds": steps(levels), "color": {"mode": "thresholds"}} | rest.pop("defaults", {})
    return panel("stat", title, description, [query], unit, defaults, (), options, instant=True, range=False, **rest)


def override(name, *properties, by="byName"):
    return {"matcher": {"id": by, "options": name}, "properties": [{"id": k, "value": v} for k, v in properties]}


def table(title, description, columns, order, **rest):
    """One row per combination of labels. `columns`: header -> (query, unit, thresholds or None, more properties)."""
    overrides, rename = [], {}
    for index, (header, (_, unit, levels, *more)) in enumerate(columns.items()):
        rename[f"Value #{chr(ord('A') + index)}" if len(columns) > 1 else "Value"] = header
        properties = [("unit", unit), *more]
        if levels:
            properties += [("thresholds", steps(levels)), ("custom.cellOptions", {"type": "color-text"})]
        overrides.append(override(header, *properties))
    overrides += [override(label, ("custom.width", width)) for label, width in rest.pop("widths", {}).items()]
    hidden = {name: True for name in ("Time", "__name__", "job", "instance", *rest.pop("without", ()))}
    transformations = [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": {"excludeByName": hidden, "renameByName": rename,
                                       "indexByName": {name: i for i, name in enumerate(order)}}},
    ]
    defaults = {"custom": {"align": "auto", "filterable": False}, "color": {"mode": "thresholds"},
                "thresholds": steps([(None, GREY)])}
    return panel("table", title, description, [query for query, *_ in columns.values()], "none", defaults,
                 overrides, {"showHeader": True, "cellHeight": "sm"}, instant=True, range=False, format="table",
                 transformations=transformations, **rest)


def heatmap(title, description, expr, unit):
    options = {
        "calculate": False, "cellGap": 1, "showValue": "never", "legend": {"show": True},
        "color": {"mode": "scheme", "scheme": "Blues", "steps": 64, "exponent": 0.5, "reverse": False},
        "yAxis": {"unit": unit, "axisPlacement": "left"}, "tooltip": {"mode": "single", "yHistogram": True},
        "filterValues": {"le": 1e-9}, "rowsFrame": {"layout": "auto"},
    }
    made = panel("heatmap", title, description, [(expr, "{{le}}")], unit, options=options)
    made["targets"][0]["format"] = "heatmap"
    return made


def xy(title, description, expr, unit, value):
    """The latest level of every cell, against its concurrency; one line per model, target and prompt length."""
    transformations = [
        {"id": "convertFieldType", "options": {"conversions": [
            {"targetField": "concurrency", "destinationType": "number"}], "fields": {}}},
        {"id": "sortBy", "options": {"fields": {}, "sort": [{"field": "concurrency", "desc": False}]}},
        {"id": "organize", "options": {"excludeByName": {"Time": True}, "renameByName": {"Value": value}}},
        {"id": "partitionByValues", "options": {"fields": ["series"], "keepFields": False, "naming": {"asLabels": False}}},
    ]
    custom = {"show": "points+lines", "pointSize": {"fixed": 7}, "lineWidth": 2, "axisSoftMin": 0,
              "scaleDistribution": {"type": "linear"}}
    overrides = [override("concurrency", ("unit", "short"), ("custom.axisLabel", "concurrency"))]
    options = {"mapping": "auto", "series": [], "tooltip": {"mode": "single", "sort": "none"},
               "legend": {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []}}
    expr = f'label_join(sum by (target, model, prompt_tokens, concurrency) ({expr}), "series", " · ", "target", "model", "prompt_tokens")'
    expr = f"sum by (series, concurrency) ({expr})"
    return panel("xychart", title, description, [expr], unit, {"custom": custom, "color": {"mode": "palette-classic"}},
                 overrides, options, instant=True, range=False, format="table", transformations=transformations)


def variable(name, label, query, multi=True, hide=0, sort=1):
    made = {"name": name, "label": label, "type": "query", "datasource": SOURCE, "hide": hide, "refresh": 2,
            "definition": query, "query": {"query": query, "refId": "StandardVariableQuery"}, "regex": "", "sort": sort,
            "multi": multi, "includeAll": multi, "options": []}
    if multi:
        made |= {"allValue": ".+", "current": {"selected": True, "text": ["All"], "value": ["$__all"]}}
    return made


def variables(*wanted):
    known = {
        "job": variable("job", "Job", "label_values(tokenprobe_build_info, job)", hide=2),
        "instance": variable("instance", "Prober", 'label_values(tokenprobe_build_info{job=~"$job"}, instance)'),
        "target": variable("target", "Target", f"label_values(tokenprobe_requests_total{{{PROBER}}}, target)"),
        "model": variable("model", "Model", f'label_values(tokenprobe_requests_total{{{PROBER},target=~"$target"}}, model)'),
        "sweep": variable("sweep", "Sweep", f"label_values(tokenprobe_sweep_runs_total{{{PROBER}}}, sweep)"),
        "prompt_tokens": variable("prompt_tokens", "Prompt tokens",
                                  f'label_values(tokenprobe_requests_total{{{MODEL},sweep=~"$sweep"}}, prompt_tokens)', sort=3),
        "concurrency": variable("concurrency", "Concurrency",
                                f"label_values(tokenprobe_requests_total{{{LADDER}}}, concurrency)", sort=3),
        "baseline_target": variable("baseline_target", "Compared with target",
                                    f"label_values(tokenprobe_requests_total{{{PROBER}}}, target)", multi=False),
        "baseline_model": variable("baseline_model", "and model",
                                   f'label_values(tokenprobe_requests_total{{{PROBER},target=~"$baseline_target"}}, model)', multi=False),
    }
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0,
              "refresh": 1, "regex": "", "multi": False, "includeAll": False, "options": []}
    windows = ["5m", "15m", "1h", "3h", "6h", "1d"]
    window = {"name": "window", "label": "Samples of", "type": "custom", "query": ",".join(windows), "hide": 0,
              "description": "How long samples are gathered for one point of a curve: several sweep intervals.",
              "multi": False, "includeAll": False, "current": {"selected": True, "text": "15m", "value": "15m"},
              "options": [{"text": w, "value": w, "selected": w == "15m"} for w in windows]}
    return [source, *(known[name] for name in wanted), window]


def annotations():
    def one(name, expr, color, title, enable):
        return {"name": name, "datasource": SOURCE, "enable": enable, "hide": False, "iconColor": color,
                "target": {"refId": "Annotation", "expr": expr, "interval": "30s"}, "useValueForTime": "on",
                "titleFormat": title, "textFormat": "", "tagKeys": "sweep"}
    return {"list": [
        {"builtIn": 1, "datasource": {"type": "grafana", "uid": "-- Grafana --"}, "enable": True, "hide": True,
         "iconColor": BLUE, "name": "Annotations & Alerts", "type": "dashboard"},
        one("Sweeps", f"max by (sweep) (tokenprobe_sweep_last_start_timestamp_seconds{{{PROBER}}}) * 1000", GREY,
            "sweep {{sweep}} started", False),
        one("Reloads", f"max by (instance) (tokenprobe_config_last_reload_success_timestamp_seconds{{{PROBER}}}) * 1000",
            BLUE, "configuration loaded by {{instance}}", True),
    ]}


def dashboard(uid, title, description, names, panels, span="now-6h"):
    link = {"type": "dashboards", "tags": ["tokenprobe"], "title": "tokenprobe", "asDropdown": False, "icon": "external link",
            "includeVars": True, "keepTime": True, "targetBlank": False, "tooltip": "", "url": ""}
    return {
        "uid": f"tokenprobe-{uid}", "title": f"tokenprobe / {title}", "description": description, "tags": ["tokenprobe"],
        "editable": False, "graphTooltip": 1, "schemaVersion": 39, "version": 1, "refresh": "30s", "timezone": "browser",
        "time": {"from": span, "to": "now"}, "timepicker": {}, "fiscalYearStartMonth": 0, "liveNow": False, "weekStart": "",
        "links": [link], "annotations": annotations(), "templating": {"list": variables(*names)}, "panels": panels.panels,
    }


def quantile(q, metric, by, selector):
    by = f"le, {by}" if by else "le"
    # Without samples a quantile is NaN: the comparison drops it.
    return f"histogram_quantile({q}, sum by ({by}) (increase({metric}_bucket{{{selector}}}[$window]))) >= 0"


def level(metric, q, by, selector, how="max"):
    return f'{how} by ({by}) ({metric}{{{selector},quantile="{q}"}})'


def objective(kind):
    return f'min(tokenprobe_objective_seconds{{{SWEEP},objective="{kind}"}})'


def share(selector, by=""):
    by = f"by ({by}) " if by else ""
    return f"""sum {by}(increase(tokenprobe_requests_within_objective_total{{{selector},objective="all"}}[%s]))
        / (sum {by}(increase(tokenprobe_requests_total{{{selector}}}[%s])) > 0)"""


FAILURES = f"sum by (reason) (increase(tokenprobe_request_failures_total{{{CELL}}}[$__interval])) > 0"
UP = [{"type": "value", "options": {"0": {"text": "down", "color": RED, "index": 0}, "1": {"text": "up", "color": GREEN, "index": 1}}}]


def overview():
    p = Panels()
    p.add(stat("Models up", "Models whose latest probe brought text.",
               f"sum(max by (target, model) (tokenprobe_up{{{MODEL}}}))", "none", [(None, RED), (1, GREEN)]), 4, 4)
    p.add(stat("Models down", "Models whose latest probe brought none. The table below says why.",
               f"count(max by (target, model) (tokenprobe_up{{{MODEL}}}) == 0) or vector(0)", "none", [(None, GREEN), (1, RED)]), 4, 4)
    p.add(stat("Within objectives", "Share of measured probes that were good by every objective, over the time shown. Failures count as bad.",
               share(MODEL) % ("$__range", "$__range"), "percentunit", GOOD_RATIO, defaults={"decimals": 2}), 4, 4)
    p.add(stat("Failed probes", "Share of measured probes that failed, over the time shown.",
               f"""sum(increase(tokenprobe_request_failures_total{{{MODEL}}}[$__range]))
               / (sum(increase(tokenprobe_requests_total{{{MODEL}}}[$__range])) > 0)""",
               "percentunit", [(None, GREEN), (0.01, YELLOW), (0.05, RED)], defaults={"decimals": 2}), 4, 4)
    p.add(stat("Oldest result", "Time since the sweep that ended longest ago. Compare it with the sweep's interval.",
               f"max(time() - tokenprobe_sweep_last_end_timestamp_seconds{{{PROBER}}})", "s", defaults={"decimals": 0}), 4, 4)
    p.add(stat("Alerts", "Alerts of tokenprobe that fire now.",
               'count(ALERTS{alertname=~"Tokenprobe.+",alertstate="firing"}) or vector(0)', "none", [(None, GREEN), (1, RED)]), 4, 4)
    by = "target, model"
    week = f"avg by ({by}) (cell:tokenprobe_level_ttft_seconds:ratio_to_last_week{{{RULED}}})"
    link = [{"title": "Show the model", "targetBlank": False,
             "url": "/d/tokenprobe-model?var-target=${__data.fields.target}&var-model=${__data.fields.model}&${__url_time_range}"}]
    columns = {
        "up": (f"max by ({by}) (tokenprobe_up{{{MODEL}}})", "none", [(None, RED), (1, GREEN)], ("mappings", UP), ("custom.width", 70)),
        "within objectives": (share(MODEL, by) % ("$__range", "$__range"), "percentunit", GOOD_RATIO, ("decimals", 2)),
        "failed": (f"sum by ({by}) (increase(tokenprobe_request_failures_total{{{MODEL}}}[$__range]))", "short",
                   [(None, GREEN), (1, ORANGE)], ("decimals", 0)),
        "TTFT P50": (f"histogram_quantile(0.5, sum by (le, {by}) (increase(tokenprobe_time_to_first_token_seconds_bucket{{{MODEL}}}[$__range])))", "s", None),
        "TTFT P95": (f"histogram_quantile(0.95, sum by (le, {by}) (increase(tokenprobe_time_to_first_token_seconds_bucket{{{MODEL}}}[$__range])))", "s", None),
        "TPOT mean": (f"""sum by ({by}) (increase(tokenprobe_time_per_output_token_seconds_sum{{{MODEL}}}[$__range]))
                      / (sum by ({by}) (increase(tokenprobe_time_per_output_token_seconds_count{{{MODEL}}}[$__range])) > 0)""", "s", None),
        "best total TPS": (f"max by ({by}) (tokenprobe_level_throughput_tokens_per_second{{{MODEL}}})", "none", None, ("decimals", 0)),
        "TTFT to last week": (week, "percentunit", [(None, GREEN), (1.15, YELLOW), (1.3, RED)], ("decimals", 0), ("noValue", "–")),
    }
    made = table("How is every model doing?", "Over the time shown, all cells together. TTFT to last week: median of six hours against the same hours "
                 "of last week; empty until there is a last week with 20 good answers.", columns, ["target", "model"])
    made["fieldConfig"]["overrides"].append(override("model", ("links", link)))
    p.add(made, 24, 8)
    p.add(states("When was what up?", "Latest probe of each model: green brought text, red did not.",
                 (f"max by (target, model) (tokenprobe_up{{{MODEL}}})", "{{target}} · {{model}}"), UP), 12, 7)
    p.add(series("Why do probes fail?", "Failed measured probes by error class, per bar.", [(FAILURES.replace(CELL, MODEL), "{{reason}}")],
                 "short", bars=True, defaults={"noValue": "no failures"}), 12, 7)
    p.add(series("How long until the first token?", "P95 of the latest level, the worst cell of each model. Dashed: the strictest objective.",
                 [(level("tokenprobe_level_ttft_seconds", "0.95", by, MODEL), "{{target}} · {{model}}"), (objective("ttft").replace(SWEEP, PROBER), "objective")],
                 "s", dashes=["objective"]), 12, 8)
    p.add(series("How many probes are within every objective?", "Share of measured probes, gathered over the window; a failure is not within.",
                 [(share(MODEL, by) % ("$window", "$window"), "{{target}} · {{model}}")], "percentunit", defaults={"max": 1}), 12, 8)
    return dashboard("overview", "Overview", "Which endpoints are up, within objective and fresh, and what changed against last week.",
                     ["job", "instance", "target", "model"], p)


def model():
    p = Panels()
    p.row("Time to first token")
    p.add(heatmap("How are first tokens distributed?", "Measured probes by time to first token; darker is more.",
                  f"sum by (le) (increase(tokenprobe_time_to_first_token_seconds_bucket{{{CELL}}}[$__rate_interval]))", "s"), 12, 9)
    p.add(series("Typical and worst first tokens", "Percentiles of all chosen cells together, gathered over the window, from the histogram. Dashed: the objective.",
                 [(quantile(q, "tokenprobe_time_to_first_token_seconds", "", CELL), name) for q, (name, _) in QUANTILES.items()]
                 + [(objective("ttft"), "objective")], "s", {name: color for name, color in QUANTILES.values()}, ["objective"]), 12, 9)
    p.add(series("Does the prompt length matter?", "Exact P50 of the latest level, mean over the chosen concurrencies. Growing with the prompt: prefill.",
                 [(level("tokenprobe_level_ttft_seconds", "0.5", "prompt_tokens", CELL, "avg"), "{{prompt_tokens}} tokens")], "s"), 8, 8)
    p.add(series("Does concurrency matter?", "Exact P50 of the latest level, mean over the chosen prompt lengths.",
                 [(level("tokenprobe_level_ttft_seconds", "0.5", "concurrency", CELL, "avg"), "{{concurrency}} at once")], "s"), 8, 8)
    p.add(series("Is there a tail?", "Exact P99 of the latest level over its P50. Far above 1 while P50 is fine: queueing, or stalls. Levels of fewer "
                 "than 100 requests have no reliable P99.",
                 [(f"""max by (concurrency) (tokenprobe_level_ttft_seconds{{{CELL},quantile="0.99"}}
                   / ignoring (quantile) tokenprobe_level_ttft_seconds{{{CELL},quantile="0.5"}})""", "{{concurrency}} at once")], "none",
                 defaults={"decimals": 1}), 8, 8)
    p.row("The stream")
    p.add(series("How fast does text flow? (TPOT)", "Time per output token, percentiles of the chosen cells, gathered over the window. Dashed: the objective.",
                 [(quantile(q, "tokenprobe_time_per_output_token_seconds", "", CELL), name) for q, (name, _) in QUANTILES.items()]
                 + [(objective("tpot"), "objective")], "s", {name: color for name, color in QUANTILES.values()}, ["objective"]), 8, 8)
    p.add(series("Does TPOT grow with concurrency?", "Exact P50 of the latest level. Rising steadily: decode is the bottleneck.",
                 [(level("tokenprobe_level_tpot_seconds", "0.5", "concurrency", CELL, "avg"), "{{concurrency}} at once")], "s"), 8, 8)
    p.add(series("Does the stream stall?", "Gap between reads that carried tokens: P99 of the chosen cells. A read may carry several tokens.",
                 [(quantile("0.99", "tokenprobe_chunk_gap_seconds", "concurrency", CELL), "{{concurrency}} at once")], "s"), 8, 8)
    p.add(series("How fast is one answer?", "Output tokens per second of single requests, P50, gathered over the window.",
                 [(quantile("0.5", "tokenprobe_output_tokens_per_second", "concurrency", CELL), "{{concurrency}} at once")], "none"), 8, 8)
    p.add(series("How long does a whole request take?", "Percentiles of the duration, failed probes included.",
                 [(quantile(q, "tokenprobe_request_duration_seconds", "", CELL), name) for q, (name, _) in QUANTILES.items()], "s",
                 {name: color for name, color in QUANTILES.values()}), 8, 8)
    p.add(series("How long does reasoning keep the answer back?", "Mean time to the first answer token less mean time to the first token of any kind.",
                 [(f"""sum by (model) (increase(tokenprobe_time_to_first_answer_token_seconds_sum{{{CELL}}}[$window]))
                   / (sum by (model) (increase(tokenprobe_time_to_first_answer_token_seconds_count{{{CELL}}}[$window])) > 0)
                   - sum by (model) (increase(tokenprobe_time_to_first_token_seconds_sum{{{CELL}}}[$window]))
                   / (sum by (model) (increase(tokenprobe_time_to_first_token_seconds_count{{{CELL}}}[$window])) > 0)""", "{{model}}")], "s"), 8, 8)
    p.row("Failures, connections, tokens")
    p.add(series("Why do probes fail?", "Failed measured probes by error class, per bar.", [(FAILURES, "{{reason}}")], "short",
                 bars=True, defaults={"noValue": "no failures"}), 8, 8)
    p.add(series("Which objective is missed?", "Share of measured probes outside each objective; a failure is outside all.",
                 [(f"""1 - sum by (objective) (increase(tokenprobe_requests_within_objective_total{{{CELL}}}[$window]))
                   / on () group_left () (sum(increase(tokenprobe_requests_total{{{CELL}}}[$window])) > 0)""", "{{objective}}")], "percentunit",
                 custom={"axisSoftMax": 0.05}), 8, 8)
    p.add(series("How long does connecting take?", "P95 of each phase, of probes that opened a connection (with reuse: the warm-up's).",
                 [(quantile("0.95", "tokenprobe_connection_phase_seconds", "phase", PROBER + ',target=~"$target"'), "{{phase}}")], "s"), 8, 8)
    models = MODEL + ',sweep=~"$sweep"'
    p.add(series("What do the probes consume?", "Tokens per bar, warm-up included, by the server's count. Cached tokens are part of the prompt, reasoning is part of the output.",
                 [(f"sum(increase(tokenprobe_{kind}_tokens_total{{{models}}}[$__interval])) > 0", name) for kind, name in
                  [("prompt", "prompt"), ("cached_prompt", "of it from the cache"), ("output", "output"), ("reasoning", "of it reasoning")]],
                 "short", custom={"drawStyle": "bars", "fillOpacity": 40, "scaleDistribution": {"type": "log", "log": 10}}, interval="2m", maxDataPoints=90), 12, 8)
    p.add(series("What do the probes cost?", "Money per bar, where a price is configured.",
                 [(f"sum by (currency) (increase(tokenprobe_cost_total{{{MODEL}}}[$__interval]))", "{{currency}}")], "none", bars=True,
                 defaults={"noValue": "no price is configured"}), 12, 8)
    return dashboard("model", "Model", "Latency, flow, failures and tokens of the chosen models, by prompt length and concurrency.",
                     ["job", "instance", "target", "model", "sweep", "prompt_tokens", "concurrency"], p)


def capacity():
    p = Panels()
    p.add(xy("How much load does it carry?", "Total TPS of the latest level of each cell against its concurrency. Where a line bends, the knee is.",
             f"tokenprobe_level_throughput_tokens_per_second{{{CELL}}}", "none", "total TPS"), 12, 11)
    p.add(xy("What does that load cost the first token?", "Exact P95 of the time to first token of the latest level of each cell against its concurrency.",
             f'tokenprobe_level_ttft_seconds{{{CELL},quantile="0.95"}}', "s", "TTFT P95"), 12, 11)
    by = "target, model, prompt_tokens"
    name = "{{target}} · {{model}} · {{prompt_tokens}}"
    p.add(series("Where is the knee?", "Concurrency beyond which total TPS stops growing, by the latest ladder. Absent while it is not reached.",
                 [(f"min by ({by}) (tokenprobe_ladder_knee_concurrency{{{LADDER}}})", name)], "none", defaults={"decimals": 0, "noValue": "no knee was reached"}), 12, 8)
    p.add(series("Which load is safe?", "70% of the knee, with the TTFT objective kept.",
                 [(f"min by ({by}) (tokenprobe_ladder_safe_concurrency{{{LADDER}}})", name)], "none", defaults={"decimals": 0, "noValue": "unknown"}), 12, 8)
    ladder = ["sweep", "target", "model", "prompt_tokens"]
    p.add(table("What does each ladder say?", "State of the knee by the latest ladder: found, not_reached (throughput still grew), unstable, failed.",
                {"holds": (f"max by ({', '.join(ladder)}, state) (tokenprobe_ladder_state{{{LADDER}}}) == 1", "none", None)}, [*ladder, "state"],
                without=["holds", "Value", "Value #A"]), 12, 8)
    p.add(table("What was found?", "Findings of the latest ladders.",
                {"holds": (f"max by ({', '.join(ladder)}, finding) (tokenprobe_finding{{{LADDER}}}) == 1", "none", None)}, [*ladder, "finding"],
                without=["holds", "Value", "Value #A"]), 12, 8)
    p.add(series("How many requests a second does each level complete?", "Requests that ended per second while the latest level was full, summed over the chosen models.",
                 [(f"sum by (concurrency) (tokenprobe_level_throughput_requests_per_second{{{CELL}}})", "{{concurrency}} at once")], "reqps"), 12, 8)
    p.add(series("Which levels were left out?", "Levels that were not run because the climb had ended, per bar.",
                 [(f"sum by (reason) (increase(tokenprobe_level_skips_total{{{LADDER}}}[$__interval])) > 0", "{{reason}}")], "short", bars=True,
                 defaults={"noValue": "none was left out"}), 12, 8)
    return dashboard("capacity", "Capacity", "Throughput and latency against concurrency, knee and safe load, findings.",
                     ["job", "instance", "target", "model", "sweep", "prompt_tokens", "concurrency"], p)


def compare():
    p = Panels()
    by = "target, model"
    name = "{{target}} · {{model}}"
    baseline = PROBER + ',target=~"$baseline_target",model=~"$baseline_model",sweep=~"$sweep",prompt_tokens=~"$prompt_tokens",concurrency=~"$concurrency"'

    def bars(title, description, expr, unit):
        options = {"displayMode": "basic", "orientation": "horizontal", "showUnfilled": True, "valueMode": "color", "minVizHeight": 16,
                   "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
        return panel("bargauge", title, description, [(expr, name)], unit, {"color": {"mode": "palette-classic"}, "min": 0}, (), options,
                     instant=True, range=False)

    def ratio(title, description, metric, selector):
        expr = f"""avg by ({by}) (
            avg by (target, model, prompt_tokens, concurrency) ({metric}{{{CELL}{selector}}})
            / on (prompt_tokens, concurrency) group_left ()
            avg by (prompt_tokens, concurrency) ({metric}{{{baseline}{selector}}}))"""
        return series(title, description, [(expr, name)], "percentunit", defaults={"decimals": 0})

    same = "Mean over the chosen cells of the latest levels; choose one prompt length and concurrency to compare like with like."
    median = ',quantile="0.5"'
    p.row("Side by side")
    p.add(bars("Who answers first? (TTFT P50)", same, level("tokenprobe_level_ttft_seconds", "0.5", by, CELL, "avg"), "s"), 8, 8)
    p.add(bars("Who writes fastest? (TPOT P50)", same + " Shorter is faster.", level("tokenprobe_level_tpot_seconds", "0.5", by, CELL, "avg"), "s"), 8, 8)
    p.add(bars("Who carries most? (total TPS)", same, f"avg by ({by}) (tokenprobe_level_throughput_tokens_per_second{{{CELL}}})", "none"), 8, 8)
    p.add(series("Time to first token", "Exact P50 of the latest levels, mean over the chosen cells.",
                 [(level("tokenprobe_level_ttft_seconds", "0.5", by, CELL, "avg"), name)], "s"), 12, 8)
    p.add(series("Time per output token", "Exact P50 of the latest levels, mean over the chosen cells.",
                 [(level("tokenprobe_level_tpot_seconds", "0.5", by, CELL, "avg"), name)], "s"), 12, 8)
    p.row("Against ${baseline_model} at ${baseline_target}")
    against = "Mean ratio over the cells that both have: 100% is the same, 200% twice as much."
    p.add(ratio("TTFT P50, relative", against, "tokenprobe_level_ttft_seconds", median), 8, 8)
    p.add(ratio("TPOT P50, relative", against, "tokenprobe_level_tpot_seconds", median), 8, 8)
    p.add(ratio("Total TPS, relative", against, "tokenprobe_level_throughput_tokens_per_second", ""), 8, 8)
    p.row("Against last week")
    ruled = RULED + ',sweep=~"$sweep",prompt_tokens=~"$prompt_tokens",concurrency=~"$concurrency"'
    for title, rule in [("TTFT", "tokenprobe_level_ttft_seconds"), ("TPOT", "tokenprobe_level_tpot_seconds"),
                        ("Total TPS", "tokenprobe_level_throughput_tokens_per_second")]:
        p.add(series(f"{title} to the same hours of last week", "Median of six hours, mean over the chosen cells with 20 good answers on both sides.",
                     [(f"avg by ({by}) (cell:{rule}:ratio_to_last_week{{{ruled}}})", name)], "percentunit",
                     defaults={"decimals": 0, "noValue": "needs a week of data"}), 8, 8)
    p.row("By location")
    # A prober does not know where it stands: the label comes with the scrape. Without it there is one line without a name.
    where, place = f"location, {by}", "{{location}} · {{target}} · {{model}}"
    p.add(series("TTFT P50 by location", "Exact P50 of the latest levels, mean over the chosen cells, by the label location that the scrape adds.",
                 [(level("tokenprobe_level_ttft_seconds", "0.5", where, CELL, "avg"), place)], "s"), 8, 8)
    p.add(series("TTFT against the nearest location", "Ratio to the location with the shortest TTFT P50 of the same target, model and cell, "
                 "mean over the chosen cells: what the way to the endpoint costs.",
                 [(f"""avg by ({where}) (
            avg by (location, target, model, prompt_tokens, concurrency) (tokenprobe_level_ttft_seconds{{{CELL}{median}}})
            / on (target, model, prompt_tokens, concurrency) group_left ()
            min by (target, model, prompt_tokens, concurrency) (tokenprobe_level_ttft_seconds{{{CELL}{median}}}))""", place)],
                 "percentunit", defaults={"decimals": 0}), 8, 8)
    p.add(states("Up by location", "Whether the latest probe from there brought text. Down from one place only is the way, down from all is the endpoint.",
                 (f"max by ({where}) (tokenprobe_up{{{MODEL}}})", place), UP), 8, 8)
    return dashboard("compare", "Compare", "Models and targets side by side on the same cells, against a chosen one, against last week, and by location.",
                     ["job", "instance", "target", "model", "sweep", "prompt_tokens", "concurrency", "baseline_target", "baseline_model"], p)


def prober():
    p = Panels()
    by = "sweep"
    columns = {
        "last start": (f"max by ({by}) (tokenprobe_sweep_last_start_timestamp_seconds{{{SWEEP}}}) * 1000", "dateTimeFromNow", None),
        "next start": (f"max by ({by}) (tokenprobe_sweep_next_start_timestamp_seconds{{{SWEEP}}}) * 1000", "dateTimeFromNow", None),
        "interval": (f"max by ({by}) (tokenprobe_sweep_interval_seconds{{{SWEEP}}})", "s", None),
        "last run took": (f"max by ({by}) (tokenprobe_sweep_duration_seconds{{{SWEEP}}})", "s", None),
        "of the interval": (f"max by ({by}) (tokenprobe_sweep_duration_seconds{{{SWEEP}}} / tokenprobe_sweep_interval_seconds{{{SWEEP}}})",
                            "percentunit", [(None, GREEN), (0.7, YELLOW), (1, RED)], ("decimals", 0)),
        "started late by": (f"max by ({by}) (tokenprobe_sweep_start_delay_seconds{{{SWEEP}}})", "s", [(None, GREEN), (1, RED)]),
        "runs": (f"sum by ({by}) (increase(tokenprobe_sweep_runs_total{{{SWEEP}}}[$__range]))", "short", None, ("decimals", 0)),
        "skipped": (f"sum by ({by}) (increase(tokenprobe_sweep_skips_total{{{SWEEP}}}[$__range]))", "short", [(None, GREEN), (1, ORANGE)], ("decimals", 0)),
    }
    p.row("Schedule")
    p.add(table("Does every sweep run when it should?", "Runs and skips over the time shown. A run that takes longer than its interval makes the next one skip.",
                columns, ["sweep"]), 24, 7)
    p.add(series("How do runs end?", "Runs by result, per bar.",
                 [(f"sum by (result) (increase(tokenprobe_sweep_runs_total{{{SWEEP}}}[$__interval])) > 0", "{{result}}")], "short",
                 {"completed": GREEN, "failed": RED, "aborted": ORANGE}, bars=True), 8, 8)
    p.add(series("Why are starts skipped?", "Due starts that did not happen, per bar.",
                 [(f"sum by (reason) (increase(tokenprobe_sweep_skips_total{{{SWEEP}}}[$__interval])) > 0", "{{reason}}")], "short", bars=True,
                 defaults={"noValue": "no start was skipped"}), 8, 8)
    p.add(series("How late do sweeps start?", "Start of the last run after its due time.",
                 [(f"max by (sweep) (tokenprobe_sweep_start_delay_seconds{{{SWEEP}}})", "{{sweep}}")], "s"), 8, 8)
    p.row("Can the numbers be trusted?")
    p.add(heatmap("How late is the prober itself?", "Delay of the prober's own timers while probing. Above 5 ms, or 5% of the time to first token, a level is marked.",
                  f"sum by (le) (increase(tokenprobe_client_delay_seconds_bucket{{{PROBER}}}[$__rate_interval]))", "s"), 12, 8)
    busy = [{"type": "value", "options": {"0": {"text": "trustworthy", "color": GREEN, "index": 0}, "1": {"text": "prober was busy", "color": ORANGE, "index": 1}}}]
    p.add(states("Which models were measured by a busy prober?", "Orange: the latest ladder was marked client_saturated; part of its latencies is the prober's own.",
                 (f'max by (target, model, prompt_tokens) (tokenprobe_finding{{{SWEEP},finding="client_saturated"}})', "{{target}} · {{model}} · {{prompt_tokens}}"), busy), 12, 8)
    p.row("Spending")
    p.add(series("What is left of the budgets?", "Within the current period.",
                 [(f"min by (scope, unit, period) (tokenprobe_budget_remaining{{{PROBER}}})", "{{scope}} · {{unit}} per {{period}}")], "short",
                 defaults={"noValue": "no budget is configured"}), 8, 8)
    p.add(series("Who spends the tokens?", "Prompt and output tokens, per bar.",
                 [(f"""sum by (sweep) (increase(tokenprobe_prompt_tokens_total{{{SWEEP}}}[$__interval]))
                   + sum by (sweep) (increase(tokenprobe_output_tokens_total{{{SWEEP}}}[$__interval]))""", "{{sweep}}")], "short", bars=True), 8, 8)
    p.add(series("How many probes run?", "Probes in flight, warm-up included.",
                 [(f"max by (instance) (tokenprobe_probes_in_flight{{{PROBER}}})", "{{instance}}")], "short"), 8, 8)
    p.row("Process")
    p.add(stat("Configuration", "Whether the latest configuration was accepted.", f"min(tokenprobe_config_last_reload_successful{{{PROBER}}})", "none",
               [(None, RED), (1, GREEN)], defaults={"mappings": [{"type": "value", "options": {
                   "0": {"text": "refused", "color": RED, "index": 0}, "1": {"text": "loaded", "color": GREEN, "index": 1}}}]}), 4, 4)
    p.add(stat("Loaded", "When the configuration was last accepted.",
               f"max(tokenprobe_config_last_reload_success_timestamp_seconds{{{PROBER}}}) * 1000", "dateTimeFromNow"), 4, 4)
    p.add(stat("Running since", "Start of the process.", f"min(process_start_time_seconds{{{PROBER}}}) * 1000", "dateTimeFromNow"), 4, 4)
    p.add(stat("Series", "Samples in the latest scrape.", f"sum(scrape_samples_scraped{{{PROBER}}})", "short"), 4, 4)
    p.add(stat("Refused connections", "Connections to the prober's own HTTP surface that were one too many, over the time shown.",
               f"sum(increase(tokenprobe_http_connections_refused_total{{{PROBER}}}[$__range]))", "short", [(None, GREEN), (1, ORANGE)], defaults={"decimals": 0}), 4, 4)
    p.add(stat("Version", "What is running.", (f"count by (version, revision) (tokenprobe_build_info{{{PROBER}}})", "{{version}} ({{revision}})"), "none") | {}, 4, 4)
    p.panels[-1]["options"]["textMode"] = "name"
    p.add(series("CPU", "Cores used.", [(f"sum by (instance) (rate(process_cpu_seconds_total{{{PROBER}}}[$__rate_interval]))", "{{instance}}")], "none"), 8, 7)
    p.add(series("Memory", "Resident memory.", [(f"sum by (instance) (process_resident_memory_bytes{{{PROBER}}})", "{{instance}}")], "bytes"), 8, 7)
    p.add(series("Open files", "File descriptors, and how many may be open.", [(f"sum by (instance) (process_open_fds{{{PROBER}}})", "{{instance}}"),
                 (f"min(process_max_fds{{{PROBER}}})", "limit")], "short", dashes=["limit"], custom={"scaleDistribution": {"type": "log", "log": 10}, "axisSoftMin": 1}), 8, 7)
    return dashboard("prober", "Prober", "Whether the prober does what it should: schedule, its own delay, spending, process.",
                     ["job", "instance", "sweep"], p)


def main():
    stale = []
    for made in (overview(), model(), capacity(), compare(), prober()):
        path = HERE / f"{made['uid']}.json"
        text = json.dumps(made, indent=2, ensure_ascii=False) + "\n"
        if not path.exists() or path.read_text() != text:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(text)
    if stale:
        print("not current:" if "--check" in sys.argv else "written:", *stale)
    sys.exit("--check" in sys.argv and bool(stale))


if __name__ == "__main__":
    main()
