"""The key by which Tencent Cloud knows us; it is only read.

Credentials with a token (of a machine's role, a pod's, AssumeRole) end by themselves: nothing is asked about these.
"""

from datetime import UTC, datetime, timedelta, timezone

from gpuwatch.clouds import AuthFailedError, CloudError
from gpuwatch.clouds.keys import AccessKey, Credentials
from gpuwatch.clouds.tencent.errors import asking
from gpuwatch.clouds.tencent.permissions import identity
from gpuwatch.clouds.tencent.places import Place

_LIST = "ListAccessKeys"
_BEIJING = timezone(timedelta(hours=8))  # CAM writes times without a zone, as its console shows them


def credentials(place: Place) -> Credentials:
    """Of the place's account. Sources: GetCallerIdentity; ListAccessKeys of CAM, without a name about who asks.

    Raises:
        CloudError: there are no credentials, or no answer names their user.

    """
    with asking("credentials"):
        own, _, token = place.signer.get_credential_info()
    name = identity(place).name
    if token:
        return Credentials(name=name, lasting=False)
    try:
        answer = place.reading.ask("cam", _LIST)
        with asking(place.reading.asked(_LIST)):
            keys = tuple(
                AccessKey(id=each["AccessKeyId"], made=_time(each["CreateTime"]), ours=each["AccessKeyId"] == own)
                for each in answer["AccessKeys"] or ()
                if each["Status"] == "Active"
            )
    except CloudError as error:
        missing = f"cam:{_LIST} is not allowed" if isinstance(error, AuthFailedError) else str(error)
        return Credentials(name=name, lasting=True, unknown=missing)
    return Credentials(name=name, lasting=True, keys=keys)


def _time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=_BEIJING).astimezone(UTC)
