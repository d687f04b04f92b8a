"""What holds of the scaling policy for any pool, number and rules; P11 in a closed loop."""

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

from hypothesis import event, given, settings
from hypothesis import strategies as st

from gpuwatch.model.decision import Proposal, Verb
from gpuwatch.model.measurement import MetricValue
from gpuwatch.policies.scaling import Metric, ScalingRules
from tests.support.builders.fleet import NOW
from tests.support.builders.scaled_pools import Loop, a_measure, done, nodes, proposed, seen, wished
from tests.support.nightly import examples

SOME = settings(max_examples=examples(50), deadline=None)
bounds = st.tuples(st.floats(0.0, 0.45), st.floats(0.5, 0.95))
changes = st.sampled_from(["1", "3", "10%", "50%", "200%"])


@st.composite
def stepped(draw: st.DrawFn, signal: str = "gpu_utilization") -> Metric:
    """A metric with thresholds both ways; those out are strictly above those in."""
    (low, high), (deep, steep) = draw(bounds), (draw(st.floats(0.0, 0.2)), draw(st.floats(0.95, 1.0)))
    steps = {
        f"above {high:.4f}": f"add {draw(changes)}",
        f"above {steep:.4f}": draw(st.sampled_from(["exactly 7", "add 100%"])),
        f"below {low:.4f}": f"remove {draw(changes)}",
        f"below {deep:.4f}": draw(st.sampled_from(["exactly 2", "remove 60%"])),
    }
    return Metric(signal=signal, expression=None, steps=steps)  # type: ignore[arg-type]


targets = st.floats(0.05, 1.0).map(lambda target: Metric(target=target))
totals = st.floats(0.5, 20.0).map(lambda t: Metric(signal="promql", expression="sum(q)", target=t, per_node=True))
waits = st.sampled_from([0.0, 60.0, 300.0, 600.0])
rule_sets = st.builds(
    ScalingRules,
    tolerance=st.floats(0.0, 0.5),
    cooldown_out=waits,
    cooldown_in=waits,
    stabilisation=waits,
    max_out=st.none() | st.integers(1, 6),
    max_out_ratio=st.none() | st.floats(0.1, 2.0),
    max_in=st.none() | st.integers(2, 6),
    max_in_ratio=st.just(0.5),
)


# P11: constant load causes no cycle


def settles(loop: Loop, most_rounds: int = 600) -> None:
    """The size may rise and then fall; once it has fallen it never rises, and at last it stays longer than any wait."""
    while len(loop.sizes) < most_rounds and (len(loop.sizes) < 40 or len(set(loop.sizes[-40:])) > 1):
        loop.round()
    moves = [after - before for before, after in pairwise(loop.sizes) if after != before]
    fallen = next((place for place, move in enumerate(moves) if move < 0), len(moves))
    event(f"{'grew' if fallen else 'did not grow'}, {'shrank' if fallen < len(moves) else 'did not shrink'}")

    assert all(move < 0 for move in moves[fallen:]), f"shrank and grew again under constant load: {loop.sizes}"
    assert len(set(loop.sizes[-40:])) == 1, f"did not settle: {loop.sizes}"


@SOME
@given(
    rules=rule_sets,
    metric=targets | stepped(),
    load=st.floats(0.0, 8.0),
    start=st.integers(1, 20),
    warm_up=waits,
    boot=st.integers(1, 5),
    lag=st.integers(0, 6),
)
def test_constant_load_causes_no_cycle(
    rules: ScalingRules, metric: Metric, load: float, start: int, warm_up: float, boot: int, lag: int
) -> None:
    """P11: a mean that falls as nodes come settles, whatever start, target, tolerance, warm-up, lag and cooldown."""
    rules = replace(rules, metrics={"load": metric})

    settles(
        Loop(
            rules=rules,
            number=lambda running: min(1.0, load / running) if running else 0.0,
            start=start,
            warm_up=warm_up,
            boot=boot,
            lag=lag,
        )
    )


@SOME
@given(rules=rule_sets, metric=targets | stepped(), load=st.floats(0.0, 8.0), lag=st.integers(0, 5), data=st.data())
def test_a_lag_that_nobody_tells_is_what_cooldowns_are_for(
    rules: ScalingRules, metric: Metric, load: float, lag: int, data: st.DataObject
) -> None:
    """P11 holds for a number that hides its age, such as a moving mean, if both cooldowns are longer than it lags."""
    longer = st.sampled_from([60.0 * (lag + 1), 60.0 * (lag + 4)])
    rules = replace(rules, metrics={"load": metric}, cooldown_out=data.draw(longer), cooldown_in=data.draw(longer))
    loop = Loop(
        rules=rules,
        number=lambda running: min(1.0, load / running) if running else 0.0,
        start=data.draw(st.integers(1, 20)),
        lag=lag,
        honest=False,
    )

    settles(loop)


@SOME
@given(rules=rule_sets, total=totals, waiting=st.floats(0.0, 300.0), start=st.integers(0, 20), lag=st.integers(0, 6))
def test_a_constant_queue_causes_no_cycle(
    rules: ScalingRules, total: Metric, waiting: float, start: int, lag: int
) -> None:
    """P11 for totals, which do not fall as nodes come."""
    settles(Loop(rules=replace(rules, metrics={"q": total}), number=lambda _: waiting, start=start, lag=lag))


@SOME
@given(rules=rule_sets, one=targets | stepped(), other=targets | stepped(), load=st.floats(0.1, 8.0), data=st.data())
def test_several_metrics_of_one_load_cause_no_cycle(
    rules: ScalingRules, one: Metric, other: Metric, load: float, data: st.DataObject
) -> None:
    """P11 holds with two metrics that disagree about the right size."""
    rules = replace(rules, metrics={"a": one, "b": other})

    settles(
        Loop(
            rules=rules,
            number=lambda running: min(1.0, load / running) if running else 0.0,
            start=data.draw(st.integers(1, 20)),
            lag=data.draw(st.integers(0, 3)),
        )
    )


# One round


@st.composite
def rounds(draw: st.DrawFn) -> tuple[ScalingRules, dict[str, object]]:
    """Rules with up to three metrics, and a pool with a past."""
    metrics = draw(st.dictionaries(st.sampled_from("abc"), targets | totals | stepped(), min_size=1, max_size=3))
    rules = replace(draw(rule_sets), metrics=metrics)
    past: dict[str, object] = {
        "recent": tuple(
            done(draw(st.sampled_from([Verb.START, Verb.STOP])), draw(st.floats(0, 900)))
            for _ in range(draw(st.integers(0, 2)))
        ),
        "wishes": tuple(
            wished(draw(st.integers(0, 12)), draw(st.floats(0, 900))) for _ in range(draw(st.integers(0, 2)))
        ),
    }
    pool = [*nodes(draw(st.integers(0, 8))), *nodes(draw(st.integers(0, 3)), first=50, age=60.0)]
    return rules, {"members": pool, **past}


def names(rules: ScalingRules) -> set[str]:
    """Under which names the rules' numbers are measured."""
    return {name if metric.signal == "promql" else metric.signal for name, metric in rules.metrics.items()}


def with_numbers(case: tuple[ScalingRules, dict[str, object]], measures: list[MetricValue]) -> Proposal:
    """The proposal of a round with these numbers."""
    rules, past = case
    return proposed(seen(past["members"], *measures, recent=past["recent"], wishes=past["wishes"]), rules)  # type: ignore[arg-type]


def floor(proposal: Proposal) -> int:
    """How many running nodes a proposal keeps."""
    return max(proposal.desired_nodes or 0, proposal.kept_nodes or 0)


numbers = st.none() | st.floats(0.0, 300.0)


@settings(max_examples=examples(300), deadline=None)
@given(case=rounds(), low=st.floats(0.0, 50.0), more=st.floats(0.0, 50.0), samples=st.integers(1, 8))
def test_more_load_never_wants_fewer_nodes(
    case: tuple[ScalingRules, dict[str, object]], low: float, more: float, samples: int
) -> None:
    """Monotone: with every number at least as high, neither wish nor size nor floor is lower."""
    less, higher = (
        with_numbers(case, [a_measure(name, value, samples=samples, expected=8) for name in names(case[0])])
        for value in (low, low + more)
    )

    assert floor(higher) >= floor(less), (less.reason, higher.reason)
    assert (higher.raw_desired_nodes or 0) >= (less.raw_desired_nodes or 0)


@settings(max_examples=examples(300), deadline=None)
@given(case=rounds(), data=st.data())
def test_an_unknown_number_never_lowers_a_pool(
    case: tuple[ScalingRules, dict[str, object]], data: st.DataObject
) -> None:
    """P1: with any number missing, no fewer nodes are kept than there are."""
    rows = sorted(names(case[0]))
    gone = data.draw(st.sampled_from(rows))
    measures = [a_measure(name, None if name == gone else data.draw(numbers)) for name in rows]
    proposal = with_numbers(case, measures)

    assert floor(proposal) >= len(case[1]["members"]), proposal.reason.sentence  # type: ignore[arg-type]


@settings(max_examples=examples(200), deadline=None)
@given(case=rounds(), data=st.data())
def test_the_order_of_metrics_does_not_matter(
    case: tuple[ScalingRules, dict[str, object]], data: st.DataObject
) -> None:
    """A configuration whose metrics are listed otherwise is the same configuration."""
    rules, past = case
    measures = [a_measure(name, data.draw(numbers)) for name in sorted(names(rules))]
    shuffled = {name: rules.metrics[name] for name in data.draw(st.permutations(list(rules.metrics)))}

    assert with_numbers((replace(rules, metrics=shuffled), past), measures) == with_numbers(case, measures)


@settings(max_examples=examples(200), deadline=None)
@given(case=rounds(), data=st.data())
def test_one_decision_keeps_its_limits(case: tuple[ScalingRules, dict[str, object]], data: st.DataObject) -> None:
    """No more nodes than max_out and max_in allow come or go at once, and no size is below zero."""
    rules, past = case
    count = len(past["members"])  # type: ignore[arg-type]
    proposal = with_numbers(case, [a_measure(name, data.draw(numbers)) for name in names(rules)])
    wanted = count if proposal.desired_nodes is None else floor(proposal)
    out = max(rules.max_out or 1, 1, -(-count * (rules.max_out_ratio or 0) // 1))

    assert wanted >= max(0, count - max(rules.max_in or 1, -(-count // 2)))
    if (rules.max_out, rules.max_out_ratio) != (None, None):
        assert wanted <= count + out


@settings(max_examples=examples(200), deadline=None)
@given(case=rounds(), age=st.floats(0.001, 1e6), value=st.floats(0.0, 300.0))
def test_numbers_older_than_the_last_change_move_nothing(
    case: tuple[ScalingRules, dict[str, object]], age: float, value: float
) -> None:
    """P9: a late sample of the pool as it was neither adds nor removes."""
    rules, past = case
    at = NOW - timedelta(seconds=901 + age)
    past = {**past, "recent": (done(Verb.START, 900.0),)}
    proposal = with_numbers((rules, past), [a_measure(name, value, at=at) for name in names(rules)])

    assert (proposal.desired_nodes, proposal.kept_nodes) == (None, len(past["members"]))  # type: ignore[arg-type]
