"""Looks at what the validators cannot: the operator's resources, the dashboards' ConfigMaps, the compose file.

usage: deployment.py CHART KUSTOMIZE STANDBY (rendered, with everything switched on) DEFAULT (the chart as it is)
"""

import json
import pathlib
import sys

import yaml

RULES = {file.stem: yaml.safe_load(file.read_text()) for file in pathlib.Path("deploy/prometheus/rules").glob("*.yaml")}
DASHBOARDS = {file.name: json.loads(file.read_text()) for file in pathlib.Path("grafana/dashboards").glob("*.json")}


def main():
    chart, kustomize, standby, default = ([each for each in yaml.safe_load_all(pathlib.Path(file).read_text()) if each] for file in sys.argv[1:])
    for documents in (chart, kustomize, standby):
        rules(documents)
        monitor(documents)
    for documents, replicas in ((chart, 2), (standby, 2), (kustomize, 1), (default, 1)):
        election(documents, replicas)
    dashboards(chart)
    compose()
    print("rules, monitors, dashboards and compose file: as they should be")


def kind(documents, name):
    return [each for each in documents if each["kind"] == name]


def rules(documents):
    found = {each["metadata"]["name"]: each["spec"] for each in kind(documents, "PrometheusRule")}
    assert found == RULES, f"the PrometheusRules are not deploy/prometheus/rules: {sorted(found)}"


def monitor(documents):
    """The monitor finds the service, and the service the pods."""
    (monitor,), (service,), (deployment,) = (kind(documents, name) for name in ("ServiceMonitor", "Service", "Deployment"))
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    assert wanted <= service["metadata"]["labels"].items(), "the monitor does not find the service"
    pods = deployment["spec"]["template"]
    assert service["spec"]["selector"].items() <= pods["metadata"]["labels"].items(), "the service does not find the pods"
    assert monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]


def election(documents, replicas):
    """A token is in the pod only where it is needed, and it may do no more than what is needed."""
    (deployment,) = kind(documents, "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    several = replicas > 1
    assert deployment["spec"]["replicas"] == replicas
    assert pod["automountServiceAccountToken"] is several
    assert any(arg.startswith("--leader-election.lease=") for arg in pod["containers"][0]["args"]) is several
    roles = kind(documents, "Role")
    assert len(roles) == several
    for role in roles:
        assert {resource for rule in role["rules"] for resource in rule["resources"]} == {"leases"}
        (binding,) = kind(documents, "RoleBinding")
        assert binding["subjects"][0]["name"] == pod["serviceAccountName"] == kind(documents, "ServiceAccount")[0]["metadata"]["name"]


def dashboards(documents):
    found = {}
    for each in kind(documents, "ConfigMap"):
        if each["metadata"]["labels"].get("grafana_dashboard") == "1":
            found |= {name: json.loads(text) for name, text in each["data"].items()}
    assert found == DASHBOARDS, f"the ConfigMaps are not grafana/dashboards: {sorted(found)}"


def compose():
    here = pathlib.Path("deploy")
    whole = yaml.safe_load((here / "compose.yaml").read_text())
    for name, service in whole["services"].items():
        assert "build" in service or service["image"].split(":")[1][-1].isdigit(), f"{name}: image without a version"
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            exists = (here / source).exists() if source.startswith(".") else source in whole["volumes"]
            assert exists, f"{name}: {source} does not exist"
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), f"{name}: {port} is open to everybody"


main()
