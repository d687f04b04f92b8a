"""The long-lived keys by which clouds know us, and whether the keys of volumes are rotated."""

from collections.abc import Iterator
from datetime import timedelta

from gpuwatch.cli.doctor.certificates import SOON
from gpuwatch.cli.doctor.cloud import list_fleet, skipped_finding
from gpuwatch.cli.doctor.context import ControllerCase
from gpuwatch.cli.doctor.report import Finding, fine, make_finding
from gpuwatch.clouds import CloudError
from gpuwatch.clouds.keys import AccessKey, Credentials, DiskKey, HasCredentials, HasDiskKeys
from gpuwatch.clouds.named import parts_of
from gpuwatch.clouds.silence import partial

_DAY = timedelta(days=1)
_OURS = {True: "gpuwatch uses it", False: "gpuwatch does not use it", None: "gpuwatch may use it"}


def access_keys(case: ControllerCase) -> Iterator[Finding]:
    """Each key of the user or application that each cloud knows us by; other clouds' are looked at all the same."""
    try:
        parts = parts_of(case.cloud)
    except (CloudError, ImportError):
        yield skipped_finding("access keys of the controller")
        return
    for name, cloud in parts.items():
        if not isinstance(cloud, HasCredentials):
            continue
        where = f"access keys of the controller in {name}" if name else "access keys of the controller"
        try:
            known = cloud.credentials()
        except CloudError as error:
            yield make_finding("keys.unknown", where, str(error))
            continue
        yield from _findings_of(known, where, case, timedelta(seconds=case.settings.named_clouds[name].max_key_age))


def disk_keys(case: ControllerCase) -> Iterator[Finding]:
    """Keys of the volumes of GPU machines, enrolled or not."""
    where = "keys of the GPU machines' volumes"
    nodes = list_fleet(case)
    if nodes is None:
        yield skipped_finding(where)
        return
    for name, cloud in parts_of(case.cloud).items():
        if not isinstance(cloud, HasDiskKeys):
            continue
        there = f"{where} in {name}" if name else where
        try:
            with partial() as silent:
                keys = cloud.disk_keys([node.id for node in nodes if node.cloud == name])
        except CloudError as error:
            yield make_finding("keys.rotation_unknown", there, str(error))
            continue
        for each in silent:
            yield make_finding("keys.rotation_unknown", f"{where} in {each.name}", each.reason)
        yield from map(_rotation_finding, keys)


def disk_starts(case: ControllerCase) -> Iterator[Finding]:
    """Enrolled machines that gpuwatch does not stop because they might not start again."""
    where = "keys of the enrolled machines' volumes"
    nodes = list_fleet(case)
    if nodes is None:
        yield skipped_finding(where)
        return
    for node in nodes:
        if node.enrolled and node.may_not_start is not None:
            yield make_finding("disks.may_not_start", f"a stop of {node.name}", node.may_not_start)


def _findings_of(known: Credentials, where: str, case: ControllerCase, oldest: timedelta) -> Iterator[Finding]:
    """What is to be said of one cloud's credentials; what is not known is never fine."""
    if known.lasting is False:
        yield fine("keys", where, f"no long-lived key: {known.name}")
        return
    if known.unknown or not known.keys:
        yield make_finding("keys.unknown", where, f"{known.name}: {known.unknown or 'no key of it was listed'}")
    for key in known.keys:
        yield _judge_key(key, f"access key {key.id} of {known.name}", case, oldest)


def _judge_key(key: AccessKey, where: str, case: ControllerCase, oldest: timedelta) -> Finding:
    now = case.clock.now()
    ends = [] if key.ends is None else [f"ends {key.ends:%Y-%m-%d}"]
    more = [*ends, _OURS[key.ours], *([key.used] if key.used else [])]
    if key.made is None:
        return make_finding("keys.unknown", where, "; ".join(["the cloud does not say when it was made", *more]))
    age = now - key.made
    text = "; ".join([f"made {key.made:%Y-%m-%d}, {age // _DAY} days old", *more])
    if key.ends is not None and key.ends - now < SOON:
        return make_finding("keys.ends", where, text)
    return make_finding("keys.old", where, text) if age > oldest else fine("keys", where, text)


def _rotation_finding(key: DiskKey) -> Finding:
    where = f"rotation of the key {key.id}"
    if key.rotates is None:
        return make_finding("keys.rotation_unknown", where, key.says)
    if not key.rotates:
        return make_finding("keys.unrotated", where, "it is not rotated")
    return fine("keys", where, f"rotated {key.says}".rstrip() if key.says else "it is rotated")
