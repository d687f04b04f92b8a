"""Shared by the commands: the group, options, how errors are shown, and a bar for what takes over two seconds."""

import logging
import math
import os
import sys
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from gpuwatch import __version__
from gpuwatch.cli.hints import argument_hint, install_hint, instead_of, is_missing_part, meant_by, option_hint
from gpuwatch.model.progress import Advance, no_advance
from gpuwatch.runtime.printable import legible, printable_text

if TYPE_CHECKING:
    from gpuwatch.config.settings import Settings
    from gpuwatch.controller.context import LiveParts, Round
    from gpuwatch.runtime.log_format import LogFormat

config_option = click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path, readable=False),  # the reader says why
    help="The configuration file; else $GPUWATCH_CONFIG, else /etc/gpuwatch/gpuwatch.yaml.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document instead of text.")


_GLOBAL = {"--config": True, "--json": False}  # may stand before the command, too; whether a value follows
_BEFORE = "gpuwatch.before"
_TYPED = "gpuwatch.typed"
_SOON_SECONDS = 0.5  # what is done by then shows no bar

# What `gpuwatch --help` lists under which heading; the rest comes last.
SECTIONS = {
    "On a GPU host": ("top", "agent", "probe", "snooze"),
    "Where the controller runs": ("controller", "config", "doctor", "join", "notify", "export"),
    "Look": ("status", "plan", "explain", "rounds", "audit", "unused", "scan"),
    "Order": ("pause", "resume", "acknowledge", "approve"),
    "Money": ("blocked", "cost", "budget", "forecast", "report", "prices", "recommend"),
    "Try": ("demo", "backtest", "cloud"),
    "About": ("version", "completion"),
}


class FiniteRange(click.FloatRange):
    """A number in a range. click takes `nan` for one: it is neither below nor above any limit."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401  as inherited
        """Refuse what is no number."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a number", param, ctx)
        return number


class Sections(click.Group):
    """A group that lists its commands under headings, each with the first paragraph of its help."""

    group_class = type  # those within it are of this kind, too

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep options that commands take, such as --config, where they stand before the command.

        Raises:
            click.UsageError: an argument is neither text nor a file, so that nothing could print or store it.

        """
        for each in args:
            if each.encode(errors="replace") != each.encode(errors="surrogatepass") and not os.path.exists(each):  # noqa: PTH110  Path raises for what is no path
                raise click.UsageError(
                    f"'{legible(each)}' is no text in the encoding of this terminal, {sys.getfilesystemencoding()}: "
                    "write it in that encoding, or set LC_ALL, for example to C.UTF-8",
                    ctx,
                )
        own = {name for each in self.params for name in each.opts}
        kept, rest = _leading(args, own)
        ctx.meta[_TYPED] = args
        ctx.meta[_BEFORE] = [*ctx.meta.get(_BEFORE, []), *kept]
        return super().parse_args(ctx, rest)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command, with the options that stood before it."""
        try:
            name, command, rest = super().resolve_command(ctx, args)
        except click.UsageError as error:
            hint = _hint_of(error, args[0], ctx)
            if hint is None:
                raise
            raise click.UsageError(hint, ctx) from error
        if (
            command is None
            or not ctx.meta[_BEFORE]
            or (isinstance(command, click.Group) and not _options_taken(command))
        ):
            return name, command, rest
        kept, ctx.meta[_BEFORE] = ctx.meta[_BEFORE], []
        if name == "agent":  # it reads its own arguments, and `release` and `acquire` come first
            return name, command, [*rest, *kept]
        missing = next((each for each in kept if each in _GLOBAL and each not in _options_taken(command)), None)
        if missing is not None:
            raise click.UsageError(f"`{ctx.command_path} {name}` takes no {missing}", ctx=ctx)
        return name, command, [*kept, *rest]

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a command; a number in a range is an integer or a number to people, in its help and its errors."""
        for each in cmd.params:
            if isinstance(each.type, click.FloatRange):
                each.type = FiniteRange(each.type.min, each.type.max, each.type.min_open, each.type.max_open)
            if isinstance(each.type, click.IntRange | click.FloatRange):
                each.type.name = "integer" if isinstance(each.type, click.IntRange) else "number"
        super().add_command(cmd, name)

    def sections(self) -> dict[str, list[str]]:
        """Names of the commands by heading."""
        known = {title: [name for name in names if name in self.commands] for title, names in SECTIONS.items()}
        rest = sorted(set(self.commands) - {name for names in known.values() for name in names})
        if rest == sorted(self.commands):
            return {"Commands": rest}
        return {title: names for title, names in (known | {"More": rest}).items() if names}

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401  as inherited
        """Run a command. If it needs a part that is not installed, say how to install it: exit status 2."""
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            hint = option_hint(error, ctx.meta[_TYPED])
            if hint is None:
                raise
            raise click.UsageError(hint, error.ctx) from error
        except click.UsageError as error:
            if error.ctx is None or "unexpected extra argument" not in error.message:
                raise
            hint = argument_hint(error.ctx.info_name or "", error.message)
            if hint is None:
                raise
            raise click.UsageError(hint, error.ctx) from error
        except ImportError as error:
            if not is_missing_part(error):
                raise
            print_text(f"This command needs a part that is not installed: {install_hint(error)}", err=True)
            sys.exit(2)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As `--help` shows them."""
        del ctx
        for title, names in self.sections().items():
            with formatter.section(title):
                formatter.write_dl([(name, _does(self.commands[name])) for name in names])


def _hint_of(error: click.UsageError, word: str, ctx: click.Context) -> str | None:
    """Better words for a command that there is not; None: those of the error are good."""
    root = ctx.find_root().command
    if isinstance(root, click.Group) and ctx.command is root:
        return instead_of(word, root)
    meant = None if "Did you mean" in error.format_message() else meant_by(word, root)
    return None if meant is None else f"No such command {word!r}. You may want {meant}."


def _leading(args: list[str], own: set[str]) -> tuple[list[str], list[str]]:
    """The options of `_GLOBAL` at the begin of the arguments, which the group does not take itself; and the rest."""
    kept: list[str] = []
    rest = list(args)
    while rest and (name := rest[0].partition("=")[0]) in _GLOBAL and name not in own:
        kept += [name, rest[0].partition("=")[2]] if "=" in rest[0] and _GLOBAL[name] else [rest[0]]
        first = rest.pop(0)
        if _GLOBAL[name] and "=" not in first:
            if not rest:
                raise click.UsageError(f"{name} needs a value, and a command after it: gpuwatch {name} FILE status")
            kept.append(rest.pop(0))
    return kept, rest


def _options_taken(command: click.Command) -> set[str]:
    """The options of `_GLOBAL` that a command takes."""
    return {name for each in command.params for name in each.opts} & set(_GLOBAL)


def _does(command: click.Command) -> str:
    """The first paragraph of a command's help."""
    return " ".join((command.help or "").partition("\n\n")[0].split())


@click.group(cls=Sections, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gpuwatch")
def commands() -> None:
    """See every GPU, stop paying for the idle ones, never touch a busy one."""


def above_zero(_: click.Context, param: click.Parameter, value: str) -> float:
    """Seconds of a duration such as 90s, 5m or 2h; with its unit, for 4 alone could mean hours or seconds."""
    return _seconds(param, value, zero=False)


def zero_or_more(_: click.Context, param: click.Parameter, value: str) -> float:
    """The same, where 0 is allowed, too."""
    return _seconds(param, value, zero=True)


def _seconds(param: click.Parameter, value: str, *, zero: bool) -> float:
    """Seconds of a duration that is above 0, or at least 0."""
    from gpuwatch.model.duration import LONGEST_SECONDS, has_no_unit, parse_duration

    if has_no_unit(value) and not value.strip().startswith("-") and not (zero and value.strip() == "0"):
        raise click.BadParameter(
            f"{value!r} has no unit; write for example {value.strip()}m or {value.strip()}s", param=param
        )
    try:
        seconds = parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error), param=param) from error
    if not isinstance(seconds, float) or not 0 <= seconds <= LONGEST_SECONDS or (seconds == 0 and not zero):
        below = "is below 0" if zero else "is not above 0"
        wrong = below if not isinstance(seconds, float) or not seconds > 0 else "is longer than a century"
        raise click.BadParameter(f"{value!r} {wrong}; write for example 90s, 5m or 2h", param=param)
    return seconds


def duration_or_none(context: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """An optional duration of minutes or hours, as `above_zero`."""
    if value is not None and value.strip().replace(".", "", 1).isdecimal():
        raise click.BadParameter(
            f"{value!r} has no unit; write for example {value.strip()}h or {value.strip()}m", param=param
        )
    return None if value is None else above_zero(context, param, value)


def is_given(option: str) -> bool:
    """Whether somebody wrote the option of the running command."""
    return click.get_current_context().get_parameter_source(option) is ParameterSource.COMMANDLINE


def print_text(words: object, *, err: bool = False, nl: bool = True) -> None:
    """Print text; the only way to the terminal, so that control characters from outside have no effect."""
    click.echo(printable_text(str(words)), err=err, nl=nl)


@contextmanager
def progress(words: str) -> Iterator[Advance]:
    """While the block runs, show what is done; gone at its end. Without a whole, the bar only shows that it works.

    Nothing is written where standard error is no terminal: a pipe, a file, a unit's journal. NO_COLOR takes the colours
    away. The block must not print.
    """
    if not sys.stderr.isatty() or os.environ.get("TERM", "dumb") in {"dumb", "unknown", ""}:
        yield no_advance
        return
    from rich.console import Console  # for people at terminals only
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn
    from rich.progress import TimeElapsedColumn as Elapsed

    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        Elapsed(),
        console=Console(stderr=True, highlight=False),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    task = bar.add_task(words, total=None)
    begin = threading.Timer(_SOON_SECONDS, bar.start)
    begin.daemon = True
    begin.start()
    try:
        yield lambda done, whole: bar.update(task, completed=done, total=whole)
    finally:
        begin.cancel()
        begin.join()
        bar.stop()


@contextmanager
def a_plan(path: Path | None) -> Iterator[tuple["LiveParts", "Round"]]:
    """One round over the live fleet that records nothing and takes no action."""
    with explain_errors():
        from gpuwatch.cli.parts import assemble_parts
        from gpuwatch.controller.round import step

        with assemble_parts(settings_of(path), read_only=True) as parts:
            with progress("asking the cloud and the agents"):
                done = step(parts, act=False)
            yield parts, done


def refuse_unknown_pools(asked: Iterable[str], known: Collection[str]) -> None:
    """A misspelt pool would look like one without nodes. `known` are those of the settings and of all nodes.

    Raises:
        click.UsageError: there is no such pool.

    """
    from gpuwatch.model.slips import meant_name

    for pool in asked:
        if pool not in known:
            raise click.UsageError(f"--pool {pool!r}: there is no such pool. {meant_name(pool, set(known))}")


@contextmanager
def explain_errors() -> Iterator[None]:
    """Turn errors that a person can correct into a message on stderr and exit status 2.

    A part that is not installed is named by `Sections.invoke`, whichever command needs it.
    """
    from gpuwatch.clouds import CloudError
    from gpuwatch.ledger import LedgerError
    from gpuwatch.money.prices.overrides_file import PricesError

    try:
        yield
    except (CloudError, LedgerError, PricesError) as error:
        print_text(error, err=True)
    else:
        return
    sys.exit(2)


def settings_of(path: Path | None) -> "Settings":
    """The settings in force, or every mistake on stderr and exit status 2."""
    from gpuwatch.config import ConfigError, load

    try:
        settings = load(path, os.environ)
    except ConfigError as error:
        print_text(error, err=True)
        sys.exit(2)
    from gpuwatch.clouds.named import secret_stores
    from gpuwatch.model.currency import show_in
    from gpuwatch.money.accounting.scope import count_in
    from gpuwatch.runtime.secrets import use

    say_if_unconfigured(path)
    use(secret_stores(settings.named_clouds))
    show_in(settings.shown_currency)
    count_in(settings.cost.scope)
    return settings


def say_if_unconfigured(path: Path | None) -> None:
    """Say on stderr that nothing is configured: with credentials around, the defaults look like somebody's choice."""
    from gpuwatch.config.chosen_file import DEFAULT_PATH, FILE_VARIABLE, PREFIX, default_path
    from gpuwatch.runtime.program import VARIABLE

    given = any(name.startswith(PREFIX) and name not in {FILE_VARIABLE, VARIABLE} for name in os.environ)
    if path is None and default_path(os.environ) is None and not given:
        print_text(
            f"Warning: there is no configuration, so all defaults hold: {DEFAULT_PATH} does not exist, and "
            f"${FILE_VARIABLE} is not set. `gpuwatch config init` writes a file, `gpuwatch config show` lists the "
            "defaults.",
            err=True,
        )


def show_money_as_in(path: Path | None) -> None:
    """Show money in the currency of the settings, where there are any; for commands that need none."""
    from gpuwatch.config.chosen_file import default_path

    if path is not None or default_path(os.environ) is not None:
        settings_of(path)


def log_to_stderr(form: "LogFormat") -> None:
    """Lines for the journal, which has its own clock; with the time elsewhere."""
    from gpuwatch.runtime.log_format import log_to_stderr as log

    log("%(levelname)s %(name)s: %(message)s", form)
    for noisy in ("apscheduler", "botocore", "boto3", "urllib3"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
