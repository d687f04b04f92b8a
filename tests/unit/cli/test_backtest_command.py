"""`gpuwatch backtest` as people and tools run it, and the check of a part by the real controller."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuwatch.cli.main import commands
from gpuwatch.clouds import PROTECT_TAG, CloudError
from gpuwatch.controller.context import Round
from gpuwatch.controller.round import ControllerContext, observe, step
from gpuwatch.model.decision import Reason, Status, Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import SystemClock
from gpuwatch.simulate.backtest.compare import Terms, policy_of
from gpuwatch.simulate.backtest.gaps import history_of
from gpuwatch.simulate.backtest.report import backtest
from gpuwatch.simulate.backtest.safety_check import Bounds, Checked, check
from gpuwatch.simulate.backtest.witness import Controller
from gpuwatch.simulate.cloud import SimulatedCloud
from gpuwatch.simulate.cloud_proxy import PassedOn
from gpuwatch.simulate.fleet.options import Options
from tests.support.builders.fleet import a_permit

COMPARED = ["timeout=10m", "timeout=break_even", "timeout=learned", "never"]
HOUR = 3600


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Six hours: one node works now and then, one always, one was forgotten."""
    path = tmp_path / "trace.csv"
    often = [f"often,{at * HOUR},{at * HOUR + 1800}" for at in range(6)]
    path.write_text("\n".join(["node,busy_from_s,busy_to_s", *often, f"always,0,{6 * HOUR}", "<b>forgotten</b>,0,900"]))
    return path


def run(*arguments: str | Path) -> Result:
    """One run of the command."""
    return CliRunner().invoke(commands, ["backtest", *map(str, arguments)])


def test_the_command_for_tools_prints_one_object(trace: Path) -> None:
    """The documented command line gives the documented keys, the policies in the order asked for."""
    done = run("--trace", trace, "--restart-cost", "10m", "--compare", *COMPARED, "--json", "--check-hours", "3")
    result = json.loads(done.stdout)

    assert done.exit_code == 0, done.output
    assert (result["trace"], result["nodes"]) == (str(trace), 3)
    assert [policy["name"] for policy in result["policies"]] == COMPARED
    for policy in result["policies"]:
        assert set(policy) >= {"idle_cost_ratio_to_optimum", "bill_saved_ratio", "restarts_per_node_day"}, policy
        assert (policy["wrongly_stopped"], policy["violations"]) == (0, 0), policy
        assert policy["checked_node_hours"] == (0.0 if policy["name"] == "never" else 9.0), policy
    assert result["policies"][0]["checked_stops"] >= 3, "the forgotten one once, the other every hour"
    assert result["policies"][0]["bill_saved_ratio"] <= result["optimum"]["bill_saved_ratio"]
    assert result["policies"][3]["bill_saved_ratio"] == 0.0


def test_without_a_check_nothing_is_known_of_wrong_stops(trace: Path) -> None:
    """--check-hours 0 plays nothing: null, not zero; --compare may be repeated and each policy counts once."""
    done = run(
        "--trace", trace, "--compare", "never", "--compare", "timeout=1h", "never", "--check-hours", "0", "--json"
    )
    result = json.loads(done.stdout)

    assert [(each["name"], each["wrongly_stopped"], each["violations"]) for each in result["policies"]] == [
        ("never", None, None),
        ("timeout=1h", None, None),
    ]


def test_the_object_says_what_each_policy_is_beside_the_optimum(trace: Path) -> None:
    """Every figure that can be compared, once more as a ratio to the optimum's; null where that is 0."""
    done = run("--trace", trace, "--compare", *COMPARED, "--check-hours", "0", "--json")
    result = json.loads(done.stdout)
    optimum, learned, never = result["optimum"], result["policies"][2], result["policies"][3]

    assert optimum["idle_cost_ratio_to_optimum"] == 1.0
    assert learned["to_optimum"]["node_hours_saved"] == pytest.approx(
        learned["node_hours_saved"] / optimum["node_hours_saved"], abs=1e-5
    )
    assert (never["to_optimum"]["saved_usd"], never["to_optimum"]["restarts"]) == (0.0, 0.0)
    assert never["node_hours_billed"] == result["node_hours"] == 18.0
    assert never["billed_usd"] == pytest.approx(18 * 0.8048, abs=0.01)
    assert [(each["instance_type"], each["usd_per_hour"]) for each in result["prices"]] == [("g6.xlarge", 0.8048)]
    assert all(each["as_of"] and each["source"] for each in result["prices"])
    assert never["would_have_stopped"] == []


@pytest.mark.parametrize(("asked", "listed"), [([], 7), (["--stops", "2"], 2), (["--stops", "all"], 7)])
def test_the_object_lists_as_many_stops_as_asked_for(trace: Path, asked: list[str], listed: int) -> None:
    """Their number stands beside the list."""
    done = run("--trace", trace, "--compare", "timeout=10m", "--check-hours", "0", "--json", *asked)
    (policy,) = json.loads(done.stdout)["policies"]

    assert (policy["stops"], len(policy["would_have_stopped"])) == (7, listed)


def test_people_get_tables_and_sentences(trace: Path) -> None:
    """A line for each policy and the optimum, the foremost stops, and what the figures rest on."""
    done = run("--trace", trace, "--compare", *COMPARED, "--check-hours", "0", "--stops", "1")
    lines = done.stdout.splitlines()

    assert [line.split()[0] for line in lines[:6]] == ["policy", *COMPARED, "optimum"]
    assert [line.split()[0] for line in lines[7:13]] == ["policy", *COMPARED, "optimum"]
    assert "timeout=10m would have stopped nodes 7 times; the first 1, suspects before the largest savings:" in lines
    assert "3 nodes, 18 node-hours, 7 idle gaps." in done.stdout
    assert "Priced as g6.xlarge 0.8048 USD an hour: AWS on-demand list price" in done.stdout
    assert "wrong stops and violations are not known" in done.stdout
    assert max(map(len, lines[:13])) <= 120, "wider than a terminal"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--compare", "timeout=soon"], "'timeout=soon'"),
        (["--compare", "never", "whenever"], "'whenever' is not a policy; expected never, timeout=<duration>"),
        (["never"], "'never' stands alone; policies follow --compare"),
        (["--restart-cost", "0"], "'0' is not above 0"),
        (["--stops", "many"], "'many' is neither a whole number from 0 on nor 'all'"),
        (["--instance-type", "abacus"], "--instance-type abacus: there is no list price for it"),
    ],
)
def test_a_wrong_option_is_refused_with_what_would_be_right(trace: Path, arguments: list[str], complaint: str) -> None:
    """Exit status 2 and a sentence."""
    done = run("--trace", trace, *arguments)

    assert done.exit_code == 2
    assert complaint in done.output


# The check can fail.


@pytest.mark.parametrize("seen", [Checked(wrongly_stopped=1), Checked(violations=("n: P1",)), Checked(stops=9), None])
def test_a_backtest_is_sound_unless_a_check_saw_something(trace: Path, seen: Checked | None) -> None:
    """One wrong stop or one violation under any policy, and the command ends with 1."""
    options, policies = Options(trace=trace), [policy_of("never"), policy_of("timeout=1h")]
    result = backtest("load.csv", history_of(options), options, policies, Terms(), None, SystemClock())
    lines = (result.lines[0], replace(result.lines[1], checked=seen))

    assert replace(result, lines=lines).sound is (seen is None or seen.stops == 9)


def in_place_of_the_controller(misdeed: Callable[[ControllerContext], object]) -> Controller:
    """Rounds that decide what the controller would, and do something else."""

    def play(parts: ControllerContext, *, act: bool = True) -> Round:
        if act:
            misdeed(parts)
        return step(parts, act=False)

    return play


def checked(trace: Path, controller: Controller) -> Checked:
    """An hour and a half under some controller, at ten minutes."""
    options = Options(trace=trace)
    history, clock = history_of(options), SystemClock()
    return check(policy_of("timeout=10m"), history, options, 600.0, Bounds(hours=1.5), clock, controller=controller)


def test_the_real_controller_passes(trace: Path) -> None:
    """What the next tests break is in order: it stops the two idle nodes, and nothing is wrong."""
    result = checked(trace, step)

    assert (result.stops, result.wrongly_stopped, result.violations) == (2, 0, ())
    assert result.node_hours == 4.5


def test_a_controller_that_stops_working_nodes_is_found_out(trace: Path) -> None:
    """Each stop of a node that computes is wrong by the truth, and a violation; so is a stop that nobody wrote down."""

    def broken(parts: ControllerContext) -> None:
        for node in parts.cloud.nodes():
            if node.name == "always" and node.state is NodeState.RUNNING:
                parts.cloud.stop(node.id, "a key that no intent has", permit=a_permit(parts.clock))

    result = checked(trace, in_place_of_the_controller(broken))

    assert result.wrongly_stopped == result.stops > 0
    for name in ("P2: GPU 0 computes", "P9: it was idle for less than 600 s", "P12: no open intent has its key"):
        assert any(name in sentence for sentence in result.violations), f"{name} is not in {result.violations}"


def test_a_controller_that_touches_what_is_not_its_own_is_found_out(trace: Path) -> None:
    """A stop of a node that does not run, and one settled while the cloud says that it runs, are violations."""

    def broken(parts: ControllerContext) -> None:
        node, now = parts.cloud.nodes()[0], parts.clock.now()
        reason = Reason(code="none", sentence="None.")
        intent = parts.ledger.intend(Verb.STOP, node.id, node.pool, now, reason, 1)
        if node.state is NodeState.RUNNING:
            parts.ledger.settle(intent, Status.SETTLED, "it is not", now)
        with suppress(CloudError):  # it may be pending
            parts.cloud.stop(node.id, intent.key, permit=a_permit(parts.clock))

    def first_observed(parts: ControllerContext) -> None:
        parts.ledger.record_round(observe(parts))
        broken(parts)

    result = checked(trace, in_place_of_the_controller(first_observed))

    for name in ("P13: settled as stopped while the cloud says running", "P6: it does not run"):
        assert any(name in sentence for sentence in result.violations), f"{name} is not in {result.violations}"


def test_a_protected_node_that_is_stopped_is_found_out(trace: Path) -> None:
    """The tag that protects a node is set behind the controller's back, and it stops it nevertheless."""

    def broken(parts: ControllerContext) -> None:
        cloud = parts.cloud
        while isinstance(cloud, PassedOn):
            cloud = cloud.cloud
        assert isinstance(cloud, SimulatedCloud)
        for node in parts.cloud.nodes():
            if node.protected is None:
                cloud.set_tags(node.id, {PROTECT_TAG: "true"})
            elif node.state is NodeState.RUNNING:
                parts.cloud.stop(node.id, "", permit=a_permit(parts.clock))

    result = checked(trace, in_place_of_the_controller(broken))

    assert any("P3: it is protected" in sentence for sentence in result.violations), result.violations
