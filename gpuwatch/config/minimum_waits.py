"""Waits that are too short to be meant: each setting names its minimum, and one switch for tests lifts them all."""

from collections.abc import Iterator, Mapping

from gpuwatch.config.keys import Key, Path, values_at
from gpuwatch.config.settings import Settings
from gpuwatch.model.duration import format_duration
from gpuwatch.model.setting import Contradiction

SWITCH = ("limits", "allow_short_waits")


def too_short(settings: Settings, keys: Mapping[Path, Key]) -> Iterator[Contradiction]:
    """Every wait below its minimum, unless the settings say that such waits are meant."""
    if settings.limits.allow_short_waits:
        return
    for key in keys.values():
        for path, value in values_at(settings, key.path) if key.floor is not None else ():
            seconds = value if isinstance(value, int | float) else None
            if key.floor is None or seconds is None or key.floor.allows(seconds):
                continue
            yield Contradiction(
                keys=(path,),
                wrong=f"{format_duration(seconds)} is too short",
                right=f"{key.expected}; for tests on unused machines, {'.'.join(SWITCH)}: true",
            )
