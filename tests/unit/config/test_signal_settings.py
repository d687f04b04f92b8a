"""Settings of signals and of what the controller serves that are right by themselves and wrong together."""

from pathlib import Path

import pytest

from tests.support.builders.configurations import mistakes, read

URL = "url: http://127.0.0.1:9090"
WRONG = {
    "no URL": ("signals: {source: promql}", "signals.promql.url is not set"),
    "no URL that is one": ("signals: {promql: {url: prometheus:9090}}", "'prometheus:9090' is not a valid URL"),
    "no label": (f"signals: {{promql: {{{URL}, node_label: a-b}}}}", "signals.promql.node_label: 'a-b' is no label"),
    "half a user": ("signals: {promql: {username: ann}}", "is set without signals.promql.password_file"),
    "two ways to be": (
        "signals: {promql: {username: ann, password_file: x, bearer_file: y}}",
        "signals.promql.bearer_file and signals.promql.username are both set",
    ),
    "samples that are always stale": (
        f"signals: {{source: promql, promql: {{{URL}, scrape_interval: 30s}}}}",
        "limits.max_verdict_age (30s) does not exceed what Prometheus' newest sample may be old (31s)",
    ),
    "an idle time beyond what is looked at": (
        f"signals: {{source: promql, promql: {{{URL}, dialect: dcgm}}}}\npools: {{default: {{idle: {{timeout: 4h}}}}}}",
        "pools.default.idle.timeout (4h) exceeds signals.promql.lookback (2h)",
    ),
    "a window that proves little": ("signals: {promql: {lookback: 10m}}", "signals.promql.lookback"),
    "an open door": (
        "controller: {host: 0.0.0.0}",
        "controller.host 0.0.0.0 opens the controller to the network without encryption (TLS) and without auth",
    ),
}


@pytest.mark.parametrize(("text", "told"), WRONG.values(), ids=WRONG)
def test_what_cannot_work_is_told_with_its_key(text: str, told: str, tmp_path: Path) -> None:
    """Before the first round, not by a fleet that is unknown for ever."""
    assert told in mistakes(tmp_path / "gpuwatch.yaml", text)


def test_an_agents_dialect_needs_no_window(tmp_path: Path) -> None:
    """The agent itself knows for how long it has been idle."""
    text = f"signals: {{source: promql, promql: {{{URL}}}}}\npools: {{default: {{idle: {{timeout: 4h}}}}}}"

    assert read(tmp_path / "gpuwatch.yaml", text).signals.source == "promql"
