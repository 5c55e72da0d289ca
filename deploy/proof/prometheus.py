"""A Prometheus with our rules, and its HTTP interface."""

import json
import math
import pathlib
import urllib.parse
import urllib.request

from shorten import shorten
from stage import prometheus_program

RULES = pathlib.Path("deploy/prometheus/rules")


class Prometheus:
    def __init__(self, address):
        self.address = address

    @classmethod
    def start(cls, stage, name, jobs, scrape, shortened=False):
        rules = stage.scratch / f"{name}-rules"
        rules.mkdir()
        for file in RULES.glob("*.yaml"):
            text = file.read_text()
            (rules / file.name).write_text(shorten(text) if shortened else text)
        scrapes = [{"job_name": job, "static_configs": [{"targets": [address]}]} for job, address in jobs.items()]
        configuration = {"global": {"scrape_interval": scrape, "scrape_timeout": scrape, "evaluation_interval": scrape},
                         "rule_files": [f"{rules}/*.yaml"], "scrape_configs": scrapes}
        # JSON is YAML.
        file = stage.scratch / f"{name}.yml"
        file.write_text(json.dumps(configuration))
        address = stage.address(name)
        stage.run(name, prometheus_program(), f"--config.file={file}", f"--storage.tsdb.path={stage.scratch / name}",
                  f"--web.listen-address={address}")
        return cls(address)

    def get(self, path, **parameters):
        url = f"http://{self.address}/api/v1/{path}?" + urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:
                raise
            raise ValueError(json.load(error).get("error", str(error))) from error

    def series(self, expr):
        return self.get("query", query=expr)["result"]

    def numbers(self, expr):
        """The values that are numbers, of how many series."""
        values = [float(each["value"][1]) for each in self.series(expr)]
        return [value for value in values if not math.isnan(value)], len(values)

    def value(self, expr):
        """The only value; `None` where there is none."""
        found, _ = self.numbers(expr)
        return found[0] if len(found) == 1 else None
