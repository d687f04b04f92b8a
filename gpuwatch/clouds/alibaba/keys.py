"""The AccessKey pair by which Alibaba Cloud knows us; it is only read.

Credentials with a token (of a machine's role, of AssumeRole, of OIDC) end by themselves: nothing is asked about these.
"""

from datetime import UTC, datetime

from gpuwatch.clouds import AuthFailedError, CloudError
from gpuwatch.clouds.alibaba.errors import reading
from gpuwatch.clouds.alibaba.permissions import identity
from gpuwatch.clouds.alibaba.places import Region
from gpuwatch.clouds.keys import AccessKey, Credentials

_LIST = "ram:ListAccessKeys"
_TIME = "%Y-%m-%dT%H:%M:%SZ"


def credentials(place: Region) -> Credentials:
    """Of the place's account. Sources: GetCallerIdentity; ListAccessKeys, which without a name is about who asks.

    Raises:
        CloudError: there are no credentials, or no answer names their user.

    """
    own, _, token = place.owner.key()
    name = identity(place).name
    if token is not None:
        return Credentials(name=name, lasting=False)
    try:
        answer = place.reading.ask(_LIST, {})
        with reading(place.reading.asked(_LIST)):
            keys = tuple(
                AccessKey(
                    id=each["AccessKeyId"],
                    made=datetime.strptime(each["CreateDate"], _TIME).replace(tzinfo=UTC),
                    ours=each["AccessKeyId"] == own,
                )
                for each in answer["AccessKeys"]["AccessKey"]
                if each["Status"] == "Active"
            )
    except CloudError as error:
        missing = f"{_LIST} is not allowed" if isinstance(error, AuthFailedError) else str(error)
        return Credentials(name=name, lasting=True, unknown=missing)
    return Credentials(name=name, lasting=True, keys=keys)
