"""What is made to fail, how, and which alert must say so."""

import pathlib
import re
import signal
import urllib.request

from stage import seconds, wait_for

KEY = "the-right-key"
TWO_LADDERS = 'sum(tokenprobe_sweep_runs_total{job="demo",sweep="ladder",result="completed"}) >= bool 2'

# Each endpoint of the prober `faults` is a simulator of its own: (fault, alert).
ENDPOINTS = {
    "healthy": ("none", None),
    "refused": ("wrong key", "TokenprobeCredentialRejected"),
    "stopped": ("simulator stopped", "TokenprobeTargetDown"),
    "limited": ("+429", "TokenprobeRateLimited"),
    "slowed": ("+slow", "TokenprobeObjectiveBurnFast"),
}
# The prober `own` is wrong itself.
OWN = {
    "TokenprobeReloadFailed": "configuration refused",
    "TokenprobeArchiveUnusable": "archive's folder missing",
    "TokenprobeBudgetNearlySpent": "all of the budget but a little spent",
}
ALL_UP = 'min(tokenprobe_up{job=~"faults|own"}) == bool 1'
ABSENT = ("TokenprobeAbsent", "", "")
# What brings each alert (its name, job, target) about.
WHY = {(alert, "faults", target): fault for target, (fault, alert) in ENDPOINTS.items() if alert}
WHY |= {(alert, "own", ""): fault for alert, fault in OWN.items()} | {ABSENT: "no prober is scraped"}
EXPECTED = set(WHY) - {ABSENT}
# Of the machine that this runs on, which may be busy; it says nothing of what is shown here.
OURS = "TokenprobeClientSaturated"
BUSY = 'max(max_over_time(tokenprobe_finding{job="demo",finding="client_saturated"}[1m]))'
# Shown by deploy/prometheus/tests alone, and why.
UNPROVEN = {
    "TokenprobeQuotaExhausted": "the simulator has no allowance that ends",
    "TokenprobeObjectiveBurnSlow": "needs days of history",
    "TokenprobeTtftRegressed": "needs a week of history",
    "TokenprobeTpotRegressed": "needs a week of history",
    "TokenprobeThroughputRegressed": "needs a week of history",
    "TokenprobeKneeDropped": "needs a week of history",
    "TokenprobeNeverSucceeded": "needs a sweep that never ends",
    "TokenprobeNoLeader": "needs the API server of a Kubernetes cluster",
    "TokenprobeProbeStale": "needs a schedule that stands still",
    OURS: "depends on how busy this machine is",
}

ENDPOINT = """
[[targets]]
name = "{name}"
base_url = "http://{address}/v1"
models = ["steady"]
{more}
[[sweeps]]
name = "{name}"
every = "5s"
run_on_start = true
targets = ["{name}"]
prompt_tokens = [50]
concurrency = [1, 2]
requests_per_level = 3
max_tokens = 8
objectives = {{ ttft = "350ms", success_ratio = 0.99 }}
"""
# So that every panel has something to show: prices, reasoning, a warm cache, new connections, skipped starts, a knee.
RICH = """
[[targets]]
name = "rich"
base_url = "http://{address}/v1"
models = ["qwen3-8b+reasoning"]
prices = {{ "qwen3-8b+reasoning" = {{ input_per_million = 0.1, output_per_million = 0.4 }} }}

[[sweeps]]
name = "rich"
every = "5s"
run_on_start = true
targets = ["rich"]
prompt_tokens = [500]
concurrency = [1, 16, 64]
requests_per_level = 16
max_tokens = 8
reasoning_budget = 16
connection = "new"
prefix_cache = "warm"

[[sweeps]]
name = "rates"
every = "30s"
run_on_start = true
targets = ["rich"]
prompt_tokens = [100]
load = {{ rate = ["2/s", "4/s"] }}
requests_per_level = 8
max_tokens = 8
reasoning_budget = 16
"""
OWN_CONFIGURATION = """
[archive]
path = "missing/archive.db"
[budget]
requests_per_day = {budget}
"""


class Probers:
    """The probers `faults` and `own`, their simulators and their configurations."""

    def __init__(self, stage):
        self.stage = stage
        self.key = stage.scratch / "key"
        self.own = stage.scratch / "own.toml"
        self.archive = stage.scratch / "missing"
        self.key.write_text(KEY)
        text = f'[archive]\npath = "{stage.scratch}/faults.db"\n' + RICH.format(address=stage.address("simulator-rich"))
        for name in ENDPOINTS:
            more = f'api_key = {{ file = "{self.key}" }}\n' if name == "refused" else ""
            text += ENDPOINT.format(name=name, address=stage.address(f"simulator-{name}"), more=more)
        self.faults = stage.scratch / "faults.toml"
        self.faults.write_text(text)
        self.archive.mkdir()
        self.configure_own(budget=100000)
        stage.simulator("simulator-rich")
        for name in ENDPOINTS:
            self.simulate(name)

    def simulate(self, name):
        locked = ["--api-key-env", "SIMULATOR_KEY"] if name == "refused" else []
        self.stage.simulator(f"simulator-{name}", "--model", "steady:200ms:5ms", *locked, env={"SIMULATOR_KEY": KEY})

    def configure_own(self, budget):
        endpoint = ENDPOINT.format(name="own", address=self.stage.address("simulator-healthy"), more="")
        self.own.write_text(OWN_CONFIGURATION.format(budget=budget) + endpoint)

    def start(self):
        """Their addresses, by job."""
        return {name: self.stage.prober(name, "--config.file", file) for name, file in (("faults", self.faults), ("own", self.own))}

    def break_all(self):
        self.key.write_text("a-wrong-key")
        self.stage.end("simulator-stopped")
        self.switch("limited", "+429")
        self.switch("slowed", "+slow")
        self.archive.rename(self.archive.with_suffix(".gone"))
        # A budget that is spent within a minute; the reload that then fails leaves it in force.
        self.stage.end("own")
        self.configure_own(budget=80)
        self.start_own_again()
        self.own.write_text("nonsense = 1\n")
        self.stage.signal("own", signal.SIGHUP)

    def start_own_again(self):
        self.stage.prober("own", "--config.file", self.own)
        wait_for(30, lambda: ask(f"http://{self.stage.address('own')}/-/ready"))

    def mend_all(self):
        self.key.write_text(KEY)
        self.simulate("stopped")
        self.switch("limited", None)
        self.switch("slowed", None)
        self.archive.with_suffix(".gone").rename(self.archive)
        self.configure_own(budget=100000)
        self.stage.signal("own", signal.SIGHUP)

    def switch(self, name, fault):
        url = f"http://{self.stage.address(f'simulator-{name}')}/-/fault"
        body = f'{{"model": "steady", "fault": "{fault}"}}'.encode() if fault else None
        ask(urllib.request.Request(url, body, method="POST" if fault else "DELETE"))


class Watch:
    """Which alerts fire, and when that changes."""

    def __init__(self, server):
        self.server, self.firing, self.told = server, set(), set()

    def must_become(self, wanted, within):
        """Exactly these fire in the end, and none beside them and those of before on the way."""
        allowed = wanted | self.firing
        wait_for(within, lambda: self.look(allowed) == wanted,
                 lambda: f"missing: {sorted(wanted - self.firing)}, too many: {sorted(self.firing - wanted)}")

    def look(self, allowed):
        found = {(each["metric"]["alertname"], each["metric"].get("job", ""), each["metric"].get("target", ""))
                 for each in self.server.series('ALERTS{alertstate="firing"}')}
        found -= self.of_a_busy_machine(found)
        for change, those in (("fires", found - self.firing), ("ends", self.firing - found)):
            for alert, job, target in sorted(those):
                tell(change, alert, WHY.get((alert, job, target), "not expected") + f"  {job} {target}")
        self.firing = found
        if strange := found - allowed:
            raise SystemExit(f"these must not fire: {sorted(strange)}")
        return found

    def of_a_busy_machine(self, found):
        """Alerts that are told and not counted: that this machine is too busy to measure, and what follows from it for the
        demo, whose objectives are tight."""
        busy = self.server.value(BUSY) == 1
        ours = {each for each in found if each[0] == OURS or busy and each[:2] == ("TokenprobeObjectiveBurnFast", "demo")}
        for each in ours - self.told:
            tell("note", each[0], f"this machine is busy; not counted  {each[1]} {each[2]}")
        self.told |= ours
        return ours


def tell(change, alert, why):
    print(f"  {seconds():4.0f}s  {change:6} {alert:32} {why}", flush=True)


def check():
    """Every alert is either among the faults, or stands in the list with its reason."""
    rules = pathlib.Path("deploy/prometheus/rules/tokenprobe-alerts.yaml").read_text()
    alerts = set(re.findall(r"alert: (\w+)", rules))
    proven = {alert for alert, *_ in EXPECTED | {ABSENT}}
    if alerts != proven | set(UNPROVEN) or proven & set(UNPROVEN):
        raise SystemExit(f"neither provoked nor excused, or both: {sorted(alerts ^ proven ^ set(UNPROVEN))}")


def tell_excused():
    for alert, why in UNPROVEN.items():
        print(f"         not provoked here: {alert} ({why})")


def ask(request):
    with urllib.request.urlopen(request, timeout=5) as answer:
        return answer.status < 400
