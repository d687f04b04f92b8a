"""PURE: what an agent says of its host's power, and whether two descriptions are of one machine.

A BMC address at the wrong host would switch off another machine, which may be busy. So a BMC counts for a host only if
the agent there names the same system UUID (SMBIOS). A UUID that a maker gives to all its boards names no host.
"""

import uuid
from dataclasses import dataclass

from gpuwatch.model.bounds import BoundedText

# What boards say that were given no UUID of their own.
_OF_NO_HOST = frozenset({
    "03000200-0400-0500-0006-000700080009",
    "12345678-1234-5678-90ab-cddeefaabbcc",
    "fefefefe-fefe-fefe-fefe-fefefefefefe",
})  # fmt: skip
_FEWEST_BYTES = 3  # that differ: all zeros, or all ones, are no UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerQuestion:
    """What the controller asks an agent: which host it is on, and to switch the host `node` off, where `off`."""

    node: BoundedText
    off: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerAnswer:
    """What an agent says of its host: its name, its system UUID, and which boot this is.

    `refused` is why the agent cannot or will not switch the host off, as a clause; None: it can, or, asked to, it does.
    """

    node_id: BoundedText
    system_uuid: BoundedText | None = None
    boot_id: BoundedText | None = None
    refused: BoundedText | None = None


def is_of_one_host(text: str | None) -> bool:
    """Whether it is a UUID that names one host."""
    found = None if text is None else _uuid(text)
    return (
        found is not None
        and len(set(found.bytes)) >= _FEWEST_BYTES
        and not {str(found), str(uuid.UUID(bytes=found.bytes_le))} & _OF_NO_HOST
    )


def same_host(one: str | None, other: str | None) -> bool:
    """Whether both are the UUID of one host. BMCs write its first three parts, or all of it, in either byte order."""
    if one is None or other is None or not is_of_one_host(one) or not is_of_one_host(other):
        return False
    mine, its = uuid.UUID(one.strip()), uuid.UUID(other.strip())
    backwards = uuid.UUID(bytes=mine.bytes[::-1])
    return its.bytes in {mine.bytes, mine.bytes_le, mine.bytes_le[::-1], backwards.bytes, backwards.bytes_le}


def _uuid(text: str) -> "uuid.UUID | None":
    try:
        return uuid.UUID(text.strip())
    except ValueError:
        return None
