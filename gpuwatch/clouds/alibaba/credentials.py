"""Who we are for Alibaba Cloud: the official chain of credentials (environment, profile, machine's role), and roles.

Its texts may quote what a helper or a file says: they are never repeated, and its own log is shut.
"""

import logging
from collections.abc import Callable
from typing import Any

from alibabacloud_credentials.provider import (
    CLIProfileCredentialsProvider,
    DefaultCredentialsProvider,
    RamRoleArnCredentialsProvider,
    StaticAKCredentialsProvider,
)

from gpuwatch.clouds import AuthFailedError, ClockSkewError
from gpuwatch.clouds.errors import ADVICE

# It writes every failed source with its traceback, past our own log to stderr.
logging.getLogger("credentials").setLevel(logging.CRITICAL + 1)

_OLD_SIGNATURE = "InvalidTimeStamp"
_SESSION_NAME = "gpuwatch"  # in ActionTrail

# Key id, secret, and the session token where there is one.
Key = tuple[str, str, str | None]
Source = Callable[[], Key]


def of_chain(profile: str | None) -> Any:  # noqa: ANN401  the SDK has no types
    """The SDK's own chain, or a profile of `aliyun configure`."""
    return DefaultCredentialsProvider() if profile is None else CLIProfileCredentialsProvider(profile_name=profile)


def of_role(entering: Any, role_arn: str, external_id: str | None) -> Any:  # noqa: ANN401  likewise
    """A role of another account; the SDK assumes it when it is first used, and again before it expires."""
    return RamRoleArnCredentialsProvider(
        credentials_provider=entering,
        role_arn=role_arn,
        role_session_name=_SESSION_NAME,
        external_id=external_id,
    )


def of_pair(key_id: str, secret: str) -> Any:  # noqa: ANN401  likewise
    """An access key that does not expire."""
    return StaticAKCredentialsProvider(access_key_id=key_id, access_key_secret=secret)


def source(provider: Any, whose: str) -> Source:  # noqa: ANN401  likewise
    """Asks for the key at each call; the SDK keeps it as long as it is good."""

    def key() -> Key:
        try:
            found = provider.get_credentials()
            key_id, secret = found.get_access_key_id(), found.get_access_key_secret()
            token = found.get_security_token() or None
        except Exception as error:  # noqa: BLE001  the SDK raises whatever its sources raise
            name = type(error).__name__
            if _OLD_SIGNATURE in str(error):  # of AssumeRole, which the SDK signs by this machine's clock
                raise ClockSkewError(
                    f"no Alibaba Cloud credentials of {whose}: the request for them was too old; {ADVICE}",
                    code=_OLD_SIGNATURE,
                ) from None
            raise AuthFailedError(
                f"no usable Alibaba Cloud credentials of {whose} ({name}); see `aliyun sts GetCallerIdentity`",
                code=name,
            ) from None
        if not key_id or not secret:
            raise AuthFailedError(f"the Alibaba Cloud credentials of {whose} are empty", code="EmptyCredentials")
        return key_id, secret, token

    return key
