"""The first notice of a machine is a question, and a start within an hour of a stop is our mistake.

| who | what is known | what should be | who is hurt otherwise |
| --- | --- | --- | --- |
| a new machine in a new pool, with an owner | nothing | a question: hours to answer | its owner, who is at lunch |
| a new machine in a known pool | ten notices ran out on three days | the usual notice | whoever pays for 4 h more |
| a pool's only machine, its owner on holiday | its first notice ran out | then the usual notice | whoever pays |
| an owner without an address | an owner | a question: tag, terminal and operators tell of it | the owner |
| no owner, a login two days ago | somebody was there | a question | who logged in |
| no owner, no login in a week | nobody can be asked | the short notice | whoever pays |
| no word on logins: Debian 13, a container, an old agent, Prometheus | doubt | a question | who may be there |
| Session Manager, a terminal without a login | somebody typed lately, or is silent | a question | who typed |
| a window or a budget shortens the wait | nothing of its people | the wait is shorter, the question not | its owner |
| spot with new ids each day, a sick machine's successor | predecessors' answers | by its pool | whoever pays |
| a member of a group | ends cannot be taken back | its notice counts, the group's growth is no regret | whoever pays |
| workloads of Kubernetes | their own notices | nothing changes | nobody |
| `require_notification` is off, the receiver fails | nobody was reached | a question, tags tell of it | the owner |
| snoozed, or it works again | no stop | no answer: the next notice is a question again | its owner |
| `cautious`, `balanced`, `eager` | each has an owner's grace | 4 h, 4 h, 30 min | nobody |
| the demo, recordings | nobody is there | as before | nobody |
| a pool turns known during the four hours | a promise | it stands | the owner, who has read it |
| somebody logs in during a minute's notice | a question from then on | the longer grace | who logged in |
| two regrets in a known pool | it is not known any more | questions again | the next owner |
| a regret where nobody was asked | somebody started it by the console | a question, without logins, too | who did |
| two machines of one owner | each its own answer | a question each | the owner of the second |
| an older ledger, a new one, a controller that was away | nothing of answers | questions | nobody |
| gpuwatch's own start, a group's, another system's | no person | no regret, and no answer | nobody |
"""

from dataclasses import replace
from datetime import datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.activity import Evidence, LastBusy, State
from gpuwatch.model.decision import Done, Observation, Status, Step, Verb
from gpuwatch.model.fleet import Node, NodeReport
from gpuwatch.model.measurement import Answers
from gpuwatch.model.stops import NOT_PROVED
from gpuwatch.model.undone import Undone
from gpuwatch.policies import PoolRules, idle
from gpuwatch.policies.idle_settings import TERMINATE_AFTER, IdleRules, resolve_rules
from gpuwatch.policies.idle_timeout import gap_history as gaps
from gpuwatch.policies.idle_timeout.answers import (
    ASKED,
    WEEK_SECONDS,
    AnswerHistory,
    answers_of,
    can_be_asked,
    follow_answers,
    is_question,
    lengthened_wait,
    regret_sentences,
)
from gpuwatch.policies.idle_timeout.gap_history import GapHistory
from gpuwatch.policies.idle_timeout.timeouts import time_round
from gpuwatch.policies.profiles import PROFILES, ProfileName
from tests.support.builders.fleet import HOUR, NOW, a_node, a_notice, an_observation

DAY, HOURS, MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)
BALANCED, ALICE = PoolRules().idle, "alice"


def a_machine(node_id: str = "i-1", *, login_free: float | None = WEEK_SECONDS, **other: object) -> Node:
    """An idle machine on which nobody has logged in for so long."""
    node = a_node(node_id, **other)  # type: ignore[arg-type]
    verdict = node.verdict
    assert verdict is not None
    return replace(node, signal=replace(node.signal, verdict=replace(verdict, login_free_seconds=login_free)))


def with_people(node: Node, observed: float | None, *, typed: bool = False) -> Node:
    """The machine with somebody on a terminal, silent for so long; `typed`: somebody has typed in the last days."""
    says = Evidence(name="people", says=State.IDLE, observed=observed, limit=1800.0, unit="seconds", source="utmp")
    verdict = node.verdict
    assert verdict is not None
    busy = (LastBusy(evidence=replace(says, says=State.BUSY), at=NOW - DAY, ago_seconds=86400.0),) if typed else ()
    activity = replace(verdict.activity, evidence=(*verdict.activity.evidence, says))
    return replace(node, signal=NodeReport(verdict=replace(verdict, activity=activity, last_busy=busy)))


def a_removal(node_id: str = "i-1", *, at: datetime = NOW, verb: Verb = Verb.STOP, **other: object) -> Done:
    """A stop of ours that is over, after a notice that somebody could answer."""
    arguments = {ASKED: "true"}
    base = Done(
        key=f"{node_id}-{at}", verb=verb, node_id=node_id, pool="default", status=Status.SETTLED, at=at,
        arguments=arguments, code="expired",
    )  # fmt: skip
    return replace(base, **other)  # type: ignore[arg-type]


def taken_back(done: Done, minutes: float, **other: object) -> Undone:
    """Somebody starts its machine again so long after a stop."""
    at = done.at + minutes * MINUTE
    found = Undone(target=done.node_id, pool=done.pool, key=done.key, removed_at=done.at, at=at)
    return replace(found, **other)  # type: ignore[arg-type]


def after_stop(
    history: AnswerHistory, done: Done, minutes: float | None = None, *others: Done, node: Node | None = None
) -> AnswerHistory:
    """What is known two hours after a stop, that somebody takes back after so many minutes, or nobody."""
    node = node or a_node(done.node_id)
    seen = an_observation(node, now=done.at, recent=(done,))
    history = follow_answers(history, seen, "default")
    later = an_observation(node, now=done.at + 59 * MINUTE, recent=(done, *others))
    if minutes is not None:
        later = replace(later, undone=(taken_back(done, minutes),))
    history = follow_answers(history, later, "default")
    return follow_answers(history, an_observation(node, now=done.at + 120 * MINUTE, recent=(done,)), "default")


def known_pool(count: int = 10, days: int = 3, *, until: datetime = NOW) -> AnswerHistory:
    """So many notices ran out unanswered, on so many days, each of another machine."""
    history = AnswerHistory()
    for number in range(count):
        at = until - (days - number * days // count) * DAY
        history = after_stop(history, a_removal(f"past-{number}", at=at + number * MINUTE))
    return history


def asked(node: Node, history: AnswerHistory | None = None, **ledger: object) -> Observation:
    """A round of the machine in a pool that knows so much."""
    seen = an_observation(node, now=NOW, **ledger)
    return replace(seen, answers={"default": answers_of(history or AnswerHistory(), NOW, seen.fleet.nodes)})


def step_of(seen: Observation, rules: IdleRules = BALANCED) -> Step:
    """What the policy says of its machine."""
    return idle.propose(seen, "default", rules).steps[0]


def grace_of(seen: Observation, rules: IdleRules = BALANCED) -> float:
    """The grace that a notice of the machine promises."""
    step = step_of(seen, rules)
    assert step.verb is Verb.NOTICE, step.reason.sentence
    return float(step.arguments["grace_seconds"])


SOMEBODY = {
    "an owner": a_machine(owner=ALICE),
    "a login two days ago": a_machine(login_free=2 * 86400.0),
    "no word on logins": a_machine(login_free=None),
    "a silent terminal without a login": with_people(a_machine(), 7000.0),
    "somebody who typed yesterday": with_people(a_machine(), None, typed=True),
    "no agent": replace(a_machine(), signal=NodeReport(failure="silent")),
}


@pytest.mark.parametrize("who", SOMEBODY)
def test_somebody_can_be_asked_unless_it_is_sure_that_nobody_is_there(who: str) -> None:
    """Any doubt is somebody."""
    assert can_be_asked(SOMEBODY[who])


def test_nobody_can_be_asked_without_owner_and_logins() -> None:
    """No owner, no login in seven days, no terminal."""
    assert not can_be_asked(with_people(a_machine(), None))


@pytest.mark.parametrize("profile", PROFILES)
def test_the_first_notice_of_a_machine_lasts_as_long_as_that_of_an_owners_node(profile: ProfileName) -> None:
    """In each profile; and the reason says that it is a question."""
    rules = resolve_rules(IdleRules(), profile)
    seen = asked(a_machine(owner=ALICE, held=3 * HOUR))
    assert grace_of(seen, rules) == rules.owner_grace_period > rules.grace_period
    assert "its notice is a question" in step_of(seen, rules).reason.sentence


@pytest.mark.parametrize(
    ("node", "history"),
    [
        (a_machine(owner=ALICE), known_pool()),
        (a_machine(owner=ALICE), after_stop(AnswerHistory(), a_removal(at=NOW - DAY))),
        (a_machine(), AnswerHistory()),
    ],
)
def test_it_is_no_question_where_the_answer_is_known_or_nobody_can_give_one(node: Node, history: AnswerHistory) -> None:
    """A known pool, the machine's own earlier notice, and a machine with nobody."""
    assert grace_of(asked(node, history)) == BALANCED.grace_period


@pytest.mark.parametrize(("count", "days"), [(9, 3), (10, 2), (40, 1), (0, 1)])
def test_a_pool_with_fewer_answers_or_fewer_days_is_not_known(count: int, days: int) -> None:
    """One evening on which forty machines went says nothing of the next."""
    assert is_question(a_machine(owner=ALICE), asked(a_machine(owner=ALICE), known_pool(count, days)))


def test_fresh_ids_each_day_are_known_by_their_predecessors() -> None:
    """No machine of a spot pool comes twice; ends of machines are answers, too."""
    history = AnswerHistory()
    for number in range(10):
        done = a_removal(f"spot-{number}", at=NOW - (10 - number) * DAY, verb=Verb.TERMINATE, owner="ci")
        history = after_stop(history, replace(done, arguments={}))
    assert not is_question(a_machine("spot-10", owner="ci"), asked(a_machine("spot-10", owner="ci"), history))


def test_notices_to_nobody_say_nothing_of_people() -> None:
    """Twenty empty machines in the night do not make the first machine with an owner a known one."""
    history = AnswerHistory()
    for number in range(20):
        done = a_removal(f"n-{number}", at=NOW - (20 - number) * DAY, arguments={})
        history = after_stop(history, done)
    assert is_question(a_machine(owner=ALICE), asked(a_machine(owner=ALICE), history))
    assert answers_of(history, NOW, ()).stops == 20


def test_two_regrets_make_a_known_pool_unknown_at_once() -> None:
    """One in twenty is chance; two are not."""
    once = after_stop(known_pool(15, 15), a_removal("i-8", at=NOW - 4 * HOURS), 10.0)
    twice = after_stop(once, a_removal("i-9", at=NOW - 3 * HOURS), 10.0)
    assert [answers_of(each, NOW, ()).known for each in (once, twice)] == [True, False]


@pytest.mark.parametrize(("minutes", "regrets"), [(0.0, 1), (12.0, 1), (60.0, 1), (61.0, 0), (None, 0)])
def test_a_start_within_an_hour_of_our_stop_is_our_mistake(minutes: float | None, regrets: int) -> None:
    """Once, however many rounds see it."""
    seen = asked(a_machine(), after_stop(AnswerHistory(), a_removal(at=NOW - DAY), minutes))
    found = seen.answers["default"]
    assert (len(found.regrets.get("i-1", ())), found.regretted, found.stops) == (regrets, regrets, 1)
    assert is_question(a_machine(), seen) is bool(regrets)


def test_what_others_than_people_start_is_no_regret() -> None:
    """A group's growth, a machine of another system, a group's member, and a removal that still stands."""
    done = a_removal(at=NOW - DAY)
    for node, changes in (
        (a_node(group="asg"), {}),
        (a_node(managed_by="Batch"), {}),
        (a_node(), {"group": True}),
        (a_node(), {"waits": True}),
    ):
        seen = an_observation(node, now=done.at + 20 * MINUTE, recent=(done,))
        found = follow_answers(AnswerHistory(), replace(seen, undone=(taken_back(done, 10.0, **changes),)), "default")
        assert not found.regrets


def test_a_start_by_gpuwatch_itself_is_neither_regret_nor_answer() -> None:
    """A window of the schedule opens: nobody had an hour to say anything."""
    done = a_removal(at=NOW - DAY)
    own = a_removal(at=NOW - DAY + 20 * MINUTE, verb=Verb.START, key="start")
    found = after_stop(AnswerHistory(), done, None, own)
    assert not found.passed
    assert not found.days


@pytest.mark.parametrize(
    "changes",
    [
        {"status": Status.FAILED},
        {"status": Status.CANCELLED},
        {"code": TERMINATE_AFTER},
        {"detail": f"the cloud shows it stopped; {NOT_PROVED}: x"},
        {"pool": "other"},
    ],
)
def test_what_was_no_stop_of_ours_is_no_answer(changes: dict[str, object]) -> None:
    """Failed, cancelled, the end of a stopped machine, a stop that may be its owner's, another pool."""
    assert after_stop(AnswerHistory(), a_removal(**changes)) == AnswerHistory()  # type: ignore[arg-type]


def test_each_regret_doubles_the_wait_for_two_weeks() -> None:
    """Half an hour at least to begin with, a day at most, and never shorter than without."""
    assert [lengthened_wait(120.0, each) for each in range(4)] == [120.0, 3600.0, 7200.0, 14400.0]
    assert lengthened_wait(16 * HOUR, 1) == 24 * HOUR
    assert lengthened_wait(48 * HOUR, 3) == 48 * HOUR
    history = after_stop(AnswerHistory(), a_removal(at=NOW - 15 * DAY), 5.0)
    history = after_stop(history, a_removal(at=NOW - 2 * DAY), 5.0)
    step = step_of(asked(a_machine(held=0.9 * HOUR), history))
    assert (step.verb, "somebody started it again within an hour" in step.reason.sentence) == (Verb.HOLD, True)
    assert grace_of(asked(a_machine(held=1.1 * HOUR), history)) == BALANCED.owner_grace_period


def test_what_a_notice_has_promised_stands_when_the_pool_turns_known() -> None:
    """The owner has read of four hours."""
    notice = a_notice(age=3600.0, grace_seconds=4 * HOUR)
    assert step_of(asked(a_machine(owner=ALICE), known_pool(), notices=(notice,))).reason.code == "grace"


def test_who_logs_in_during_a_short_notice_is_asked() -> None:
    """A minute was promised to nobody; the grace is longer from then on."""
    notice = a_notice(age=900.0, grace_seconds=60.0)
    assert step_of(asked(a_machine(), notices=(notice,))).verb is Verb.STOP
    assert step_of(asked(a_machine(login_free=0.0), notices=(notice,))).reason.code == "grace"


def test_a_round_of_which_nobody_keeps_answers_asks_nobody() -> None:
    """Rounds of an earlier version are judged as they were."""
    assert grace_of(an_observation(a_machine(owner=ALICE))) == BALANCED.grace_period


def test_a_question_comes_after_half_an_hour_at_the_earliest_and_is_not_paid_from_savings() -> None:
    """A pool that has learned to wait for a minute."""
    history = GapHistory(saved=1e6)
    for number in range(40):
        at = NOW.timestamp() - (41 - number) * 43200.0
        history = gaps.after_look(gaps.went_idle(history, "i-1", at, 600.0), at)
        history = gaps.need_node(gaps.after_time(history, at + 20000.0), "i-1", at + 20000.0)
    for owner, longer in ((None, False), (ALICE, True)):
        seen = an_observation(with_people(a_machine(held=600.0, owner=owner), None))
        timed = time_round(seen, "default", PoolRules(), history)
        seen = replace(seen, waits=timed.waits, answers={"default": timed.answers})
        wait = idle.choose_action(seen.fleet.nodes[0], seen, BALANCED)[1]
        assert wait is not None
        assert (wait >= 1500.0) is longer, owner
    seen = an_observation(with_people(a_machine(held=5 * HOUR, owner=ALICE), None))
    spent = [
        history.spare(NOW.timestamp())
        - time_round(seen, "default", PoolRules(), history).history.spare(NOW.timestamp())
    ]
    assert spent[0] <= 1800.0


def test_an_earlier_ledger_has_no_answers() -> None:
    """It is read as it is, and everybody is asked."""
    kept = msgspec.json.decode(b'{"saved": 3.0}', type=GapHistory)
    assert is_question(a_machine(owner=ALICE), asked(a_machine(owner=ALICE), kept.answers))


def test_a_history_is_the_same_after_it_was_kept_and_small() -> None:
    """Five thousand machines in three months take no more than two thousand do."""
    history = AnswerHistory()
    for number in range(2200):
        history = after_stop(
            history, a_removal(f"i-{number:05}", at=NOW + number * MINUTE), 5.0 if number % 9 else None
        )
    body = msgspec.json.encode(history)
    assert msgspec.json.decode(body, type=AnswerHistory) == history
    assert len(history.regrets) + len(history.passed) <= 4000
    assert len(body) < 200_000


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(10, 4000), st.sampled_from([None, 5.0, 59.0, 90.0])), max_size=12
    ),
    st.floats(0.0, 30.0),
)
def test_more_regrets_and_fewer_answers_never_make_a_stop_likelier(
    stops: list[tuple[int, int, float | None]], login_days: float
) -> None:
    """Of any two pasts, the one in which people took back more waits at least as long."""
    pasts = []
    for counts in (False, True):
        history, at = AnswerHistory(), NOW - 30 * DAY
        for which, minutes, back in stops:
            at += minutes * MINUTE
            taken = 5.0 if counts and which == 0 else back
            history = after_stop(history, a_removal(f"i-{which}", at=at), taken)
            at += 120 * MINUTE
        node = a_machine("i-0", login_free=login_days * 86400.0)
        answers = answers_of(history, at, (node,))
        seen = replace(an_observation(node, now=at), answers={"default": answers})
        wait = idle.choose_action(node, seen, BALANCED)[1]
        assert wait is not None
        pasts.append((wait, idle.grace_seconds(node, seen, BALANCED), answers.regretted))
    (wait, grace, regretted), (longer, more, most) = pasts
    assert longer >= wait
    assert more >= grace
    assert most >= regretted


def test_the_share_of_regretted_stops_is_not_known_without_stops() -> None:
    """None is no answer, and no zero."""
    assert Answers().regretted_ratio is None
    assert Answers(stops=4, regretted=1).regretted_ratio == 0.25


def test_the_share_of_stops_that_people_took_back_is_said_of_each_pool_that_has_any() -> None:
    """The largest share first, for status, the report and JSON."""
    answers = {
        "default": Answers(stops=31, regretted=4),
        "quiet": Answers(stops=9),
        "small": Answers(stops=1, regretted=1),
    }
    small, default = regret_sentences(replace(an_observation(), answers=answers))
    assert small.startswith("The one stop of pool small in the last 30 days was taken back within an hour (100%)")
    assert default.startswith("4 of 31 stops of pool default in the last 30 days were taken back within an hour (13%)")
