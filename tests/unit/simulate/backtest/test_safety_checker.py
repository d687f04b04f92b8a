"""The witness of a backtest: in order it says nothing, and of every property it says when a controller breaks it."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from gpuwatch.clouds import PROTECT_TAG, Cloud, CloudError
from gpuwatch.clouds.permit import Permit
from gpuwatch.controller.context import ControllerContext, Round
from gpuwatch.controller.round import step
from gpuwatch.guard import Rulebook
from gpuwatch.model.decision import Reason, Review, Status, Step, Verb
from gpuwatch.model.fleet import DEFAULT_POOL, NodeState
from gpuwatch.runtime.clock import SystemClock
from gpuwatch.simulate.backtest.compare import policy_of
from gpuwatch.simulate.backtest.engine import play
from gpuwatch.simulate.backtest.gaps import history_of
from gpuwatch.simulate.backtest.safety_check import Bounds, Checked, check
from gpuwatch.simulate.backtest.witness import Controller
from gpuwatch.simulate.cloud import SimulatedCloud
from gpuwatch.simulate.cloud_proxy import PassedOn
from gpuwatch.simulate.fleet.options import Options
from tests.support.builders.fleet import a_permit

HOUR = 3600
HEAD = "node,busy_from_s,busy_to_s"
REASON = Reason(code="none", sentence="None.")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Six hours: one node works now and then, one always, one was forgotten."""
    often = [f"often,{at * HOUR},{at * HOUR + 1800}" for at in range(6)]
    path = tmp_path / "trace.csv"
    path.write_text("\n".join([HEAD, *often, f"always,0,{6 * HOUR}", "forgotten,0,900"]))
    return path


def checked(trace: Path, controller: Controller = step, hours: float = 1.5) -> Checked:
    """Some time under some controller, at ten minutes."""
    options = Options(trace=trace)
    bounds = Bounds(hours=hours)
    return check(
        policy_of("timeout=10m"), history_of(options), options, 600.0, bounds, SystemClock(), controller=controller
    )


def harmful(harm: Callable[[ControllerContext], object]) -> Controller:
    """The real controller, and after each of its rounds some harm."""

    def controller(parts: ControllerContext, *, act: bool = True) -> Round:
        done = step(parts, act=act)
        if act:
            harm(parts)
        return done

    return controller


def stop(
    parts: ControllerContext, name: str, state: NodeState | None = NodeState.RUNNING, permit: Permit | None = None
) -> None:
    """Stop a node of that name, with a record as it should be, whatever it does; None: in any state."""
    for node in parts.cloud.nodes():
        if node.name == name and state in {None, node.state}:
            intent = parts.ledger.intend(Verb.STOP, node.id, node.pool, parts.clock.now(), REASON, 1)
            with suppress(CloudError):  # it may be pending
                parts.cloud.stop(node.id, intent.key, permit=permit or a_permit(parts.clock))
            parts.ledger.settle(intent, Status.CANCELLED, "nobody should know", parts.clock.now())


def test_p15_a_stop_on_an_old_word_is_found_out(trace: Path) -> None:
    """What lets it go was asked ten seconds ago; and a controller that thinks longer of its word is none the better."""

    def old(parts: ControllerContext) -> None:
        young = a_permit(parts.clock)
        stop(parts, "forgotten", permit=replace(young, asked_uptime=young.asked_uptime - 10.0))

    says(checked(trace, harmful(old)), "P15: its permit does not hold")
    says(
        checked(trace, harmful(lambda parts: stop(parts, "forgotten", permit=a_permit(parts.clock, max_age=60.0)))),
        "P15",
    )


def simulated(cloud: Cloud) -> SimulatedCloud:
    """The machines under it all."""
    while isinstance(cloud, PassedOn):
        cloud = cloud.cloud
    assert isinstance(cloud, SimulatedCloud)
    return cloud


def says(result: Checked, *sentences: str) -> None:
    """Each of the sentences is among the violations."""
    for sentence in sentences:
        assert any(sentence in each for each in result.violations), f"{sentence!r} is not in {result.violations[:9]}"


def test_the_real_controller_breaks_nothing(trace: Path) -> None:
    """What the next tests break is in order: it stops the two idle nodes, and nothing is wrong."""
    result = checked(trace)

    assert (result.stops, result.wrongly_stopped, result.violations) == (2, 0, ())
    assert (result.node_hours, result.hours, result.whole) == (4.5, 1.5, False)


def test_p1_a_silent_node_that_is_stopped_is_found_out(tmp_path: Path) -> None:
    """Of a node without samples nobody knows what it does."""
    path = tmp_path / "samples.csv"
    rows = [f"{at},quiet,0,1" for at in (*range(0, 900, 60), *range(5000, 5460, 60))]
    path.write_text("\n".join(["time_s,node,gpu,utilization_ratio", *rows]))

    def harm(parts: ControllerContext) -> None:
        if parts.clock.monotonic() > 2000:
            stop(parts, "quiet")

    options = Options(trace=path)
    lives = history_of(options).lives
    played = play(options, lives, 3000.0, least_seconds=600.0, controller=harmful(harm), every_round=True)

    says(Checked(violations=tuple(played.violations)), "P1: its agent is silent, or a GPU of it is lost")


def test_p2_p9_a_working_node_that_is_stopped_is_found_out(trace: Path) -> None:
    """Each such stop is wrong by the truth, and it was not idle for the policy's wait."""
    result = checked(trace, harmful(lambda parts: stop(parts, "always")))

    assert result.wrongly_stopped > 0
    says(result, "P2: GPU 0 computes", "P9: it was idle for less than 600 s")


def test_p14_a_node_that_nobody_was_told_of_is_found_out(trace: Path) -> None:
    """Stopped without a notice at all, and before the time that its notice promised."""

    def early(parts: ControllerContext) -> None:
        for notice in parts.ledger.view(parts.clock.now()).notices:
            for node in parts.cloud.nodes():
                if node.id == notice.node_id:
                    stop(parts, node.name)

    says(checked(trace, harmful(lambda parts: stop(parts, "always"))), "P14: nobody was promised anything")
    options = Options(trace=trace, timeout=600.0)
    lives = history_of(options).lives
    played = play(options, lives, 1.5 * HOUR, least_seconds=600.0, controller=harmful(early), every_round=True)
    says(Checked(violations=tuple(played.violations)), "P14: the promised time has not come")


def test_p3_a_protected_node_that_is_stopped_is_found_out(trace: Path) -> None:
    """The tag that protects a node is set behind the controller's back, and it stops it nevertheless."""

    def harm(parts: ControllerContext) -> None:
        machines = simulated(parts.cloud)
        for node in parts.cloud.nodes():
            machines.set_tags(node.id, {PROTECT_TAG: "true"})
        stop(parts, "always")

    says(checked(trace, harmful(harm)), "P3: it is protected")


def test_p4_p7_limits_and_minimum_that_are_exceeded_are_found_out(trace: Path) -> None:
    """Two stops within an hour where one is allowed, and a pool below its two nodes."""
    options = Options(trace=trace)
    history = history_of(options)
    limits = replace(options.limits, max_stops_per_hour=1)
    rules = Rulebook(pools={DEFAULT_POOL: replace(options.pool, min_nodes=2)}, limits=limits, enforce=True)

    def harm(parts: ControllerContext) -> None:
        for name in ("often", "forgotten"):
            stop(parts, name)

    document = {}
    for name, controller in {"in order": step, "broken": harmful(harm)}.items():
        played = play(options, history.lives, 5000.0, least_seconds=600.0, rules=rules, controller=controller)
        document[name] = Checked(violations=tuple(played.violations))

    assert document["in order"].violations == ()
    says(document["broken"], "P4: too many stops within an hour", "P7: its pool falls below its minimum")


def test_p5_a_plan_that_is_not_what_is_done_is_found_out(trace: Path) -> None:
    """Whoever plans nothing and then does something has a plan that nobody can trust."""

    def controller(parts: ControllerContext, *, act: bool = True) -> Round:
        done = step(parts, act=act)
        return done if act else replace(done, decisions=())

    says(checked(trace, controller), "P5: it decides something else than its plan")


def test_p6_p13_what_is_stopped_twice_or_settled_too_early_is_found_out(trace: Path) -> None:
    """A stop of a node that does not run, and one settled while the cloud says that it runs."""

    def harm(parts: ControllerContext) -> None:
        stop(parts, "forgotten", None)
        node = parts.cloud.nodes()[0]
        if node.state is NodeState.RUNNING:
            intent = parts.ledger.intend(Verb.STOP, node.id, node.pool, parts.clock.now(), REASON, 1)
            parts.ledger.settle(intent, Status.SETTLED, "it is not", parts.clock.now())

    says(checked(trace, harmful(harm)), "P6: it does not run", "P13: settled as stopped while the cloud says running")


def test_p8_a_controller_that_removes_whatever_a_node_does_is_found_out(trace: Path) -> None:
    """Its plan removes the same node when it is busy, silent, protected or not enrolled instead of idle."""

    def controller(parts: ControllerContext, *, act: bool = True) -> Round:
        done = step(parts, act=act)
        node = done.observation.fleet.nodes[0]
        removal = Step(node_id=node.id, verb=Verb.STOP, reason=REASON, change="Nothing.")
        return replace(done, reviews=(Review(pool=node.pool, step=removal, answers=()),))

    result = checked(trace, controller, hours=0.1)

    for word in ("busy", "silent", "protected", "not enrolled"):
        says(result, f"P8: it would be removed although it is {word}")


def test_p10_p11_what_is_stopped_once_more_for_nothing_is_found_out(trace: Path) -> None:
    """A controller that starts a forgotten node by itself and stops it again makes a cycle of constant load."""

    def harm(parts: ControllerContext) -> None:
        node = next(node for node in parts.cloud.nodes() if node.name == "forgotten")
        stop(parts, node.name)
        if node.state is NodeState.STOPPED:
            intent = parts.ledger.intend(Verb.START, node.id, node.pool, parts.clock.now(), REASON, 1)
            parts.cloud.start(node.id, intent.key)

    says(checked(trace, harmful(harm)), "P11: nobody needed it since it was stopped before")


def test_p10_a_stop_in_the_warm_up_is_found_out(trace: Path) -> None:
    """A node that its user has just started is stopped before its boot is over."""

    def harm(parts: ControllerContext) -> None:
        for node in parts.cloud.nodes():
            if node.name == "often" and parts.clock.monotonic() > 2 * HOUR:
                stop(parts, "often")

    options = Options(trace=trace, warm_up=900.0)
    history = history_of(options)
    played = play(options, history.lives, 3.0 * HOUR, least_seconds=600.0, controller=harmful(harm))

    says(Checked(violations=tuple(played.violations)), "P10: it is in its warm-up")


def test_p12_a_stop_that_nobody_wrote_down_is_found_out(trace: Path) -> None:
    """Its key is that of no open intent."""

    def harm(parts: ControllerContext) -> None:
        for node in parts.cloud.nodes():
            if node.state is NodeState.RUNNING:
                parts.cloud.stop(node.id, "a key that no intent has", permit=a_permit(parts.clock))

    says(checked(trace, harmful(harm)), "P12: no open intent has its key")
