"""`gpuwatch explain`: one node, or one workload, in one round, of this moment or of the past, as text and as JSON."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from gpuwatch.cli.explain_text import explain_text
from gpuwatch.cli.explain_workload import workload_text
from gpuwatch.controller.context import LiveParts, Round
from gpuwatch.controller.explain import NodePage, find_node, node_page
from gpuwatch.controller.workload_rows import explain_workload
from gpuwatch.guard import Rulebook
from gpuwatch.ledger import Ledger, LedgerError, PastRound
from gpuwatch.ledger.settings import LedgerSettings
from gpuwatch.model.decision import LedgerView
from gpuwatch.model.duration import format_time
from gpuwatch.runtime.clock import SystemClock
from gpuwatch.runtime.translation import translate_text


def of_now(parts: LiveParts, done: Round, name: str, *, verbose: bool = False) -> tuple[str, NodePage]:
    """A node in a round of this moment.

    Raises:
        UnknownNodeError: the node does not exist.

    """
    page = _page(done, parts.rules, parts.ledger, name, done.observation.ledger, round_id=None)
    return explain_text(page, verbose=verbose), page


def of_past(
    settings: LedgerSettings, name: str, *, number: int | None, when: str | None, verbose: bool = False
) -> tuple[str, NodePage]:
    """A node in a past round, from the ledger alone: the rules are those that held then.

    Raises:
        UnknownNodeError: that round has no such node.
        LedgerError: the round does not exist, or compaction has dropped it, or the time is not valid.

    """
    with _past(settings, number, when) as (ledger, past, rules):
        orders = ledger.view(SystemClock().now(), recent=timedelta(0))
        page = _page(past, rules, ledger, name, orders, round_id=past.id)
        return f"{_of_then(past)}\n\n{explain_text(page, verbose=verbose)}", page


def found_now(parts: LiveParts, done: Round, name: str, *, verbose: bool = False) -> tuple[str, NodePage | None]:
    """A node or, where none has this name, a workload of the cluster: of that there is a text alone.

    Raises:
        UnknownNodeError: there is neither.

    """
    page = None if done.observation.fleet.node(name) else explain_workload(done, parts.rules, parts.ledger, name)
    return of_now(parts, done, name, verbose=verbose) if page is None else (workload_text(page, verbose=verbose), None)


def found_past(
    settings: LedgerSettings, name: str, *, number: int | None, when: str | None, verbose: bool = False
) -> tuple[str, NodePage | None]:
    """The same in a past round, from the ledger alone.

    Raises:
        UnknownNodeError: there is neither.
        LedgerError: as `of_past`.

    """
    with _past(settings, number, when) as (ledger, past, rules):
        page = None if past.observation.fleet.node(name) else explain_workload(past, rules, ledger, name)
        if page is not None:
            return f"{_of_then(past)}\n\n{workload_text(page, verbose=verbose)}", None
    return of_past(settings, name, number=number, when=when, verbose=verbose)


def _of_then(past: PastRound) -> str:
    at = format_time(past.observation.now, seconds=True)
    return translate_text(f"Round {past.id} of {at}, under the rules of then.")


@contextmanager
def _past(
    settings: LedgerSettings, number: int | None, when: str | None
) -> Iterator[tuple[Ledger, PastRound, Rulebook]]:
    """That round, with its rules; raises LedgerError."""
    ledger = Ledger.connect(settings, read_only=True)
    try:
        past = ledger.round_at(_time(when or "", SystemClock().now())) if number is None else ledger.round(number)
        if past.rulebook is None:
            raise LedgerError(f"round {past.id} was written by an early gpuwatch, which did not keep its rules")
        yield ledger, past, past.rulebook
    finally:
        ledger.close()


def _page(
    done: Round | PastRound, rules: Rulebook, ledger: Ledger, name: str, orders: LedgerView, *, round_id: int | None
) -> NodePage:
    """A node in a round, as the API answers it."""
    return node_page(done, rules, ledger, find_node(done, name), orders, round_id=round_id)


def _time(text: str, now: datetime) -> datetime:
    """An aware time of the past; one without a zone is UTC.

    Raises:
        LedgerError: it is not valid, or lies in the future.

    """
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise LedgerError(f"--at {text!r} is not a time; write for example 2026-01-31T18:00Z") from None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    if at > now:
        raise LedgerError(f"--at {text!r} lies in the future; without --at and --round, `explain` is about now")
    return at
