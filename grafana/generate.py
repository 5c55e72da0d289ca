#!/usr/bin/env python3
"""Writes grafana/dashboards/*.json. With --check, only says whether they are current (exit code 1 if not).

Needs nothing but Python's standard library. One function per dashboard; a panel is a question (its title), how
to read the answer (its description) and the queries. A query that has no answer on the demo says why (`empty`);
deploy/prove asks them all and holds them to it.
"""

import json
import pathlib
import sys

sys.dont_write_bytecode = True
from panels import (  # noqa: E402
    BLUE, CELL, GOOD_RATIO, GREEN, LADDER, MODEL, NO_LAST_WEEK, ORANGE, PROBER, QUANTILES, RED, RULED, SWEEP, YELLOW,
    Panels, Query, bars, by_level, dashboard, heatmap, kept, level, mapped, objective, override, per_bar, quantile,
    series, share, stat, states, steps, table, xy,
)

HERE = pathlib.Path(__file__).parent / "dashboards"
UP = mapped(("down", RED), ("up", GREEN))
ENDPOINT = "{{target}} · {{model}}"
CURVE = "{{target}} · {{model}} · {{prompt_tokens}}"
TTFT, TPOT, TPS = "tokenprobe_level_ttft_seconds", "tokenprobe_level_tpot_seconds", "tokenprobe_level_throughput_tokens_per_second"
# Levels with a number of requests in flight, and levels at which requests come at a rate.
CLOSED, OPEN = CELL + ',concurrency!=""', LADDER + ',rate!=""'
PERCENTILES = {name: color for name, color in QUANTILES.values()}
RANGE = "$__range"


def percentiles(metric):
    """P50, P95 and P99 of all chosen cells together."""
    return [(quantile(q, metric, "", CELL), name) for q, (name, _) in QUANTILES.items()]


def overview():
    p = Panels()
    by = "target, model"
    chosen = MODEL + ',sweep=~"$sweep"'
    p.add(stat("Models up", "Models whose latest probe brought text.",
               f"sum(max by ({by}) (tokenprobe_up{{{MODEL}}}))", "none", [(None, RED), (1, GREEN)]), 4, 4)
    p.add(stat("Models down", "Models whose latest probe brought none. The table below says why.",
               f"count(max by ({by}) (tokenprobe_up{{{MODEL}}}) == 0) or vector(0)", "none", [(None, GREEN), (1, RED)]), 4, 4)
    p.add(stat("Objectives kept", "Share of measured probes that were good by every objective, over the time shown, of the sweeps that have a "
               "success_ratio. A ladder without one climbs past the knee on purpose. Failures count as bad.",
               kept(chosen, RANGE), "percentunit", GOOD_RATIO, defaults={"decimals": 2, "noValue": "no objective"}), 4, 4)
    p.add(stat("Failed probes", "Share of measured probes that failed, over the time shown.",
               f"""sum(increase(tokenprobe_request_failures_total{{{chosen}}}[$__range]))
               / (sum(increase(tokenprobe_requests_total{{{chosen}}}[$__range])) > 0)""",
               "percentunit", [(None, GREEN), (0.01, YELLOW), (0.05, RED)], defaults={"decimals": 2}), 4, 4)
    p.add(stat("Overdue sweeps", "Sweeps that should have started two minutes ago or earlier: what is shown of their models is old.",
               f"count(time() - tokenprobe_sweep_next_start_timestamp_seconds{{{SWEEP}}} > 120) or vector(0)", "none",
               [(None, GREEN), (1, RED)]), 4, 4)
    p.add(stat("Alerts", "Alerts of tokenprobe that fire now.",
               'count(ALERTS{alertname=~"Tokenprobe.+",alertstate="firing"}) or vector(0)', "none", [(None, GREEN), (1, RED)]), 4, 4)
    p.add(endpoints(by, chosen), 24, 9)
    p.add(states("When was what up?", "Latest probe of each model: green brought text, red did not.",
                 (f"max by ({by}) (tokenprobe_up{{{MODEL}}})", ENDPOINT), UP), 12, 7)
    firing = ["alertname", "severity", "target", "model", "sweep"]
    p.add(table("What fires?", "Alerts that fire now; the runbook of each says what it means and what to do.",
                {"fires": (f"""max by ({', '.join(firing)}) (ALERTS{{alertname=~"Tokenprobe.+",alertstate="firing"}})""", None)},
                firing, widths={"alertname": 250, "severity": 90}, defaults={"noValue": "nothing fires"},
                overrides=[override("severity", ("mappings", [{"type": "value", "options": {
                    "critical": {"text": "critical", "color": RED, "index": 0}, "warning": {"text": "warning", "color": ORANGE, "index": 1}}}]),
                    ("custom.cellOptions", {"type": "color-text"}))]), 12, 7)
    p.add(series("How long until the first token?", "P95 of the latest level, the worst cell of each model. Dashed: the strictest objective.",
                 [(level(TTFT, "0.95", by, chosen), ENDPOINT), objective("ttft")], "s", dashes=["objective"]), 8, 8)
    p.add(series("How many probes are within every objective?", "Share of measured probes of all sweeps, gathered over the window; a failure is not within.",
                 [(share(chosen, "$window", by), ENDPOINT)], "percentunit", defaults={"max": 1}), 8, 8)
    p.add(series("Why do probes fail?", "Failed measured probes by error class, per bar.",
                 [(per_bar("tokenprobe_request_failures_total", chosen, "reason"), "{{reason}}")],
                 "short", bars=True, defaults={"noValue": "no failures"}), 8, 8)
    return dashboard("overview", "Overview", "Which endpoints are up, within objective and fresh, and what changed against last week.",
                     ["job", "instance", "target", "model", "sweep", "window"], p)


def endpoints(by, chosen):
    """One row per target and model."""
    def last_week(metric):
        return Query(f"avg by ({by}) (cell:{metric}:ratio_to_last_week{{{RULED}}})", empty=NO_LAST_WEEK)

    def latency(q):
        return f"histogram_quantile({q}, sum by (le, {by}) (increase(tokenprobe_time_to_first_token_seconds_bucket{{{chosen}}}[$__range]))) >= 0"

    narrow = ("custom.width", 95)
    longer = ("percentunit", [(None, "text"), (0, GREEN), (1.15, YELLOW), (1.3, RED)], ("decimals", 0), ("custom.width", 125))
    columns = {
        "up": (f"max by ({by}) (tokenprobe_up{{{MODEL}}})", "none", [(None, RED), (1, GREEN)], ("mappings", UP), ("custom.width", 60)),
        "why": (f"max by ({by}, reason) (tokenprobe_failing{{{MODEL}}}) == 1", None),
        "result age": (f"""min by ({by}) (time() - (tokenprobe_sweep_last_end_timestamp_seconds{{{SWEEP}}}
                       + on (job, instance, sweep) group_right () 0 * max by (job, instance, sweep, {by}) (tokenprobe_ladder_state{{{chosen}}})))""",
                       "s", None, ("decimals", 0), narrow),
        "objectives kept": (kept(chosen, RANGE, by), "percentunit", GOOD_RATIO, ("decimals", 2), ("custom.width", 125)),
        "failed": (f"sum by ({by}) (increase(tokenprobe_request_failures_total{{{chosen}}}[$__range]))", "short",
                   [(None, GREEN), (1, ORANGE)], ("decimals", 0), ("custom.width", 70)),
        "TTFT P50": (latency("0.5"), "s", None, narrow),
        "TTFT P95": (latency("0.95"), "s", None, narrow),
        "TPOT mean": (f"""sum by ({by}) (increase(tokenprobe_time_per_output_token_seconds_sum{{{chosen}}}[$__range]))
                      / (sum by ({by}) (increase(tokenprobe_time_per_output_token_seconds_count{{{chosen}}}[$__range])) > 0)""", "s", None, narrow),
        "best TPS": (f"max by ({by}) ({TPS}{{{chosen}}})", "none", None, ("decimals", 0), narrow),
        "TTFT / last week": (last_week(TTFT), *longer),
        "TPOT / last week": (last_week(TPOT), *longer),
        "TPS / last week": (last_week(TPS), "percentunit", [(None, "text"), (0, RED), (0.75, YELLOW), (0.9, GREEN)], ("decimals", 0), ("custom.width", 125)),
    }
    link = [{"title": "Show the model", "targetBlank": False,
             "url": "/d/tokenprobe-model?var-target=${__data.fields.target}&var-model=${__data.fields.model}&${__url_time_range}"}]
    return table("How is every model doing?", "Over the time shown, all cells together. Last week: medians of six hours against the same hours of last "
                 "week, 100% is the same (best TPS: of the latest levels); empty until there is a last week with 20 good answers.", columns,
                 ["target", "model", "up", "reason"], overrides=[override("model", ("links", link))], widths={"reason": 115},
                 defaults={"noValue": "–"})


def model():
    p = Panels()
    chosen = "${quantile:text}"
    alone = " Mean over the chosen cells: choose one to see it alone."
    p.row("Time to first token")
    p.add(heatmap("How are first tokens distributed?", "Measured probes by time to first token; brighter is more.",
                  f"sum by (le) (increase(tokenprobe_time_to_first_token_seconds_bucket{{{CELL}}}[$__rate_interval]))", "s"), 12, 9)
    p.add(series("Typical and worst first tokens", "Percentiles of all chosen cells together, gathered over the window, from the histogram. Dashed: the objective.",
                 [*percentiles("tokenprobe_time_to_first_token_seconds"), objective("ttft")], "s", PERCENTILES, ["objective"]), 12, 9)
    p.add(by_level(f"Does the prompt length matter? ({chosen})", "Exact percentile of the latest level. Growing with the prompt: prefill." + alone,
                   [(level(TTFT, "$quantile", "prompt_tokens", CELL, "avg"), "{{prompt_tokens}} tokens")], "s"), 8, 8)
    p.add(by_level(f"Does concurrency matter? ({chosen})", "Exact percentile of the latest level. Growing with concurrency: requests wait." + alone,
                   [(level(TTFT, "$quantile", "concurrency", CLOSED, "avg"), "{{concurrency}} at once")], "s"), 8, 8)
    p.add(by_level("Is there a tail? (P99 / P50)", "Exact P99 of the latest level over its P50. Far above 1 while P50 is fine: queueing, or stalls. Levels of fewer "
                   "than 100 requests have no reliable P99.",
                   [(f"""max by (concurrency) ({TTFT}{{{CLOSED},quantile="0.99"}} / ignoring (quantile) {TTFT}{{{CLOSED},quantile="0.5"}})""",
                     "{{concurrency}} at once")], "none", defaults={"decimals": 1}), 8, 8)
    p.row("The stream")
    p.add(series("How fast does text flow? (TPOT)", "Time per output token, percentiles of the chosen cells, gathered over the window. Dashed: the objective.",
                 [*percentiles("tokenprobe_time_per_output_token_seconds"), objective("tpot")], "s", PERCENTILES, ["objective"]), 8, 8)
    p.add(by_level(f"Does TPOT grow with the prompt? ({chosen})", "Exact percentile of the latest level. Rising: attention over a long context." + alone,
                   [(level(TPOT, "$quantile", "prompt_tokens", CELL, "avg"), "{{prompt_tokens}} tokens")], "s"), 8, 8)
    p.add(by_level(f"Does TPOT grow with concurrency? ({chosen})", "Exact percentile of the latest level. Rising steadily: decode is the bottleneck." + alone,
                   [(level(TPOT, "$quantile", "concurrency", CLOSED, "avg"), "{{concurrency}} at once")], "s"), 8, 8)
    p.add(by_level(f"Does the stream stall? ({chosen})", "Gap between reads that carried tokens. A read may carry several tokens.",
                   [(quantile("$quantile", "tokenprobe_chunk_gap_seconds", "concurrency", CLOSED), "{{concurrency}} at once")], "s"), 8, 8)
    p.add(by_level("How fast is one answer? (P50, tokens/s)", "Output tokens per second of single requests, gathered over the window.",
                   [(quantile("0.5", "tokenprobe_output_tokens_per_second", "concurrency", CLOSED), "{{concurrency}} at once")], "none"), 8, 8)
    p.add(series("How long does a whole request take?", "Percentiles of the duration, failed probes included.",
                 percentiles("tokenprobe_request_duration_seconds"), "s", PERCENTILES), 8, 8)
    p.row("Failures and limits")
    p.add(series("Why do probes fail?", "Failed measured probes by error class, per bar.",
                 [(per_bar("tokenprobe_request_failures_total", CELL, "reason"), "{{reason}}")], "short",
                 bars=True, defaults={"noValue": "no failures"}), 8, 8)
    p.add(series("Which objective is missed?", "Share of measured probes outside each objective; a failure is outside all.",
                 [(f"""1 - sum by (objective) (increase(tokenprobe_requests_within_objective_total{{{CELL}}}[$window]))
                   / on () group_left () (sum(increase(tokenprobe_requests_total{{{CELL}}}[$window])) > 0)""", "{{objective}}")], "percentunit",
                 custom={"axisSoftMax": 0.05}), 8, 8)
    p.add(series("How much does the provider still allow?", "What is left of its rate limits, by the headers of the latest answer.",
                 [Query(f"min by (target, model, unit) (tokenprobe_rate_limit_remaining{{{MODEL}}} / tokenprobe_rate_limit{{{MODEL}}})",
                        ENDPOINT + " · {{unit}}", "the simulator tells no limits")], "percentunit",
                 custom={"axisSoftMax": 1}, defaults={"noValue": "the provider tells no limits"}), 8, 8)
    p.add(series("How long does connecting take? (P95)", "Each phase, of probes that opened a connection (with reuse: the warm-up's).",
                 [(quantile("0.95", "tokenprobe_connection_phase_seconds", "phase", PROBER + ',target=~"$target"'), "{{phase}}")], "s"), 12, 7)
    p.add(series("How long does reasoning keep the answer back?", "Mean time to the first answer token less mean time to the first token of any kind.",
                 [(f"""sum by (model) (increase(tokenprobe_time_to_first_answer_token_seconds_sum{{{CELL}}}[$window]))
                   / (sum by (model) (increase(tokenprobe_time_to_first_answer_token_seconds_count{{{CELL}}}[$window])) > 0)
                   - sum by (model) (increase(tokenprobe_time_to_first_token_seconds_sum{{{CELL}}}[$window]))
                   / (sum by (model) (increase(tokenprobe_time_to_first_token_seconds_count{{{CELL}}}[$window])) > 0)""", "{{model}}")], "s",
                 custom={"axisSoftMax": 0.1}), 12, 7)
    p.row("Tokens and cost")
    models = MODEL + ',sweep=~"$sweep"'

    def tokens(kind):
        return f"sum(increase(tokenprobe_{kind}_tokens_total{{{models}}}[$__interval]))"

    p.add(series("What do the prompts consume?", "Prompt tokens per bar, warm-up included, by the server's count.",
                 [(f"{tokens('prompt')} - {tokens('cached_prompt')}", "read"), (tokens("cached_prompt"), "from the cache")],
                 "short", {"read": BLUE, "from the cache": GREEN}, bars=True), 8, 8)
    p.add(series("What do the answers consume?", "Output tokens per bar, warm-up included, by the server's count.",
                 [(f"{tokens('output')} - {tokens('reasoning')}", "answer"), (tokens("reasoning"), "reasoning")],
                 "short", {"answer": BLUE, "reasoning": ORANGE}, bars=True), 8, 8)
    p.add(series("What do the probes cost?", "Money per bar, where a price is configured.",
                 [(f"sum by (target, currency) (increase(tokenprobe_cost_total{{{MODEL}}}[$__interval]))", "{{target}} · {{currency}}")], "none", bars=True,
                 defaults={"noValue": "no price is configured"}), 8, 8)
    return dashboard("model", "Model", "Latency, flow, failures and tokens of the chosen models, by prompt length and concurrency.",
                     ["job", "instance", "target", "model", "sweep", "prompt_tokens", "concurrency", "quantile", "window"], p)


def capacity():
    p = Panels()
    by = "target, model, prompt_tokens"
    p.add(xy("How much load does it carry?", "Total TPS of the latest level of each cell against its concurrency. Where a line bends, the knee is.",
             f"{TPS}{{{CLOSED}}}", "none", "total tokens/s"), 12, 11)
    p.add(xy("What does that load cost the first token? (TTFT P95)", "Exact P95 of the latest level of each cell against its concurrency.",
             f'{TTFT}{{{CLOSED},quantile="0.95"}}', "s", "TTFT P95"), 12, 11)
    p.add(series("Where is the knee?", "Concurrency beyond which total TPS stops growing, by the latest ladder. Absent while it is not reached.",
                 [(f"min by ({by}) (tokenprobe_ladder_knee_concurrency{{{LADDER}}})", CURVE)], "none",
                 defaults={"decimals": 0, "noValue": "no knee was reached"}), 12, 8)
    p.add(series("Which load is safe?", "70% of the knee, with the TTFT objective kept.",
                 [(f"min by ({by}) (tokenprobe_ladder_safe_concurrency{{{LADDER}}})", CURVE)], "none",
                 defaults={"decimals": 0, "noValue": "unknown"}), 12, 8)
    ladder = ["target", "model", "prompt_tokens", "sweep"]
    p.add(table("What does each ladder say?", "State of the knee by the latest ladder: found, not_reached (throughput still grew), unstable (nobody can "
                "tell), failed.", {"holds": (f"max by ({', '.join(ladder)}, state) (tokenprobe_ladder_state{{{LADDER}}}) == 1", None)},
                [*ladder, "state"], widths={"prompt_tokens": 115, "sweep": 100, "state": 110},
                overrides=[override("state", ("custom.cellOptions", {"type": "color-text"}), ("mappings", [{"type": "value", "options": {
                    "found": {"text": "found", "color": GREEN, "index": 0}, "not_reached": {"text": "not reached", "color": BLUE, "index": 1},
                    "unstable": {"text": "unstable", "color": ORANGE, "index": 2}, "failed": {"text": "failed", "color": RED, "index": 3}}}]))]), 10, 9)
    findings = "https://github.com/tokenprobe/tokenprobe#findings"
    p.add(table("What was found?", "Findings of the latest ladders; the link leads to what each means and what to do.",
                {"holds": (f"max by ({', '.join(ladder)}, finding) (tokenprobe_finding{{{LADDER}}}) == 1", None)},
                ["finding", *ladder], widths={"finding": 240, "prompt_tokens": 115, "sweep": 100},
                overrides=[override("finding", ("links", [{"title": "What it means", "url": findings, "targetBlank": True}]))]), 14, 9)
    p.add(xy("How many requests a second does it complete?", "Requests that ended per second while the latest level of each cell was full.",
             f"tokenprobe_level_throughput_requests_per_second{{{CLOSED}}}", "reqps", "requests/s"), 12, 9)
    p.add(series("Which levels were left out?", "Levels that were not run because the climb had ended, per bar.",
                 [(per_bar("tokenprobe_level_skips_total", LADDER, "reason"), "{{reason}}")], "short", bars=True,
                 defaults={"noValue": "none was left out"}), 12, 9)
    rates(p)
    return dashboard("capacity", "Capacity", "Throughput and latency against concurrency, knee and safe load, findings.",
                     ["job", "instance", "target", "model", "sweep", "prompt_tokens", "concurrency"], p)


def rates(p):
    """Ladders whose levels are rates: requests come when they are due, whatever became of those before."""
    none = "no sweep has rates"
    by = "target, model, prompt_tokens"
    p.row("At a rate of arrivals")
    p.add(xy("What does the rate cost the first token? (TTFT P95)", "Exact P95 of the latest level of each cell, counted from when a request was due.",
             f'{TTFT}{{{OPEN},quantile="0.95"}}', "s", "TTFT P95", "rate", noValue=none), 12, 9)
    p.add(xy("How many requests a second does it complete? (at a rate)", "Requests that ended per second. Below the rate that they come at: it cannot keep up.",
             f"tokenprobe_level_throughput_requests_per_second{{{OPEN}}}", "reqps", "requests/s", "rate", noValue=none), 12, 9)
    p.add(series("Where is the knee? (at a rate)", "Highest rate at which answers still came as fast as requests, by the latest ladder of rates; safe: 70% of it "
                 "with every objective kept.",
                 [Query(f"min by ({by}) (tokenprobe_ladder_knee_requests_per_second{{{LADDER}}})", CURVE, "the ladder of rates stays below its knee"),
                  Query(f"min by ({by}) (tokenprobe_ladder_safe_requests_per_second{{{LADDER}}})", "safe: " + CURVE, "the ladder of rates stays below its knee")],
                 "reqps", defaults={"noValue": "no knee was reached"}), 12, 8)
    p.add(series("Which requests could not be sent?", "Requests that were due while as many as load.max_in_flight allows were in flight, per bar; they are in no other metric.",
                 [Query(per_bar("tokenprobe_arrivals_not_sent_total", LADDER, by), CURVE, "every arrival was sent")], "short", bars=True,
                 defaults={"noValue": "every request was sent"}), 12, 8)


def compare():
    p = Panels()
    by = "target, model"
    baseline = (PROBER + ',target=~"$baseline_target",model=~"$baseline_model",sweep=~"$sweep",prompt_tokens=~"$prompt_tokens",'
                'concurrency=~"$concurrency"')
    median = ',quantile="0.5"'
    # A line at "the same".
    relative = {"decimals": 0, "thresholds": steps([(None, "transparent"), (1, "text")])}
    around = {"thresholdsStyle": {"mode": "dashed"}, "axisSoftMin": 0.5, "axisSoftMax": 1.5}

    def ratio(title, metric, selector):
        expr = f"""avg by ({by}) (
            avg by (target, model, prompt_tokens, concurrency, rate) ({metric}{{{CELL}{selector}}})
            / on (prompt_tokens, concurrency, rate) group_left ()
            avg by (prompt_tokens, concurrency, rate) ({metric}{{{baseline}{selector}}}))"""
        return series(title, "Mean ratio over the cells that both have: 100% is the same, 200% twice as much.", [(expr, ENDPOINT)], "percentunit",
                      custom=around, defaults={**relative, "noValue": "no cell that both have"})

    same = "Mean over the chosen cells of the latest levels; choose one prompt length and concurrency to compare like with like."
    p.row("Side by side")
    p.add(bars("Who answers first? (TTFT P50)", same, f"sort({level(TTFT, '0.5', by, CELL, 'avg')})", ENDPOINT, "s"), 8, 8)
    p.add(bars("Who writes fastest? (TPOT P50)", same + " Shorter is faster.", f"sort({level(TPOT, '0.5', by, CELL, 'avg')})", ENDPOINT, "s"), 8, 8)
    p.add(bars("Who carries most? (total tokens/s)", same, f"sort_desc(avg by ({by}) ({TPS}{{{CELL}}}))", ENDPOINT, "none"), 8, 8)
    p.add(series("Time to first token (P50)", same, [(level(TTFT, "0.5", by, CELL, "avg"), ENDPOINT)], "s"), 8, 8)
    p.add(series("Time per output token (P50)", same, [(level(TPOT, "0.5", by, CELL, "avg"), ENDPOINT)], "s"), 8, 8)
    p.add(series("Total TPS (tokens/s)", same, [(f"avg by ({by}) ({TPS}{{{CELL}}})", ENDPOINT)], "none"), 8, 8)
    p.row("Against ${baseline_model} at ${baseline_target}")
    p.add(ratio("TTFT P50, relative", TTFT, median), 8, 8)
    p.add(ratio("TPOT P50, relative", TPOT, median), 8, 8)
    p.add(ratio("Total TPS, relative", TPS, ""), 8, 8)
    p.row("Against the same hours of last week")
    ruled = RULED + ',prompt_tokens=~"$prompt_tokens",concurrency=~"$concurrency"'
    for title, rule in [("TTFT", TTFT), ("TPOT", TPOT), ("Total TPS", TPS)]:
        p.add(series(f"{title}, relative to last week", "Median of six hours, mean over the chosen cells with 20 good answers on both sides.",
                     [Query(f"avg by ({by}) (cell:{rule}:ratio_to_last_week{{{ruled}}})", ENDPOINT, NO_LAST_WEEK)], "percentunit",
                     custom=around, defaults={**relative, "noValue": "needs a week of data"}), 8, 8)
    p.row("By location")
    # A prober does not know where it stands: the label comes with the scrape. Without it there is one line without a name.
    where, place = f"location, {by}", "{{location}} · {{target}} · {{model}}"
    p.add(series("TTFT P50 by location", same + " The label location is added by the scrape.", [(level(TTFT, "0.5", where, CELL, "avg"), place)], "s"), 8, 8)
    p.add(series("TTFT against the nearest location", "Ratio to the location with the shortest TTFT P50 of the same target, model and cell, "
                 "mean over the chosen cells: what the way to the endpoint costs.",
                 [(f"""avg by ({where}) (
            avg by (location, target, model, prompt_tokens, concurrency, rate) ({TTFT}{{{CELL}{median}}})
            / on (target, model, prompt_tokens, concurrency, rate) group_left ()
            min by (target, model, prompt_tokens, concurrency, rate) ({TTFT}{{{CELL}{median}}}))""", place)],
                 "percentunit", custom=around, defaults={"decimals": 0}), 8, 8)
    p.add(states("Up by location", "Whether the latest probe from there brought text. Down from one place only is the way, down from all is the endpoint.",
                 (f"max by ({where}) (tokenprobe_up{{{MODEL}}})", place), UP), 8, 8)
    return dashboard("compare", "Compare", "Models and targets side by side on the same cells, against a chosen one, against last week, and by location.",
                     ["job", "instance", "target", "model", "sweep", "prompt_tokens", "concurrency", "baseline_target", "baseline_model"], p)


def prober():
    p = Panels()
    schedule(p)
    p.row("Can the numbers be trusted?")
    p.add(heatmap("How late is the prober itself?", "Delay of the prober's own timers while probing. Above 5 ms, or 5% of the time to first token, a level is marked.",
                  f"sum by (le) (increase(tokenprobe_client_delay_seconds_bucket{{{PROBER}}}[$__rate_interval]))", "s"), 12, 8)
    p.add(states("Which models were measured by a busy prober?", "Orange: the latest ladder was marked client_saturated; part of its latencies is the prober's own.",
                 (f'max by (target, model, prompt_tokens) (tokenprobe_finding{{{SWEEP},finding="client_saturated"}})', CURVE),
                 mapped(("trustworthy", GREEN), ("prober was busy", ORANGE))), 12, 8)
    p.row("Spending")
    p.add(series("What is left of the budgets?", "Within the current period, of what is allowed.",
                 [(f"min by (scope, unit, period) (tokenprobe_budget_remaining{{{PROBER}}} / tokenprobe_budget_limit{{{PROBER}}})",
                   "{{scope}} · {{unit}} per {{period}}")], "percentunit", custom={"axisSoftMax": 1}, defaults={"noValue": "no budget is configured"}), 8, 8)
    p.add(series("Who spends the tokens?", "Prompt and output tokens, per bar.",
                 [(f"""sum by (sweep) (increase(tokenprobe_prompt_tokens_total{{{SWEEP}}}[$__interval]))
                   + sum by (sweep) (increase(tokenprobe_output_tokens_total{{{SWEEP}}}[$__interval]))""", "{{sweep}}")], "short", bars=True), 8, 8)
    p.add(series("How many probes run?", "Probes in flight, warm-up included.",
                 [(f"max by (instance) (tokenprobe_probes_in_flight{{{PROBER}}})", "{{instance}}")], "short"), 8, 8)
    p.add(series("What are probes sent for?", "Probes by role, per bar: only measured ones enter the latencies.",
                 [(per_bar("tokenprobe_probe_attempts_total", PROBER, "role"), "{{role}}")], "short", bars=True), 12, 8)
    p.add(series("What becomes of them?", "Probes of every role by result, per bar. Cancelled: given up by the prober itself.",
                 [(per_bar("tokenprobe_probe_results_total", PROBER, "result"), "{{result}}")], "short",
                 {"success": GREEN, "failure": RED, "cancelled": ORANGE}, bars=True), 12, 8)
    archive(p)
    process(p)
    return dashboard("prober", "Prober", "Whether the prober does what it should: schedule, its own delay, spending, archive, process.",
                     ["job", "instance", "sweep"], p)


def schedule(p):
    by = "sweep"
    columns = {
        "last start": (f"max by ({by}) (tokenprobe_sweep_last_start_timestamp_seconds{{{SWEEP}}}) * 1000", "dateTimeFromNow", None),
        "due next": (f"max by ({by}) (tokenprobe_sweep_next_start_timestamp_seconds{{{SWEEP}}}) * 1000", "dateTimeFromNow", None),
        "interval": (f"max by ({by}) (tokenprobe_sweep_interval_seconds{{{SWEEP}}})", "s", None),
        "last run took": (f"max by ({by}) (tokenprobe_sweep_duration_seconds{{{SWEEP}}})", "s", None),
        "of the interval": (f"max by ({by}) (tokenprobe_sweep_duration_seconds{{{SWEEP}}} / tokenprobe_sweep_interval_seconds{{{SWEEP}}})",
                            "percentunit", [(None, GREEN), (0.7, YELLOW), (1, RED)], ("decimals", 0)),
        "started late by": (f"max by ({by}) (tokenprobe_sweep_start_delay_seconds{{{SWEEP}}})", "s", [(None, GREEN), (1, RED)]),
        "runs": (f"sum by ({by}) (increase(tokenprobe_sweep_runs_total{{{SWEEP}}}[$__range]))", "short", None, ("decimals", 0)),
        "not completed": (f'sum by ({by}) (increase(tokenprobe_sweep_runs_total{{{SWEEP},result!="completed"}}[$__range]))', "short",
                          [(None, GREEN), (1, ORANGE)], ("decimals", 0)),
        "skipped": (f"sum by ({by}) (increase(tokenprobe_sweep_skips_total{{{SWEEP}}}[$__range]))", "short", [(None, GREEN), (1, ORANGE)], ("decimals", 0)),
    }
    p.row("Schedule")
    p.add(table("Does every sweep run when it should?", "Runs and skips over the time shown. A run that takes longer than its interval makes the next one skip.",
                columns, ["sweep"]), 24, 7)
    p.add(series("How do runs end?", "Runs by result, per bar.", [(per_bar("tokenprobe_sweep_runs_total", SWEEP, "result"), "{{result}}")], "short",
                 {"completed": GREEN, "failed": RED, "aborted": ORANGE}, bars=True), 8, 8)
    p.add(series("Why are starts skipped?", "Due starts that did not happen, per bar.", [(per_bar("tokenprobe_sweep_skips_total", SWEEP, "reason"), "{{reason}}")],
                 "short", bars=True, defaults={"noValue": "no start was skipped"}), 8, 8)
    p.add(series("How late do sweeps start?", "Start of the last run after its due time.",
                 [(f"max by (sweep) (tokenprobe_sweep_start_delay_seconds{{{SWEEP}}})", "{{sweep}}")], "s"), 8, 8)


def archive(p):
    p.row("Archive")
    p.add(stat("Archive", "Whether the last write to the archive succeeded.", f"min(tokenprobe_archive_up{{{PROBER}}})", "none",
               [(None, RED), (1, GREEN)], size=24, defaults={"mappings": mapped(("cannot be written", RED), ("written", GREEN)), "noValue": "no archive"}), 4, 7)
    p.add(series("Is anything lost?", "Writes that failed (they are tried again) and entries that were dropped (they are lost), per bar.",
                 [(f"sum(increase(tokenprobe_archive_write_failures_total{{{PROBER}}}[$__interval])) > 0", "failed writes"),
                  (f"sum(increase(tokenprobe_archive_dropped_total{{{PROBER}}}[$__interval])) > 0", "dropped entries",
                   "the queue holds more than the proof's outage brings")], "short", {"failed writes": ORANGE, "dropped entries": RED},
                 bars=True, defaults={"noValue": "nothing failed"}), 10, 7)
    p.add(series("How large is it?", "Size of the archive's file.", [(f"sum by (instance) (tokenprobe_archive_size_bytes{{{PROBER}}})", "{{instance}}")],
                 "bytes", defaults={"noValue": "no archive"}), 10, 7)


def process(p):
    p.row("Process")
    p.add(stat("Configuration", "Whether the latest configuration was accepted.", f"min(tokenprobe_config_last_reload_successful{{{PROBER}}})", "none",
               [(None, RED), (1, GREEN)], size=24, defaults={"mappings": mapped(("refused", RED), ("loaded", GREEN))}), 4, 4)
    p.add(stat("Loaded", "When the configuration was last accepted.",
               f"max(tokenprobe_config_last_reload_success_timestamp_seconds{{{PROBER}}}) * 1000", "dateTimeFromNow", size=20), 4, 4)
    p.add(stat("Running since", "Start of the process.", f"min(process_start_time_seconds{{{PROBER}}}) * 1000", "dateTimeFromNow", size=20), 4, 4)
    p.add(stat("Series", "Samples in the latest scrape. The configuration's max_series refuses more.", f"sum(scrape_samples_scraped{{{PROBER}}})", "short",
               size=24), 4, 4)
    p.add(stat("Refused connections", "Connections to the prober's own HTTP surface that were one too many, over the time shown.",
               f"sum(increase(tokenprobe_http_connections_refused_total{{{PROBER}}}[$__range]))", "short", [(None, GREEN), (1, ORANGE)], size=24,
               defaults={"decimals": 0}), 4, 4)
    p.add(stat("Version", "What is running.", (f"count by (version, revision) (tokenprobe_build_info{{{PROBER}}})", "{{version}} ({{revision}})"), "none",
               text="name", size=16), 4, 4)
    p.add(series("CPU", "Cores used.", [(f"sum by (instance) (rate(process_cpu_seconds_total{{{PROBER}}}[$__rate_interval]))", "{{instance}}")], "none"), 8, 7)
    p.add(series("Memory", "Resident memory.", [(f"sum by (instance) (process_resident_memory_bytes{{{PROBER}}})", "{{instance}}")], "bytes"), 8, 7)
    p.add(series("Open files", "File descriptors, and how many may be open.", [(f"sum by (instance) (process_open_fds{{{PROBER}}})", "{{instance}}"),
                 (f"min(process_max_fds{{{PROBER}}})", "limit")], "short", dashes=["limit"],
                 custom={"scaleDistribution": {"type": "log", "log": 10}, "axisSoftMin": 1}), 8, 7)
    p.add(series("Who leads?", "1 for the replica that holds the lease and probes; the others stand by.",
                 [Query(f"max by (instance) (tokenprobe_leader{{{PROBER}}})", "{{instance}}", "a single prober elects nobody")], "none",
                 defaults={"decimals": 0, "noValue": "no leader election"}), 12, 5)
    p.add(series("Does the lease answer?", "Requests about the lease that were not granted, per bar.",
                 [Query(f"sum by (instance) (increase(tokenprobe_lease_request_failures_total{{{PROBER}}}[$__interval])) > 0", "{{instance}}",
                        "a single prober elects nobody")], "short", bars=True, defaults={"noValue": "nothing failed"}), 12, 5)


def dashboards():
    """All of them, with what only the proof reads."""
    return [overview(), model(), capacity(), compare(), prober()]


def written(made):
    for each in made["panels"]:
        for target in each.get("targets", []):
            del target["empty"]
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"


def main():
    stale = []
    for made in dashboards():
        path, text = HERE / f"{made['uid']}.json", written(made)
        if not path.exists() or path.read_text() != text:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(text)
    if stale:
        print("not current:" if "--check" in sys.argv else "written:", *stale)
    sys.exit("--check" in sys.argv and bool(stale))


if __name__ == "__main__":
    main()
