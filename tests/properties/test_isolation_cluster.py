"""P22: whatever one object of a cluster says, all other machines and workloads are decided about as without it."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.kubernetes.calls import CLAIMS, DISRUPTION_BUDGETS, NAMESPACES, NODES, PODS, VOLUMES
from gpuwatch.model.decision import Status, Verb
from tests.support.builders.fleet import LIVES
from tests.support.builders.sick_cluster import (
    DEPLOYMENTS,
    REPLICA_SETS,
    SICK_ONES,
    ClusterWorld,
    Path,
    json_places,
    read,
    with_json,
)
from tests.support.builders.sick_parts import NASTY, SICK, places, spoiled

# Which object it is and where it stands: an API server has this in letters and digits, whoever made the object.
WHO: list[Path] = [("metadata", part) for part in ("name", "namespace", "uid", "resourceVersion")]
WHO += [("metadata",), ("spec",), ("spec", "nodeName")]
KINDS = (PODS, REPLICA_SETS, DEPLOYMENTS, NAMESPACES, NODES, DISRUPTION_BUDGETS, CLAIMS, VOLUMES)
PLACES = [(kind, path) for kind in KINDS for path in json_places(SICK_ONES[kind]) if path and path not in WHO]
JSON = (
    *(b"9" * 400, b"1e400", b"-1e400", b"18446744073709551616", b"-9223372036854775809", b"9007199254740993", b"-1"),
    *(b"0", b"0.5", b"true", b"null", b"[]", b"{}", b"[null]", b'{"":null}', b'{"a":"b","a":"c"}'),
    *(b'""', b'"\\u0000"', b'"\\ud800"', b'"\\u202e\\u001b[2J"', b'"' + b"x" * 1_000_000 + b'"'),
    *(b'"9999-12-31T23:59:59-14:00"', b'"0001-01-01T00:00:00+14:00"', b'"2026-03-02T12:00:00"', b'"1e400"', b'"NaN"'),
    *(b"[" * 9000 + b"]" * 9000, b'{"a":' * 9000 + b"1" + b"}" * 9000),
)
# Where it stands, what stands above it, and when it ends, are what the simulated cluster itself looks a pod up by.
POD_PLACES = [
    path
    for path in places(next(n.pods[0] for n in read().nodes if n.name == SICK))
    if path not in {("node",), ("workload",), ("ends_at",)}
]


def spoiled_pod(path: tuple[str | int, ...], by: object) -> list[object]:
    """What is decided where a pod has that in one place, past the reader."""
    view = read()
    nodes = [
        replace(node, pods=tuple(spoiled(pod, path, by) for pod in node.pods)) if node.name == SICK else node
        for node in view.nodes
    ]
    return ClusterWorld.of(replace(view, nodes=tuple(nodes))).rounds()


def rounds(spoiled: Mapping[str, bytes | None] | None = None) -> list[object]:
    """What is decided about all that is well."""
    return ClusterWorld.of(read(spoiled)).rounds()


@cache
def without() -> list[object]:
    """The same without the sick pod."""
    return rounds({PODS: None})


def test_what_is_well_is_told_and_ended() -> None:
    """Or the comparisons below would compare nothing."""
    assert rounds() == without()
    for node_id, verb in (
        ("i-idle-0", Verb.STOP),
        ("i-empty", Verb.STOP),
        ("kube:prod/team-a/Deployment/serve", Verb.RELEASE),
    ):
        assert f"('{node_id}', {verb!r}, {Status.ACCEPTED!r})" in str(without())
    assert "namespace='team-a'" in str(without())


@settings(max_examples=LIVES * 4)
@given(place=st.sampled_from(PLACES), by=st.sampled_from(JSON))
def test_any_json_in_any_place_of_an_object_changes_nothing_about_the_others(
    place: tuple[str, Path], by: bytes
) -> None:
    """Of a pod, its owners, its namespace, its node, its budget: numbers, depth and texts that no reader expects."""
    kind, path = place

    assert rounds({kind: with_json(SICK_ONES[kind], path, by)}) == without()


@settings(max_examples=LIVES * 2)
@given(path=st.sampled_from(POD_PLACES), by=st.sampled_from(NASTY))
def test_anything_in_any_place_of_a_pod_changes_nothing_about_the_others(
    path: tuple[str | int, ...], by: object
) -> None:
    """Also past the reader, where it could stand only by a mistake of ours: decisions, and who pays for which GPUs."""
    assert spoiled_pod(path, by) == without()
