"""The names of each cloud's regions, as its SDK knows them; without the SDK nobody knows."""

import pkgutil
from collections.abc import Iterable, Iterator

from gpuwatch.model.setting import Contradiction
from gpuwatch.model.similar_names import nearest

# Name in the configuration -> what tells the names; imported only when a region is to be checked.
_NAMES = {"aws": "gpuwatch.clouds.aws.region_names:names"}


def known(provider: str) -> frozenset[str] | None:
    """All regions of a cloud; None: its SDK is not installed."""
    try:
        found: frozenset[str] = pkgutil.resolve_name(_NAMES[provider])()
    except ImportError:
        return None
    return found


def unknown(provider: str, written: Iterable[tuple[tuple[str, ...], str]]) -> Iterator[Contradiction]:
    """Regions, by the keys that name them, that the cloud does not have."""
    written = list(written)
    names = known(provider) if written else None
    for path, region in written if names is not None else ():
        if names is None or region in names:
            continue
        near = nearest(region, names)
        if region.strip().lower() == "all":
            right = "each region by its name; `gpuwatch doctor controller` names those that have GPU machines"
        elif near is not None:
            right = near
        else:
            right = f"one such as eu-central-1; if it is new, a newer SDK: pip install -U 'gpuwatch[{provider}]'"
        yield Contradiction(keys=(path,), wrong=f"{region!r} is no region of {provider}", right=right)
