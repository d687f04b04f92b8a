"""Some sizes of machines as the resource SKUs describe them."""

from typing import Any

GPU, LARGER, CPU, AMD, PART = (
    "Standard_NC4as_T4_v3",
    "Standard_NC24ads_A100_v4",
    "Standard_D2s_v5",
    "Standard_NV8as_v4",
    "Standard_NV6ads_A10_v5",
)
_SIZES: dict[str, tuple[str, dict[str, str]]] = {
    GPU: ("Standard NCASv3_T4 Family", {"vCPUs": "4", "GPUs": "1", "MaxResourceVolumeMB": "0"}),
    LARGER: ("StandardNCADSA100v4Family", {"vCPUs": "24", "GPUs": "1", "MaxResourceVolumeMB": "65536"}),
    AMD: ("standardNVSv4Family", {"vCPUs": "8", "GPUs": "1", "MaxResourceVolumeMB": "0"}),
    PART: ("StandardNVADSA10v5Family", {"vCPUs": "6", "GPUs": "1", "MaxResourceVolumeMB": "184320"}),
    CPU: ("standardDSv5Family", {"vCPUs": "2", "MaxResourceVolumeMB": "0"}),
}


def of(name: str) -> dict[str, str] | None:
    """The capabilities of a size."""
    found = _SIZES.get(name)
    return None if found is None else found[1]


def skus(region: str) -> list[dict[str, Any]]:
    """Of a region."""
    return [
        {
            "resourceType": "virtualMachines",
            "name": name,
            "tier": "Standard",
            "size": name.removeprefix("Standard_"),
            "family": family,
            "locations": [region],
            "locationInfo": [{"location": region, "zones": ["1", "2"]}],
            "capabilities": [{"name": key, "value": value} for key, value in capabilities.items()],
            "restrictions": [],
        }
        for name, (family, capabilities) in _SIZES.items()
    ]


def disk_sku(region: str) -> dict[str, Any]:
    """A kind of disks, which is in the same list."""
    return {"resourceType": "disks", "name": "Premium_LRS", "tier": "Premium", "locations": [region]}


def usages(machines: int) -> list[dict[str, Any]]:
    """VCPUs in use and allowed."""
    rows = (("cores", 4 * machines, 100), ("lowPriorityCores", 0, 100), ("availabilitySets", 0, 2500))
    families = (
        ("Standard NCASv3_T4 Family", 4 * machines, 16),
        ("StandardNCADSA100v4Family", 0, 0),
        ("standardDSv5Family", 0, 100),
    )
    return [
        {"unit": "Count", "currentValue": used, "limit": limit, "name": {"value": name, "localizedValue": name}}
        for name, used, limit in (*rows, *families)
    ]
