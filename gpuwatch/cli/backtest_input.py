"""Where a backtest's history comes from: options that name a file, a Prometheus or a ledger, and how it is read."""

import contextlib
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import click

from gpuwatch.cli.base import config_option, duration_or_none, settings_of

if TYPE_CHECKING:
    from gpuwatch.controller.observe.settings import PromqlSettings
    from gpuwatch.runtime.clock import Clock
    from gpuwatch.simulate.backtest.gaps import History
    from gpuwatch.simulate.backtest.sources.nodes import Kind
    from gpuwatch.simulate.fleet.options import Options

Dialect = Literal["auto", "gpuwatch", "dcgm", "nvidia_smi", "nvitop"]
_CONFIGURED = "\0"  # the option without a value
_SOURCES = "--trace FILE, --prometheus [URL] or --ledger [FILE]"
_STEP_SECONDS = 60.0
_QUERY_SECONDS = 120.0  # a range is more work than the moment that signals.promql.timeout is about

_OPTIONS = (
    click.option(
        "--trace",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Recorded load, CSV or .gz, in either form of `gpuwatch demo --trace`.",
    ),
    click.option(
        "--prometheus",
        is_flag=False,
        flag_value=_CONFIGURED,
        metavar="[URL]",
        help="A Prometheus, Thanos, Mimir or VictoriaMetrics; without URL as signals.promql of --config says.",
    ),
    click.option(
        "--ledger",
        is_flag=False,
        flag_value=_CONFIGURED,
        metavar="[FILE]",
        help="The rounds that a ledger keeps whole; without FILE the one of --config.",
    ),
    config_option,
    click.option("--from", "since", metavar="TIME", help="30d, or 2026-01-31T18:00Z [30d; of a ledger: all]."),
    click.option("--to", "until", metavar="TIME", default="now", show_default=True, help="Only until then."),
    click.option("--step", callback=duration_or_none, help="Step of a query to Prometheus, 15s to 5m [1m]."),
    click.option(
        "--dialect",
        type=click.Choice(get_args(Dialect)),
        help="The exporter behind a Prometheus's metrics [signals.promql.dialect; of a URL: auto].",
    ),
    click.option("--pool", help="Only nodes of that pool; of a Prometheus by the label `pool`."),
    click.option(
        "--parked",
        type=click.Choice(["busy", "idle"]),
        help="What held memory without work counts as [busy; of a trace: idle].",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was given of the options."""

    trace: Path | None
    prometheus: str | None
    ledger: str | None
    path: Path | None
    since: str | None
    until: str
    step: float | None
    dialect: Dialect | None
    pool: str | None
    parked: Literal["busy", "idle"] | None
    parked_after: float | None = None  # no option: the rules on trial say so

    def history(self, options: "Options", clock: "Clock") -> "tuple[str, History]":
        """The source in words, and the history.

        Raises:
            DemoError: a trace cannot be read, or there is no history.
            LedgerError: the ledger cannot be read.
            click.UsageError: the options do not fit together.

        """
        given = [name for name in ("trace", "prometheus", "ledger") if getattr(self, name) is not None]
        if len(given) != 1:
            wrong = "no source is given" if not given else f"--{given[0]} and --{given[1]} are both given"
            raise click.UsageError(f"{wrong}; expected one of {_SOURCES}")
        self._only_for(given[0])
        if self.trace is not None:
            from gpuwatch.simulate.backtest.gaps import history_of

            return str(self.trace), history_of(options)
        return self._of_prometheus(options, clock) if self.prometheus is not None else self._of_ledger(options, clock)

    @property
    def of_the_controller(self) -> bool:
        """Whether --config names the source, and so the controller's own ledger or Prometheus."""
        return _CONFIGURED in {self.prometheus, self.ledger}

    def beside(self, parked: Literal["busy", "idle"] | None, parked_after: float | None) -> "Asked":
        """The same where --config and --pool name the rules on trial, too, and so need not be about the source.

        `parked` is what held memory counts as by default, after so many seconds in which it counts as work.
        """
        named = any(each not in {None, _CONFIGURED} for each in (self.prometheus, self.ledger))
        if self.trace is not None:
            return replace(self, pool=None)
        path = None if named else self.path
        if self.parked is not None:
            return replace(self, path=path)
        return replace(self, path=path, parked=parked, parked_after=parked_after)

    def _only_for(self, source: str) -> None:
        """Options that a source knows nothing of are mistakes."""
        foreign = {"trace": ("since", "pool", "parked", "step", "dialect"), "ledger": ("step", "dialect")}
        for name in foreign.get(source, ()):
            if getattr(self, name) is not None:
                option = "from" if name == "since" else name
                raise click.UsageError(f"--{option} says nothing about --{source}; leave it out")

    def _of_prometheus(self, options: "Options", clock: "Clock") -> "tuple[str, History]":
        from gpuwatch.controller.observe.prometheus_api import PromApi
        from gpuwatch.simulate.backtest.sources.prometheus import STEPS_SECONDS, PrometheusRange, dialect_of
        from gpuwatch.simulate.backtest.sources.window import window_of

        step, (least, most) = self.step or _STEP_SECONDS, STEPS_SECONDS
        if not least <= step <= most or step != int(step):
            raise click.BadParameter("expected whole seconds from 15s to 5m", param_hint="--step")
        try:
            window = window_of(self.since or "30d", self.until, clock.now(), options.hours)
        except ValueError as error:
            raise click.UsageError(f"--from, --to: {error}") from error
        settings, dialect = self._settings()
        api = PromApi(settings=settings, clock=clock, most_skew_seconds=math.inf)  # the past is the same by any clock
        api = replace(
            api, settings=replace(settings, dialect=dialect_of(api, window) if dialect == "auto" else dialect)
        )
        asked = PrometheusRange(
            api=api,
            window=window,
            step=step,
            pool=self.pool,
            parked_is=self._parked_is,
            parked_after=self.parked_after or 0.0,
        )
        return f"{asked.place}, {window}", asked.history(options)

    def _settings(self) -> "tuple[PromqlSettings, Dialect]":
        """The API and the dialect of its metrics."""
        from gpuwatch.controller.observe.settings import PromqlSettings

        if self.prometheus == _CONFIGURED:
            settings = settings_of(self.path).signals.promql
            if settings.url is None:
                raise click.UsageError("signals.promql.url is not set; expected --prometheus URL")
            return replace(settings, timeout=max(settings.timeout, _QUERY_SECONDS)), self.dialect or settings.dialect
        self._alone("prometheus", "URL")
        from gpuwatch.runtime.http.address import is_web_address

        if not is_web_address(self.prometheus or ""):
            right = "a URL such as http://127.0.0.1:9090, and credentials in signals.promql of --config"
            raise click.BadParameter(f"expected {right}", param_hint="--prometheus")
        return PromqlSettings(url=self.prometheus, timeout=_QUERY_SECONDS), self.dialect or "auto"

    def _of_ledger(self, options: "Options", clock: "Clock") -> "tuple[str, History]":
        from gpuwatch.ledger import Ledger, LedgerSettings
        from gpuwatch.simulate.backtest.sources.rounds import ledger_history
        from gpuwatch.simulate.backtest.sources.window import moment_of, past_moment

        try:
            since = None if self.since is None else past_moment(self.since, clock.now())
            until = moment_of(self.until, clock.now())
        except ValueError as error:
            raise click.UsageError(f"--from, --to: {error}") from error
        if self.ledger == _CONFIGURED:
            settings = settings_of(self.path).ledger
        else:
            self._alone("ledger", "FILE")
            settings = LedgerSettings(path=self.ledger or "")
        with contextlib.closing(Ledger.connect(settings, read_only=True)) as ledger:
            history = ledger_history(
                ledger,
                options,
                since,
                until,
                pool=self.pool,
                parked_is=self._parked_is,
                parked_after=self.parked_after or 0.0,
            )
        return f"the ledger {settings.place}", history

    @property
    def _parked_is(self) -> "Kind":
        from gpuwatch.simulate.backtest.sources.nodes import Kind

        return Kind.IDLE if self.parked == "idle" else Kind.BUSY

    def _alone(self, source: str, value: str) -> None:
        """What is named on the command line is not what a configuration names."""
        if self.path is not None:
            raise click.UsageError(f"--{source} {value} and --config are both given; expected one of them")


def history_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the options above, which it is given as `asked`."""

    @functools.wraps(command)
    def wrapped(**given: Any) -> None:  # noqa: ANN401  as click gives them
        asked = Asked(**{each.name: given.pop(each.name) for each in fields(Asked) if each.name in given})
        command(asked=asked, **given)

    wrapped_: Callable[..., None] = wrapped
    for option in reversed(_OPTIONS):
        wrapped_ = option(wrapped_)
    return wrapped_
