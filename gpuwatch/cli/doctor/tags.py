"""What people write by hand and get wrong: tags of machines and groups, and settings that are for tests alone."""

from collections.abc import Iterable, Iterator

from gpuwatch.cli.doctor.cloud import list_fleet, skipped_finding
from gpuwatch.cli.doctor.context import ControllerCase
from gpuwatch.cli.doctor.report import Finding, fine, first_names, make_finding
from gpuwatch.clouds import CloudError
from gpuwatch.clouds.tags import has_expired, similar_fleet, slip
from gpuwatch.model.fleet import Node


def tags(case: ControllerCase) -> Iterator[Finding]:
    """Pools that the settings do not have, keys and values that are nearly right, protection that is over."""
    where = "tags of the GPU machines and their groups"
    nodes = list_fleet(case)
    if nodes is None:
        yield skipped_finding(where)
        return
    findings = [*_pools(case, nodes), *_keys(nodes), *_values(case, nodes)]
    yield from findings or (fine("tags", where, "each names a pool of the settings, and no key is misspelt"),)


def cautions(case: ControllerCase) -> Iterator[Finding]:
    """What the settings allow and no fleet that people use should have."""
    yield from (make_finding("settings.for_tests", "the settings", each) for each in case.settings.cautions)


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
        yield make_finding("cloud.unusable", "tags of the groups", str(error))
    for pool in rules.unknown(named):
        yield make_finding(
            "pool.unknown", f"the pool {pool!r}", f"{rules.doubt(pool)} In it: {first_names(sorted(named[pool]))}."
        )


def _keys(nodes: Iterable[Node]) -> Iterator[Finding]:
    """Keys that are nearly ours."""
    slips = [f"{node.id}: {key!r} (right: {right})" for node in nodes for key in node.tags if (right := slip(key))]
    if slips:
        yield make_finding("tag.misspelt", "keys of the machines' tags", first_names(slips))


def _values(case: ControllerCase, nodes: Iterable[Node]) -> Iterator[Finding]:
    """Fleets with a similar name, and protection that has expired."""
    fleet, now = case.settings.fleet, case.clock.now()
    near = [f"{node.id}: {named!r}" for node in nodes if (named := similar_fleet(node.tags, fleet)) is not None]
    if near:
        yield make_finding("fleet.similar", f"machines with a fleet similar to {fleet!r}", first_names(near))
    over = [node.id for node in nodes if node.enrolled and has_expired(node.tags, now)]
    if over:
        yield make_finding("tag.expired", "machines with an expired tag gpuwatch:protect", first_names(over))
