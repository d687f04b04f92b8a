"""What notices promise in tests."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from gpuwatch.model.promise import Promise


def a_promise(age: float, now: datetime, by_name: Mapping[str, object]) -> Promise:
    """What the default pool's notice of that age promised: a stop, after ten minutes or another `grace`."""
    grace = by_name.get("grace", 600.0)
    assert isinstance(grace, float | int)
    said: dict[str, object] = {
        "action": "stop",
        "pool": "default",
        "stop_at": now - timedelta(seconds=age) + timedelta(seconds=grace),
        "grace_seconds": grace,
        "idle_seconds": 1800.0,
        **{name: each for name, each in by_name.items() if name != "grace"},
    }
    return Promise(**said)  # type: ignore[arg-type]  # of its own fields
