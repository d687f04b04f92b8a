"""Keys of the configuration that do not exist, and what is no configuration: what was meant."""

from pathlib import Path

import pytest

from tests.support.builders.configurations import mistakes

MISSPELT = {
    "one section too high": (
        "pools:\n  a:\n    instance_store: discard",
        'FILE:3: pools.a.instance_store: is not a key of the configuration (its value is "discard")',
        "pools.a.idle.instance_store",
    ),
    "a section's name within the key": (
        "pools:\n  a:\n    idle_timeout: 30m",
        'FILE:3: pools.a.idle_timeout: is not a key of the configuration (its value is "30m")',
        "pools.a.idle.timeout",
    ),
    "another program's word for the address": (
        "agent: {listen: '0.0.0.0:9460'}",
        'FILE:1: agent.listen: is not a key of the configuration (its value is "0.0.0.0:9460")',
        "agent.host or agent.port",
    ),
    "a variable of a shell": (
        "fleet: ${TEAM}",
        "FILE:1: fleet: the file has ${TEAM}, and no variable is put in",
        "the value itself; or leave the key out, and set GPUWATCH_FLEET in the environment",
    ),
    "a variable of a template": (
        "fleet: '{{ team.name }}'",
        "FILE:1: fleet: the file has {{ team.name }}, and no variable is put in",
        "the value itself; or leave the key out, and set GPUWATCH_FLEET in the environment",
    ),
    "JSON without a comma": (
        '{"mode": "observe" "fleet": "ml"}',
        "FILE:1: is no YAML: expected ',' or '}', but got a value: a comma, a colon or a quote is missing",
        "lines such as `mode: observe`, indented with spaces",
    ),
    "another program's word for the machines of a group": (
        "pools:\n  a:\n    match: {tags: {env: prod}}",
        "FILE:3: pools.a.match: is not a key of the configuration (its value is a section)",
        "no key: a machine names its pool by the tag gpuwatch:pool, and its fleet by gpuwatch:fleet",
    ),
    "a key of a section alone at the top, though another name is like it": (
        "port: 9461",
        "FILE:1: port: is not a key of the configuration (its value is 9461)",
        "signals.port or controller.port or agent.port",
    ),
    "a neighbour's longer name": (
        "notify: {receivers: {hook: {webhook: {url_file: x}}}}",
        'FILE:1: notify.receivers.hook.webhook.url_file: is not a key of the configuration (its value is "x")',
        "notify.receivers.hook.webhook.url",
    ),
    "known in another section alone": (
        "ledger: {fleet: x}",
        'FILE:1: ledger.fleet: is not a key of the configuration (its value is "x")',
        (
            "one of path, url, url_file, leader_timeout, retention, quiet_round_retention, hourly_spend_retention; "
            "in another section there is fleet"
        ),
    ),
    "known in many sections": (
        "timeout: 30m",
        'FILE:1: timeout: is not a key of the configuration (its value is "30m")',
        "pools.<name>.idle.timeout or pools.<name>.kubernetes.pods.timeout or kubernetes.timeout",
    ),
}


@pytest.mark.parametrize(("text", "wrong", "right"), MISSPELT.values(), ids=MISSPELT)
def test_a_key_that_does_not_exist_leads_to_the_nearest(file: Path, text: str, wrong: str, right: str) -> None:
    """One section deeper, a neighbour, then elsewhere."""
    assert mistakes(file, text) == f"{wrong}\n    expected: {right}"
