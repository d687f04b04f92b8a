"""Messages in Chinese: each kind whole, with names, times, links and commands as they are."""

import re
from dataclasses import replace
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from gpuwatch.guard import Limits, Rulebook
from gpuwatch.ledger.sent_messages import Event
from gpuwatch.model.budget import Crossing
from gpuwatch.model.decision import Reason, Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.promise import Promise
from gpuwatch.notify.budget_message import BudgetMessage
from gpuwatch.notify.formats import Notification, as_document
from gpuwatch.notify.message import compose_message
from gpuwatch.policies import PoolRules
from gpuwatch.policies.lasting import LAUNCHES, STARTS
from gpuwatch.policies.starts import WITHHELD
from tests.support.builders.fleet import NOW
from tests.support.builders.money import a_state
from tests.support.builders.notices import a_machine, about, an_event
from tests.support.builders.workloads import ALICE
from tests.support.golden_text import check

LINK = "https://gpuwatch.example.com/snooze/1.abc.def"
APPROVING = Rulebook(pools={"default": PoolRules(approval=True)}, limits=Limits())
DISKS = a_machine(instance_store=True)
TWO = (a_machine(), a_machine("i-2", name="idle"))
ENGLISH = re.compile(r"[A-Za-z]{2,} [a-z]{2,}")


def left_alone(*codes: str) -> tuple[Event, ...]:
    """What is left alone for these reasons."""
    return tuple(
        an_event(Verb.LEFT_ALONE, f"i-{number}", f"k{number}", reason=Reason(code=code, sentence="Nothing to do."))
        for number, code in enumerate(codes, 1)
    )


def workload(verb: Verb, how: str) -> Event:
    """Something at a workload of Alice's."""
    promise = Promise(action=how, pool="default", stop_at=NOW, grace_seconds=3600.0)  # type: ignore[arg-type]  # of a table
    facts: dict[str, Any] = {"arguments": {"how": how, "pods": "3", "gpus": "6.0"}} if verb is Verb.RELEASE else {}
    return an_event(verb, ALICE, promise=promise if verb is Verb.NOTICE else None, **facts)


MESSAGES = {
    "notice": compose_message([an_event()], about(page="https://gpuwatch.example.com", link=lambda *_: LINK)),
    "notice-to-two": compose_message([an_event(), an_event(node_id="i-2", key="k2")], about(*TWO)),
    "approval": compose_message([an_event()], about(rules=APPROVING)),
    "local-disks": compose_message([an_event()], about(DISKS)),
    "withdrawn": compose_message([an_event(Verb.WITHDRAW)], about()),
    "stopped": compose_message([an_event(Verb.STOP)], about()),
    "still-billed": compose_message(
        [an_event(Verb.STOP)], about(a_machine(state=NodeState.STOPPED, still_billed="it is leased"))
    ),
    "not-proved": compose_message([an_event(Verb.STOP, proved=False)], about(a_machine(state=NodeState.STOPPED))),
    "not-proved-of-two": compose_message(
        [an_event(Verb.STOP, proved=False), an_event(Verb.STOP, "i-2", "k2")], about(*TWO)
    ),
    "terminated": compose_message([an_event(Verb.TERMINATE)], about()),
    "interruption": compose_message([an_event(Verb.INTERRUPTION)], about()),
    "undone": compose_message(left_alone("left_alone"), about()),
    "undone-twice": compose_message(left_alone("left_alone", "left_alone"), about()),
    "again-and-again": compose_message(left_alone("stops_undone"), about()),
    "starts": compose_message(left_alone(STARTS), about()),
    "launches": compose_message(left_alone(LAUNCHES), about()),
    "withheld": compose_message(left_alone(WITHHELD), about()),
    "several": compose_message(left_alone(WITHHELD, STARTS), about()),
    **{
        f"workload-{verb.value}-{how}": compose_message([workload(verb, how)], about())
        for verb in (Verb.NOTICE, Verb.RELEASE)
        for how in ("scale-to-zero", "delete", "stop")
    },
}


@pytest.mark.parametrize("name", MESSAGES)
def test_no_sentence_of_a_message_is_left_in_english(name: str) -> None:
    """In its subject, its text and its page; a machine with the name `idle` keeps it."""
    shown = Notification(replace(MESSAGES[name], language="zh-CN"))

    for text in (shown.title, shown.text()):
        assert ENGLISH.findall(re.sub(r"`[^`]*`|https?://\S+|it is leased|Notebook team-a", "", text)) == []
    assert re.search("[\u4e00-\u9fff]", shown.title)
    assert "什么也不需要做" in shown.html(mail=True) if name == "withdrawn" else "gpuwatch" in shown.html(mail=True)


def test_a_notice_as_its_owner_reads_it() -> None:
    """All that is in the English one."""
    check("notice-zh.txt", Notification(replace(MESSAGES["notice"], language="zh-CN")).text())


def test_programs_read_english() -> None:
    """The document of a webhook is the same in each language."""
    message = MESSAGES["notice"]

    assert as_document(replace(message, language="zh-CN"), "k") == as_document(message, "k")


@pytest.mark.parametrize("on", ["actual", "forecast", "rate"])
def test_a_budget_s_message_is_whole(on: str) -> None:
    """Its subject, its facts and what to do."""
    state = a_state(
        spent_usd=Decimal("4012.34"),
        crossings=(Crossing(ratio=0.8, on=on, at=NOW),),  # type: ignore[arg-type]  # of a table
        thresholds=(0.8, 1.0),
        forecast_usd=Decimal("5610.5"),
        blocked=None,
    )
    shown = BudgetMessage(
        state=state, crossings=state.crossings, fleet="lab", made_at=NOW, zone=ZoneInfo("UTC"), language="zh-CN"
    )

    for text in (shown.title, shown.text()):
        assert ENGLISH.findall(re.sub(r"`[^`]*`|https?://\S+", "", text)) == []
    assert shown.document("k")["title"].isascii()
