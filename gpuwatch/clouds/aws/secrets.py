"""Secrets from AWS: Parameter Store (ssm GetParameter) and Secrets Manager (GetSecretValue), decrypted there by KMS."""

import errno
import json
from collections.abc import Callable, Mapping
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoRegionError

from gpuwatch.runtime.network_errors import network_text

# Whoever waits for a secret holds up a round.
_CONFIG = Config(connect_timeout=5, read_timeout=5, retries={"mode": "standard", "total_max_attempts": 2})


def fetch(store: str, name: str, *, profile: str | None, region: str | None, endpoint_url: str | None) -> bytes:
    """What the store holds under that name.

    Raises:
        OSError: nothing that could be used; `strerror` has AWS's words, which repeat no secret.

    """
    try:
        session = boto3.Session(profile_name=profile)
        options: dict[str, Any] = {"region_name": region, "endpoint_url": endpoint_url, "config": _CONFIG}
        return _STORES[store](session.client(store, **options), name)  # type: ignore[call-overload]  # one of the two
    except NoRegionError:
        raise OSError(errno.EIO, "no region is known; set cloud.regions or AWS_DEFAULT_REGION") from None
    except ClientError as error:
        reply = error.response.get("Error", {})
        raise OSError(errno.EIO, f"AWS answered {reply.get('Code')}: {reply.get('Message')}") from None
    except BotoCoreError as error:
        raise OSError(errno.EIO, f"AWS was not reached: {network_text(error) or error}") from None


def _parameter(ssm: Any, name: str) -> bytes:  # noqa: ANN401  boto3 has no types for it here
    """Of any type; a SecureString is decrypted."""
    value: str = ssm.get_parameter(Name=name, WithDecryption=True)["Parameter"]["Value"]
    return value.encode()


def _secret(manager: Any, name: str) -> bytes:  # noqa: ANN401  likewise
    """The current version, whole or one text of its JSON."""
    name, _, key = name.partition("#")
    reply = manager.get_secret_value(SecretId=name)
    value: bytes = reply["SecretBinary"] if "SecretBinary" in reply else reply["SecretString"].encode()
    return _member(value, key) if key else value


def _member(value: bytes, key: str) -> bytes:
    """One text of a JSON object; the error of the decoder would carry the whole secret."""
    try:
        member = json.loads(value)[key]
    except (ValueError, TypeError, KeyError):
        member = None
    if not isinstance(member, str):
        raise OSError(errno.EIO, f"it is no JSON object with a text under {key!r}")
    return member.encode()


_STORES: Mapping[str, Callable[[Any, str], bytes]] = {"ssm": _parameter, "secretsmanager": _secret}
