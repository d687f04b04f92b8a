"""Botocore for tests without what takes it real time: the wait before another try, and each client's methods anew."""

from typing import Any

import botocore.retries.standard
import pytest
from botocore.client import ClientCreator

_made: dict[str, dict[str, object]] = {}
_make: Any = ClientCreator.__dict__["_create_methods"]


def quicken(patch: pytest.MonkeyPatch) -> None:
    """It tries again at once, and makes a service's hundreds of methods, a third of a test's time, once."""
    patch.setattr(botocore.retries.standard.ExponentialBackoff, "delay_amount", lambda *_: 0.0)
    patch.setattr(ClientCreator, "_create_methods", _methods)


def _methods(creator: ClientCreator, service: Any) -> dict[str, object]:  # noqa: ANN401  botocore's
    """They know nothing of their client."""
    if service.service_name not in _made:
        _made[service.service_name] = _make(creator, service)
    return dict(_made[service.service_name])
