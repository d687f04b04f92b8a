"""Lists in pages: whole, or an error; never a part, and never an entry twice."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.clouds import CloudUnavailableError
from gpuwatch.clouds.alibaba.pages import List, by_number, by_token

WHAT = List(call="ecs:DescribeThings", path=("Things", "Thing"), identity="Id")


class Cloud:
    """A list of so many entries; `spoil` may change an answer before it is given."""

    def __init__(self, count: int) -> None:
        """Entries that count from zero."""
        self.entries = [{"Id": str(number)} for number in range(count)]
        self.asked_for: list[Mapping[str, Any]] = []
        self.spoil: Any = lambda _number, answer: answer

    def name_call(self, call: str) -> str:
        """For messages."""
        return call

    def ask(self, _call: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """As ECS by tokens, as ESS by numbers."""
        self.asked_for.append(parameters)
        if "MaxResults" in parameters:
            begin, size = int(parameters.get("NextToken", "0")), parameters["MaxResults"]
            token = str(begin + size) if begin + size < len(self.entries) else ""
            answer = {"NextToken": token, "TotalCount": 0, "Things": {"Thing": self.entries[begin : begin + size]}}
        else:
            number, size = parameters["PageNumber"], parameters["PageSize"]
            part = self.entries[(number - 1) * size : number * size]
            answer = {"PageNumber": number, "TotalCount": len(self.entries), "Things": {"Thing": part}}
        changed: dict[str, Any] = self.spoil(len(self.asked_for), answer)
        return changed


def asked(cloud: Cloud, way: str, size: int) -> list[dict[str, Any]]:
    """The whole list."""
    client: Any = cloud
    return by_token(client, WHAT, {}, size=size) if way == "tokens" else by_number(client, WHAT, {}, size=size)


@given(st.sampled_from(["tokens", "numbers"]), st.integers(0, 30), st.integers(1, 7))
def test_a_list_of_any_length_is_whole(way: str, count: int, size: int) -> None:
    """In pages of any size."""
    cloud = Cloud(count)

    assert asked(cloud, way, size) == cloud.entries


@given(st.sampled_from(["tokens", "numbers"]), st.integers(1, 20), st.integers(1, 5), st.data())
def test_a_page_that_is_wrong_once_makes_the_list_anew_and_one_that_stays_wrong_is_an_error(
    way: str, count: int, size: int, data: st.DataObject
) -> None:
    """Lost entries, a lost token, another page's entries: never a part, never twice."""
    forever = data.draw(st.booleans())
    which = data.draw(st.integers(1, 4))
    harm = data.draw(st.sampled_from(["token", "twice", "number"]))
    cloud = Cloud(count)

    def spoil(number: int, answer: dict[str, Any]) -> dict[str, Any]:
        if (number != which) if not forever else (number < which):
            return answer
        if harm == "token":
            return {name: value for name, value in answer.items() if name != "NextToken"}
        if harm == "twice":
            return {**answer, "Things": {"Thing": cloud.entries[:size]}}
        return {**answer, "PageNumber": 99}

    cloud.spoil = spoil
    try:
        found = asked(cloud, way, size)
    except CloudUnavailableError:
        return
    assert found == cloud.entries


@pytest.mark.parametrize("way", ["tokens", "numbers"])
@pytest.mark.parametrize("answer", [{}, {"Things": None}, {"Things": {"Thing": {}}}, {"TotalCount": "many"}])
def test_an_answer_without_the_list_is_no_empty_list(way: str, answer: dict[str, Any]) -> None:
    """It is an error."""
    cloud = Cloud(1)
    cloud.spoil = lambda _number, _answer: answer

    with pytest.raises(CloudUnavailableError, match="no usable answer"):
        asked(cloud, way, 2)


def test_a_token_that_names_its_own_page_ends() -> None:
    """No round asks for ever."""
    cloud = Cloud(3)
    cloud.spoil = lambda _number, answer: {**answer, "NextToken": "1"}

    with pytest.raises(CloudUnavailableError, match="could not be had whole"):
        asked(cloud, "tokens", 1)
    assert len(cloud.asked_for) <= 4
