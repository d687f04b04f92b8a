"""The key of the service account by which Google knows us; it is only read.

The machine's own service account, workload identity and impersonation need no key. A person's login does not end by
itself, and Google does not say how old it is.
"""

from datetime import UTC, datetime

from gpuwatch.clouds import AuthFailedError, CloudError
from gpuwatch.clouds.gcp.calls import LIST_KEYS
from gpuwatch.clouds.gcp.client import Client
from gpuwatch.clouds.gcp.credentials import Credentials as Given
from gpuwatch.clouds.keys import AccessKey, Credentials

_NEVER = 9999  # the year in which keys end that do not


def credentials(client: Client, given: Given) -> Credentials:
    """Of the service account. Source: projects.serviceAccounts.keys.list, those that people manage.

    Raises:
        CloudError: there are no credentials.

    """
    proof = given.proof
    name = proof.account or "credentials of Google Cloud"
    if proof.unknown:
        return Credentials(name=name, lasting=None, unknown=proof.unknown)
    if proof.key_id is None or proof.account is None:
        return Credentials(name=name, lasting=False)
    try:
        answer = client.read(LIST_KEYS, query={"keyTypes": "USER_MANAGED"}, account=proof.account)
        keys = tuple(
            AccessKey(
                id=each["name"].rpartition("/")[2],
                made=datetime.fromisoformat(each["validAfterTime"]),
                ends=_end(each["validBeforeTime"]),
                ours=each["name"].endswith(f"/{proof.key_id}"),
            )
            for each in answer.get("keys", ())
            if not each.get("disabled")
        )
    except AuthFailedError:
        missing = "iam.serviceAccountKeys.list is not allowed, or the IAM API is switched off"
        return Credentials(name=name, lasting=True, unknown=missing)
    except (KeyError, TypeError, ValueError) as error:
        unusable = f"{LIST_KEYS.name}: no usable answer ({type(error).__name__})"
        return Credentials(name=name, lasting=True, unknown=unusable)
    except CloudError as error:
        return Credentials(name=name, lasting=True, unknown=str(error))
    return Credentials(name=name, lasting=True, keys=keys)


def _end(text: str) -> datetime | None:
    if text.startswith(str(_NEVER)):
        return None
    return datetime.fromisoformat(text).astimezone(UTC)
