"""`gpuwatch config`: write a first one, check it, show what holds in each pool, or print the schema."""

import errno
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.base import commands, config_option, json_option, print_text, settings_of
from gpuwatch.cli.hints import install_hint
from gpuwatch.runtime.json_document import fill_document, json_text

if TYPE_CHECKING:
    from gpuwatch.config.settings import Settings

# The ends of keys that name a file.
_FILES = ("_file", "tls_certificate", "tls_key", "tls_ca", "tls_client_ca", "kubeconfig")
_WRITTEN = "health_file"  # by the agent itself
_WIDEST = 30  # of the column of values


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigWarning:
    """A choice that is allowed and misleads; `remedy` is null where the sentence has it."""

    sentence: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckDocument:
    """The settings are valid: their file (null: all defaults), what they say in a line, and what to think about.

    `undecided_pools` still need `idle.instance_store`, which says what to do with local disks.
    """

    source: str | None
    summary: str
    warnings: list[ConfigWarning]
    undecided_pools: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingDocument:
    """A setting as one would write it, and where it comes from."""

    value: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowDocument:
    """Every setting of every pool by its key."""

    settings: dict[str, SettingDocument]


@commands.group()
def config() -> None:
    """Write a first configuration, check it, show what holds in each pool, or print the schema."""


@config.command()
@click.argument("file", default="gpuwatch.yaml", type=click.Path(dir_okay=False, path_type=Path))
def init(file: Path) -> None:
    """Write a first configuration with comments, which stops no machine; `-` prints it. Default: gpuwatch.yaml.

    It overwrites no file.
    """
    from gpuwatch.cli.shipped import shipped_folder

    text = shipped_folder("docs/examples").joinpath("starter.yaml").read_text(encoding="utf-8")
    if file == Path("-"):
        print_text(text, nl=False)
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    except OSError as error:
        if error.errno == errno.EEXIST and file.exists():
            compare = f"gpuwatch config init - | diff {file} -"
            print_text(f"{file} exists already and was not changed. To compare: {compare}", err=True)
            sys.exit(2)
        print_text(f"{error.filename or file} cannot be written: {error.strerror or error}", err=True)
        sys.exit(2)
    print_text(f"Wrote {file}. Edit the lines with CHANGE, then run: gpuwatch config check --config {file}")


@config.command()
@config_option
@json_option
def check(path: Path | None, *, as_json: bool) -> None:
    """Show the settings in force, or every mistake with its remedy (exit status 2)."""
    from gpuwatch.clouds.named import everywhere
    from gpuwatch.config import default_path, read_settings
    from gpuwatch.money.prices.listing import old_table
    from gpuwatch.policies.validation import undecided_pools, warnings
    from gpuwatch.runtime.clock import SystemClock

    settings = settings_of(path)
    origin = read_settings(path, os.environ)[1]
    source = path or default_path(os.environ)
    found = [ConfigWarning(sentence=each.wrong, remedy=each.right) for each in warnings(settings.pools)]
    # A file of an agent alone has none of these, and no use for prices.
    priced = bool(settings.pools or settings.clouds or settings.budgets)
    places = [(each.provider, each.first_region) for each in settings.named_clouds.values() if priced]
    old = old_table(places, settings.prices, SystemClock().now().date())
    gaps = _price_gaps(settings) if priced else []
    more = (
        *_missing_files(settings),
        *settings.cautions,
        *everywhere(settings.named_clouds),
        *_untried_pools(settings),
        *old,
        *gaps,
    )
    found += [ConfigWarning(sentence=line) for line in more]
    found += _other_sizes(settings)
    open_pools = undecided_pools({name: settings.rulebook.pool(name) for name in settings.rulebook.known})
    if as_json:
        document = CheckDocument(
            source=None if source is None else str(source),
            summary=settings.summary,
            warnings=found,
            undecided_pools=tuple(open_pools),
        )
        print_text(json_text("config.check", document))
        return
    empty = source is not None and not origin.lines and not origin.overrides
    where = source or "no file, all defaults"
    print_text(f"OK: {where}{' sets nothing, so all defaults hold' if empty else ''}: {settings.summary}")
    for each in found:
        print_text(f"Warning: {each.sentence}" + ("" if each.remedy is None else f"\n    better: {each.remedy}"))
    if open_pools:
        print_text(f"Decide: {_local_disks(open_pools, [each.provider for each in settings.named_clouds.values()])}")


def _missing_files(settings: "Settings") -> Iterator[str]:
    """Files that the settings name and this machine does not have."""
    from gpuwatch.runtime.secrets import files_named, is_reference

    for path, name in files_named(settings, ends=_FILES):
        if path[-1] != _WRITTEN and name and not is_reference(name) and not os.path.lexists(name):
            yield f"{'.'.join(path)}: this machine has no file {name}"


def _other_sizes(settings: "Settings") -> Iterator[ConfigWarning]:
    """Offers that say another number of GPUs than their machine type has."""
    from gpuwatch.money.prices.catalogue import machine_types

    offers = [
        (f"pools.{pool}.offers.{name}.gpus", offer)
        for pool, each in settings.pools.items()
        for name, offer in each.offers.items()
    ]
    for key, offer in offers if any(offer.gpus for _, offer in offers) else ():
        known = {each.gpu_count for (_, kind), each in machine_types().items() if kind == offer.instance_type}
        if offer.gpus is not None and known and offer.gpus not in known:
            has = " or ".join(map(str, sorted(known)))
            sentence = f"{key} is {offer.gpus}, and {offer.instance_type} has {has}"
            yield ConfigWarning(sentence=sentence, remedy=f"gpus: {has}")


def _local_disks(pools: Sequence[str], providers: Sequence[str]) -> str:
    """The decision about local disks that these pools still need."""
    from gpuwatch.clouds.settings import TITLES
    from gpuwatch.money.prices.catalogue import local_disk_types

    known = []
    for provider in dict.fromkeys(providers):
        types = local_disk_types(provider)
        if types is not None:
            but = types.families_without if types.having > types.known / 2 else ()
            without = f" (all but {', '.join(but)})" if but else ""
            known.append(f"{types.having} of {types.known} GPU types of {TITLES.get(provider, provider)}{without}")
    most = " and ".join(known) or "most GPU machines"
    keys = ", ".join(f"pools.{name}.idle.instance_store" for name in pools)
    return (
        f"{most} have local disks (instance store), and a stop empties them. gpuwatch stops no machine with local "
        f"disks in use until you set {keys}:\n"
        "    keep: such machines stay; discard: nothing on these disks is worth keeping. "
        "`gpuwatch blocked` shows the money"
    )


def _untried_pools(settings: "Settings") -> list[str]:
    """The pools that wait for a backtest, where one is required and the ledger can be asked."""
    if settings.limits.require_backtest is None:
        return []
    try:
        from gpuwatch.controller import operations
        from gpuwatch.ledger import LedgerError
    except ModuleNotFoundError as error:
        return [f"limits.require_backtest is set, and the ledger cannot be read here: {install_hint(error)}"]
    from gpuwatch.runtime.clock import SystemClock

    try:
        found = list(operations.untried_pools(settings.ledger, SystemClock(), settings.rulebook))
    except LedgerError as error:
        return [f"limits.require_backtest is set, and the recorded backtests cannot be read: {error}"]
    return [f"pool {pool} removes no node: {sentence}\n    {remedy}" for pool, (_, sentence, remedy) in found]


def _price_gaps(settings: "Settings") -> list[str]:
    """Regions of the settings without list prices, and types of the last round's machines without a price."""
    from gpuwatch.money.prices import gaps
    from gpuwatch.money.prices.open import open_book
    from gpuwatch.money.prices.overrides_file import PricesError
    from gpuwatch.runtime.clock import SystemClock

    clouds = settings.named_clouds
    found = gaps.unpriced_regions(clouds, settings.prices)
    try:
        from gpuwatch.ledger import Ledger, LedgerError
    except ModuleNotFoundError:
        return found  # nothing is metered without a ledger
    clock = SystemClock()
    try:
        ledger = Ledger.connect(settings.ledger, read_only=True)
        try:
            newest = ledger.rounds(limit=1)
            nodes = ledger.observation(newest[0].id).fleet.nodes if newest else ()
        finally:
            ledger.close()
        book = open_book(settings.prices, clouds=clouds, clock=clock, background=False)
    except (LedgerError, PricesError, ImportError):
        return found  # no round is on record yet, or another command says what is wrong
    providers = {name: each.provider for name, each in clouds.items()}
    return found + gaps.unpriced_kinds(nodes, book.find, clock.now(), providers)


@config.command()
@config_option
@click.option("--pool", "only", metavar="NAME", help="One pool only.")
@json_option
def show(path: Path | None, only: str | None, as_json: bool) -> None:
    """Show what holds in each pool, and where it comes from: a line, a variable, the profile, or the default."""
    from gpuwatch.config import ConfigError, read_settings
    from gpuwatch.config.in_force import of_pools
    from gpuwatch.model.slips import meant_name

    try:
        settings, origin = read_settings(path, os.environ)
    except ConfigError as error:
        print_text(error, err=True)
        sys.exit(2)
    known = settings.rulebook.known
    if only is not None and only not in known:
        raise click.UsageError(f"--pool {only!r}: the settings have no such pool. {meant_name(only, known)}")
    rows = [each for each in of_pools(settings, origin) if only is None or each.pool == only]
    if as_json:
        found = ShowDocument(settings={each.key: fill_document(SettingDocument, each) for each in rows})
        print_text(json_text("config.show", found))
        return
    wide, high = (max(len(getattr(each, name)) for each in rows) for name in ("key", "value"))
    for each in rows:
        print_text(f"{each.key:<{wide}}  {each.value:<{min(high, _WIDEST)}}  {each.source}")


@config.command()
def schema() -> None:
    """Print the JSON Schema of the file, for editors."""
    from gpuwatch import config as configuration

    print_text(json.dumps(configuration.schema(), indent=2))
