"""The vocabulary of the dashboards: panels, variables, annotations, and the expressions that they share.

Layout flows from left to right in a grid of 24 columns. Knows nothing of which dashboards there are.
"""

import typing

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
PROBER = 'job=~"$job",instance=~"$instance"'
MODEL = PROBER + ',target=~"$target",model=~"$model"'
SWEEP = PROBER + ',sweep=~"$sweep"'
LADDER = MODEL + ',sweep=~"$sweep",prompt_tokens=~"$prompt_tokens"'
CELL = LADDER + ',concurrency=~"$concurrency"'
# Rules have no instance: replicas of a prober are one.
RULED = 'job=~"$job",target=~"$target",model=~"$model",sweep=~"$sweep"'

BLUE, GREEN, YELLOW, ORANGE, RED, GREY = "blue", "green", "yellow", "orange", "red", "text"
QUANTILES = {"0.5": ("P50", BLUE), "0.95": ("P95", ORANGE), "0.99": ("P99", RED)}
# What is unknown has no colour: the first step is for it.
GOOD_RATIO = [(None, GREY), (0, RED), (0.95, YELLOW), (0.99, GREEN)]
NO_LAST_WEEK = "needs a week of history"


class Query(typing.NamedTuple):
    expr: str
    legend: str = "__auto"
    # Why it has no answer when deploy/prove asks it.
    empty: str | None = None


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
        query = Query(query) if isinstance(query, str) else Query(*query)
        made.append({"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": " ".join(query.expr.split()),
                     "legendFormat": query.legend, "editorMode": "code", "empty": query.empty, **extra})
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
    style = {"drawStyle": "line", "lineWidth": 2, "fillOpacity": 0, "showPoints": "never", "spanNulls": False,
             "lineInterpolation": "stepAfter", "axisSoftMin": 0}
    if bars:
        # Bars side by side, each with the events of its own span.
        style |= {"drawStyle": "bars", "fillOpacity": 80, "lineWidth": 0, "stacking": {"mode": "normal", "group": "A"}}
        rest |= {"interval": "2m", "maxDataPoints": 90}
    overrides = [override(name, ("color", {"mode": "fixed", "fixedColor": color}))
                 for name, color in (colors or {}).items()]
    overrides += [override(name, ("custom.lineStyle", {"fill": "dash", "dash": [8, 6]}), ("custom.lineWidth", 1),
                           ("color", {"mode": "fixed", "fixedColor": GREY})) for name in dashes]
    defaults = {"custom": style | (custom or {}), "color": {"mode": "palette-classic"}} | rest.pop("defaults", {})
    options = {"legend": {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []},
               "tooltip": {"mode": "multi", "sort": "desc"}}
    return panel("timeseries", title, description, queries, unit, defaults, overrides, options, **rest)


def by_level(title, description, queries, unit, **rest):
    """Lines whose names begin with a number: their legend counts 1, 2, 16, where Prometheus says 1, 16, 2."""
    order = [{"id": "joinByField", "options": {"byField": "Time", "mode": "outer"}},
             {"id": "organize", "options": {"orderByMode": "auto", "orderBy": [{"type": "name", "desc": False}]}}]
    return series(title, description, queries, unit, transformations=order, **rest)


def states(title, description, query, mappings):
    """A band per series over time, coloured by state."""
    options = {"showValue": "never", "mergeValues": True, "alignValue": "left", "rowHeight": 0.8, "perPage": 20,
               "legend": {"showLegend": False, "displayMode": "list", "placement": "bottom"},
               "tooltip": {"mode": "single", "sort": "none"}}
    defaults = {"mappings": mappings, "color": {"mode": "thresholds"}, "thresholds": steps([(None, GREY)]),
                "custom": {"fillOpacity": 80, "lineWidth": 0}}
    return panel("state-timeline", title, description, [query], "none", defaults, (), options)


def stat(title, description, query, unit, levels=((None, BLUE),), text="auto", size=36, **rest):
    options = {"colorMode": "value", "graphMode": "none", "justifyMode": "auto", "textMode": text, "text": {"valueSize": size},
               "orientation": "auto", "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    defaults = {"thresholds": steps(levels), "color": {"mode": "thresholds"}} | rest.pop("defaults", {})
    return panel("stat", title, description, [query], unit, defaults, (), options, instant=True, range=False, **rest)


def override(name, *properties, by="byName"):
    return {"matcher": {"id": by, "options": name}, "properties": [{"id": k, "value": v} for k, v in properties]}


def mapped(*states):
    """Words and colours for the values 0, 1, ..."""
    options = {str(value): {"text": text, "color": color, "index": value} for value, (text, color) in enumerate(states)}
    return [{"type": "value", "options": options}]


def table(title, description, columns, order, **rest):
    """One row per combination of labels. `columns`: header -> (query, unit, thresholds or None, more properties); a
    header without one is there for its labels, and not shown."""
    overrides, rename, hidden = [], {}, {"Time", "__name__", "job", "instance", *rest.pop("without", ())}
    for index, (header, (_, unit, *more)) in enumerate(columns.items()):
        value = f"Value #{chr(ord('A') + index)}" if len(columns) > 1 else "Value"
        if unit is None:
            hidden |= {value, f"Value #{chr(ord('A') + index)}"}
            continue
        rename[value] = header
        levels, *more = more
        properties = [("unit", unit), *more]
        if levels:
            properties += [("thresholds", steps(levels)), ("custom.cellOptions", {"type": "color-text"})]
        overrides.append(override(header, *properties))
    overrides += [override(label, ("custom.width", width)) for label, width in rest.pop("widths", {}).items()]
    overrides += rest.pop("overrides", [])
    transformations = [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": {"excludeByName": {name: True for name in sorted(hidden)}, "renameByName": rename,
                                       "indexByName": {name: i for i, name in enumerate(order)}}},
    ]
    defaults = {"custom": {"align": "auto", "filterable": False}, "color": {"mode": "thresholds"},
                "thresholds": steps([(None, GREY)])} | rest.pop("defaults", {})
    options = {"showHeader": True, "cellHeight": "sm", "sortBy": [{"displayName": order[0], "desc": False}]}
    return panel("table", title, description, [query for query, *_ in columns.values()], "none", defaults,
                 overrides, options, instant=True, range=False, format="table", transformations=transformations, **rest)


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


def xy(title, description, metric, unit, value, load="concurrency", empty=None, **rest):
    """The latest level of every cell, against its load; one line per model, target and prompt length."""
    transformations = [
        {"id": "convertFieldType", "options": {"conversions": [
            {"targetField": load, "destinationType": "number"}], "fields": {}}},
        # Both sorts together: a curve's points from left to right, and the same colour for it in every panel.
        {"id": "sortBy", "options": {"fields": {}, "sort": [{"field": load, "desc": False}]}},
        {"id": "sortBy", "options": {"fields": {}, "sort": [{"field": "series", "desc": False}]}},
        {"id": "organize", "options": {"excludeByName": {"Time": True}, "renameByName": {"Value": value}}},
        {"id": "partitionByValues", "options": {"fields": ["series"], "keepFields": False, "naming": {"asLabels": False}}},
    ]
    custom = {"show": "points+lines", "pointSize": {"fixed": 7}, "lineWidth": 2, "axisSoftMin": 0, "axisLabel": value,
              "scaleDistribution": {"type": "linear"}}
    overrides = [override(load, ("unit", "none"), ("custom.axisLabel", {"rate": "requests due per second"}.get(load, load)))]
    options = {"mapping": "auto", "series": [], "tooltip": {"mode": "single", "sort": "none"},
               "legend": {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []}}
    expr = f'label_join(sum by (target, model, prompt_tokens, {load}) ({metric}), "series", " · ", "target", "model", "prompt_tokens")'
    expr = f"sum by (series, {load}) ({expr})"
    return panel("xychart", title, description, [Query(expr, empty=empty)], unit, {"custom": custom, "color": {"mode": "palette-classic"}, **rest}, overrides, options,
                 instant=True, range=False, format="table", transformations=transformations)


def bars(title, description, expr, legend, unit):
    """A bar per series, the best at the top (`expr` is sorted)."""
    options = {"displayMode": "basic", "orientation": "horizontal", "showUnfilled": True, "valueMode": "color",
               "namePlacement": "left", "sizing": "auto", "minVizHeight": 16, "maxVizHeight": 28,
               "text": {"titleSize": 13, "valueSize": 16},
               "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    return panel("bargauge", title, description, [(expr, legend)], unit, {"min": 0, "color": {"mode": "fixed", "fixedColor": BLUE}}, (), options,
                 instant=True, range=False)


def variable(name, label, query, multi=True, hide=0, sort=1, every=".+"):
    made = {"name": name, "label": label, "type": "query", "datasource": SOURCE, "hide": hide, "refresh": 2,
            "definition": query, "query": {"query": query, "refId": "StandardVariableQuery"}, "regex": "", "sort": sort,
            "multi": multi, "includeAll": multi, "options": []}
    if multi:
        made |= {"allValue": every, "current": {"selected": True, "text": ["All"], "value": ["$__all"]}}
    return made


def choice(name, label, description, options, chosen):
    """A variable with fixed values: text -> value."""
    return {"name": name, "label": label, "type": "custom", "hide": 0, "description": description, "multi": False, "includeAll": False,
            "query": ",".join(text if text == value else f"{text} : {value}" for text, value in options.items()),
            "current": {"selected": True, "text": chosen, "value": options[chosen]},
            "options": [{"text": text, "value": value, "selected": text == chosen} for text, value in options.items()]}


def variables(names):
    series = f"tokenprobe_requests_total{{{LADDER}}}"
    known = {
        "job": variable("job", "Job", "label_values(tokenprobe_build_info, job)", hide=2),
        "instance": variable("instance", "Instance", 'label_values(tokenprobe_build_info{job=~"$job"}, instance)'),
        "target": variable("target", "Target", f"label_values(tokenprobe_requests_total{{{PROBER}}}, target)"),
        "model": variable("model", "Model", f'label_values(tokenprobe_requests_total{{{PROBER},target=~"$target"}}, model)'),
        "sweep": variable("sweep", "Sweep", f"label_values(tokenprobe_sweep_runs_total{{{PROBER}}}, sweep)"),
        "prompt_tokens": variable("prompt_tokens", "Prompt tokens",
                                  f'label_values(tokenprobe_requests_total{{{MODEL},sweep=~"$sweep"}}, prompt_tokens)', sort=3),
        "concurrency": variable("concurrency", "Concurrency", f"label_values({series}, concurrency)", sort=3,
                                # Levels at a rate have none.
                                every=".*"),
        "baseline_target": variable("baseline_target", "Compared with target",
                                    f"label_values(tokenprobe_requests_total{{{PROBER}}}, target)", multi=False),
        "baseline_model": variable("baseline_model", "and model",
                                   f'label_values(tokenprobe_requests_total{{{PROBER},target=~"$baseline_target"}}, model)', multi=False),
        "quantile": choice("quantile", "Percentile", "Of the panels by prompt length and by concurrency.",
                           {name: q for q, (name, _) in QUANTILES.items()}, "P95"),
        "window": choice("window", "Samples of", "How long samples are gathered for one point of a curve: several sweep intervals.",
                         {each: each for each in ("5m", "15m", "1h", "3h", "6h", "1d")}, "15m"),
    }
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0,
              "refresh": 1, "regex": "", "multi": False, "includeAll": False, "options": []}
    return [source, *(known[name] for name in names)]


def annotations():
    def one(name, expr, color, title, enable, tags, **more):
        return {"name": name, "datasource": SOURCE, "enable": enable, "hide": False, "iconColor": color,
                "target": {"refId": "Annotation", "expr": expr, "interval": "30s"},
                "titleFormat": title, "textFormat": "", "tagKeys": tags, **more}
    return {"list": [
        {"builtIn": 1, "datasource": {"type": "grafana", "uid": "-- Grafana --"}, "enable": True, "hide": True,
         "iconColor": BLUE, "name": "Annotations & Alerts", "type": "dashboard"},
        one("Alerts", 'max by (alertname, target, model) (ALERTS{alertname=~"Tokenprobe.+",alertstate="firing"})', RED,
            "{{alertname}} {{target}} {{model}}", False, "alertname"),
        one("Sweeps", f"max by (sweep) (tokenprobe_sweep_last_start_timestamp_seconds{{{PROBER}}}) * 1000", GREY,
            "sweep {{sweep}} started", False, "sweep", useValueForTime="on"),
        one("Reloads", f"max by (instance) (tokenprobe_config_last_reload_success_timestamp_seconds{{{PROBER}}}) * 1000",
            BLUE, "configuration loaded by {{instance}}", True, "instance", useValueForTime="on"),
    ]}


def dashboard(uid, title, description, names, panels, span="now-6h"):
    link = {"type": "dashboards", "tags": ["tokenprobe"], "title": "tokenprobe", "asDropdown": False, "icon": "external link",
            "includeVars": True, "keepTime": True, "targetBlank": False, "tooltip": "", "url": ""}
    return {
        "uid": f"tokenprobe-{uid}", "title": f"tokenprobe / {title}", "description": description, "tags": ["tokenprobe"],
        "editable": False, "graphTooltip": 1, "schemaVersion": 39, "version": 1, "refresh": "30s", "timezone": "browser",
        "time": {"from": span, "to": "now"}, "timepicker": {}, "fiscalYearStartMonth": 0, "liveNow": False, "weekStart": "",
        "links": [link], "annotations": annotations(), "templating": {"list": variables(names)}, "panels": panels.panels,
    }


def quantile(q, metric, by, selector):
    by = f"le, {by}" if by else "le"
    # Without samples a quantile is NaN: the comparison drops it.
    return f"histogram_quantile({q}, sum by ({by}) (increase({metric}_bucket{{{selector}}}[$window]))) >= 0"


def level(metric, q, by, selector, how="max"):
    return f'{how} by ({by}) ({metric}{{{selector},quantile="{q}"}})'


def objective(kind, selector=SWEEP):
    return Query(f'min(tokenprobe_objective_seconds{{{selector},objective="{kind}"}})', "objective")


def share(selector, window, by=""):
    """Share of measured probes within every objective."""
    by = f"by ({by}) " if by else ""
    return f"""sum {by}(increase(tokenprobe_requests_within_objective_total{{{selector},objective="all"}}[{window}]))
        / (sum {by}(increase(tokenprobe_requests_total{{{selector}}}[{window}])) > 0)"""


def promised(metric, selector, window):
    """An increase of sweeps that have an objective ratio: others may miss objectives on purpose."""
    return f"increase({metric}{{{selector}}}[{window}]) and on (job, instance, sweep) tokenprobe_objective_ratio{{{PROBER}}}"


def kept(selector, window, by=""):
    """`share` of those sweeps."""
    by = f"by ({by}) " if by else ""
    within = selector + ',objective="all"'
    return f"""sum {by}({promised("tokenprobe_requests_within_objective_total", within, window)})
        / (sum {by}({promised("tokenprobe_requests_total", selector, window)}) > 0)"""


def per_bar(metric, selector, by):
    """Events of the span of each bar, of what happened at all in the time shown."""
    return f"""sum by ({by}) (increase({metric}{{{selector}}}[$__interval]))
        and on ({by}) sum by ({by}) (increase({metric}{{{selector}}}[$__range] @ end())) > 0"""
