"""The story of a real controller over a cloud: what left for the cloud, what the ledger says, what was billed."""

import json
from collections.abc import Mapping
from itertools import groupby

from tests.support.clouds.server import CloudServer
from tests.support.real.agents import eventually
from tests.support.real.local_site import Site


def for_programs(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without what is meant for the tests, which no program of ours takes for a setting."""
    return {name: value for name, value in environment.items() if name != "GPUWATCH_UPDATE_GOLDEN"}


def billed_hours(site: Site, node_id: str) -> float:
    """What `gpuwatch cost` says of a machine."""
    shown = site.run("cost", "--by", "node", "--json")
    assert shown.returncode == 0, shown.stderr
    groups = {group["name"]: group["machine_hours"] for group in json.loads(shown.stdout)["groups"]}
    return float(groups.get(node_id, 0.0))


def history(site: Site, node_id: str) -> list[str]:
    """The notice that led to the stop, and the stop: each with its outcomes."""
    explained = site.run("explain", node_id, "--json")
    assert explained.returncode == 0, explained.stderr
    entries = json.loads(explained.stdout)["history"]
    newest = {entry["intent"]["verb"]: entry for entry in sorted(entries, key=lambda entry: entry["intent"]["at"])}
    lines = []
    for verb in ("notice", "stop"):
        last = newest[verb]["outcomes"][-1]
        lines.append(f"{verb}: {last['status']}, {last['detail']}")
    return lines


def told(site: Site, server: CloudServer, idle: str, busy: str, reads: frozenset[str] = frozenset()) -> str:
    """The story so far: the idle machine is stopped and settled. `reads` are calls that change no machine.

    Billing of the stopped machine is looked at over as long as the busy one takes to be billed for two more seconds.
    """
    asked = [entry.asked.operation for entry in server.changes() if entry.asked.operation not in reads]
    before, begun = billed_hours(site, idle), billed_hours(site, busy)
    eventually(lambda: billed_hours(site, busy) > begun + 2 / 3600, site.log)
    more = round((billed_hours(site, idle) - before) * 3600)
    provider = json.loads(site.run("cost", "--by", "cloud", "--json").stdout)["groups"]
    lines = [
        "What left for the cloud",
        *(name for name, _ in groupby(asked)),
        "",
        "What the ledger says of the idle machine",
        *history(site, idle),
        "",
        "What is billed",
        f"the busy machine: on and on, in the cloud {', '.join(group['name'] for group in provider)}",
        f"the idle machine: {more} s since it is stopped",
    ]
    return "\n".join(lines)
