"""What the doctor says in tests: findings by their code."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from gpuwatch.cli.doctor.context import ControllerCase
from gpuwatch.cli.doctor.report import Finding, Severity
from gpuwatch.clouds import Cloud
from gpuwatch.config.settings import Settings
from gpuwatch.runtime.clock import Clock, SystemClock


def codes(findings: Iterable[Finding]) -> list[str]:
    """Those that are not fine."""
    return [each.code for each in findings if each.severity is not Severity.FINE]


def the(findings: Iterable[Finding], code: str) -> Finding:
    """The one finding of that code."""
    found = list(findings)
    chosen = [each for each in found if each.code == code]
    assert len(chosen) == 1, f"not one {code} in {found}"
    return chosen[0]


def a_controller(
    cloud: Cloud | Exception, clock: Clock | None = None, settings: Mapping[str, Any] | None = None
) -> ControllerCase:
    """A controller of that cloud; an exception is what connecting to it raises."""

    def connect() -> Cloud:
        if isinstance(cloud, Exception):
            raise cloud
        return cloud

    return ControllerCase(replace(Settings(fleet="lab"), **(settings or {})), clock or SystemClock(), connect)
