"""The access key by which AWS knows us, and the rotation of the KMS keys that encrypt volumes; both are only read.

A role, an instance profile and an SSO session have keys that end within hours: nothing is asked about these. A profile
that assumes a role from another profile is as old as the key of that other one.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import boto3

from gpuwatch.clouds import AuthFailedError, CloudError
from gpuwatch.clouds.aws.places import Region
from gpuwatch.clouds.keys import AccessKey, Credentials, DiskKey

_VALUES_A_FILTER = 200
_ASSUMING = "assume-role"  # how botocore calls the credentials of a profile with a role_arn
_SOURCE = "source_profile"


def credentials(place: Region) -> Credentials:
    """Of the session that enters the place. Sources: GetCallerIdentity, ListAccessKeys, GetAccessKeyLastUsed.

    Raises:
        CloudError: there are no credentials, or no answer names their user.

    """
    with place.asking("credentials"):
        found: Any = place.session.get_credentials()
        key = None if found is None else found.get_frozen_credentials()
    if key is None:
        raise AuthFailedError("no usable AWS credentials; see `aws sts get-caller-identity`", code="NoCredentials")
    if found.method == _ASSUMING:
        source = _source_of(place.session)
        if source is not None and source != place.session.profile_name:
            with place.asking("credentials"):
                return credentials(place.entered(boto3.Session(profile_name=source)))
    with place.asking("GetCallerIdentity", service="STS"):
        name = str(place.reading.sts.get_caller_identity()["Arn"])
    if found.method == _ASSUMING and _source_of(place.session) is not None:
        return Credentials(name=name, lasting=None, unknown="the profile assumes a role with a key of its own")
    return Credentials(name=name, lasting=False) if key.token else _lasting(place, name, key.access_key)


def _source_of(session: boto3.Session) -> str | None:
    """The profile with the key that assumes the role of the session's profile."""
    core: Any = session._session  # noqa: SLF001  boto3 shows the profiles' names alone
    profiles = core.full_config.get("profiles", {})
    source: str | None = profiles.get(session.profile_name, {}).get(_SOURCE)
    return source


def _lasting(place: Region, name: str, own: str) -> Credentials:
    """The active keys of the user that asks; ListAccessKeys without a name is about that user."""
    try:
        with place.asking("ListAccessKeys", service="IAM"):
            pages = place.reading.iam.get_paginator("list_access_keys").paginate()
            listed = [each for page in pages for each in page["AccessKeyMetadata"]]
            keys = tuple(
                AccessKey(
                    id=each["AccessKeyId"],
                    made=each["CreateDate"],
                    ours=each["AccessKeyId"] == own,
                    used=_used(place, each["AccessKeyId"]),
                )
                for each in listed
                if each["Status"] == "Active"
            )
    except CloudError as error:
        missing = "iam:ListAccessKeys is not allowed" if isinstance(error, AuthFailedError) else str(error)
        return Credentials(name=name, lasting=True, unknown=missing)
    return Credentials(name=name, lasting=True, keys=keys)


def _used(place: Region, key_id: str) -> str:
    """When a key was used last, in words; "" where nobody says it."""
    with suppress(CloudError), place.asking("GetAccessKeyLastUsed", service="IAM"):
        last = place.reading.iam.get_access_key_last_used(AccessKeyId=key_id)["AccessKeyLastUsed"]
        at = last.get("LastUsedDate")
        return "never used" if at is None else f"last used {at:%Y-%m-%d} for {last.get('ServiceName', '?')}"
    return "last use not known"


def of_disks(place: Region, node_ids: Sequence[str]) -> Iterator[DiskKey]:
    """Keys of volumes of these machines. Sources: DescribeVolumes to its last page, GetKeyRotationStatus."""
    pages = place.reading.ec2.get_paginator("describe_volumes")
    named: set[str] = set()
    for begin in range(0, len(node_ids), _VALUES_A_FILTER):
        values = list(node_ids[begin : begin + _VALUES_A_FILTER])
        with place.asking("DescribeVolumes"):
            for page in pages.paginate(Filters=[{"Name": "attachment.instance-id", "Values": values}]):
                named |= {volume["KmsKeyId"] for volume in page["Volumes"] if volume.get("KmsKeyId")}
    for key_id in sorted(named):
        yield _rotation(place, key_id)


def _rotation(place: Region, key_id: str) -> DiskKey:
    """AWS rotates the keys that it manages itself each year, and says so of them, too."""
    try:
        with place.asking("GetKeyRotationStatus", service="KMS"):
            told = place.reading.kms.get_key_rotation_status(KeyId=key_id)
            rotates = bool(told["KeyRotationEnabled"])
    except AuthFailedError:
        return DiskKey(id=key_id, rotates=None, says="kms:GetKeyRotationStatus is not allowed")
    except CloudError as error:
        return DiskKey(id=key_id, rotates=None, says=str(error))
    days, then = told.get("RotationPeriodInDays"), told.get("NextRotationDate")
    often = "" if days is None else f"every {days} days"
    when = "" if then is None else f"next on {then:%Y-%m-%d}"
    return DiskKey(id=key_id, rotates=rotates, says=", ".join(filter(None, [often, when])) if rotates else "")
