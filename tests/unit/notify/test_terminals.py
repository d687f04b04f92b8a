"""Notices on the terminals of hosts: asked of each agent, again while nobody is there, and no proof of a reader."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.notify.settings import NotifySettings
from tests.support.builders.notices import Office, a_machine
from tests.support.fakes.http_sink import Answer, Asked, PriceServer, serving


def an_office(folder: Path, server: PriceServer, **other: object) -> Office:
    """One machine, whose agent is that server."""
    office = Office(folder, NotifySettings(wall=True), **other)  # type: ignore[arg-type]  # of its fields
    office.settings = replace(office.settings, signals=ObserveSettings(targets={"i-1": server.url}))
    return office


def reached(number: int) -> Callable[[Asked], Answer]:
    """An agent that writes on so many terminals."""
    return lambda _: Answer(body={"reached": number, "refused": {}, "doubts": []})


def test_people_on_the_host_hear_of_a_notice_and_of_its_withdrawal(tmp_path: Path) -> None:
    """The agent is given a time and a verb, no words; a terminal is no proof that somebody has been told."""
    with serving(reached(1)) as server:
        office = an_office(tmp_path, server)
        notice = office.does(Verb.NOTICE)
        office.job().tick()
        told_at = office.told_at()
        office.does(Verb.WITHDRAW)
        office.job().tick()
        office.job().tick()
        office.close()
        bodies = [json.loads(asked.body) for asked in server.asked]

    assert [asked.path for asked in server.asked] == ["/v1/notice"] * 2
    assert bodies == [
        {"key": notice.key, "stop_at": "2026-03-02T12:10:00Z", "verb": "stop"},
        {"key": notice.key, "withdrawn": True},
    ]
    assert told_at is None
    assert office.counts == [("wall", "notice", "reached"), ("wall", "withdrawn", "reached")]


def test_a_host_without_anybody_is_asked_again_later(tmp_path: Path) -> None:
    """Each time later, as long as the notice is in force; its withdrawal then is silence."""
    with serving(reached(0)) as server:
        office = an_office(tmp_path, server)
        office.does(Verb.NOTICE)
        job = office.job()
        for _ in range(6):  # a minute
            job.tick()
            office.clock.advance(10)
        asked = len(server.asked)
        office.does(Verb.WITHDRAW)
        job.tick()
        job.tick()
        office.close()

        assert asked == 3
        assert len(server.asked) == asked


def test_a_machine_that_is_stopped_has_no_terminals(tmp_path: Path) -> None:
    """The last step of terminate_after is announced by other ways."""
    with serving(reached(1)) as server:
        office = an_office(tmp_path, server, nodes=(replace(a_machine(), state=NodeState.STOPPED),))
        office.does(Verb.NOTICE, code="terminate_after")
        office.job().tick()
        office.close()

        assert server.asked == []
