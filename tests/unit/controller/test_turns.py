"""In which order a round takes its steps, and which of them wait for the next one."""

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.controller.circuits import API_SERVER, Circuits, Server
from gpuwatch.controller.turns import Rank, Turns, rank_of
from gpuwatch.model.decision import Reason, Review, Status, Step, Verb

WELL, SICK = Server(cloud="aws", region="eu"), Server(cloud="azure", account="1", region="eu")
REASON = Reason(code="candidate", sentence="It has been idle for 2h.")
VERBS = [Verb.PROTECT, Verb.WITHDRAW, Verb.LAUNCH, Verb.STOP, Verb.NOTICE]


def a_review(node_id: str, verb: Verb, pool: str = "default") -> Review:
    """A step that the guard allows."""
    step = Step(node_id=node_id, verb=verb, reason=REASON, change="Any activity.")
    return Review(pool=pool, step=step, answers=())


def the_turns(circuits: Circuits, asked: Mapping[str, Server], reviews: Sequence[Review]) -> Turns:
    """The turns of a round, a minute apart from the next."""
    return Turns(circuits, lambda review: (asked[review.step.node_id],), reviews, 60.0)


def play(turns: Turns, seconds: float = 0.0, lost: float = 0.0) -> list[str]:
    """Take all turns; each step takes so long, and the answer does not come for so long of that."""
    taken: list[str] = []
    while (review := turns.take()) is not None:
        taken.append(review.step.node_id)
        turns.note_end(review, seconds, lost)
    return taken


def waited(circuits: Circuits, server: Server, seconds: float = 25.0) -> None:
    """A round has waited for a server in vain; another begins."""
    circuits.note_end(server, Status.UNAVAILABLE, "no answer", at=0.0, seconds=seconds)
    circuits.note_end(server, Status.UNAVAILABLE, "no answer", at=0.0, seconds=seconds)
    circuits.begin_round()


def test_each_verb_has_its_rank() -> None:
    """What keeps machines and work goes first; what announces a removal goes last."""
    assert [rank_of(verb) for verb in VERBS] == list(Rank)
    assert {rank_of(verb) for verb in (Verb.EVACUATE, Verb.MARK, Verb.QUARANTINE, Verb.SLURM_DRAIN)} == {Rank.PROTECT}
    assert {rank_of(verb) for verb in (Verb.UNPROTECT, Verb.CORDON, Verb.RELEASE, Verb.EVICT, Verb.SHRINK)} == {
        Rank.REMOVE
    }


def test_a_server_that_was_waited_for_comes_after_the_others() -> None:
    """Its protections come before anybody's removals and notices, everything else at the end."""
    circuits, reviews, asked = Circuits(), list[Review](), dict[str, Server]()
    for name, server in (("sick", SICK), ("well", WELL)):
        for verb in VERBS:
            asked[f"{name} {verb}"] = server
            reviews.append(a_review(f"{name} {verb}", verb))
    waited(circuits, SICK)

    assert play(the_turns(circuits, asked, reviews)) == [
        *("well protect", "well withdraw", "well launch"),
        *("sick protect", "sick withdraw", "sick launch"),
        *("well stop", "well notice"),
        *("sick stop", "sick notice"),
    ]


def test_a_server_that_fails_at_once_keeps_its_place() -> None:
    """It costs nobody any time."""
    circuits, asked = Circuits(), {"a": SICK, "b": WELL}
    waited(circuits, SICK, seconds=0.01)

    assert play(the_turns(circuits, asked, [a_review("a", Verb.NOTICE), a_review("b", Verb.NOTICE)])) == ["a", "b"]


def test_many_servers_that_are_waited_for_share_what_a_round_may_wait() -> None:
    """Those that were waited for longest ago come first, so that each is asked again in time."""
    servers = {f"i-{n}": Server(cloud=f"c-{n}") for n in range(30)}
    circuits, asked = Circuits(), set[str]()
    for server in servers.values():
        waited(circuits, server)
    for minute in range(1, 31):
        turns = the_turns(circuits, servers, [a_review(name, Verb.NOTICE) for name in servers])
        tried: list[str] = []
        while (review := turns.take()) is not None:
            tried.append(review.step.node_id)
            server = servers[review.step.node_id]
            circuits.note_end(server, Status.UNAVAILABLE, "no answer", at=60.0 * minute, seconds=25.0)
            turns.note_end(review, 25.0, 25.0)
        assert len(tried) == 1
        assert sum(len(each.targets) for each in turns.list_unreached()) == 29
        asked |= set(tried)
        circuits.begin_round()

    assert asked == set(servers)


def test_a_step_waits_for_everybody_who_is_asked_before_it() -> None:
    """Before a removal its cluster is asked, too: while that is silent nothing is asked about the machine."""
    circuits = Circuits()
    circuits.note_end(API_SERVER, Status.UNAVAILABLE, "no answer", at=0.0, seconds=25.0)
    turns = Turns(circuits, lambda _: (WELL, API_SERVER), [a_review("i-1", Verb.STOP)], 60.0)

    assert turns.take() is None
    (left,) = turns.list_unreached()
    assert left.targets == ("i-1",)
    assert left.why == "the cluster's API server is not asked again in this round: no answer"


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(VERBS), st.sampled_from([WELL, SICK, API_SERVER]), st.sampled_from("ab")), max_size=60
    ),
    seconds=st.sampled_from([0.0, 0.5, 3.0, 25.0]),
)
def test_every_step_is_taken_or_told(steps: list[tuple[Verb, Server, str]], seconds: float) -> None:
    """Once, in the order of the ranks; no rank takes much longer than its time; each server has a turn in each."""
    names = [f"i-{number}" for number in range(len(steps))]
    asked = {name: server for name, (_, server, _) in zip(names, steps, strict=True)}
    verbs = {name: verb for name, (verb, _, _) in zip(names, steps, strict=True)}
    reviews = [a_review(name, verb, pool) for name, (verb, _, pool) in zip(names, steps, strict=True)]
    turns = the_turns(Circuits(), asked, reviews)
    taken = play(turns, seconds)
    left = [target for each in turns.list_unreached() for target in each.targets]

    assert sorted([*taken, *left]) == sorted(names)
    assert [rank_of(verbs[name]) for name in taken] == sorted(rank_of(verbs[name]) for name in taken)
    for rank in (Rank.UNDO, Rank.REMOVE, Rank.ANNOUNCE):
        spent = seconds * sum(rank_of(verbs[name]) is rank for name in taken)
        assert spent <= 20.0 + 3 * seconds
    had_steps = {(asked[name], rank_of(verbs[name])) for name in names}
    assert {(asked[name], rank_of(verbs[name])) for name in taken} == had_steps
