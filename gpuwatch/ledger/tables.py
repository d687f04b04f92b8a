"""The schema, a contract once released: docs/ledger.md tells what each table is for.

Records are appended and never changed; each has its link in `chain`, with the same id, and is hashed as its columns
stand here. Texts hold times (`YYYY-MM-DDTHH:MM:SS.ffffff+00:00`, which sort by time), JSON and decimal numbers, so that
both databases give back the very same bytes. All other tables are indexes over the records, kept in the same
transaction.
"""

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, LargeBinary, MetaData, Table, Text

SCHEMA_VERSION = 2

METADATA = MetaData()
_ID = BigInteger().with_variant(Integer, "sqlite")  # SQLite's own row number is called INTEGER

META = Table("meta", METADATA, Column("name", Text, primary_key=True), Column("value", Text, nullable=False))


def _id() -> Column[int]:
    """A record's number: its link's."""
    return Column("id", _ID, primary_key=True, autoincrement=False)


def _text(name: str) -> Column[str]:
    """A text that is always there."""
    return Column(name, Text, nullable=False)


ROUNDS = Table(
    "rounds",
    METADATA,
    _id(),
    _text("at"),
    _text("body_sha256"),
    Column("epoch", Integer, nullable=False),
    _text("controller"),
    Column("nodes", Integer),
    Column("steps", Integer),
    Index("rounds_by_time", "at"),
)
INTENTS = Table(
    "intents",
    METADATA,
    _id(),
    Column("key", Text, nullable=False, unique=True),
    _text("verb"),
    _text("node_id"),
    _text("pool"),
    _text("at"),
    _text("reason"),
    Column("round_id", _ID, ForeignKey("rounds.id")),
    _text("arguments"),
    Column("owner", Text),
    Column("usd_per_hour", Text),
    Index("intents_by_node", "node_id", "id"),
    Index("intents_by_round", "round_id"),
)
OUTCOMES = Table(
    "outcomes",
    METADATA,
    _id(),
    Column("key", Text, ForeignKey("intents.key"), nullable=False),
    _text("at"),
    _text("status"),
    _text("detail"),
    Index("outcomes_by_key", "key", "id"),
    Index("outcomes_by_time", "at"),
)
CONTROLS = Table(
    "controls",
    METADATA,
    _id(),
    _text("at"),
    _text("verb"),
    Column("pool", Text),
    _text("who"),
    _text("reason"),
    Column("until", Text),
    Index("controls_by_verb", "verb", "at"),
)
RECORDS = {"round": ROUNDS, "intent": INTENTS, "outcome": OUTCOMES, "control": CONTROLS}

CHAIN = Table("chain", METADATA, _id(), _text("kind"), _text("at"), _text("hash"))
HEAD = Table(
    "head",
    METADATA,
    Column("links", _ID, primary_key=True, autoincrement=False),
    _text("hash"),
    Column("epoch", Integer, nullable=False),
    _text("leader"),
)

BODIES = Table(
    "bodies",
    METADATA,
    Column("round_id", _ID, ForeignKey("rounds.id"), primary_key=True, autoincrement=False),
    _text("at"),
    Column("codec", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Index("bodies_by_time", "at", "round_id"),
)
OPEN_INTENTS = Table("open_intents", METADATA, Column("key", Text, ForeignKey("intents.key"), primary_key=True))
NOTICES = Table("notices", METADATA, Column("node_id", Text, primary_key=True), _text("key"), _text("at"))
STOPPED = Table("stopped", METADATA, Column("node_id", Text, primary_key=True), _text("key"), _text("at"))
PAUSES = Table("pauses", METADATA, Column("id", _ID, ForeignKey("controls.id"), primary_key=True, autoincrement=False))
GAPS = Table("gaps", METADATA, Column("pool", Text, primary_key=True), Column("body", LargeBinary, nullable=False))
WISHES = Table(
    "wishes",
    METADATA,
    _text("at"),
    _text("pool"),
    _text("policy"),
    Column("want", Integer, nullable=False),
    Index("wishes_by_time", "at"),
)
