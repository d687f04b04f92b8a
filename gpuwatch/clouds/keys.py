"""PURE: the long-lived keys by which a cloud knows us, and whether the keys of its disks are rotated."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from gpuwatch.clouds.errors import AuthFailedError, CloudError


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessKey:
    """A key that is good until it ends or somebody takes it away.

    `made` None is not known, `ends` None is never. `ours`: gpuwatch itself uses it; None: nobody can tell which of
    several it uses. `used` says when it was used last.
    """

    id: str
    made: datetime | None
    ends: datetime | None = None
    ours: bool | None = True
    used: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Who we are for a cloud, by its own name, and the long-lived keys of that user or application.

    `lasting`: a long-lived key proves it; None is not known. `unknown` says what could not be learnt, and which right
    is missing.
    """

    name: str
    lasting: bool | None
    keys: tuple[AccessKey, ...] = ()
    unknown: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskKey:
    """A key of the cloud's key service that encrypts disks. `rotates` None is not known, and `says` why.

    Otherwise `says` is how often it is rotated, and when the next time is.
    """

    id: str
    rotates: bool | None
    says: str = ""


@runtime_checkable
class HasCredentials(Protocol):
    """A cloud that says by which credentials we are known."""

    def credentials(self) -> Credentials:
        """Ours, and the other active keys of the same user where we may see them; raises CloudError: no answer."""
        ...


@runtime_checkable
class HasDiskKeys(Protocol):
    """A cloud that says how the keys of disks are rotated."""

    def disk_keys(self, node_ids: Sequence[str]) -> Sequence[DiskKey]:
        """Those of the disks of these machines, in the order of their ids; raises CloudError: no answer."""
        ...


def of_lasting_key(
    name: str, call: str, ask: Callable[[], Iterable[AccessKey]], *, lasting: bool | None = True
) -> Credentials:
    """Who a long-lived key proves us to be, with all keys that `call` lists, or with why they are not known."""
    try:
        return Credentials(name=name, lasting=lasting, keys=tuple(ask()))
    except CloudError as error:
        missing = f"{call} is not allowed" if isinstance(error, AuthFailedError) else str(error)
        return Credentials(name=name, lasting=lasting, unknown=missing)
