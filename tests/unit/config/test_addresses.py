"""Every setting that takes an address: a user or a password in it is refused, and shown nowhere."""

from pathlib import Path

import pytest

from tests.support.builders.configurations import VALUES, mistakes, read

URL = "http://anna:hush@10.0.0.7:9460"
WHERE = {
    "cloud.endpoint_url": f"cloud: {{endpoint_url: '{URL}'}}",
    "signals.targets.gpu1": f"signals: {{targets: {{gpu1: '{URL}'}}}}",
    "signals.promql.url": f"signals: {{promql: {{url: '{URL}'}}}}",
    "prices.live.endpoints.azure": f"prices: {{live: {{endpoints: {{azure: '{URL}'}}}}}}",
    "notify.url": f"notify: {{url: '{URL}'}}",
    "notify.receivers.ops.webhook.url": f"notify: {{receivers: {{ops: {{webhook: {{url: '{URL}'}}}}}}}}",
    "notify.receivers.ops.alertmanager.urls": f"notify: {{receivers: {{ops: {{alertmanager: {{urls: ['{URL}']}}}}}}}}",
    "report.receivers.ops.webhook.url": f"report: {{receivers: {{ops: {{webhook: {{url: '{URL}'}}}}}}}}",
    "agent.metadata.endpoint": f"agent: {{metadata: {{endpoint: '{URL}'}}}}",
    "agent.evidence.model_servers.endpoints.vllm": (
        f"agent: {{evidence: {{model_servers: {{endpoints: {{vllm: '{URL}'}}}}}}}}"
    ),
}
OTHERS = {
    "ledger.url": "PostgreSQL's own: its user is no secret, and its password is refused by a rule of its own",
    "clouds.<name>.endpoint_url": "as cloud.endpoint_url",
}


@pytest.mark.parametrize(("key", "text"), WHERE.items(), ids=WHERE)
def test_a_password_in_an_address_is_refused(key: str, text: str, tmp_path: Path) -> None:
    """By its key, whichever setting it is, and without the password."""
    told = mistakes(tmp_path / "gpuwatch.yaml", text)

    assert key in told
    assert "hush" not in told
    assert "user" in told


def test_no_setting_that_takes_an_address_is_forgotten() -> None:
    """A new one joins the table above, and so is refused a password, or says why it may hold one."""
    named = {"url", "urls", "endpoint", "endpoints", "endpoint_url", "targets", "proxy", "server"}
    found = {".".join(key.path) for key in VALUES if named & {part for part in key.path[-2:] if part != "<name>"}}
    chosen = {"gpu1", "ops", "azure", "vllm"}
    covered = {".".join("<name>" if part in chosen else part for part in key.split(".")) for key in WHERE}

    assert found - covered - set(OTHERS) == set()


@pytest.mark.parametrize("name", ["Authorization", "cookie", "X-Api-Key", "X-Auth-Token"])
def test_a_secret_header_goes_out_over_https_only(name: str, tmp_path: Path) -> None:
    """Prometheus' answers decide what is idle, and its header may be a tenant's key."""
    header = f"headers: {{{name}: hush}}"
    told = mistakes(tmp_path / "gpuwatch.yaml", f"signals: {{promql: {{url: 'http://10.0.0.7:9090', {header}}}}}")

    assert f"signals.promql.headers.{name} is a secret, and signals.promql.url is not https" in told
    assert "hush" not in told


@pytest.mark.parametrize(
    "rest",
    [
        "url: 'https://10.0.0.7:9090', headers: {Authorization: hush}",
        "url: 'http://127.0.0.1:9090', headers: {Authorization: hush}",
        "url: 'http://10.0.0.7:9090', headers: {X-Scope-OrgID: team}",
    ],
)
def test_other_headers_go_out_as_they_are(rest: str, tmp_path: Path) -> None:
    """A tenant's name may be read, and nobody reads loopback and https."""
    assert read(tmp_path / "gpuwatch.yaml", f"signals: {{promql: {{{rest}}}}}").signals.promql.headers
