"""How many GPUs a project may have, by Google's own count. Sources: regions.list, projects.get."""

from collections.abc import Callable, Iterable, Iterator

from gpuwatch.clouds import CloudUnavailableError
from gpuwatch.clouds.gcp.calls import GET_PROJECT, LIST_REGIONS
from gpuwatch.clouds.gcp.client import Client, Json
from gpuwatch.clouds.permissions import Quota

_GLOBAL = "global"  # the quota of all regions together


def of_project(client: Client, wanted: Callable[[str], bool]) -> list[Quota]:
    """Each limit on GPUs of the wanted regions that is not zero, and the project's own.

    Raises:
        CloudError: they could not be had whole.

    """
    found: list[Quota] = []
    for region in client.items(LIST_REGIONS):
        if not wanted(region["name"]):
            continue
        if "quotas" not in region:
            raise CloudUnavailableError(f"{client} gave no quotas of {region['name']}", code="QUOTA_INFO_UNAVAILABLE")
        found += _of_gpus(region["name"], region["quotas"])
    return [*found, *_of_gpus(_GLOBAL, client.read(GET_PROJECT).get("quotas", ()))]


def _of_gpus(region: str, quotas: Iterable[Json]) -> Iterator[Quota]:
    """Commitments are bought and are not used up by machines, so they are left out."""
    for quota in quotas:
        name = str(quota.get("metric", ""))
        if "GPUS" in name and not name.startswith("COMMITTED") and quota.get("limit"):
            used = quota.get("usage")
            yield Quota(
                name=name,
                region=region,
                limit=float(quota["limit"]),
                used=None if used is None else float(used),
                unit="GPUs",
            )
