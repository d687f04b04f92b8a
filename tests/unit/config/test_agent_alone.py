"""config/agent_alone.py: the short way to an agent's settings says what the long way says, or nothing."""

from pathlib import Path

import pytest

from gpuwatch.agent.settings import AgentHandover
from gpuwatch.config import keys, load_handed
from gpuwatch.config.agent_alone import plainly
from gpuwatch.config.chosen_file import DEFAULT_PATH
from gpuwatch.config.keys import GROUPS, NAME, Kind
from gpuwatch.model.duration import format_duration
from tests.support.each import for_each

KEYS = [key for key in keys.declared_keys(AgentHandover).values() if key.kind not in GROUPS and NAME not in key.path]


@pytest.fixture(autouse=True)
def no_file_in_etc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The tester's own machine may be a GPU host."""
    monkeypatch.setattr("gpuwatch.config.chosen_file.DEFAULT_PATH", tmp_path / "none.yaml")


def example(key: keys.Key) -> str:
    """A value that may be written, other than the default where that is easy."""
    if key.choices:
        return key.choices[-1]
    match key.kind:
        case Kind.DURATION:
            return format_duration(float(str(key.default)) + 1) if key.default is not None else "90s"
        case Kind.SWITCH:
            return str(not key.default).lower()
        case Kind.NUMBER | Kind.WHOLE:
            return str(key.default)
        case _:
            return "unit:a.service, unit:b-*" if key.path[-1] in {"workloads", "services"} else "/a"


def both(path: Path | None, env: dict[str, str]) -> tuple[object, object]:
    """What the short way says, and the long one."""
    try:
        long: object = load_handed(path, env)
    except ValueError:
        long = None
    return plainly(path, env), long


def test_the_defaults_need_no_long_way() -> None:
    """Without a file and a variable of ours, and with those that any process has."""
    short, long = both(None, {"PATH": "/bin", "HOME": "/root", "CUDA_VISIBLE_DEVICES": "0", "GPUWATCH_CONFIG": ""})

    assert short is not None
    assert short == long
    assert Path("/etc/gpuwatch/gpuwatch.yaml") == DEFAULT_PATH


@for_each(KEYS, lambda key: key.dotted)
def test_each_variable_means_the_same(key: keys.Key) -> None:
    """Every key of an agent, by its variable."""
    short, long = both(None, {key.variable: example(key)})

    assert short == long


@for_each(KEYS, lambda key: key.dotted)
def test_each_line_means_the_same(key: keys.Key, tmp_path: Path) -> None:
    """Every key of an agent, in a file; a variable goes before it."""
    file = tmp_path / "gpuwatch.yaml"
    text = f"[{example(key)}]" if key.kind is Kind.LIST else example(key)
    for part in reversed(key.path):
        text = f"{{{part}: {text}}}"
    file.write_text(text, encoding="utf-8")
    alone, under = both(file, {}), both(file, {"GPUWATCH_AGENT__INTERVAL": "3s"})

    assert alone[0] == alone[1]
    assert under[0] == under[1]


@pytest.mark.parametrize(
    ("text", "env"),
    [
        ("agent: {interval: 3}", {}),
        ("agent: {interval: 3s", {}),
        ("agent: {intervall: 3s}", {}),
        ("agent: {interval: 3s, interval: 4s}", {}),
        ("agent: [a]", {}),
        ("mode: observe", {}),
        ("log_format: yaml", {}),
        ("agent: {restart_min: 9s, restart_max: 1s}", {}),
        ("agent: {tls_certificate: /a}", {}),
        ("agent: {evidence: {model_servers: {endpoints: {a: 'http://10.0.0.1/'}}}}", {}),
        ("agent: {users_file: 'credential:users'}", {}),
        ("", {"GPUWATCH_AGENT__PORT": "http"}),
        ("", {"GPUWATCH_AGENT__PROT": "1"}),
        ("", {"GPUWACH_AGENT__PORT": "1"}),
        ("", {"GPUWATCH_MODE": "observe"}),
        ("", {"gpuwatch_agent__port": "1"}),
        ("agent: {interval: 3s}", {"GPUWATCH_AGENT__COMPAT": '["dcgm"]'}),
    ],
)
def test_what_is_not_plain_is_left_to_the_long_way(tmp_path: Path, text: str, env: dict[str, str]) -> None:
    """A mistake, a contradiction, another's section, a name like ours: only the long way has words for it."""
    file = tmp_path / "gpuwatch.yaml"
    file.write_text(text, encoding="utf-8")

    assert plainly(file, env) is None


def test_a_file_that_cannot_be_read_is_left_to_the_long_way(tmp_path: Path) -> None:
    """One that is missing, and one that is no file."""
    assert plainly(tmp_path / "none.yaml", {}) is None
    assert plainly(tmp_path, {}) is None
