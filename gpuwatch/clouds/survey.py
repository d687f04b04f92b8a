"""What people look for in an account and nothing acts on: forgotten machines in every place, their use, old images.

A cloud that is `Surveyable` answers for each place by itself, so that one place without an answer hides no other. Of
the others the list and `Searchable` are asked. `Monitored` is a cloud with a monitor of its own.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, Self, TypeVar, runtime_checkable

from gpuwatch.clouds import Cloud
from gpuwatch.clouds.errors import AuthFailedError, CloudError, CloudUnavailableError, NoCredentialsError
from gpuwatch.clouds.places import everywhere
from gpuwatch.clouds.silence import partial
from gpuwatch.model.fleet import Node

GIB = 1024**3  # what clouds call a GB of a disk
MIB = 1024**2

Thing = TypeVar("Thing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyed:
    """One place and the GPU machines in it. `watched`: the settings name it, so the controller looks there.

    `refused` is why we may not look there, in the cloud's word; `trouble` why there was no answer.
    """

    where: str
    region: str = ""
    watched: bool = False
    nodes: tuple[Node, ...] = ()
    refused: str | None = None
    trouble: str | None = None

    @property
    def machines(self) -> tuple[str, ...]:
        """The machines in words."""
        return tuple(f"{node.id} ({node.instance_type})" for node in self.nodes)


@runtime_checkable
class Surveyable(Protocol):
    """A cloud that can be asked about every place that its account may use."""

    def survey(self) -> Sequence[Surveyed]:
        """Every place, each with its machines or with why they are not known."""
        ...


@runtime_checkable
class Searchable(Protocol):
    """A cloud that can be searched beyond the places of the settings."""

    def elsewhere(self) -> Sequence[Surveyed]:
        """Every such place that the account could use; raises CloudError where they cannot be listed."""
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


def survey_cloud(cloud: Cloud) -> list[Surveyed]:
    """Every place of a cloud; what cannot be listed is a place with its trouble."""
    if isinstance(cloud, Surveyable):
        return list(cloud.survey())
    return [*_survey_places(cloud), *_others_of(cloud)]


def _survey_places(cloud: Cloud) -> Iterator[Surveyed]:
    """The places of the settings, as far as they have machines."""
    try:
        with partial() as silent:
            nodes = cloud.nodes()
    except CloudError as error:
        yield Surveyed(where="the regions of the settings", watched=True, trouble=str(error))
        return
    for each in silent:
        region = each.where.partition(" ")[0]
        yield Surveyed(where=each.where, region=region, watched=True, trouble=each.reason)
    for (region, account), found in by_place(nodes).items():
        where = f"{region} of account {account}" if account else region
        yield Surveyed(where=where, region=region, watched=True, nodes=tuple(found))


def _others_of(cloud: Cloud) -> Iterator[Surveyed]:
    """The places that the settings do not name."""
    if isinstance(cloud, Searchable):
        try:
            yield from cloud.elsewhere()
        except CloudError as error:
            yield Surveyed(where="other regions", trouble=str(error))


def by_place(nodes: Iterable[Node]) -> dict[tuple[str, str | None], list[Node]]:
    """The nodes by region and account."""
    places: dict[tuple[str, str | None], list[Node]] = {}
    for node in nodes:
        places.setdefault((node.region, node.account), []).append(node)
    return places


# Clouds whose accounts have regions, each of which is asked by itself.


class Region(Protocol):
    """One account in one region; its name says both."""

    region: str
    name: str

    @property
    def account(self) -> str:
        """The account's number; raises CloudError."""
        ...

    def enabled_regions(self) -> Sequence[str]:
        """The regions that the account may use; raises CloudError."""
        ...

    def beside(self, region: str) -> Self:
        """Another region of the same account; nothing is asked."""
        ...


AnyRegion = TypeVar("AnyRegion", bound=Region)
Listing = Callable[[AnyRegion], Iterable[Node]]  # the GPU machines of a place


class Regions(Protocol[AnyRegion]):
    """The places of the settings, and one of each account."""

    @property
    def all(self) -> list[AnyRegion]:
        """Every place; raises CloudError."""
        ...

    @property
    def homes(self) -> list[AnyRegion]:
        """One place of each account, the first; raises CloudError."""
        ...


def elsewhere(places: Regions[AnyRegion], machines: Listing[AnyRegion]) -> list[Surveyed]:
    """Every enabled region of each account that is not configured, with the GPU machines in it.

    Raises:
        CloudError: the regions of an account cannot be listed.

    """
    others = [place for home in places.homes for place in _not_configured(places, home)]
    return everywhere(others, lambda place: survey_region(place, machines))


def every_place(places: Regions[AnyRegion], machines: Listing[AnyRegion]) -> list[Surveyed]:
    """The same, and the configured regions first; where an account's other regions cannot be listed, its entry."""
    found = everywhere(places.all, lambda place: survey_region(place, machines, watched=True))
    for home in places.homes:
        try:
            others = _not_configured(places, home)
        except CloudError as error:
            found.append(unanswered_place(f"other regions{home.name.removeprefix(home.region)}", error))
        else:
            found += everywhere(others, lambda place: survey_region(place, machines))
    return found


def use_by_place(
    places: Regions[AnyRegion],
    nodes: Iterable[Node],
    ask: Callable[[AnyRegion, Sequence[str], datetime, datetime], Mapping[str, CloudUse]],
    end: datetime,
    seconds: float,
) -> dict[str, CloudUse]:
    """Use of machines over the last seconds, in the region and the account of each; raises CloudError."""
    found: dict[str, CloudUse] = {}
    for (region, account), there in sorted(by_place(nodes).items(), key=lambda item: (item[0][0], item[0][1] or "")):
        place = _place_of(places, region, account)
        if place is not None:
            found |= ask(place, [node.id for node in there], end - timedelta(seconds=seconds), end)
    return found


def _place_of(places: Regions[AnyRegion], region: str, account: str | None) -> AnyRegion | None:
    """The place of a region and an account's number, whether the settings name it or not; None: no account of ours."""
    for home in places.homes:
        if len(places.homes) == 1 or account in (None, home.account):
            there = home.beside(region)
            return next((place for place in places.all if place.name == there.name), there)
    return None


def _not_configured(places: Regions[AnyRegion], home: AnyRegion) -> list[AnyRegion]:
    """The account's enabled regions that the settings do not name."""
    configured = {place.name for place in places.all}
    return [place for place in map(home.beside, home.enabled_regions()) if place.name not in configured]


def survey_region(place: AnyRegion, machines: Listing[AnyRegion], *, watched: bool = False) -> Surveyed:
    """One region, with its machines in the order of their ids."""
    try:
        nodes = tuple(sorted(machines(place), key=lambda node: node.id))
    except CloudError as error:
        return unanswered_place(place.name, error, region=place.region, watched=watched)
    return Surveyed(where=place.name, region=place.region, watched=watched, nodes=nodes)


def unanswered_place(where: str, error: CloudError, *, region: str = "", watched: bool = False) -> Surveyed:
    """A place without a list. A refused answer shows no machine, and does not prove that no machine runs there."""
    refused = error.code if isinstance(error, AuthFailedError) and not isinstance(error, NoCredentialsError) else None
    trouble = None if refused is not None else str(error)
    return Surveyed(where=where, region=region, watched=watched, refused=refused, trouble=trouble)


# Answers of monitors.

_LONGEST = 300  # characters of what a monitor says


def batches(things: Sequence[Thing], size: int) -> Iterator[Sequence[Thing]]:
    """Parts with as many as one call may name."""
    for begin in range(0, len(things), size):
        yield things[begin : begin + size]


def machine_in_series(name: object, asked: str) -> str:
    """The machine that a monitor's series names.

    Raises:
        CloudUnavailableError: it names no machine, so the whole is no answer: what is missing would look like rest.

    """
    if not isinstance(name, str) or not name:
        raise CloudUnavailableError(f"{asked}: a series names no machine", code="NoInstance")
    return name


def refuse_partial(said: str, why: object) -> None:
    """Take an answer for whole only where its monitor says nothing else: what is missing would look like rest.

    Raises:
        CloudUnavailableError: the monitor says why a part is missing.

    """
    if why:
        raise CloudUnavailableError(f"{said}: a part is missing ({why})"[:_LONGEST], code="Partial")


def use_of_values(
    *,
    means: Sequence[float] = (),
    highest: Sequence[float] = (),
    received: Sequence[float] = (),
    sent: Sequence[float] = (),
    gpus: Sequence[float] = (),
    percent: bool = True,
    seconds: float = 1.0,
) -> CloudUse | None:
    """The use that these values of hours show; None: there is no value.

    `percent`: the CPU's values are per cent, as the GPUs' always are. `seconds` is the time of the counts of bytes.
    """
    full = 100.0 if percent else 1.0
    use = CloudUse(
        cpu_mean_ratio=_mean(means, full),
        cpu_max_ratio=max(highest) / full if highest else None,
        received_bytes_per_second=_mean(received, seconds),
        sent_bytes_per_second=_mean(sent, seconds),
        gpu_mean_ratio=_mean(gpus, 100.0),
    )
    return None if use == CloudUse() else use


def _mean(values: Sequence[float], unit: float) -> float | None:
    return sum(values) / len(values) / unit if values else None
