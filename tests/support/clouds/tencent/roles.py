"""Who may sign for the fake: keys, and roles that are assumed with them."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from gpuwatch.runtime.clock import Clock
from tests.support.clouds.tencent.state import Refusal, written


class Roles:
    """Keys by their ids, and of an assumed role the token that must come with it."""

    def __init__(self, keys: Mapping[str, str], clock: Clock) -> None:
        self._keys = dict(keys)
        self._tokens: dict[str, str] = {}
        self._clock = clock
        self.assumed: list[Mapping[str, Any]] = []

    def secret(self, key_id: str, token: str | None) -> str:
        """What a key signs with."""
        if key_id not in self._keys:
            raise Refusal("AuthFailure.SecretIdNotFound", "there is no such key")
        if self._tokens.get(key_id) != token:
            raise Refusal("AuthFailure.TokenFailure", "the token is wrong")
        return self._keys[key_id]

    def end(self) -> None:
        """Every assumed role's credentials end."""
        for key_id in self._tokens:
            self._tokens[key_id] = "ended"

    def assume_role(self, region: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """AssumeRole."""
        del region
        self.assumed.append(asked)
        number = len(self.assumed)
        key = {"TmpSecretId": f"AKIDrole{number}", "TmpSecretKey": f"rolekey{number}", "Token": f"token{number}"}
        self._keys[key["TmpSecretId"]], self._tokens[key["TmpSecretId"]] = key["TmpSecretKey"], key["Token"]
        end = self._clock.now() + timedelta(seconds=asked["DurationSeconds"])
        return {"Credentials": key, "ExpiredTime": int(end.timestamp()), "Expiration": written(end)}
