"""What became of every open intent: its server's word alone counts, and it is asked before anything is observed.

Rules:

1. What is shown done is done, however the call was answered, also if it is no longer wanted.
2. A call without an answer on record may have been carried out. That is written down at the first look.
3. What was not carried out so far may be so all the same: of an intent that may be tried again, only its being done is
   news.
4. What may have been carried out is not given up before SETTLE_TIMEOUT, and never as "nothing was done".
5. Once a server gives no answer, what else it was asked for is looked at in a later round.

Each kind of target adds its own: `target_machine.py`, `target_pool.py`, `target_cluster_node.py`, `target_workload.py`,
`slurm/target.py`.
"""

import logging
from collections.abc import Iterator

from gpuwatch.clouds import CloudError
from gpuwatch.controller import answers
from gpuwatch.controller.context import ControllerContext
from gpuwatch.controller.target import Found, Target
from gpuwatch.controller.targets import Targets
from gpuwatch.ledger import LedgerError
from gpuwatch.model.decision import ADDITIONS, GIVEN_UP, NOT_DONE, SETTLE_TIMEOUT, OpenIntent, Outcome, Status
from gpuwatch.model.verbs import WORK_ENDINGS

__all__ = ["MAX_ATTEMPTS", "MAX_REFUSALS", "SETTLE_TIMEOUT", "given_up", "reconcile"]

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 5
MAX_REFUSALS = 2  # of a removal: a cloud that has said no twice says it again

_NOT_SHOWN = frozenset({Status.INTERRUPTED, Status.UNAVAILABLE})


def reconcile(parts: ControllerContext) -> Iterator[Outcome]:
    """Find out what became of every open intent and write it down."""
    view = parts.open_actions(parts.clock.now())
    targets, circuits = Targets(parts, view.resume_orders), parts.memory.circuits
    circuits.begin_round()
    for entry in sorted(view.open_intents, key=lambda each: circuits.asked_in_vain(each.intent.node_id)):
        server, asked, found = circuits.home_of(entry.intent.node_id), parts.clock.monotonic(), None
        if circuits.why_left_alone(server) is not None:
            continue
        try:
            found = _outcome(targets.target_of(entry.intent), entry)
            circuits.note_answer(server)
        except CloudError as error:
            answers.note_silence(parts, server, error, asked)
            circuits.note_target(entry.intent.node_id, server, at=asked, done=False)
            log.warning("What became of the %s of %s is not known: %s", entry.intent.verb, entry.intent.node_id, error)
            continue
        except Exception as error:
            if isinstance(error, LedgerError):
                raise
            # What one answer says of one machine stops no other: it is asked again in the next round.
            log.exception("What became of the %s of %s cannot be read", entry.intent.verb, entry.intent.node_id)
            continue
        # What keeps a machine from being a node may change, and is said anew.
        if found is not None and (entry.last is None or found[0] is not entry.last.status or found[0] is Status.UNSEEN):
            status, detail = found
            level = logging.WARNING if status is Status.UNSEEN else logging.INFO
            log.log(level, "%s of %s: %s (%s)", entry.intent.verb, entry.intent.node_id, status, detail)
            with answers.one_part(f"The record of the {entry.intent.verb} of {entry.intent.node_id}"):
                yield parts.ledger.settle(entry.intent, status, detail, parts.clock.now())


def _outcome(target: Target, entry: OpenIntent) -> Found:
    """Say what outcome_of of one open intent."""
    found = target.outcome_of(entry)
    if entry.resumable and found is not None and found[0] in _NOT_SHOWN:
        found = None
    if entry.last is not None and (found is None or found[0] in NOT_DONE) and _is_exhausted(entry):
        return Status.FAILED, f"{GIVEN_UP}{entry.last.detail}"
    return found


def _is_exhausted(entry: OpenIntent) -> bool:
    """Whether an intent that may be tried again has been tried, or refused, often enough."""
    refused = entry.intent.verb in WORK_ENDINGS and entry.refusals >= MAX_REFUSALS
    return entry.resumable and (refused or entry.attempts >= MAX_ATTEMPTS)


def given_up(parts: ControllerContext, entry: OpenIntent) -> Found:
    """Say how an open intent that is no longer wanted ends; None: not yet, its effect may still show."""
    if not entry.resumable:
        return None
    if not entry.reached:
        return Status.CANCELLED, "no longer wanted"
    if entry.reached_at is not None and parts.clock.now() - entry.reached_at <= SETTLE_TIMEOUT:
        return None
    ended = Status.FAILED if entry.intent.verb in WORK_ENDINGS | ADDITIONS else Status.CANCELLED
    return ended, "no longer wanted; the cloud never showed it done"
