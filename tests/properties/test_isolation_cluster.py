"""P22: whatever one object of a cluster says, all other machines and workloads are decided about as without it."""

from collections.abc import Mapping
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.kubernetes.calls import DISRUPTION_BUDGETS, NAMESPACES, NODES, PODS
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

# Which object it is and where it stands: an API server has this in letters and digits, whoever made the object.
WHO = [("metadata", part) for part in ("name", "namespace", "uid", "resourceVersion")]
WHO += [("metadata",), ("spec",), ("spec", "nodeName")]
KINDS = (PODS, REPLICA_SETS, DEPLOYMENTS, NAMESPACES, NODES, DISRUPTION_BUDGETS)
PLACES = [(kind, path) for kind in KINDS for path in json_places(SICK_ONES[kind]) if path and path not in WHO]
JSON = (
    *(b"9" * 400, b"1e400", b"-1e400", b"18446744073709551616", b"-9223372036854775809", b"9007199254740993", b"-1"),
    *(b"0", b"0.5", b"true", b"null", b"[]", b"{}", b"[null]", b'{"":null}', b'{"a":"b","a":"c"}'),
    *(b'""', b'"\\u0000"', b'"\\ud800"', b'"\\u202e\\u001b[2J"', b'"' + b"x" * 1_000_000 + b'"'),
    *(b'"9999-12-31T23:59:59-14:00"', b'"0001-01-01T00:00:00+14:00"', b'"2026-03-02T12:00:00"', b'"1e400"', b'"NaN"'),
    *(b"[" * 9000 + b"]" * 9000, b'{"a":' * 9000 + b"1" + b"}" * 9000),
)
ANNOTATIONS = (
    *("gpuwatch.io/owner", "gpuwatch.io/protect", "gpuwatch.io/idle-timeout", "gpuwatch.io/idle-action"),
    *("gpuwatch.io/snooze-until", "gpuwatch.io/interruptible", "gpuwatch.io/slip", "gpuwatch.io/\x00", "owner", "\x00"),
)


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
    for word in ("'i-idle-0', 'stop'", "'i-empty', 'stop'", "'kube:prod/team-a/Deployment/serve', 'release'"):
        assert word in str(without()).replace("<Verb.STOP: 'stop'>", "'stop'").replace(
            "<Verb.RELEASE: 'release'>", "'release'"
        )


@settings(max_examples=LIVES * 4)
@given(place=st.sampled_from(PLACES), by=st.sampled_from(JSON))
def test_any_json_in_any_place_of_an_object_changes_nothing_about_the_others(
    place: tuple[str, Path], by: bytes
) -> None:
    """Of a pod, its owners, its namespace, its node, its budget: numbers, depth and texts that no reader expects."""
    kind, path = place

    assert rounds({kind: with_json(SICK_ONES[kind], path, by)}) == without()
