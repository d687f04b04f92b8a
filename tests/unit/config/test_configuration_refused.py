"""The configuration: what is refused, and how every mistake is told."""

import re
from pathlib import Path

import pytest

from gpuwatch.clouds.settings import CLOUDS
from gpuwatch.config import ConfigError, load
from gpuwatch.model.metric import GROUP_NAMES
from tests.support.builders.configurations import mistakes

REFUSED = {
    "misspelt": ("mdoe: enforce", 'FILE:1: mdoe: is not a key of the configuration (its value is "enforce")', "mode"),
    "misspelt below": (
        "pools:\n  a:\n    idle:\n      timout: 30m",
        'FILE:4: pools.a.idle.timout: is not a key of the configuration (its value is "30m")',
        "pools.a.idle.timeout",
    ),
    "misplaced": (
        "max_stops_per_hour: 3",
        "FILE:1: max_stops_per_hour: is not a key of the configuration (its value is 3)",
        "limits.max_stops_per_hour",
    ),
    "a wait without a unit": (
        "pools: {a: {idle: {timeout: 3}}}",
        "FILE:1: pools.a.idle.timeout: 3 has no unit",
        "a duration of at least 5m, or break_even, or learned; write 3h for hours",
    ),
    "unheard of": (
        "ledger: {colour: red}",
        'FILE:1: ledger.colour: is not a key of the configuration (its value is "red")',
        "one of path, url, url_file, leader_timeout, retention, quiet_round_retention, hourly_spend_retention",
    ),
    "secret": (
        "cloud: {secret_key: hush}",
        "FILE:1: cloud.secret_key: is not a key of the configuration (its value is (hidden))",
        f"one of provider, regions, endpoint_url, max_key_age, {', '.join(CLOUDS)}",
    ),
    "no choice": ("mode: enforced", 'FILE:1: mode: "enforced" is not one of the choices', "one of observe, enforce"),
    "no duration": (
        "interval: soon",
        'FILE:1: interval: "soon" is not a duration',
        "a duration at least 1s and at most 1h, written as 90s, 30m, 1h30m or 2d",
    ),
    "clock time": (
        "interval: 1:30",
        'FILE:1: interval: "1:30" is not a duration',
        "a duration at least 1s and at most 1h, written as 90s, 30m, 1h30m or 2d",
    ),
    "too small": (
        "interval: 10ms",
        'FILE:1: interval: "10ms" is too small',
        "a duration at least 1s and at most 1h",
    ),
    "not above": (
        "limits: {max_verdict_age: 0}",
        "FILE:1: limits.max_verdict_age: 0 is too small",
        "a duration above 0s and at most 5m",
    ),
    "too large": (
        "signals: {port: 70000}",
        "FILE:1: signals.port: 70000 is too large",
        "a whole number at least 1 and at most 65535",
    ),
    "no number": (
        "signals: {port: http}",
        'FILE:1: signals.port: "http" is not a whole number',
        "a whole number at least 1 and at most 65535",
    ),
    "a fraction": (
        "pools: {a: {min_nodes: 1.5}}",
        "FILE:1: pools.a.min_nodes: 1.5 is not a whole number",
        "a whole number at least 0",
    ),
    "a switch": (
        "pools: {a: {min_nodes: true}}",
        "FILE:1: pools.a.min_nodes: true is not a whole number",
        "a whole number at least 0",
    ),
    "not finite": (
        "interval: .inf",
        "FILE:1: interval: Infinity is not finite",
        "a duration at least 1s and at most 1h",
    ),
    "no text": (
        "ledger: {path: 7}",
        "FILE:1: ledger.path: 7 is not a text",
        'a text that is not empty; write "7" with quotes',
    ),
    "a choice that is a number": (
        "controller: {tls_min: 1.1}",
        "FILE:1: controller.tls_min: 1.1 is not one of the choices",
        "one of 1.2, 1.3",
    ),
    "empty text": ("ledger: {path: ''}", 'FILE:1: ledger.path: "" is empty', "a text that is not empty"),
    "no value": ("mode:", "FILE:1: mode: null is not one of the choices", "one of observe, enforce"),
    "no list": (
        "cloud: {regions: eu-west-1}",
        'FILE:1: cloud.regions: "eu-west-1" is not a list of texts',
        "a list of texts; write [eu-west-1]",
    ),
    "a list's item": (
        "cloud: {regions: [eu-west-1, 7]}",
        "FILE:1: cloud.regions.1: 7 is not a text",
        "a list of texts, written as [one, another]",
    ),
    "secret in a url": (
        "ledger: {urls: 'postgresql://me:hush@db/gpuwatch'}",
        "FILE:1: ledger.urls: is not a key of the configuration (its value is (hidden))",
        "ledger.url",
    ),
    "a webhook in the wrong place": (
        "notify: {receivers: {ops: {slack: 'https://hooks.example/services/T0/B0/hush'}}}",
        'FILE:1: notify.receivers.ops.slack: "https://hooks.example/(hidden)" is not a section',
        "a section of url_file, such as slack: {url_file: FILE}",
    ),
    "a webhook below a misspelt key": (
        "notify: {receivers: {ops: {slack: {uri: 'https://hooks.example/services?key=hush'}}}}",
        (
            "FILE:1: notify.receivers.ops.slack.uri: is not a key of the configuration "
            '(its value is "https://hooks.example/(hidden)")'
        ),
        "one of url_file",
    ),
    "a webhook with a misspelt scheme": (
        "notify: {receivers: {ops: {webhook: {url: 'htps://hooks.example/services/T0/hush'}}}}",
        "FILE:1: notify.receivers.ops.webhook.url 'htps://hooks.example/(hidden)' is not a valid URL",
        "a URL such as https://example.com/in",
    ),
    "a webhook without a host": (
        "notify: {receivers: {ops: {webhook: {url: 'https://'}}}}",
        "FILE:1: notify.receivers.ops.webhook.url 'https://' is not a valid URL",
        "a URL such as https://example.com/in",
    ),
    "a password in an address of agents": (
        "signals: {targets: {a: 'htp://me:hush@10.0.0.7:9460'}}",
        "FILE:1: signals.targets.a: 'htp://(hidden)@10.0.0.7:9460' is not a valid URL",
        "a URL such as http://10.0.0.7:9460",
    ),
    "a name without letters": (
        "budgets: {'': {usd_per_month: 5}}",
        "FILE:1: budgets.: the name '' is empty or has blanks around it",
        "a word",
    ),
    "a name of two lines": (
        'pools: {"a\\nb": {}}',
        "FILE:1: pools.a\nb: the name 'a\\nb' has a character that cannot be seen",
        "a word",
    ),
    "an amount without end": (
        "budgets: {m: {usd_per_month: '1E-99999999'}}",
        'FILE:1: budgets.m.usd_per_month: "1E-99999999" is too large or too small to be counted',
        "a number above 0",
    ),
    "misspelt password": (
        "ledger: {pasword: hush}",
        "FILE:1: ledger.pasword: is not a key of the configuration (its value is (hidden))",
        "one of path, url, url_file, leader_timeout, retention, quiet_round_retention, hourly_spend_retention",
    ),
    "what looks like a key": (
        "ledger: {colour: Xw9hushhushhushhushhush}",
        "FILE:1: ledger.colour: is not a key of the configuration (its value is (hidden))",
        "one of path, url, url_file, leader_timeout, retention, quiet_round_retention, hourly_spend_retention",
    ),
    "no section": (
        "ledger: x.db",
        'FILE:1: ledger: "x.db" is not a section',
        (
            "a section of path, url, url_file, leader_timeout, retention, quiet_round_retention, "
            "hourly_spend_retention, such as ledger: {path: …}"
        ),
    ),
    "a list for names": (
        "pools: [a]",
        "FILE:1: pools: a list is not a section of names",
        "a section of names",
    ),
    "twice": (
        "mode: observe\nfleet: x\nmode: enforce",
        "FILE:3: mode: is written twice, first in line 1",
        "one of the two",
    ),
    "tag": ("fleet: !secret x", "FILE:1: fleet: has the tag !secret", "a plain value without a tag"),
    "untrue tag": (
        "fleet: !!int x",
        "FILE:1: fleet: is not a value: invalid literal for int() with base 10: 'x'",
        "a plain value",
    ),
    "no url": (
        "signals: {targets: {i-1: host:80}}",
        "FILE:1: signals.targets.i-1: 'host:80' is not a valid URL",
        "a URL such as http://10.0.0.7:9460",
    ),
    "gap": (
        "agent:\n  interval: 20s\n",
        "FILE:2: agent.interval: agent.activity.max_gap (10s) does not exceed agent.interval (20s): no time counts",
        "an agent.activity.max_gap of several intervals, such as 3m20s",
    ),
    "restarts": (
        "agent: {restart_min: 10s, restart_max: 5s}",
        "FILE:1: agent.restart_max (5s) is shorter than agent.restart_min (10s)",
        "an agent.restart_max of 10s or more",
    ),
    "compat_only without compat": (
        "agent: {compat_only: true}",
        ("FILE:1: agent.compat_only is set, but agent.compat names no exporter: the page would be empty"),
        "agent.compat: a list of dcgm, nvidia_smi, nvitop; or no agent.compat_only",
    ),
    "no such group of metrics": (
        "agent: {metrics: [default, dcgm]}",
        'FILE:1: agent.metrics.1: "dcgm" is not one of the choices',
        f"a list out of default, all, {', '.join(GROUP_NAMES)}",
    ),
    "nothing to replay": (
        "agent: {source: replay}",
        "FILE:1: agent.source is replay, but agent.capture names no recording",
        "agent.capture: the file of a recorded probe stream",
    ),
    "always stale": (
        "signals: {timeout: 40s}",
        (
            "FILE:1: signals.timeout: limits.max_verdict_age (30s) does not exceed "
            "signals.timeout + agent.interval (41s): good answers would count as stale"
        ),
        "a limits.max_verdict_age above 41s",
    ),
    "no mapping": (
        "- mode",
        "FILE:1: the file holds a list and no keys",
        "lines such as `mode: observe`, indented with spaces",
    ),
    "a tabulator": (
        "ledger:\n\tpath: x",
        "FILE:2: is no YAML: found character '\\t' that cannot start any token",
        "lines such as `mode: observe`, indented with spaces",
    ),
    "a Slurm without its program": (
        "pools: {a: {}}\nslurm: {pools: [a]}",
        "FILE:2: slurm: the section slurm does not say where scontrol is",
        "scontrol: /usr/bin/scontrol",
    ),
    "a Slurm without pools": (
        "slurm: {scontrol: /usr/bin/scontrol}",
        "FILE:1: slurm.scontrol is set, and slurm.pools names no pool",
        "the pools of machines that are nodes of that cluster",
    ),
    "another Slurm program by its name alone": (
        "pools: {a: {}}\nslurm: {scontrol: /usr/bin/scontrol, squeue: squeue, pools: [a]}",
        "FILE:2: slurm.squeue is 'squeue'",
        "a whole path, such as /usr/bin/squeue",
    ),
    "a Slurm program by its name alone": (
        "pools: {a: {}}\nslurm: {scontrol: scontrol, pools: [a]}",
        "FILE:2: slurm.scontrol is 'scontrol'",
        "a whole path, such as /usr/bin/scontrol",
    ),
    "an owner of nodes without a cluster": (
        "pools: {a: {kubernetes: {node_owner: gpuwatch}}}",
        "FILE:1: pools.a.kubernetes.node_owner needs a cluster, and no cluster is set",
        "the section kubernetes with in_cluster: true or a kubeconfig",
    ),
    "pods without a cluster": (
        "pools: {a: {kubernetes: {pods: {action: as-annotated}}}}",
        "FILE:1: pools.a.kubernetes.pods needs a cluster, and no cluster is set",
        "the section kubernetes with in_cluster: true or a kubeconfig",
    ),
    "pods that are never known to be idle for so long": (
        (
            "kubernetes: {in_cluster: true}\n"
            "signals: {source: promql, promql: {url: 'http://10.0.0.7:9090', dialect: dcgm, lookback: 1h}}\n"
            "limits: {max_verdict_age: 2m}\n"
            "pools: {a: {idle: {timeout: 30m}, kubernetes: {pods: {action: as-annotated, timeout: 2h}}}}"
        ),
        (
            "FILE:4: pools.a.kubernetes.pods.timeout (2h) exceeds signals.promql.lookback (1h), beyond which nothing "
            "is known: no node would ever be idle for so long"
        ),
        "a signals.promql.lookback of 2h or more",
    ),
    "pods that nobody could approve": (
        "kubernetes: {in_cluster: true}\npools: {a: {approval: true, kubernetes: {pods: {action: as-annotated}}}}",
        "FILE:2: pools.a.approval is true, and `gpuwatch approve` is for machines: no pod would ever be ended",
        "approval: false, or pools.a.kubernetes.pods.action: report",
    ),
    "endless": (
        "pools: &a [*a]",
        "FILE: is no YAML: aliases repeat or contain each other without end",
        "lines such as `mode: observe`, indented with spaces",
    ),
}


@pytest.mark.parametrize(("text", "wrong", "right"), REFUSED.values(), ids=REFUSED)
def test_a_mistake_in_the_file_is_told_with_place_value_and_remedy(
    file: Path, text: str, wrong: str, right: str
) -> None:
    """Each kind of mistake names file, line, key and value, says what is wrong and what would be right."""
    assert mistakes(file, text) == f"{wrong}\n    expected: {right}"


REFUSED_VARIABLES = {
    "misspelt": ({"GPUWATCH_MDOE": "enforce"}, "GPUWATCH_MDOE: is not a setting", "GPUWATCH_MODE"),
    "one underscore": (
        {"GPUWATCH_LIMITS_MAX_STOPS_PER_HOUR": "3"},
        "GPUWATCH_LIMITS_MAX_STOPS_PER_HOUR: is not a setting",
        "GPUWATCH_LIMITS__MAX_STOPS_PER_HOUR",
    ),
    "in a pool": (
        {"GPUWATCH_POOLS__training__IDLE__TIMOUT": "45m"},
        "GPUWATCH_POOLS__training__IDLE__TIMOUT: is not a setting",
        "GPUWATCH_POOLS__training__IDLE__TIMEOUT",
    ),
    "prefix": ({"GPUWATHC_MODE": "enforce"}, "GPUWATHC_MODE: is not a setting", "GPUWATCH_MODE"),
    "small letters": ({"gpuwatch_mode": "enforce"}, "gpuwatch_mode: is not a setting", "GPUWATCH_MODE"),
    "unheard of": (
        {"GPUWATCH_QQQQ": "1"},
        "GPUWATCH_QQQQ: is not a setting",
        "a setting of docs/CONFIGURATION.md",
    ),
    "a whole section": (
        {"GPUWATCH_LEDGER": "{}"},
        "GPUWATCH_LEDGER: names a section",
        "one key of it, such as GPUWATCH_LEDGER__PATH",
    ),
    "twice": (
        {"GPUWATCH_MODE": "enforce", "GPUWATCH_Mode": "observe"},
        "GPUWATCH_Mode: sets mode, as does GPUWATCH_MODE",
        "one of the two",
    ),
    "bad value": (
        {"GPUWATCH_POOLS__training__IDLE__TIMEOUT": "soon"},
        'GPUWATCH_POOLS__training__IDLE__TIMEOUT: pools.training.idle.timeout: "soon" is not a duration',
        "a duration of at least 5m, or break_even, or learned, written as 90s, 30m, 1h30m or 2d",
    ),
    "bad number": (
        {"GPUWATCH_POOLS__training__MIN_NODES": "true"},
        'GPUWATCH_POOLS__training__MIN_NODES: pools.training.min_nodes: "true" is not a whole number',
        "a whole number at least 0",
    ),
}


@pytest.mark.parametrize(("env", "wrong", "right"), REFUSED_VARIABLES.values(), ids=REFUSED_VARIABLES)
def test_a_mistake_in_the_environment_names_the_variable(
    file: Path, env: dict[str, str], wrong: str, right: str
) -> None:
    """A variable that names no key, or holds what its key does not take, is refused with the right one."""
    assert mistakes(file, env=env) == f"environment variable {wrong}\n    expected: {right}"


def test_all_mistakes_are_told_at_once(file: Path) -> None:
    """Nobody has to run the check once for each mistake."""
    text = mistakes(file, "mdoe: x\nfleet: 3\ninterval: true", {"GPUWATCH_FLET": "x"})

    assert re.findall(r"^(?:FILE:\d+|environment variable): (\w+)|variable (\w+)", text, re.MULTILINE) == [
        ("interval", ""),
        ("", "GPUWATCH_FLET"),
        ("fleet", ""),
        ("mdoe", ""),
    ]


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        ("us-east-1", ("us-east-1",)),
        ("us-east-1, eu-west-1", ("us-east-1", "eu-west-1")),
        ("[us-east-1, eu-west-1]", ("us-east-1", "eu-west-1")),
        ('["us-east-1", "eu-west-1"]', ("us-east-1", "eu-west-1")),
    ],
)
def test_a_variable_sets_a_list(value: str, texts: tuple[str, ...]) -> None:
    """Separated by commas, or in brackets."""
    assert load(None, {"GPUWATCH_CLOUD__REGIONS": value}).cloud.regions == texts


def test_a_text_of_a_list_may_hold_a_comma() -> None:
    """In brackets and quotes."""
    assert load(None, {"GPUWATCH_CONTROLLER__ALLOWED_HOSTS": '["a, b", "c"]'}).controller.allowed_hosts == ("a, b", "c")


def test_a_variable_that_is_no_list_is_refused() -> None:
    """What begins like a list must be one: a command cut in pieces would be another command."""
    with pytest.raises(ConfigError, match="GPUWATCH_CLOUD__REGIONS: is not a list"):
        load(None, {"GPUWATCH_CLOUD__REGIONS": '["sh", "-c", "exit 3'})
