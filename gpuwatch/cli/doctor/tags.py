"""What people write by hand and get wrong: tags of machines and groups, and settings that are for tests alone."""

from collections.abc import Iterable, Iterator

from gpuwatch.cli.doctor.cloud import listed, skipped
from gpuwatch.cli.doctor.context import ControllerCase
from gpuwatch.cli.doctor.report import Finding, fine, found, shown
from gpuwatch.clouds import CloudError
from gpuwatch.clouds.tags import expired, similar_fleet, slip
from gpuwatch.model.fleet import Node


def tags(case: ControllerCase) -> Iterator[Finding]:
    """Pools that the settings do not have, keys and values that are nearly right, protection that is over."""
    where = "tags of the GPU machines and their groups"
    nodes = listed(case)
    if nodes is None:
        yield skipped(where)
        return
    findings = [*_pools(case, nodes), *_keys(nodes), *_values(case, nodes)]
    yield from findings or (fine("tags", where, "each names a pool of the settings, and no key is misspelt"),)


def cautions(case: ControllerCase) -> Iterator[Finding]:
    """What the settings allow and no fleet that people use should have."""
    yield from (found("settings.for_tests", "the settings", each) for each in case.settings.cautions)


def _pools(case: ControllerCase, nodes: Iterable[Node]) -> Iterator[Finding]:
    """One finding for each unknown pool."""
    rules = case.settings.rulebook
    named: dict[str, list[str]] = {}
    for node in nodes:
        named.setdefault(node.pool, []).append(node.id)
    try:
        for group in case.cloud.groups():
            named.setdefault(group.pool, []).append(group.name)
    except CloudError as error:
        yield found("cloud.unusable", "tags of the groups", str(error))
    for pool in rules.unknown(named):
        yield found("pool.unknown", f"the pool {pool!r}", f"{rules.doubt(pool)} In it: {shown(sorted(named[pool]))}.")


def _keys(nodes: Iterable[Node]) -> Iterator[Finding]:
    """Keys that are nearly ours."""
    slips = [f"{node.id}: {key!r} (right: {right})" for node in nodes for key in node.tags if (right := slip(key))]
    if slips:
        yield found("tag.misspelt", "keys of the machines' tags", shown(slips))


def _values(case: ControllerCase, nodes: Iterable[Node]) -> Iterator[Finding]:
    """Fleets with a similar name, and protection that has expired."""
    fleet, now = case.settings.fleet, case.clock.now()
    near = [f"{node.id}: {named!r}" for node in nodes if (named := similar_fleet(node.tags, fleet)) is not None]
    if near:
        yield found("fleet.similar", f"machines with a fleet similar to {fleet!r}", shown(near))
    over = [node.id for node in nodes if node.enrolled and expired(node.tags, now)]
    if over:
        yield found("tag.expired", "machines with an expired tag gpuwatch:protect", shown(over))
