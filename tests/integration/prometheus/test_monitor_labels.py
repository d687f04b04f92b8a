"""What the chart's monitors tell a real Prometheus: a page keeps its users' labels, and takes none of its target's."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.fakes.http_sink import Answer, serving
from tests.support.paths import GOLDEN
from tests.support.real.agents import eventually
from tests.support.real.prometheus import RunningPrometheus

OF_TARGET = {"namespace": "gpuwatch", "pod": "gpuwatch-agent-1", "container": "agent", "node": "host-1"}
OF_USER = {"namespace": "team", "pod": "alice-0", "container": "train", "node": "gpu-1"}
PAGE = """\
forged{job="another",instance="victim:9460"} 1
used{pod="alice-0",namespace="team",container="train",node="gpu-1"} 1
plain 1
"""


def configuration(endpoint: Mapping[str, Any]) -> str:
    """What Prometheus Operator makes of an endpoint, after the labels that it gives each target."""

    def rules(found: Any) -> list[dict[str, Any]]:  # noqa: ANN401  of YAML
        return [
            {re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", key): rule[key] for key in rule} for rule in found
        ]

    target = [{"target_label": name, "replacement": value} for name, value in OF_TARGET.items()]
    written = {
        "honor_labels": endpoint["honorLabels"],
        "relabel_configs": [*target, *rules(endpoint["relabelings"])],
        "metric_relabel_configs": rules(endpoint["metricRelabelings"]),
    }
    return "".join(f"    {line}\n" for line in yaml.safe_dump(written).splitlines())


def labels(prometheus: RunningPrometheus, name: str) -> Mapping[str, str]:
    """Of the one series of that name."""
    eventually(lambda: bool(prometheus._ask(f"query?query={name}")["result"]), f"no series {name}".__str__)
    (found,) = prometheus._ask(f"query?query={name}")["result"]
    named: Mapping[str, str] = found["metric"]
    return {key: value for key, value in named.items() if not key.startswith(("__", "exported_"))}


@pytest.mark.parametrize(
    ("name", "kind", "key"),
    [
        pytest.param("everything", "ServiceMonitor", "endpoints", marks=pytest.mark.nightly),
        ("kubernetes", "PodMonitor", "podMetricsEndpoints"),
    ],
)
def test_a_page_is_its_own_job_and_instance(name: str, kind: str, key: str, tmp_path: Path) -> None:
    """Root of one host forges no other's series; pods on the GPUs keep their names, and all others have the agent's."""
    text = (GOLDEN / f"helm/{name}.yaml").read_text(encoding="utf-8")
    monitors = [each for each in yaml.safe_load_all(text) if each and each["kind"] == kind]
    (endpoint,) = next(each["spec"][key] for each in monitors if each["metadata"]["name"].endswith("-agent"))
    page = Answer(body=PAGE, headers={"Content-Type": "text/plain; version=0.0.4"})
    with serving(lambda _: page) as server:
        address = server.url.partition("://")[2]
        prometheus = RunningPrometheus(tmp_path / "prometheus", address, configuration(endpoint))
        try:
            own = {"job": "gpuwatch", "instance": address}

            assert labels(prometheus, "forged") == {**own, **OF_TARGET}
            assert labels(prometheus, "used") == {**own, **OF_USER}
            assert labels(prometheus, "plain") == {**own, **OF_TARGET}
        finally:
            prometheus.close()
