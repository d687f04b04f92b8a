"""Which ledger this is: whether it may be trusted, and which decisions on the fleet's machines are not its own."""

from collections.abc import Collection, Iterable, Iterator

from sqlalchemy import Connection, select

from gpuwatch.ledger.store import Store
from gpuwatch.ledger.tables import CONTROLS, INTENTS
from gpuwatch.model.orders import ITSELF

_KEYS_AT_ONCE = 500  # of a database's variables


class Identity:
    """The part of a ledger that distinguishes it from others."""

    def __init__(self, store: Store) -> None:
        """Of an open ledger."""
        self._store = store

    @property
    def trouble(self) -> str | None:
        """Why nothing may be done by it now, as of the last look: it failed, or it is another one. None: it may."""
        return self._store.trouble

    @property
    def doubt(self) -> str | None:
        """How it is not as it was left here: a controller that begins with it begins paused. None: it is."""
        return self._store.doubt

    def begin_paused(self) -> None:
        """The pause for `doubt` is on record: from here on the ledger counts as it is."""
        self._store.begin_paused()

    def foreign(self, keys: Iterable[str]) -> tuple[str, ...]:
        """Those of these decisions that are not on record here, in order."""
        sorted_keys = sorted(set(keys))
        known: set[str] = set()
        with self._store.reading() as db:
            for first in range(0, len(sorted_keys), _KEYS_AT_ONCE):
                some = INTENTS.c.key.in_(sorted_keys[first : first + _KEYS_AT_ONCE])
                known.update(db.scalars(select(INTENTS.c.key).where(some)))
        return tuple(key for key in sorted_keys if key not in known)

    def objections(self, foreign: Collection[str]) -> Iterator[str]:
        """Why decisions on the fleet's machines that are not on record here make a controller begin paused, each once.

        This ledger's own mean that records were lost, or that a copy of it is in use. Another's matter to a ledger in
        which nothing was ever intended: it may stand in the place of one that was lost.
        """
        ours = f"gpuwatch-{self._store.id}-"
        lost = max((key for key in foreign if key.startswith(ours)), key=lambda key: _number(key, ours), default=None)
        theirs = next((key for key in foreign if not key.startswith(ours)), None)
        with self._store.reading() as db:
            if lost is not None and not _is_recorded(db, lost):
                yield (
                    f"Machines bear the decision {lost} of this ledger, which is not in it: records were lost, or "
                    "another controller uses a copy of it."
                )
            if theirs is not None and db.scalar(select(INTENTS.c.id).limit(1)) is None and not _is_recorded(db, theirs):
                yield (
                    f"This ledger is new, but machines bear decisions of another, such as {theirs}: its pauses, "
                    "notices and limits are not known here."
                )


def _is_recorded(db: Connection, words: str) -> bool:
    """Whether a controller has paused everything for that already."""
    pauses = select(CONTROLS.c.id).where(CONTROLS.c.verb == "pause", CONTROLS.c.who == ITSELF)
    return db.scalar(pauses.where(CONTROLS.c.reason.contains(words, autoescape=True)).limit(1)) is not None


def _number(key: str, ours: str) -> int:
    """Which record of this ledger a decision is."""
    number = key.removeprefix(ours).partition("-")[0]
    return int(number) if number.isdecimal() else 0


class NoIdentity:
    """The identity of a ledger that lives in one process and holds nobody else's decisions."""

    trouble: str | None = None
    doubt: str | None = None

    def begin_paused(self) -> None:
        """There is no doubt to put on record."""

    def foreign(self, keys: Iterable[str]) -> tuple[str, ...]:
        """All decisions are its own."""
        del keys
        return ()

    def objections(self, foreign: Collection[str]) -> Iterator[str]:
        """No objection: nothing is foreign here."""
        del foreign
        yield from ()
