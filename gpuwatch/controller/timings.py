"""How long what the controller does and asks takes, as histograms since the process began."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from gpuwatch.clouds import Cloud
from gpuwatch.clouds.permissions import Diagnosable, Quotas
from gpuwatch.clouds.silence import Listed, Recalling
from gpuwatch.clouds.survey import Searchable
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.metrics.family import Histogram

# Upper bounds in seconds; each histogram has one bucket more, without a bound.
_ROUND = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_CLOUD_CALL = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_AGENT_ANSWER = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SCRAPE = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)

VERDICT, CONFIRMATION = "verdict", "confirmation"  # what an agent is asked for
OPERATIONS = frozenset(name for name in vars(Cloud) if not name.startswith("_"))

# What a cloud may have besides; see clouds/permissions.py and clouds/silence.py.
_OPTIONAL = frozenset(
    name
    for kind in (Diagnosable, Searchable, Quotas, Recalling, Listed)
    for name in vars(kind)
    if not name.startswith("_")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """What is timed: `cloud_calls` by the cloud and the operation, a method of `Cloud`; `agent_answers` by question."""

    rounds: Histogram = field(default_factory=lambda: Histogram(_ROUND))
    cloud_calls: Histogram = field(default_factory=lambda: Histogram(_CLOUD_CALL, ()))
    agent_answers: Histogram = field(default_factory=lambda: Histogram(_AGENT_ANSWER, [(VERDICT,), (CONFIRMATION,)]))
    scrapes: Histogram = field(default_factory=lambda: Histogram(_SCRAPE))


class _TimedCloud:
    """A cloud with its operations timed."""

    def __init__(self, cloud: Cloud, name: str, clock: Clock, calls: Histogram) -> None:
        self._cloud, self._name, self._clock, self._calls = cloud, name, clock, calls
        # isinstance() with a protocol looks for attributes that are really there, from Python 3.12 on.
        vars(self).update((each, getattr(cloud, each)) for each in _OPTIONAL if hasattr(cloud, each))

    def __getattr__(self, operation: str) -> Any:  # noqa: ANN401  whatever the cloud has
        found = getattr(self._cloud, operation)
        return self._time_call(operation, found) if operation in OPERATIONS else found

    def _time_call(self, operation: str, call: Callable[..., object]) -> Callable[..., object]:
        def asked(*arguments: object, **options: object) -> object:
            with self._calls.time_body(self._clock, (self._name, operation)):
                return call(*arguments, **options)

        return asked


def time_calls(cloud: Cloud, name: str, clock: Clock, calls: Histogram) -> Cloud:
    """The same cloud; what each of its calls takes is counted, with its waits for rate limits, also if it fails."""
    return cast("Cloud", _TimedCloud(cloud, name, clock, calls))
