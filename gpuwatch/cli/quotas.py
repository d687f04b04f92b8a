"""What `gpuwatch status` says of the account's limits, where a cloud shows them and we may ask."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuwatch.model.nodes_page import QuotaRow
from gpuwatch.model.readable import legible

if TYPE_CHECKING:
    from gpuwatch.clouds import Cloud
    from gpuwatch.clouds.permissions import Quota

_SHORT_RATIO = 0.1  # less than this left is worth a warning


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The limits of all clouds, and a sentence for each cloud that gave no answer."""

    rows: tuple[QuotaRow, ...] = ()
    troubles: tuple[str, ...] = ()

    @property
    def lines(self) -> Iterator[str]:
        """For people. A limit of zero of which nothing is used is left out: new accounts have many."""
        yield from self.troubles
        yield from (legible(_line(each)) for each in self.rows if each.limit > 0 or each.used)


def ask_clouds(cloud: "Cloud") -> Found:
    """Ask each cloud by itself. One that does not allow it says nothing: the permission is optional."""
    from gpuwatch.clouds import AuthFailedError, CloudError
    from gpuwatch.clouds.silence import partial

    clouds: Mapping[str, Cloud] = getattr(cloud, "parts", {"": cloud})
    rows, troubles = list[QuotaRow](), list[str]()
    for name, part in clouds.items():
        ask: Callable[[], Sequence[Quota]] | None = getattr(part, "quotas", None)
        try:
            with partial() as silent:
                rows += [_row(each, name) for each in (ask() if ask is not None else ())]
            for each in silent:
                where = replace(each, cloud=name).name
                troubles.append(legible(f"Quotas in {where} unavailable: {each.reason}"))
        except AuthFailedError:
            continue
        except CloudError as error:
            whose = f" of cloud {name}" if name else ""
            troubles.append(legible(f"Quotas{whose} unavailable: {error}"))
    return Found(rows=tuple(rows), troubles=tuple(troubles))


def _row(quota: "Quota", cloud: str) -> QuotaRow:
    return QuotaRow(
        name=quota.name,
        cloud=cloud or None,
        region=quota.region,
        unit=quota.unit,
        limit=quota.limit,
        used=quota.used,
        left=quota.left,
    )


def _line(quota: QuotaRow) -> str:
    """`Quota in us-east-1: 192 of 384 vCPUs left (Running On-Demand P instances)`."""
    where = f"in {quota.region}" if quota.region else "of the account"
    where += f" of cloud {quota.cloud}" if quota.cloud else ""
    if quota.left is None:
        return f"Quota {where}: {quota.limit:g} {quota.unit}; what is used of it is not known ({quota.name})"
    short = "Warning: quota" if quota.left < quota.limit * _SHORT_RATIO or not quota.left else "Quota"
    return f"{short} {where}: {quota.left:g} of {quota.limit:g} {quota.unit} left ({quota.name})"
