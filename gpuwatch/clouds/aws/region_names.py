"""AWS's regions, as botocore has them on board; nothing is asked."""

from functools import cache

from botocore.loaders import create_loader

_ENDPOINTS = "endpoints"
_EC2 = "ec2"


@cache
def names() -> frozenset[str]:
    """Those that have EC2, in every partition: the commercial one, China, GovCloud and the isolated ones."""
    partitions = create_loader().load_data(_ENDPOINTS)["partitions"]
    return frozenset(
        region
        for partition in partitions
        for region in partition["regions"]
        if region in partition["services"].get(_EC2, {}).get("endpoints", ())
    )
