"""Every place of a cloud, for people who look for forgotten machines; nothing here acts.

A cloud that is `Surveyable` answers for each place by itself, so that one place without an answer hides no other. Of
the others the list and `Searchable` are asked. `Monitored` is a cloud with a monitor of its own.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from gpuwatch.clouds import Cloud
from gpuwatch.clouds.errors import CloudError
from gpuwatch.clouds.permissions import OtherRegion, Searchable
from gpuwatch.clouds.silence import partial
from gpuwatch.model.fleet import DEFAULT_POOL, Node, NodeState

_WORDS = re.compile(r"(?P<id>\S+)(?: \((?P<type>[^)]*)\))?.*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyed:
    """One place and the GPU machines in it. `watched`: the settings name it, so the controller looks there.

    `refused` is why we may not look there, in the cloud's word; `trouble` why there was no answer.
    """

    where: str
    region: str
    watched: bool
    nodes: tuple[Node, ...] = ()
    refused: str | None = None
    trouble: str | None = None


@runtime_checkable
class Surveyable(Protocol):
    """A cloud that can be asked about every place that its account may use."""

    def survey(self) -> Sequence[Surveyed]:
        """Every place, each with its machines or with why they are not known."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudUse:
    """What a cloud's own monitor says of one machine; None: it does not know.

    The CPU's mean and maximum are ratios of all its cores; received and sent are bytes a second, on the mean of the
    time for which there are values. Few monitors see GPUs.
    """

    cpu_mean_ratio: float | None = None
    cpu_max_ratio: float | None = None
    received_bytes_per_second: float | None = None
    sent_bytes_per_second: float | None = None
    gpu_mean_ratio: float | None = None


@runtime_checkable
class Monitored(Protocol):
    """A cloud with a monitor of its own. What it says is for people, and never a ground for removal."""

    @property
    def monitor(self) -> str:
        """Its name, such as CloudWatch."""
        ...

    def use_of(self, nodes: Sequence[Node], seconds: float) -> Mapping[str, CloudUse]:
        """Use in the last so many seconds, by the ids of the nodes; one that the monitor does not know is left out.

        Raises:
            CloudError: no answer, or it is not allowed.

        """
        ...


def surveyed(cloud: Cloud) -> list[Surveyed]:
    """Every place of a cloud; what cannot be listed is a place with its trouble."""
    if isinstance(cloud, Surveyable):
        return list(cloud.survey())
    return [*_watched(cloud), *_elsewhere(cloud)]


def _watched(cloud: Cloud) -> Iterator[Surveyed]:
    """The places of the settings, as far as they have machines."""
    try:
        with partial() as silent:
            nodes = cloud.nodes()
    except CloudError as error:
        yield Surveyed(where="the regions of the settings", region="", watched=True, trouble=str(error))
        return
    for each in silent:
        region = each.where.partition(" ")[0]
        yield Surveyed(where=each.where, region=region, watched=True, trouble=each.reason)
    for (region, account), found in _by_place(nodes).items():
        where = f"{region} of account {account}" if account else region
        yield Surveyed(where=where, region=region, watched=True, nodes=tuple(found))


def _elsewhere(cloud: Cloud) -> Iterator[Surveyed]:
    """The places that the settings do not name."""
    if not isinstance(cloud, Searchable):
        return
    try:
        places = cloud.elsewhere()
    except CloudError as error:
        yield Surveyed(where="other regions", region="", watched=False, trouble=str(error))
        return
    for each in places:
        yield of_other(each)


def of_other(place: OtherRegion) -> Surveyed:
    """A place that the settings do not name; of a machine that it names in words alone, little is known."""
    region = place.region or place.where.partition(" ")[0]
    nodes = place.nodes or tuple(_from_words(words, region) for words in place.machines)
    return Surveyed(
        where=place.where, region=region, watched=False, nodes=nodes, refused=place.refused, trouble=place.trouble
    )


def _by_place(nodes: Iterable[Node]) -> dict[tuple[str, str | None], list[Node]]:
    places: dict[tuple[str, str | None], list[Node]] = {}
    for node in nodes:
        places.setdefault((node.region, node.account), []).append(node)
    return places


def _from_words(words: str, region: str) -> Node:
    """`i-1 (p4d.24xlarge)` as a node of which no more is known."""
    found = _WORDS.fullmatch(words)
    node_id, kind = (words, "") if found is None else (found["id"], found["type"] or "")
    return Node(
        id=node_id,
        name=node_id,
        pool=DEFAULT_POOL,
        state=NodeState.UNKNOWN,
        instance_type=kind,
        gpu_count=None,
        region=region,
        zone="",
    )
