"""Sentences in Chinese: by templates, whose parts are kept, translated in turn, or looked up."""

import os
import re
import socket
from errno import (
    EACCES,
    EADDRINUSE,
    EADDRNOTAVAIL,
    ECONNREFUSED,
    ECONNRESET,
    EHOSTUNREACH,
    EIO,
    EISDIR,
    ELOOP,
    EMFILE,
    ENAMETOOLONG,
    ENETUNREACH,
    ENOENT,
    ENOSPC,
    ENOTDIR,
    EPERM,
    EROFS,
    ESTALE,
    ETIMEDOUT,
)
from pathlib import Path
from string import ascii_lowercase
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.guard.obstacles import Obstacle
from gpuwatch.model.health import XIDS
from gpuwatch.money.blocked.obstacles import ADVICE, act_text
from gpuwatch.money.prices.catalogue import SOURCES
from gpuwatch.policies.profiles import ProfileName
from gpuwatch.runtime.network_errors import network_text
from gpuwatch.runtime.translation import (
    CHINESE,
    Catalogue,
    catalogue,
    entries_of,
    first_known,
    kind_of_part,
    language_of,
    translate_text,
)
from tests.support.paths import GOLDEN, ROOT
from tests.support.sentences import readable, said_as, sentences_of

PO = (ROOT / "gpuwatch/runtime/locale/zh_CN.po").read_text(encoding="utf-8")
ENTRIES = entries_of(PO)
PART = re.compile(r"\{(\w+)\}")
# What stands in a part, and what becomes of it.
VALUES = {
    "n": st.integers(0, 10**6).map(lambda n: (f"{n:,}", f"{n:,}")),
    "time": st.integers(1, 59).map(lambda n: (f"2h{n}m", f"2 小时 {n} 分钟")),
    "at": st.integers(0, 59).map(lambda n: (f"2026-03-02 12:{n:02} UTC",) * 2),
    "usd": st.integers(0, 10**6).map(lambda n: (f"${n:,}.50",) * 2),
    "word": st.sampled_from([("idle", "空闲"), ("parked", "只占显存"), ("zzz", "zzz")]),
    "text": st.text(ascii_lowercase, min_size=2).map(lambda text: (f"zz{text} zz",) * 2),
    "list": st.just(("idle $1.00, zz", "空闲 $1.00、zz")),
}
NAMES = st.text(ascii_lowercase, min_size=1).map(lambda text: (f"qq{text}",) * 2)
# All that is there, with times as the code writes them, and the sentences of an entry that has several.
KNOWN = [
    part
    for each in (re.sub(r"\{at\d*\}", "… UTC", english) for english in ENTRIES)
    for part in (each, *re.split(r"(?<=\.) (?=[A-Z{]|gpuwatch )", each))
]
# Rooms and files whose sentences `status`, `explain`, the page and notices show.
ROOMS = """
    guard policies notify agent/activity agent/evidence agent/health kubernetes controller/observe controller/slurm
    cli/explain.py cli/explain_text.py cli/explain_workload.py cli/status.py cli/status_pods.py agent/blind.py
    controller/explain.py controller/node_row.py controller/pod_rows.py controller/workload_rows.py
    controller/closing.py controller/withheld_starts.py controller/act.py controller/settle.py controller/context.py
    controller/target.py controller/target_machine.py controller/target_workload.py controller/target_cluster_node.py
    controller/web/state.py controller/web/fleet_view.py controller/web/snooze_link.py controller/web/snooze_page.py
    model/activity.py model/decision.py model/evidence_text.py model/health.py model/proposal.py model/stops.py
    money/blocked/obstacles.py
"""
# What they say of settings, to programs, and to who types `gpuwatch snooze`.
OTHERS = {"profiles.py", "validation.py", "delivery.py", "snoozes.py"}
SHOWN = [
    path
    for named in ROOMS.split()
    for path in sorted((ROOT / "gpuwatch" / named).rglob("*.py")) or [ROOT / "gpuwatch" / named]
    if "settings" not in path.name and path.name not in OTHERS
]


@pytest.mark.parametrize("number", [10, 2000])
def test_a_text_from_outside_may_be_templates_within_templates(number: int) -> None:
    """An agent's text of 10,000 characters breaks nobody's page: what is too deep or too long stays English."""
    for each in [*(english for english in ENTRIES if PART.findall(english) == ["text"]), "{text} a. "]:
        before, after = each.split("{text}")
        nested = (before * number + "zz" + after * number)[:10_000]

        assert "zz" in catalogue(CHINESE).translate(nested) or len(before * number) > 9_000


@given(st.sampled_from(sorted(ENTRIES)), st.data())
def test_a_sentence_of_any_template_comes_back_as_its_own_with_its_parts(english: str, data: st.DataObject) -> None:
    """No other template takes it."""
    drawn = {name: data.draw(VALUES.get(kind_of_part(name), NAMES), name) for name in set(PART.findall(english))}

    shown = catalogue(CHINESE).translate(PART.sub(lambda part: drawn[part[1]][0], english))

    assert shown == PART.sub(lambda part: drawn[part[1]][1], ENTRIES[english])


def test_both_sides_have_the_same_parts() -> None:
    """No number, name or reason is lost, and none is asked for that is not there."""
    assert [each for each in ENTRIES if sorted(PART.findall(each)) != sorted(PART.findall(ENTRIES[each]))] == []


def test_a_catalogue_has_each_sentence_once() -> None:
    """Nothing in it is skipped for its form."""
    assert PO.count("\nmsgid ") == len(ENTRIES) + 1  # its head


@given(st.text(max_size=200))
def test_any_text_goes_in(text: str) -> None:
    """What is no sentence of ours comes out as it is, but for the parts of it that are."""
    assert Catalogue({}).translate(text) == text
    catalogue(CHINESE).translate(text)


@given(st.sampled_from(["idle", "busy", "nodes", "It runs.", "keeps", "{pool}", "5m", "stop"]))
def test_names_are_never_translated(name: str) -> None:
    """Also where a pool or a person has the name of a state, or a sentence for a name."""
    assert f"pools.{name}.idle" in catalogue(CHINESE).translate(f"Set pools.{name}.idle.terminate_after.")
    assert f" {name} " in catalogue(CHINESE).translate(f"The pool {name} is paused by {name}: {name}.") + " "


def test_words_of_people_are_kept_whole() -> None:
    """A reason may have sentences that look like gpuwatch's own."""
    said = catalogue(CHINESE).translate("Everything is paused by ann: It runs. Nothing protects it.")

    assert said == "ann 暂停了一切操作：It runs. Nothing protects it。"


def test_each_rule_s_sentences_are_there_in_chinese() -> None:
    """As the guard says them of every case that spoils a step; names and quoted words stay."""
    missed = list[str]()
    for line in (GOLDEN / "guard_sentences.txt").read_text(encoding="utf-8").splitlines():
        catalogue(CHINESE).translate_tracing(re.sub(r"^\w+ \([^)]*\): ", "", line), missed)

    assert {each for each in missed if re.search("[A-Za-z]{2,} [A-Za-z]{2,}", each)} == set()


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.name)
def test_no_sentence_lands_without_its_chinese(path: Path) -> None:
    """Each that the source can say, whatever its parts are."""
    left = [(line, readable(each)) for line, each in sentences_of(path) if not any(map(said_as(each).fullmatch, KNOWN))]

    assert left == []


FRAGMENTS = {
    "obstacle": [words for each in Obstacle for words in (ADVICE[each].name, act_text(each, ["p"]), ADVICE[each].risk)],
    "price": [SOURCES[name] for name in SOURCES if "price-page" not in name],
    "xid": [each.sentence for each in XIDS.values()],
    "rule of a pool": [f"{profile}: stop after 15m idle, with 10m notice" for profile in get_args(ProfileName)],
}


@pytest.mark.parametrize("kind", FRAGMENTS)
def test_parts_of_sentences_are_there_in_chinese(kind: str) -> None:
    """What stands in tables and behind colons."""
    missed = list[str]()
    for each in FRAGMENTS[kind]:
        catalogue(CHINESE).translate_tracing(each, missed)

    assert [each for each in missed if " " in each and each[0] != "`"] == []


@pytest.mark.parametrize(
    ("environment", "language"),
    [
        ({}, None),
        ({"LANG": "zh_CN.UTF-8"}, "zh_CN"),
        ({"LANG": "zh_CN.UTF-8", "LC_MESSAGES": "en_US.UTF-8"}, None),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, None),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C.UTF-8"}, None),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "zh_CN"}, "zh_CN"),
        ({"LANG": "de_DE.UTF-8", "LANGUAGE": "fr:zh_CN:en"}, "zh_CN"),
        ({"LANG": "zh_CN.UTF-8", "LANGUAGE": "en:zh_CN"}, None),
        ({"LANG": "C", "LANGUAGE": "zh_CN"}, None),
        ({"LANG": "zh_TW.UTF-8"}, None),
        ({"LANG": "zh"}, "zh_CN"),
    ],
)
def test_the_environment_chooses_as_gettext_reads_it(environment: dict[str, str], language: str | None) -> None:
    """LC_ALL, then LC_MESSAGES, then LANG; LANGUAGE goes before all where that is not C."""
    assert language_of(environment) == language


def test_errors_of_files_sockets_and_slurm_are_there_in_chinese() -> None:
    """They come from the system or from Slurm's programs, and stand in sentences of the page and of `status`."""
    numbers = [EPERM, ENOENT, EIO, EACCES, ENOTDIR, EISDIR, EMFILE, ENOSPC, EROFS, ENAMETOOLONG, ELOOP, ESTALE]
    lost = [EADDRINUSE, EADDRNOTAVAIL, ENETUNREACH, ECONNRESET, ETIMEDOUT, ECONNREFUSED, EHOSTUNREACH]
    network = [OSError(each, os.strerror(each)) for each in lost] + [TimeoutError(), socket.gaierror(-2, "")]
    said = [network_text(each, "http://10.0.0.5:9460") for each in network]
    system = [os.strerror(each) for each in numbers + lost]
    slurm = [f"Slurm gives no answer: /usr/bin/scontrol cannot be started: {each}" for each in system]
    slurm.append("Slurm gives no answer: scontrol show did not end within 10s")
    english = {each: catalogue("zh_CN").translate(each) for each in filter(None, [*said, *system, *slurm])}
    assert [
        each
        for each, chinese in english.items()
        if re.search(r"[a-z]{3} [a-z]{3}", chinese.replace("scontrol show", ""))
    ] == []


def test_without_a_wish_sentences_are_english(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the code has them."""
    monkeypatch.setenv("LC_ALL", "C")
    assert translate_text("It runs.") == "It runs."
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    assert translate_text("It runs.") == "它在运行。"


def test_a_browser_s_wishes_are_read_in_their_order() -> None:
    """The first language that there is, English among them."""
    assert first_known(["zh-CN", "en"]) == first_known(["fr", "zh-Hans-CN"]) == CHINESE
    assert first_known(["en-US", "zh-CN"]) is None
