"""The only reader of time: everything else is handed a clock, so that every test and replay owns its own."""

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol

_BOOT_TIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class Clock(Protocol):
    """What the shells need of time."""

    def now(self) -> datetime:
        """Wall-clock time, aware, UTC. It may jump; durations are never taken from it."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never jumps; shared by all processes of a host."""
        ...

    def uptime(self) -> float:
        """Seconds on a clock that never jumps and also runs while the machine sleeps."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let that many seconds pass on this clock."""
        ...


class SystemClock:
    """The host's own clocks."""

    def now(self) -> datetime:
        """Wall-clock time of the host in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """CLOCK_MONOTONIC in seconds: one clock for the supervisor and its probe."""
        return time.monotonic()

    def uptime(self) -> float:
        """CLOCK_BOOTTIME in seconds where the system has it (Linux); elsewhere CLOCK_MONOTONIC."""
        return time.monotonic() if _BOOT_TIME is None else time.clock_gettime(_BOOT_TIME)

    def sleep(self, seconds: float) -> None:
        """Block the calling thread."""
        time.sleep(max(0.0, seconds))


@dataclass(slots=True)
class ManualClock:
    """A clock that moves only by `advance`: simulations, backtests and tests."""

    wall: datetime = field(default_factory=lambda: datetime(2026, 1, 5, tzinfo=UTC))
    elapsed_seconds: float = 0.0
    asleep_seconds: float = 0.0

    def now(self) -> datetime:
        """The wall-clock time that was set or reached."""
        return self.wall

    def monotonic(self) -> float:
        """Seconds advanced since the clock was made."""
        return self.elapsed_seconds

    def uptime(self) -> float:
        """Seconds advanced or suspended since the clock was made."""
        return self.elapsed_seconds + self.asleep_seconds

    def sleep(self, seconds: float) -> None:
        """Advance instead of waiting."""
        self.advance(max(0.0, seconds))

    def advance(self, seconds: float) -> None:
        """Let time pass on both clocks."""
        self.elapsed_seconds += seconds
        self.wall += timedelta(seconds=seconds)

    def jump(self, seconds: float) -> None:
        """Move the wall clock alone, as a broken NTP server does."""
        self.wall += timedelta(seconds=seconds)

    def suspend(self, seconds: float) -> None:
        """The machine sleeps: its monotonic clock stands still, as Linux' does, the others do not."""
        self.asleep_seconds += seconds
        self.wall += timedelta(seconds=seconds)
