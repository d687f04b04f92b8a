"""`python -m tools.prices`: ask each cloud's public catalogue, and write what it answers into the built-in table.

The exit status: 0, all that were asked have answered; 1, one or more have not, and their rows keep their dates; 2, a
mistake in the arguments; 3, something is too strange to be taken without `--accept`, and nothing is written.
"""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Protocol

from gpuwatch.model.fleet import CapacityType
from gpuwatch.money.prices import catalogue
from gpuwatch.money.prices.fetch import FetchError, Wanted
from gpuwatch.money.prices.providers.azure import AzurePrices
from gpuwatch.runtime.clock import Clock, SystemClock
from tools.prices import alibaba_page, aws_list, tables
from tools.prices.alibaba_page import AlibabaPage
from tools.prices.aws_list import AwsList
from tools.prices.page import PAGE, with_table
from tools.prices.table import Change, Row, applied, changes, read, written

_ROOT = Path(__file__).parent.parent.parent
_TABLE = _ROOT / "gpuwatch/money/prices/data/prices.tsv"
_URLS = {"aws": aws_list.URL, "azure": "https://prices.azure.com", "alibaba": alibaba_page.URL}
_SOURCES = {"aws": "aws-price-list", "azure": "azure-retail-prices", "alibaba": "alibaba-price-page"}
_WITHOUT = {
    "gcp": "its Cloud Billing catalogue answers only with an account's key",
    "tencent": "it publishes no prices without an account",
}
_LONGEST_SECONDS = 7200.0
_OTHER_SELLER = ("cn-",)  # AWS in China has a price list of its own


class Public(Protocol):
    """A catalogue that needs no login."""

    def prices(self, wanted: Sequence[Wanted]) -> Mapping[Wanted, Decimal]:
        """An hour on demand of each, in the cloud's currency; FetchError: no usable answer."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Azure:
    """The Retail Prices API, asked for one machine after the other."""

    clock: Clock
    url: str
    deadline: float

    def prices(self, wanted: Sequence[Wanted]) -> Mapping[Wanted, Decimal]:
        found: dict[Wanted, Decimal] = {}
        for asked, news in AzurePrices(clock=self.clock, endpoint_url=self.url).fetch(wanted):
            for each in news:
                if each.quote.currency != "USD":
                    raise FetchError(f"Azure's Retail Prices API answered in {each.quote.currency}, not in USD")
                if each.capacity_type is CapacityType.ON_DEMAND:
                    found[asked] = each.quote.per_hour
            if self.clock.monotonic() > self.deadline:
                raise FetchError("Azure's Retail Prices API took longer than --timeout")
        return found


def main(arguments: Sequence[str], clock: Clock) -> int:
    """The exit status."""
    options = _arguments(arguments)
    rows = read(options.table.read_text(encoding="utf-8"))
    if options.tables is not None:
        return _take_tables(options, rows)
    today, made, silent = clock.now().date(), list[Change](), list[str]()
    for name in options.provider or _URLS:
        public = _public(name, options.endpoint.get(name, _URLS[name]), clock, options.timeout)
        asked = _asked(rows, name, options.region)
        try:
            answer = public.prices(_wanted(asked, name))
        except FetchError as error:
            silent.append(name)
            _say(f"{name}: {error}. {_stays(rows, name)}")
            continue
        of_cloud = changes(asked, name, answer, as_of=today, source=_SOURCES[name])
        made += of_cloud
        _say(f"{name}: {len(answer)} prices, {sum(each.text is not None for each in of_cloud)} of them changed.")
        _say(*(f"  {each.text}" for each in of_cloud if each.text is not None and each.doubt is None))
    for name in () if options.provider else _WITHOUT:
        _say(f"{name}: not asked, for {_WITHOUT[name]}. {_stays(rows, name)}")
    return _finished(options, rows, made, silent)


def _take_tables(options: argparse.Namespace, rows: Sequence[Row]) -> int:
    """Take what is newer in the tables of public repositories; the exit status."""
    found: list[Row] = []
    for name in tables.FILES:
        path = options.tables / name
        if path.exists():
            of_file = tables.rows_of(name, path.read_text(encoding="utf-8"))
            _say(f"{name}: {len(of_file)} prices of GPU machines.")
            found += of_file
    if not found:
        _say(f"{options.tables} has none of {', '.join(tables.FILES)}.")
        return 1
    _write(options.table, tables.merged(rows, found))
    return 0


def _finished(options: argparse.Namespace, rows: Sequence[Row], made: Sequence[Change], silent: Sequence[str]) -> int:
    """Write what may be written; the exit status."""
    doubtful = [each for each in made if each.doubt is not None and not _accepted(each, options.accept or ())]
    if doubtful:
        _say("These are not taken without a look at the cloud's own page; then add --accept, or --accept PATTERN:")
        _say(*(f"  {each.text}" for each in doubtful), f"Nothing is written to {options.table}.")
        return 3
    if not made:
        _say(f"No catalogue answered: {options.table} is as it was.")
        return 1
    _write(options.table, applied(rows, made))
    return 1 if silent else 0


def _write(table: Path, after: Sequence[Row]) -> None:
    """Write the table and, of the built-in one, the page that says how old it is."""
    _replace(table, written(after))
    _say(f"{table} is written.")
    if table == _TABLE:
        page = _ROOT / PAGE
        _replace(page, with_table(page.read_text(encoding="utf-8"), after))
        _say(f"{PAGE} is written. Tests that name a price of a cloud (tests/unit/money/prices) may need the new one.")


def _public(name: str, url: str, clock: Clock, timeout: float) -> Public:
    deadline = clock.monotonic() + timeout
    if name == "aws":
        return AwsList(clock=clock, url=url, deadline=deadline)
    if name == "alibaba":
        return AlibabaPage(clock=clock, url=url)
    return _Azure(clock=clock, url=url, deadline=deadline)


def _asked(rows: Iterable[Row], provider: str, regions: Sequence[str] | None) -> list[Row]:
    """The rows that this run may renew."""
    return [
        row
        for row in rows
        if row.provider == provider
        and (not regions or row.region in regions)
        and not (provider == "aws" and row.region.startswith(_OTHER_SELLER))
    ]


def _wanted(rows: Iterable[Row], provider: str) -> list[Wanted]:
    """Every known machine in every region of the table, so that a machine which came to a region is found."""
    regions = dict.fromkeys(row.region for row in rows)
    kinds = [kind for cloud, kind in catalogue.machine_types() if cloud == provider]
    return [(region, kind) for region in regions for kind in kinds]


def _stays(rows: Iterable[Row], provider: str) -> str:
    """What a cloud that was not asked keeps."""
    days = [row.as_of for row in rows if row.provider == provider]
    return f"Its {len(days)} rows keep their day, {min(days)}." if days else "It has no rows."


def _accepted(change: Change, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(change.name, pattern) for pattern in patterns)


def _replace(path: Path, text: str) -> None:
    """In one step: a run that is ended half-way leaves the old file."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def _endpoint(text: str) -> tuple[str, str]:
    name, _, url = text.partition("=")
    if name not in _URLS or not url.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"{text!r}; expected NAME=URL, with a name of {', '.join(_URLS)}")
    return name, url.rstrip("/")


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.prices", description=__doc__.splitlines()[0])
    parser.add_argument("--provider", action="append", choices=tuple(_URLS), help="ask this one only; may be repeated")
    parser.add_argument("--region", action="append", help="ask for this one only; may be repeated")
    parser.add_argument(
        "--accept",
        action="append",
        nargs="?",
        const="*",
        metavar="PATTERN",
        help="take what is doubtful, such as 'aws/us-east-1/p4d.*'; without a pattern all of it",
    )
    parser.add_argument("--timeout", type=float, default=_LONGEST_SECONDS, help="seconds for one cloud")
    parser.add_argument("--endpoint", action="append", type=_endpoint, default=[], metavar="NAME=URL", help="a mirror")
    parser.add_argument(
        "--tables",
        type=Path,
        metavar="DIR",
        help="ask no cloud: take what is newer in these files of public repositories (tools/prices/tables.py:FILES)",
    )
    parser.add_argument("--table", type=Path, default=_TABLE, help="another table than the built-in one")
    options = parser.parse_args(arguments)
    options.endpoint = dict(options.endpoint)
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], SystemClock()))
