"""Prices fetched from clouds: asked for in the background, kept on disk with the time of each answer.

A failure leaves every price as it was, with its date. So does an answer that is out of all proportion: budgets would
stop for it, and launches run after it. No round waits: a caller gets what is known, and what is missing is fetched
later.
"""

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Protocol, Self

import msgspec

from gpuwatch.model.fleet import CapacityType
from gpuwatch.model.offers import PriceKey
from gpuwatch.money.prices import catalogue
from gpuwatch.money.prices.catalogue import ListPrice
from gpuwatch.runtime.clock import Clock

_LOG = logging.getLogger(__name__)

_PLACES_AT_ONCE = 200
_LOOK_EVERY_SECONDS = 60.0
_AFTER_FAILURE_SECONDS = 900.0
_SLOWEST_REFRESH_SECONDS = 600.0
_MOST_WANTED = 5000
_FACTOR = 10  # by which a price may differ from what is known of the same machine: lists of clouds have had $0.01
_SPOT_FACTOR = 50  # by which one of spot may be below the price on demand
_KNOWN_FOR = timedelta(days=3)  # a price that every answer has contradicted for so long is no measure any more
_MOST_PER_HOUR = 10_000  # of one machine, where nothing is known of it, in any currency

Wanted = tuple[str, str]  # region and machine type


class FetchError(Exception):
    """A cloud gave no usable answer about its prices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A price that was fetched; `place` is its region, or the zone of a spot price."""

    place: str
    instance_type: str
    capacity_type: CapacityType
    quote: ListPrice

    @classmethod
    def for_place(
        cls, wanted: tuple[str, str, CapacityType], price: Decimal, *, currency: str = "USD", as_of: date, source: str
    ) -> Self:
        """A price of a place, machine type and kind of capacity."""
        place, kind, capacity = wanted
        quote = ListPrice(per_hour=price, currency=currency, as_of=as_of, source=source)
        return cls(place=place, instance_type=kind, capacity_type=capacity, quote=quote)

    @property
    def key(self) -> str:
        """Place, machine type and kind of capacity."""
        return _key(self.place, self.instance_type, self.capacity_type)


def _key(place: str, instance_type: str, capacity_type: CapacityType) -> str:
    return f"{place}/{instance_type}/{capacity_type}"


def _is_credible(provider: str, region: str, news: Found, kept: Found | None) -> bool:
    """Whether a price is near to what is known of the same machine; one that is not is left out, and in the log."""
    price, near, known = news.quote, False, False
    if kept is not None and news.quote.as_of - kept.quote.as_of <= _KNOWN_FOR:
        known = kept.quote.currency == price.currency
        near = known and _is_near(price, kept.quote, _FACTOR)
    for capacity in {CapacityType.ON_DEMAND, news.capacity_type}:
        listed = catalogue.places(provider, news.instance_type, capacity).get(region)
        if listed is not None and listed.currency == price.currency:
            known = True
            near = near or _is_near(price, listed, _FACTOR if capacity is news.capacity_type else _SPOT_FACTOR)
    if near or (not known and price.per_hour <= _MOST_PER_HOUR):
        return True
    _LOG.warning(
        "%s %s an hour for %s is out of proportion and is not used: %s",
        *(price.per_hour, price.currency, news.key, price.source),
    )
    return False


def _is_near(price: ListPrice, known: ListPrice, below: int) -> bool:
    return known.per_hour / below <= price.per_hour <= known.per_hour * _FACTOR


class Fetcher(Protocol):
    """Something that fetches one cloud's prices."""

    def fetch(self, wanted: Sequence[Wanted]) -> Iterable[tuple[Wanted, Sequence[Found]]]:
        """The prices of each machine type in its region, one after the other; empty where it has no price.

        Raises:
            FetchError: no usable answer; what was given before that is good.

        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What is kept of a cloud: prices, and when each machine type of a region was last answered."""

    found: tuple[Found, ...] = ()
    answered: dict[str, datetime] = field(default_factory=dict)


class Live:
    """The fetched prices of all clouds that are asked."""

    def __init__(
        self,
        fetchers: Mapping[str, Fetcher],
        *,
        directory: Path,
        clock: Clock,
        every_seconds: float,
        background: bool,
    ) -> None:
        """Nothing is asked yet. Without `background` only `refresh` asks."""
        self._fetchers = dict(fetchers)
        self._directory = directory
        self._clock = clock
        self._every = every_seconds
        self._background = background
        self._lock = threading.Lock()
        self._refreshing = threading.Lock()
        self._kept = {provider: self._load(provider) for provider in self._fetchers}
        self._quotes = {name: {each.key: each.quote for each in kept.found} for name, kept in self._kept.items()}
        self._wanted: dict[str, dict[Wanted, None]] = {provider: {} for provider in self._fetchers}
        self._not_before = dict.fromkeys(self._fetchers, 0.0)  # monotonic
        self._look_at = 0.0  # monotonic

    def quote(self, provider: str, hire: PriceKey) -> ListPrice | None:
        """What is known now; what is not, or is old, is asked for in the background."""
        if provider not in self._fetchers or hire.region is None:
            return None
        self.want(provider, hire.region, hire.instance_type)
        if self._background:
            self._begin_refresh()
        places = [hire.zone, hire.region] if hire.capacity_type is CapacityType.SPOT else [hire.region]
        found = (self._quotes[provider].get(_key(each, hire.instance_type, hire.capacity_type)) for each in places)
        return next((quote for quote in found if quote is not None), None)

    def want(self, provider: str, region: str, instance_type: str) -> None:
        """Ask for that at the next refresh."""
        with self._lock:
            if len(self._wanted[provider]) < _MOST_WANTED:
                self._wanted[provider][region, instance_type] = None

    def asks(self, provider: str) -> bool:
        """Whether that cloud is asked at all."""
        return provider in self._fetchers

    def offers(self, provider: str) -> tuple[Found, ...]:
        """Every price that was fetched from a cloud."""
        return () if provider not in self._kept else self._kept[provider].found

    def refresh(self) -> list[str]:
        """Ask for all that is wanted and old, one cloud after the other; what failed, in words."""
        if not self._refreshing.acquire(blocking=False):
            return []
        try:
            return [each for provider in self._fetchers for each in self._refresh(provider)]
        finally:
            self._refreshing.release()

    def _begin_refresh(self) -> None:
        """Begin a refresh where something is due; at most once a minute, and never two at a time."""
        if self._clock.monotonic() < self._look_at or self._refreshing.locked():
            return
        self._look_at = self._clock.monotonic() + _LOOK_EVERY_SECONDS
        if any(self._due(provider) for provider in self._fetchers):
            threading.Thread(target=self.refresh, name="prices", daemon=True).start()

    def _due(self, provider: str) -> list[Wanted]:
        """What is to be asked for now."""
        if self._clock.monotonic() < self._not_before[provider]:
            return []
        now, answered = self._clock.now(), self._kept[provider].answered
        with self._lock:
            wanted = list(self._wanted[provider])
        due = [
            each
            for each in wanted
            if (at := answered.get("/".join(each))) is None or not 0 <= (now - at).total_seconds() < self._every
        ]
        return due[:_PLACES_AT_ONCE]

    def _refresh(self, provider: str) -> list[str]:
        due = self._due(provider)
        if not due:
            return []
        begun, trouble, news_of = self._clock.monotonic(), "", set[str]()
        found = {each.key: each for each in self._kept[provider].found}
        answered = dict(self._kept[provider].answered)
        try:
            for (region, kind), news in self._fetchers[provider].fetch(due):
                for each in news:
                    if _is_credible(provider, region, each, found.get(each.key)):
                        found[each.key] = each
                answered[f"{region}/{kind}"] = self._clock.now()
                news_of.add(f"{region}/{kind}")
                if self._clock.monotonic() - begun > _SLOWEST_REFRESH_SECONDS:
                    break
        except FetchError as error:
            trouble = str(error)
        except Exception as error:  # noqa: BLE001  a fetcher's own fault must cost no price
            trouble = f"{type(error).__name__}: {error}"
        if trouble:
            self._not_before[provider] = self._clock.monotonic() + _AFTER_FAILURE_SECONDS
            self._put_last(provider, next((each for each in due if "/".join(each) not in news_of), None))
            _LOG.warning("%s gave no prices, those that are known stay in force: %s", provider, trouble)
        kept = Kept(found=tuple(found.values()), answered=answered)
        if kept != self._kept[provider]:
            self._kept[provider] = kept
            self._quotes[provider] = {each.key: each.quote for each in kept.found}
            self._save(provider, kept)
        return [f"{provider}: {trouble}"] if trouble else []

    def _put_last(self, provider: str, wanted: Wanted | None) -> None:
        """What made a refresh fail must not stand before all others at the next one."""
        with self._lock:
            if wanted is not None and wanted in self._wanted[provider]:
                del self._wanted[provider][wanted]
                self._wanted[provider][wanted] = None

    def _load(self, provider: str) -> Kept:
        """What an earlier run kept; a file that cannot be read is as none."""
        path = self._directory / f"{provider}.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=Kept)
        except FileNotFoundError:
            return Kept()
        except (OSError, msgspec.MsgspecError) as error:
            _LOG.warning("%s cannot be used and is written again at the next answer: %s", path, error)
            return Kept()

    def _save(self, provider: str, kept: Kept) -> None:
        """Whole or not at all; where nothing can be written, the prices live as long as this process."""
        path = self._directory / f"{provider}.json"
        new = path.with_suffix(".new")
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            new.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1))
            new.replace(path)
        except OSError as error:
            _LOG.warning("Fetched prices cannot be kept over a restart: %s", error)
