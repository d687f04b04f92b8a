"""Mistakes in the configuration file, as `gpuwatch config check` answers them."""

from pathlib import Path

import pytest

from tests.support.mistakes import Mistake, a_folder, answer, in_folder

# What the file holds, and words of the answer; each answer names the file and the line, or the file.
FILES: dict[str, tuple[str | bytes, ...]] = {
    "tabs": ("pools:\n\ttraining: {}\n", "FILE:2", "indented with spaces"),
    "JSON that is cut": ('{"mode": "observe"', "FILE:1", "no YAML"),
    "a key twice": ("mode: observe\nmode: enforce\n", "FILE:2", "mode: is written twice, first in line 1"),
    "a pool twice": ("pools:\n  a: {}\n  a: {}\n", "FILE:3", "pools.a: is written twice"),
    "a list": ("- mode: observe\n", "FILE:1", "a list and no keys", "`mode: observe`"),
    "a word": ("mode\n", "FILE:1", '"mode" and no keys'),
    "two documents": ("mode: observe\n---\nmode: enforce\n", "FILE:2", "another document"),
    "an endless alias": ("a: &a [*a]\n", "FILE", "contain each other"),
    "UTF-16": (b"\xff\xfem\x00", "FILE", "is not UTF-8 text (byte 0xff at position 0); save it as UTF-8"),
    "Latin-1": ("fleet: M\xe4rz\n".encode("latin-1"), "FILE", "is not UTF-8 text (byte 0xe4"),
    "a control character": ("mode: observe\nfleet: a\x07b\n", "FILE:2", "control character 0x07"),
    "a key misspelt": ("mdoe: enforce\n", "FILE:1", "mdoe: is not a key", "mode"),
    "a key misplaced": ("max_stops_per_hour: 3\n", "limits.max_stops_per_hour"),
    "a key without its end": (
        "notify: {receivers: {chat: {slack: {url: hooks.slack.com/x}}}}\n",
        "notify.receivers.chat.slack.url_file",
    ),
    "a key in two parts": ("controller: {tls: {certificate: a.pem}}\n", "controller.tls_certificate"),
    "an unknown transport": ("notify: {receivers: {chat: {slak: {url_file: /x}}}}\n", "notify.receivers.chat.slack"),
    "an unknown section": ("notify: {routes: [{receiver: nobody}]}\n", "notify.routes", "receivers"),
    "a wrong choice": ("mode: enforced\n", 'mode: "enforced"', "observe, enforce"),
    "a truth": ("mode: true\n", "mode: true", "observe, enforce"),
    "a wrong action": (
        "pools: {t: {idle: {action: shutdown}}}\n",
        "pools.t.idle.action",
        '"shutdown"',
        "stop, terminate",
    ),
    "a number for a percentage": (
        "budgets: {all: {thresholds: [80]}}\n",
        "budgets.all.thresholds.0: 80 is not a text",
        "such as [50%, 80%, 100%]",
    ),
    "one for a list": ("budgets: {all: {thresholds: 80%}}\n", '"80%" is not a list', "such as [50%, 80%, 100%]"),
    "a place of a pool": ("pools: {a: {regions: [us-est-1]}}\n", "'us-est-1' is no region of aws", "us-east-1"),
    "no unit": ("pools: {t: {idle: {timeout: 30}}}\n", "pools.t.idle.timeout: 30 has no unit", "30m"),
    "a unit in words": ("pools: {t: {idle: {timeout: 30 minutes}}}\n", '"30 minutes"', "30m"),
    "an unknown unit": ("interval: 5M\n", '"5M" is not a duration', "30m"),
    "too short": ("interval: 10ms\n", '"10ms" is too small', "1s"),
    "a clock time": ("interval: 1:30\n", '"1:30" is not a duration'),
    "a yes": ("pools: {t: {idle: {timeout: yes}}}\n", '"yes" is not a duration'),
    "a number in words": ("limits: {max_stops_per_hour: three}\n", '"three" is not a whole number'),
    "a half": ("limits: {max_stops_per_hour: 3.5}\n", "3.5 is not a whole number"),
    "least above most": ("pools: {t: {min_nodes: 5, max_nodes: 2}}\n", "max_nodes (2) is below", "5 or more"),
    "replaced, not terminated": (
        "pools: {t: {health: {action: replace}}}\n",
        "idle.action stop",
        "idle.action: terminate",
    ),
    "pools as a list": ("pools: [training]\n", "pools: a list is not a section"),
    "an empty name": ('fleet: ""\n', 'fleet: "" is empty'),
    "a text for a list": ("cloud: {regions: us-east-1}\n", '"us-east-1" is not a list', "write [us-east-1]"),
    "texts for a list": ("cloud: {regions: 'us-east-1, us-west-2'}\n", "write [us-east-1, us-west-2]"),
    "an unknown region": ("cloud: {regions: [us-east-9]}\n", "cloud.regions: 'us-east-9'", "us-east-1"),
    "an unknown cloud": ("cloud: {provider: amazon}\n", "cloud.provider", "'amazon'", "aws"),
    "an unknown time zone": ("cost: {timezone: CEST}\n", "cost.timezone 'CEST'", "Europe/Berlin"),
    "a time zone misspelt": ("cost: {timezone: Europe/Berln}\n", "'Europe/Berln'", "Europe/Berlin"),
    "less than no money": ("budgets: {team: {usd_per_month: -5}}\n", "budgets.team.usd_per_month: -5", "above 0"),
    "money with its sign": ("budgets: {team: {usd_per_month: 10 $}}\n", '"10 $" is not a number', "write 10"),
    "money with its commas": ("budgets: {team: {usd_per_month: '$5,000'}}\n", '"$5,000" is not a number', "write 5000"),
    "a brace that is not closed": ("pools:\n  a: {min_nodes: 1\nmode: observe\n", "FILE:3", "of what begins in line 2"),
    "a colon that is missing": ("mode: observe\nfleet a\ninterval: 1m\n", "FILE:3", "of what begins in line 2"),
    "another database": ("ledger: {url: 'mysql://x/y'}\n", "ledger.url", "postgresql://"),
    "two ledgers": ("ledger: {path: /x.db, url: 'postgresql://x/y'}\n", "ledger.url", "ledger.path", "one of them"),
    "a port beyond all": ("signals: {targets: {a: 'http://10.0.0.7:99999'}}\n", "'http://10.0.0.7:99999'", "9460"),
    "an agent's metrics for the agent": (
        "signals: {targets: {a: 'http://10.0.0.7:9460/metrics'}}\n",
        "signals.targets.a",
        "ends with /metrics",
        "http://10.0.0.7:9460",
    ),
    "an address without scheme": ("signals: {promql: {url: 'prometheus:9090'}}\n", "'prometheus:9090'", "http://"),
    "PromQL that does not parse": (
        "pools: {t: {scaling: {metrics: {q: {signal: promql, expression: 'sum(rate(x[5m])', target: 1}}}}}\n",
        "pools.t.scaling.metrics.q.expression",
    ),
    "PromQL without its signal": (
        "pools: {t: {scaling: {metrics: {q: {expression: up, target: 1}}}}}\n",
        "pools.t.scaling.metrics.q.expression is set",
        "signal: promql",
    ),
    "a port in words": ("controller: {port: http}\n", '"http" is not a whole number', "65535"),
    "a port too large": ("agent: {port: 70000}\n", "agent.port: 70000 is too large", "65535"),
    "the whole network": ("agent: {host: 0.0.0.0}\n", "agent.host 0.0.0.0", "agent.tls_certificate"),
    "an unknown source": ("agent: {source: nvlm}\n", '"nvlm"', "nvml"),
    "half a pair of keys": ("controller: {tls_certificate: /x.pem}\n", "controller.tls_certificate", "tls_key"),
    "an unknown receiver's key": (
        "report: {receivers: {chat: {at: '25:00'}}}\n",
        "report.receivers.chat.at",
        "report.at",
    ),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder, made once."""
    return a_folder(tmp_path_factory.mktemp("begun"))


@pytest.mark.parametrize("name", FILES)
def test_a_mistake_in_the_file_is_answered_by_what_would_be_right(
    name: str, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer names the file, the key and the value."""
    body, *words = FILES[name]
    file = in_folder(made, monkeypatch) / "wrong.yaml"
    file.write_bytes(body if isinstance(body, bytes) else body.encode())
    told = " ".join(answer(Mistake("config check --config wrong.yaml", ()), monkeypatch).split())

    assert told.startswith("wrong.yaml:")
    assert "expected: " in told
    assert [each for each in words if str(each).replace("FILE", "wrong.yaml") not in told] == [], told


def test_every_mistake_of_a_file_is_told_at_once(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each on a line of its own, with what would be right below it."""
    file = in_folder(made, monkeypatch) / "wrong.yaml"
    file.write_text("mdoe: enforce\ninterval: soon\nfleet: ''\n", encoding="utf-8")
    told = answer(Mistake("config check --config wrong.yaml", ()), monkeypatch, most_lines=6)

    assert {line.split(": ")[0] for line in told.splitlines() if not line.startswith(" ")} == {
        "wrong.yaml:1",
        "wrong.yaml:2",
        "wrong.yaml:3",
    }
