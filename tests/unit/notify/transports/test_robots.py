"""Chat robots: refusals come with status 200, parts keep every word, texts mention nobody."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.notify.formats import Notification
from gpuwatch.notify.message import compose_message
from gpuwatch.notify.transports.base import Delivery, DeliveryError
from gpuwatch.notify.transports.robots import (
    DingTalkSettings,
    FeishuSettings,
    RobotTransport,
    WeComSettings,
    in_parts,
)
from tests.support.builders.fleet import NOW
from tests.support.builders.notices import a_machine, about, an_event
from tests.support.fakes.http_sink import Answer, serving

KINDS: list[Callable[..., RobotTransport]] = [DingTalkSettings, WeComSettings, FeishuSettings]
TOKEN = "0123456789abcdef"  # noqa: S105  of a webhook that does not exist


def sent(kind: Callable[..., RobotTransport], folder: Path, answer: object, *, name: str = "trainer") -> list[object]:
    """The documents that a robot posted to a service with this answer."""
    node = a_machine(name=name)
    content = Notification(compose_message([an_event(node_id=node.id, key=node.id)], about(node)))
    with serving(lambda _: Answer(body=answer)) as server:
        (folder / "url").write_text(f"{server.url}/robot/send?access_token={TOKEN}")
        delivery = Delivery(key="k", at=NOW, day=NOW.date(), content=content)
        kind(url_file=str(folder / "url")).send(delivery)
        return [json.loads(asked.body) for asked in server.asked]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("", "did not say that it accepted"),
        ("<html>a proxy's page</html>", "did not say that it accepted"),
        ([], "did not say that it accepted"),
        ({}, "did not say that it accepted"),
        (
            {"errcode": 310000, "code": 19024, "errmsg": "keywords not in content", "msg": "Key Words Not Found"},
            "refus",
        ),
        ({"errcode": 93000, "code": 9499, "errmsg": f"invalid {TOKEN}", "msg": f"invalid {TOKEN}"}, "repeats the web"),
    ],
)
def test_status_200_alone_is_no_delivery(
    kind: Callable[..., RobotTransport], answer: object, why: str, tmp_path: Path
) -> None:
    """A message that the group never saw was not delivered: nothing may stop after it; no reason holds the token."""
    with pytest.raises(DeliveryError, match=why) as caught:
        sent(kind, tmp_path, answer)

    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize("answer", [{"code": 0, "msg": "success"}, {"StatusCode": 0, "StatusMessage": "success"}])
def test_feishu_accepts_in_two_ways(answer: object, tmp_path: Path) -> None:
    """Both generations of its answer."""
    assert len(sent(FeishuSettings, tmp_path, answer)) == 1


def test_a_name_mentions_nobody_in_feishu(tmp_path: Path) -> None:
    """Everybody who may tag a machine could call a whole group otherwise."""
    (document,) = sent(FeishuSettings, tmp_path, {"code": 0}, name='<at user_id="all">all</at>')

    assert "<at" not in json.dumps(document)
    assert '< at user_id="all">all< /at>' in str(document)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["@all", "<@U1>", "see www.evil.example/login"])
def test_a_name_calls_nobody_and_is_no_link(kind: Callable[..., RobotTransport], name: str, tmp_path: Path) -> None:
    """In every chat, in the one way that the services have in common."""
    (document,) = sent(kind, tmp_path, {"errcode": 0, "code": 0}, name=name)

    assert not re.search(r"@\w|www\.", json.dumps(document, ensure_ascii=False))


@given(st.text(alphabet=st.sampled_from("ab \n训"), max_size=400), st.integers(min_value=3, max_value=60))
def test_parts_fit_and_lose_no_word(text: str, longest: int) -> None:
    """Each part is within the limit, and all of them together have every character but blanks at their ends."""
    parts = in_parts(text, longest)

    assert all(len(part.encode()) <= longest for part in parts)
    assert "".join("".join(parts).split()) == "".join(text.split())


def test_parts_end_between_paragraphs() -> None:
    """A machine's lines stay together where they fit."""
    machines = [f"machine {number}\n  why: idle\n" for number in range(10)]

    assert in_parts("\n".join(machines), 60) == [f"{machines[n]}\n{machines[n + 1]}".strip() for n in range(0, 10, 2)]
