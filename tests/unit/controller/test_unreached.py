"""What the guard allowed and a round did not come to is on record as that, and told as that (P19)."""

from gpuwatch.cli import render
from gpuwatch.cli.explain_text import explain_text
from gpuwatch.clouds import CloudError, CloudUnavailableError
from gpuwatch.controller.explain import node_page
from gpuwatch.controller.node_row import node_rows
from gpuwatch.controller.round import Round
from gpuwatch.guard import Limits
from gpuwatch.model.decision import Verb
from gpuwatch.model.nodes_page import NodeRow
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle import IdleRules
from tests.support.builders.desk import a_desk
from tests.support.builders.fleet import Desk, a_node

SOON = PoolRules(warm_up=0.0, idle=IdleRules(timeout=300.0, grace_period=120.0))
SILENT = "no answer within 25s"
WHY = f"us-east-1 is not asked again in this round: {SILENT}"


def a_silent_cloud() -> tuple[Desk, Round]:
    """Four idle machines of a region that sets no tags, after one round."""
    desk = a_desk(*(a_node(f"i-{n}") for n in range(4)), rules=SOON, limits=Limits(mass_idleness_nodes=99))

    def hang(call: str, _node: str) -> CloudError | None:
        if call != "tag":
            return None
        desk.clock.advance(25.0)
        return CloudUnavailableError(SILENT)

    desk.fleet.fault = hang
    return desk, desk.round()


def row_of(done: Round, desk: Desk, node_id: str) -> NodeRow:
    """One machine's row."""
    return next(row for row in node_rows(done, desk.rulebook) if row.id == node_id)


def test_a_step_without_a_turn_is_on_record_with_why() -> None:
    """The ledger has it at once, and so has the record of the next round."""
    desk, done = a_silent_cloud()
    kept = desk.ledger.view(desk.clock.now()).unreached
    recorded = desk.round()
    assert done.unreached == kept
    assert [(each.verb, each.targets, each.why) for each in kept] == [(Verb.NOTICE, ("i-1", "i-2", "i-3"), WHY)]
    assert recorded.observation.ledger.unreached == kept
    last = desk.ledger.rounds(1)[0]
    assert desk.ledger.observation(last.id).ledger.unreached == kept


def test_the_page_tells_it_of_its_own_round() -> None:
    """The row holds, says why, and when the next turn comes; it does not say that a notice is given now."""
    desk, done = a_silent_cloud()
    row = row_of(done, desk, "i-2")

    assert row.action is Verb.HOLD
    assert row.unreached == f"Allowed, not reached in this round: {WHY}."
    assert row.why == f"It has been idle for 2h, longer than 5m. {row.unreached}"
    assert row.next is not None
    assert (row.next.verb, (row.next.at - done.observation.now).total_seconds()) == (Verb.NOTICE, 60.0)
    assert row_of(done, desk, "i-0").unreached is None


def test_status_plan_and_explain_tell_it_of_the_last_round() -> None:
    """They are other processes: they read it in the ledger."""
    desk, _ = a_silent_cloud()
    done = desk.plan()
    says = f"Allowed, not reached in the last round: {WHY}."
    node = done.observation.fleet.find("i-2")
    assert node is not None
    page = node_page(done, desk.rulebook, desk.ledger, node, done.observation.ledger, round_id=None)

    assert f"    {says}" in render.plan_text(done).split("\n")
    assert says in explain_text(page)
    assert f"Allowed, not reached in the last round: 3 steps (notice): {WHY}." in render.remarks(done, "")
    assert row_of(done, desk, "i-2").unreached == says


def test_it_is_over_once_every_step_has_had_its_turn() -> None:
    """A round that reaches everybody forgets what an earlier one did not."""
    desk, _ = a_silent_cloud()
    desk.fleet.fault = lambda _call, _node: None
    done = desk.round()

    assert done.unreached == ()
    assert desk.ledger.view(desk.clock.now()).unreached == ()
    assert all(row.unreached is None for row in node_rows(desk.plan(), desk.rulebook))


def test_a_step_that_is_refused_by_now_is_told_as_refused() -> None:
    """Its rule says more than that it had no turn a round ago."""
    desk, _ = a_silent_cloud()
    desk.ledger.pause(None, "ana", "a demonstration", desk.clock.now())
    row = row_of(desk.plan(), desk, "i-2")

    assert row.unreached is None
    assert "paused" in row.why
