"""Every check in a thread of its own with its own time limit: one that hangs or breaks takes no other with it."""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from gpuwatch.cli.doctor.report import Finding, make_finding
from gpuwatch.model.duration import format_duration
from gpuwatch.model.progress import Advance, no_advance
from gpuwatch.runtime.clock import Clock

Case = TypeVar("Case")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(Generic[Case]):
    """One thing to look at: a function of the case, and how long it may take. It changes nothing."""

    name: str
    look: Callable[[Case], Iterable[Finding]]
    seconds: float = 10.0


def examine(
    checks: Sequence[Check[Case]], case: Case, clock: Clock, advance: Advance = no_advance
) -> tuple[Finding, ...]:
    """What all checks find, in their order; they look at the same time. `advance` gets how many have ended."""
    begun = clock.monotonic()
    looks = [_Look(check, case) for check in checks]
    for look in looks:
        look.start()
    findings = list[Finding]()
    for done, look in enumerate(looks):
        advance(done, len(looks))
        findings += look.result(begun, clock)
    return tuple(findings)


class _Look(threading.Thread, Generic[Case]):
    """A running check with its time limit."""

    def __init__(self, check: Check[Case], case: Case) -> None:
        super().__init__(name=f"doctor-{check.name}", daemon=True)
        self._check, self._case = check, case
        self._findings: tuple[Finding, ...] = ()

    def run(self) -> None:
        """Look once and keep the findings."""
        try:
            self._findings = tuple(self._check.look(self._case))
        except Exception as error:  # noqa: BLE001  an error in a check is a finding like any other
            self._findings = (make_finding("check.broken", self._check.name, broken_at(error)),)

    def result(self, begun: float, clock: Clock) -> tuple[Finding, ...]:
        """What it found by its time limit."""
        self.join(max(0.0, begun + self._check.seconds - clock.monotonic()))
        if self.is_alive():
            text = f"it did not end within {format_duration(self._check.seconds)}"
            return (make_finding("check.no_answer", self._check.name, text),)
        return self._findings


def broken_at(error: BaseException) -> str:
    """The kind of an error, with the module and the line that it came from; its own words may quote a secret."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "nowhere" if trace is None else f"{trace.tb_frame.f_globals.get('__name__')}:{trace.tb_lineno}"
    return f"{type(error).__name__} in {place}"
