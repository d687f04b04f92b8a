"""The prices of several clouds: each machine is priced by the book of its own cloud."""

from collections.abc import Mapping
from datetime import datetime

from gpuwatch.model.money import Price, PriceKey
from gpuwatch.money.prices.price_book import Book, NoPrice


class Books:
    """A book for each cloud by its name, in their order. What names no cloud is priced where only one has a price."""

    def __init__(self, books: Mapping[str, Book]) -> None:
        """At least one."""
        self._books = dict(books)

    def price(self, hire: PriceKey, now: datetime) -> Price | None:
        """What an hour of it costs now; None is not known, and the log says once why."""
        book = self._of(hire, now)
        return None if book is None else book.price(hire, now)

    def find(self, hire: PriceKey, now: datetime) -> Price | NoPrice:
        """The price, or why it is not known."""
        book = self._of(hire, now)
        if book is not None:
            return book.find(hire, now)
        there = ", ".join(self._books)
        return NoPrice(why=f"its cloud {hire.cloud!r} is none of {there}" if hire.cloud else f"it may be in {there}")

    def named(self, now: datetime) -> frozenset[str]:
        """The ids and names of the machines that may have a price of their own."""
        return frozenset().union(*(book.named(now) for book in self._books.values()))

    def _of(self, hire: PriceKey, now: datetime) -> Book | None:
        """The book of its cloud."""
        if hire.cloud or len(self._books) == 1:
            return self._books.get(hire.cloud) or (next(iter(self._books.values())) if not hire.cloud else None)
        known = [book for book in self._books.values() if isinstance(book.find(hire, now), Price)]
        return known[0] if len(known) == 1 else None
