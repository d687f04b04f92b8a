"""Compute Engine's operations: what it accepted and what became of that, and the one proof that a machine is gone."""

import logging
from collections.abc import Iterable

from gpuwatch.clouds import CloudError, CloudUnavailableError
from gpuwatch.clouds.gcp.calls import GET_OPERATION, LIST_OPERATIONS, LIST_ZONE_OPERATIONS
from gpuwatch.clouds.gcp.client import Client, Json
from gpuwatch.clouds.gcp.errors import failure
from gpuwatch.clouds.gcp.machine_types import region_of
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.runtime.clock import Clock

log = logging.getLogger(__name__)

DELETE, INSERT = "delete", "insert"  # `operationType`
_ENDS = frozenset({DELETE, "compute.instances.preempted"})
_DONE = "DONE"
# No stock is told some seconds after an operation is accepted, so a start and a launch are followed for as long.
_LOOKS_AFTER_SECONDS = (0.5, 1.0, 1.5, 2.0, 2.0)


def follow(client: Client, clock: Clock, zone: str, operation: Json) -> None:
    """Look for some seconds whether an accepted operation fails; one that goes on is left to itself.

    Raises:
        CloudError: it failed, for example because the zone has no such machine left.

    """
    for seconds in _LOOKS_AFTER_SECONDS:
        if operation["status"] == _DONE:
            break
        clock.sleep(seconds)
        try:
            operation = client.read(GET_OPERATION, zone=zone, operation=operation["name"])
        except CloudError as error:
            log.info("%s; it was accepted, and what becomes of it is seen in the machine", error)
            return
    failed = failure(f"{operation.get('operationType')} in {zone} of {client}", operation)
    if failed is not None:
        raise failed


def being_deleted(client: Client, zone: str) -> set[str]:
    """The ids of the zone's machines that are on their way out: a status alone does not tell it from a stop.

    Source: zoneOperations.list.

    Raises:
        CloudError: no answer.

    """
    query = {"filter": f'(operationType = "{DELETE}") AND (status != "{_DONE}")'}
    found = client.items(LIST_ZONE_OPERATIONS, query=query, zone=zone)
    return {each["targetId"] for each in found if _of_an_instance(each) and "targetId" in each}


def ended(client: Client, node_id: str, zone: str | None = None) -> Node | None:
    """A machine that is not there any more, by the operation that ended it; None: no operation shows its end.

    That Compute Engine does not show it is no proof by itself: a list, and an answer after a launch, may be late.
    Sources: zoneOperations.list where its zone is known, else globalOperations.aggregatedList.

    Raises:
        CloudError: no whole answer.

    """
    matching = f"targetId = {node_id}"
    if zone is None:
        return _gone(client, _operations(client, matching))
    return _gone(client, client.items(LIST_ZONE_OPERATIONS, query={"filter": matching}, zone=zone))


def launch_that_ended(client: Client, name: str) -> Node | None:
    """The same of a machine that we launched under that name; raises likewise."""
    found = _operations(client, f'targetLink eq ".*/instances/{name}"')
    return _gone(client, found)


def _operations(client: Client, matching: str) -> list[Json]:
    """All operations on such a target, newest last."""
    scopes = client.scopes(LIST_OPERATIONS, query={"filter": matching})
    for content in scopes.values():
        if isinstance(content, CloudError):
            raise CloudUnavailableError(str(content), code=content.code)
    found = [each for content in scopes.values() if not isinstance(content, CloudError) for each in content]
    return sorted((each for each in found if _of_an_instance(each)), key=lambda each: str(each.get("insertTime")))


def _gone(client: Client, operations: Iterable[Json]) -> Node | None:
    """By a deletion or a preemption that is done and did not fail, or by a launch that did: it was never made."""
    for each in operations:
        kind, done = each.get("operationType"), each.get("status") == _DONE and _of_an_instance(each)
        over = kind in _ENDS if failure("", each) is None else kind == INSERT
        if done and over and "targetId" in each:
            return _node(client, each)
    return None


def _of_an_instance(operation: Json) -> bool:
    return "/instances/" in operation.get("targetLink", "")


def _node(client: Client, operation: Json) -> Node:
    """What an operation says of a machine that nothing else shows any more."""
    zone = str(operation.get("zone", "")).rpartition("/")[2]
    return Node(
        id=operation["targetId"],
        name=operation["targetLink"].rpartition("/")[2],
        pool="",
        state=NodeState.TERMINATED,
        instance_type="",
        gpu_count=None,
        region=region_of(zone),
        zone=zone,
        account=client.project,
    )
