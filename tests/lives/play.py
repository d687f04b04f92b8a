"""Plays lives: a day on a made host through the real agent, then each profile's rounds over what it said."""

import gc
import logging
import os
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from tests.lives.agent import DAY_SECONDS, PlayedAgent, cycle_moments, days_moments
from tests.lives.gpus import MODELS
from tests.lives.host import MadeHost
from tests.lives.judge import PROFILES, ROUND_SECONDS, Judged, Recording, busy_because, judge, states_of
from tests.lives.rates import moments
from tests.lives.rights import ROOT, Rights
from tests.lives.story import Life, load


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One life with what each profile makes of it. `states` are hours; `because` is what was seen last."""

    life: Life
    rights: Rights
    by_profile: dict[str, Judged]
    states: dict[str, float]
    because: str
    seconds: float  # that the playing took


def record(
    life: Life,
    *,
    rights: Rights = ROOT,
    closed: tuple[str, ...] = (),
    hours: float | None = None,
    restarts: Collection[float] = (),
) -> Recording:
    """The agent's answers over the life's day, or its first hours; see `Sight` for `closed`.

    `restarts` are moments at which the agent begins anew, besides those of the life.
    """
    begin = life.used
    until = life.seconds if hours is None else min(life.seconds, begin + hours * 3600.0)
    model = MODELS[life.model]
    rounds = int((until - begin) / ROUND_SECONDS) + 1
    if life.agent.get("dead"):
        answers: tuple[bytes | None, ...] = (None,) * rounds
    else:
        memory = Path("/dev/shm")  # noqa: S108  the made host is many small files
        folder = memory if os.access(memory, os.W_OK) else None
        with tempfile.TemporaryDirectory(dir=folder, prefix="gpuwatch-life-") as name:
            answers = _answers(life, Path(name), until, rights, closed, frozenset(restarts))
    return Recording(
        answers=answers,
        gpus=life.cloud_gpus,
        instance_type=model.instance,
        instance_store=life.instance_store != "none",
        begin_seconds=begin,
    )


def _answers(
    life: Life, work: Path, until: float, rights: Rights, closed: tuple[str, ...], more: frozenset[float]
) -> tuple[bytes, ...]:
    (work / "host").mkdir()
    host = MadeHost(life, work / "host")
    agent = PlayedAgent(host, work, rights, closed)
    answers = []
    with agent.on_its_host():
        for moment in days_moments(life.days):
            agent.cycle(moment)
        if life.days:
            agent.end()
            agent.begin_again()
        begin = life.days * DAY_SECONDS
        restarts = {*moments(life.agent.get("restarts", []), until), *more}
        pending = sorted(each for each in restarts if each > begin)
        changes = {*host.world.changes(), *pending}
        for moment in (each for each in cycle_moments(changes, until) if each >= begin):
            if pending and pending[0] <= moment:
                pending = [each for each in pending if each > moment]
                agent.restart()
            agent.cycle(moment)
            if moment >= life.used and moment % ROUND_SECONDS == 0.0:
                answers.append(agent.answer())
    return tuple(answers)


@contextmanager
def silent(name: str) -> Iterator[None]:
    """Nothing is logged meanwhile: thousands of rounds log."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def play(
    path: Path, *, rights: Rights = ROOT, hours: float | None = None, profiles: tuple[str, ...] = PROFILES
) -> Played:
    """One life from its file, seen with these rights."""
    begin = perf_counter()
    life = load(path)
    with silent("gpuwatch"):
        recording = record(life, rights=rights, hours=hours)
        judged = {profile: judge(recording, profile) for profile in profiles}
    gc.collect()
    return Played(
        life=life,
        rights=rights,
        by_profile=judged,
        states=dict(states_of(recording)),
        because=busy_because(recording),
        seconds=perf_counter() - begin,
    )


def play_job(job: tuple[Path, Rights]) -> Played:
    """One life for a pool of processes."""
    return play(job[0], rights=job[1])
