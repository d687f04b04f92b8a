"""The schema, a contract once released: docs/ledger.md says what each table is for.

Records are appended and never changed; each has its link in `chain`, with the same id, and is hashed as its columns
stand here. Texts hold times (`YYYY-MM-DDTHH:MM:SS.ffffff+00:00`, which sort by time), JSON and decimal numbers, so that
both databases give back the very same bytes. All other tables are indexes over the records, kept in the same
transaction.
"""

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, LargeBinary, MetaData, Table

from gpuwatch.ledger.any_text import AnyText
from gpuwatch.model.usage import AMOUNTS, GPU, JOULES

SCHEMA_VERSION = 8

METADATA = MetaData()
_ID = BigInteger().with_variant(Integer, "sqlite")  # SQLite's own row number is called INTEGER

META = Table("meta", METADATA, Column("name", AnyText, primary_key=True), Column("value", AnyText, nullable=False))


def _id() -> Column[int]:
    """A record's number: its link's."""
    return Column("id", _ID, primary_key=True, autoincrement=False)


def _text(name: str) -> Column[str]:
    """A text that is always there."""
    return Column(name, AnyText, nullable=False)


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
    Column("key", AnyText, nullable=False, unique=True),
    _text("verb"),
    _text("node_id"),
    _text("pool"),
    _text("at"),
    _text("reason"),
    Column("round_id", _ID, ForeignKey("rounds.id")),
    _text("arguments"),
    Column("owner", AnyText),
    Column("usd_per_hour", AnyText),
    Index("intents_by_node", "node_id", "id"),
    Index("intents_by_round", "round_id"),
)
OUTCOMES = Table(
    "outcomes",
    METADATA,
    _id(),
    Column("key", AnyText, ForeignKey("intents.key"), nullable=False),
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
    Column("pool", AnyText),
    _text("who"),
    _text("reason"),
    Column("until", AnyText),
    Index("controls_by_verb", "verb", "at"),
)
BACKTESTS = Table(
    "backtests",
    METADATA,
    _id(),
    _text("at"),
    _text("pool"),
    _text("rules"),
    _text("who"),
    _text("source"),
    _text("node_hours"),
    Column("stops", Integer, nullable=False),
    Column("suspected_wrong_stops", Integer, nullable=False),
    _text("checked_node_hours"),
    Column("checked_stops", Integer, nullable=False),
    Column("wrongly_stopped", Integer, nullable=False),
    Column("violations", Integer, nullable=False),
    Column("saved_ratio", AnyText),
    Column("failure", AnyText),
    Index("backtests_by_rules", "pool", "rules", "id"),
)
KEEPS = Table(
    "keeps",
    METADATA,
    _id(),
    _text("at"),
    _text("node_id"),
    _text("until"),
    _text("who"),
    _text("reason"),
    Index("keeps_by_node", "node_id", "id"),
    Index("keeps_by_end", "until"),
)
# An operator's word on the notice of that `key`.
APPROVALS = Table(
    "approvals",
    METADATA,
    _id(),
    _text("at"),
    _text("node_id"),
    _text("key"),
    _text("who"),
    _text("reason"),
    Index("approvals_by_key", "key"),
)
# A message about the intent of that `key`, or about a budget, which the key names, at one destination: arrived, or
# given up (`reached` 0), and why.
MESSAGES = Table(
    "messages",
    METADATA,
    _id(),
    _text("at"),
    _text("key"),
    _text("destination"),
    Column("reached", Integer, nullable=False),
    _text("detail"),
    Index("messages_by_key", "key", "destination"),
)
# A local day of `spend` that no longer changes, in seconds since 1970, with the SHA-256 of its rows.
SPEND_DAYS = Table(
    "spend_days",
    METADATA,
    _id(),
    _text("at"),
    Column("begin", BigInteger, nullable=False),
    Column("until", BigInteger, nullable=False),
    Column("row_count", Integer, nullable=False),
    _text("sha256"),
    Index("spend_days_by_begin", "begin"),
)
RECORDS = {
    "round": ROUNDS,
    "intent": INTENTS,
    "outcome": OUTCOMES,
    "control": CONTROLS,
    "backtest": BACKTESTS,
    "keep": KEEPS,
    "approval": APPROVALS,
    "message": MESSAGES,
    "spend_day": SPEND_DAYS,
}

CHAIN = Table("chain", METADATA, _id(), _text("kind"), _text("at"), _text("hash"))
HEAD = Table(
    "head",
    METADATA,
    Column("links", _ID, primary_key=True, autoincrement=False),
    _text("hash"),
    Column("epoch", Integer, nullable=False),
    _text("leader"),
)

# `base` is the round whose body this one rests on, and which stays as long; NULL: none.
BODIES = Table(
    "bodies",
    METADATA,
    Column("round_id", _ID, ForeignKey("rounds.id"), primary_key=True, autoincrement=False),
    _text("at"),
    Column("codec", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("base", _ID),
    Index("bodies_by_time", "at", "round_id"),
    Index("bodies_by_base", "base"),
)
OPEN_INTENTS = Table("open_intents", METADATA, Column("key", AnyText, ForeignKey("intents.key"), primary_key=True))
NOTICES = Table("notices", METADATA, Column("node_id", AnyText, primary_key=True), _text("key"), _text("at"))
STOPPED = Table("stopped", METADATA, Column("node_id", AnyText, primary_key=True), _text("key"), _text("at"))
# Scale-in protection that gpuwatch set and that no round has seen gone since; `missing_since`: not listed since then.
SHIELDS = Table(
    "shields",
    METADATA,
    Column("node_id", AnyText, primary_key=True),
    _text("key"),
    _text("at"),
    Column("missing_since", AnyText),
)
PAUSES = Table("pauses", METADATA, Column("id", _ID, ForeignKey("controls.id"), primary_key=True, autoincrement=False))
GAPS = Table("gaps", METADATA, Column("pool", AnyText, primary_key=True), Column("body", LargeBinary, nullable=False))
WISHES = Table(
    "wishes",
    METADATA,
    _text("at"),
    _text("pool"),
    _text("policy"),
    Column("want", Integer, nullable=False),
    Index("wishes_by_time", "at"),
)
# GPUs by use (JSON), summed over the rounds of the five minutes that begin at `begin` (seconds since 1970).
FLEET_USE = Table(
    "fleet_use",
    METADATA,
    Column("begin", BigInteger, primary_key=True, autoincrement=False),
    Column("rounds", Integer, nullable=False),
    _text("gpus"),
)
# What a node is used for from those five minutes on.
NODE_USE = Table(
    "node_use",
    METADATA,
    Column("node_id", AnyText, primary_key=True),
    Column("begin", BigInteger, primary_key=True, autoincrement=False),
    _text("use"),
    Index("node_use_by_begin", "begin"),
)
# What was billed under which labels and which price; `digest` is the SHA-256 of all of them. `cloud` is its name in the
# settings; NULL, as `provider`: not known, as of all that was billed before schema 7.
SPEND_TERMS = Table(
    "spend_terms",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("digest", AnyText, nullable=False, unique=True),
    _text("pool"),
    Column("owner", AnyText),
    Column("account", AnyText),
    _text("region"),
    _text("instance_type"),
    _text("capacity_type"),
    Column("gpus", Integer, nullable=False),
    Column("usd_per_hour", AnyText),
    Column("price_as_of", AnyText),
    Column("price_source", AnyText),
    _text("tags"),
    Column("cloud", AnyText),
    Column("provider", AnyText),
)
# Milliseconds of a node, and of its GPUs together, by use, in the hour or day of `span` seconds that begins at `begin`
# (seconds since 1970); joules, and the milliseconds of GPUs over which they were measured.
SPEND = Table(
    "spend",
    METADATA,
    Column("begin", BigInteger, primary_key=True, autoincrement=False),
    Column("node_id", AnyText, primary_key=True),
    Column("terms", Integer, ForeignKey("spend_terms.id"), primary_key=True, autoincrement=False),
    Column("span", Integer, primary_key=True, autoincrement=False),
    *(Column(name, BigInteger, nullable=False) for name in AMOUNTS),
)
# Who held GPUs of a Kubernetes cluster; `digest` is the SHA-256 of the other columns.
SPEND_HOLDERS = Table(
    "spend_holders",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("digest", AnyText, nullable=False, unique=True),
    _text("cluster"),
    _text("namespace"),
    _text("kind"),
    _text("name"),
    Column("owner", AnyText),
)
# The milliseconds of GPUs in `spend` that are of a cluster's nodes, by who held them; keys and uses as there.
SPEND_HELD = Table(
    "spend_held",
    METADATA,
    Column("begin", BigInteger, primary_key=True, autoincrement=False),
    Column("holder", Integer, ForeignKey("spend_holders.id"), primary_key=True, autoincrement=False),
    Column("terms", Integer, ForeignKey("spend_terms.id"), primary_key=True, autoincrement=False),
    Column("span", Integer, primary_key=True, autoincrement=False),
    *(Column(name, BigInteger, nullable=False) for name in AMOUNTS[GPU:JOULES]),
)
# One row: up to when each node is metered, and the sums of all rows of `spend` whose day is not sealed.
SPEND_MARKS = Table(
    "spend_marks",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("body", LargeBinary, nullable=False),
)
