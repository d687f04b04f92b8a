"""What an API server's answers are taken for, byte by byte: a list, or nothing that anybody could rely on."""

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import pytest

from gpuwatch.clouds import CloudUnavailableError
from gpuwatch.kubernetes.client import Api
from gpuwatch.kubernetes.wire import Wire
from gpuwatch.runtime.reloading_file import ReloadingFile

_META: Mapping[str, object] = {"resourceVersion": "7"}


def an_api(*answers: object) -> Api:
    """One whose server gives these answers, one after the other."""
    left = [json.dumps(each).encode() for each in answers]
    credentials = SimpleNamespace(show=lambda: None, renewable=False)
    wire = SimpleNamespace(credentials=credentials, ask=lambda *_: (200, left.pop(0)))
    return Api(cast("ReloadingFile[Wire]", SimpleNamespace(value=wire)))


@pytest.mark.parametrize(
    "answer",
    [
        {"metadata": {}},
        {"metadata": _META, "items": []},
        {"kind": "PodList", "metadata": {}, "items": []},
        {"kind": "PodList", "metadata": {"resourceVersion": ""}, "items": []},
        {"kind": "Status", "metadata": _META, "status": "Success"},
        {"kind": "Pod", "metadata": _META},
    ],
)
def test_what_is_no_list_shows_nothing(answer: Mapping[str, object]) -> None:
    """A proxy that makes up an answer must not empty every node: that is silence."""
    with pytest.raises(CloudUnavailableError):
        list(an_api(answer).pages("/api/v1/pods"))


def test_a_list_is_whole_once_its_last_page_came() -> None:
    """A page that is no list in between makes the whole unknown; an empty list is one."""
    first = {"kind": "PodList", "metadata": {**_META, "continue": "more"}, "items": [{}]}
    last = {"kind": "PodList", "metadata": _META, "items": None}

    assert [len(page.items or ()) for page in an_api(first, last).pages("/api/v1/pods")] == [1, 0]
    with pytest.raises(CloudUnavailableError):
        list(an_api(first, {"metadata": _META}).pages("/api/v1/pods"))
