"""Which ledger this is: whether it may be trusted, which decisions on machines are not its own, which launches are."""

from collections.abc import Collection, Iterable, Iterator

from sqlalchemy import Connection, bindparam, select

from gpuwatch.ledger.store import Store
from gpuwatch.ledger.tables import CONTROLS, INTENTS, OUTCOMES
from gpuwatch.model.decision import Verb
from gpuwatch.model.orders import ITSELF
from gpuwatch.policies.lives import launched_machine

_KEYS_AT_ONCE = 500  # of a database's variables
_KNOWN = select(INTENTS.c.key).where(INTENTS.c.key.in_(bindparam("keys", expanding=True)))
_LAUNCHES = (
    select(OUTCOMES.c.detail)
    .join(INTENTS, INTENTS.c.key == OUTCOMES.c.key)
    .where(INTENTS.c.verb == Verb.LAUNCH.value)
    .order_by(INTENTS.c.id.desc())
)


class Identity:
    """The part of a ledger that distinguishes it from others."""

    def __init__(self, store: Store) -> None:
        """Of an open ledger."""
        self._store = store
        self._launched: dict[str, bool] = {}  # by the machines that were asked about

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
                known.update(db.scalars(_KNOWN, {"keys": sorted_keys[first : first + _KEYS_AT_ONCE]}))
        return tuple(key for key in sorted_keys if key not in known)

    def launched_machines(self, node_ids: Iterable[str]) -> tuple[str, ...]:
        """Those of these machines that were launched by a decision on record here, in order.

        All launches are walked, from the newest back: once for each machine, since its launch is over.
        """
        asked = sorted(set(node_ids))
        sought = {node_id for node_id in asked if node_id not in self._launched}
        self._launched |= dict.fromkeys(sought, False)
        if sought:
            with self._store.reading() as db:
                result = db.execute(_LAUNCHES.execution_options(yield_per=_KEYS_AT_ONCE))
                try:
                    while sought and (row := result.fetchone()) is not None:
                        if (made := launched_machine(row.detail)) in sought:
                            self._launched[made] = True
                            sought.remove(made)
                finally:
                    result.close()
        return tuple(node_id for node_id in asked if self._launched[node_id])

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
                    "another controller uses a copy."
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

    def __init__(self) -> None:
        """Nothing is launched yet."""
        self.made: set[str] = set()  # the machines that its launches brought

    def begin_paused(self) -> None:
        """There is no doubt to put on record."""

    def foreign(self, keys: Iterable[str]) -> tuple[str, ...]:
        """All decisions are its own."""
        del keys
        return ()

    def launched_machines(self, node_ids: Iterable[str]) -> tuple[str, ...]:
        """Those that its launches brought."""
        return tuple(sorted(self.made.intersection(node_ids)))

    def objections(self, foreign: Collection[str]) -> Iterator[str]:
        """No objection: nothing is foreign here."""
        del foreign
        yield from ()
