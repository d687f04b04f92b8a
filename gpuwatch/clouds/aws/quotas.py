"""The account's limits on GPU machines: vCPUs by families, on demand and spot, in each region.

Service Quotas knows the limits. What is used of them is counted here: the vCPUs of the machines that run, by the
default of their types.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gpuwatch.clouds.aws import instances as aws_machines
from gpuwatch.clouds.aws.instances import Instance
from gpuwatch.clouds.aws.places import Region
from gpuwatch.clouds.permissions import Quota

_UNIT = "vCPUs"
# The names that Service Quotas gives these limits: "Running On-Demand G and VT instances", "All P5 Spot Instance
# Requests". https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html
_NAMES = {
    "": re.compile(r"Running On-Demand (?P<families>.+) instances"),
    "spot": re.compile(r"All (?P<families>.+) Spot Instance Requests"),
}
_FAMILY = re.compile(r"\b[A-Z]+\d*\b")
_WITH_GPUS = re.compile(r"[PG]\d*")
_TYPE = re.compile(r"(?P<letters>[a-z]+)(?P<generation>\d*)")
_SAME = {"gr": "g"}  # Gr machines count as G
_COUNTED: Any = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]

Vcpus = Callable[[Region, str], int | None]


def listed(place: Region, vcpus: Vcpus, *, page_size: int) -> list[Quota]:
    """Every limit of this region on machines with GPUs; `vcpus` says how many a machine type has.

    Sources: ListServiceQuotas and DescribeInstances, each to its last page.

    Raises:
        CloudError: no answer, or it is not allowed.

    """
    limits = list(_limits(place))
    running = aws_machines.listed(place, _COUNTED, page_size=page_size) if limits else []
    return [
        Quota(
            name=name,
            region=place.name,
            limit=limit,
            used=_used(running, kind, families, lambda type_: vcpus(place, type_)),
            unit=_UNIT,
        )
        for name, kind, families, limit in sorted(limits)
    ]


def _limits(place: Region) -> Iterator[tuple[str, str, tuple[str, ...], float]]:
    """The limits: name, lifecycle of the machines that they are for, families, vCPUs."""
    with place.asking("ListServiceQuotas", service="Service Quotas"):
        for page in place.reading.quotas.get_paginator("list_service_quotas").paginate(ServiceCode="ec2"):
            for each in page["Quotas"]:
                for kind, name in _NAMES.items():
                    found = name.fullmatch(each["QuotaName"])
                    families = tuple(_FAMILY.findall(found["families"])) if found else ()
                    if any(_WITH_GPUS.fullmatch(family) for family in families):
                        yield each["QuotaName"], kind, families, float(each["Value"])


def _used(
    running: Iterable[Instance], kind: str, families: tuple[str, ...], vcpus: Callable[[str], int | None]
) -> float | None:
    """The vCPUs of the machines that count; None: of one of their types EC2 does not say how many it has."""
    counted = [each for each in running if each.described.get("InstanceLifecycle", "") == kind]
    sizes = [vcpus(each.type) for each in counted if _counts(each.type, families)]
    known = [size for size in sizes if size is not None]
    return float(sum(known)) if len(known) == len(sizes) else None


def _counts(type_: str, families: tuple[str, ...]) -> bool:
    """Whether a machine type is of one of these families: P is all of its generations, P5 one."""
    found = _TYPE.match(type_)
    if found is None:
        return False
    letters = _SAME.get(found["letters"], found["letters"]).upper()
    return letters in families or letters + found["generation"] in families
