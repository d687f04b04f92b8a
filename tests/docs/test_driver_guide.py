"""docs/clouds/driver.md, its schema and its example: what a reader copies is what the protocol takes."""

import json
import re
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from gpuwatch.clouds.driver import line, process
from gpuwatch.clouds.driver.protocol import CALLS, FORMS, KINDS, MACHINE, VERSION, doubt_of, read_answer
from gpuwatch.clouds.errors import CloudError
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import a_permit
from tests.support.clouds.driver.world import EXAMPLE, a_world
from tests.support.fakes.cloud_worlds import MINE
from tests.support.paths import ROOT
from tools.docs.driver_schema import with_tables

PAGE = (ROOT / "docs/clouds/driver.md").read_text(encoding="utf-8")
SCHEMA = json.loads((ROOT / "docs/clouds/driver.schema.json").read_text(encoding="utf-8"))


def fits(name: str, value: object) -> bool:
    """Whether it is what the schema calls so."""
    schema: dict[str, Any] = {"$defs": SCHEMA["$defs"], "$ref": f"#/$defs/{name}"}
    return bool(jsonschema.Draft202012Validator(schema).is_valid(value))


def test_the_example_is_short() -> None:
    """A driver for a simple cloud has under 150 lines."""
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) < 150


def test_every_call_and_every_kind_of_refusal_is_on_the_page() -> None:
    """And no other."""
    assert with_tables(PAGE) == PAGE, "run `make docs`"
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == {*CALLS, *KINDS}
    with pytest.raises(ValueError, match="0 places <!-- calls -->"):
        with_tables("# A page")


@pytest.mark.parametrize("text", re.findall(r"```json\n(.*?)\n```", PAGE, re.DOTALL))
def test_the_answers_on_the_page_fit_the_schema_and_the_protocol(text: str) -> None:
    """As they are printed."""
    said = json.loads(text)
    assert fits(f"{said['call']}_answer", said)
    if "error" in said:
        with pytest.raises(CloudError, match=said["error"]["code"]):
            read_answer(said["call"], text.encode(), said["call"])
    else:
        assert doubt_of(read_answer(said["call"], text.encode(), said["call"])["machine"]) is None


def test_what_the_example_says_and_is_asked_fits_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call of a machine's life."""
    said: list[tuple[dict[str, Any], Any]] = []
    with a_world(ManualClock(), in_processes=True) as world:
        run = process.run

        def noted(path: Any, request: bytes, **options: Any) -> Any:  # noqa: ANN401  those of `run`
            ended = run(path, request, **options)
            said.append((json.loads(request), json.loads(ended.output)))
            return ended

        monkeypatch.setattr(line, "run", noted)
        cloud: Any = world.cloud
        node_id = cloud.launch({**world.arguments}, "key")
        world.settle(node_id)
        world.launch(MINE)
        cloud.nodes()
        cloud.tag(node_id, {"gpuwatch:stop-at": "then"}, "key")
        cloud.stop(node_id, "key", permit=a_permit())
        world.settle(node_id)
        cloud.start(node_id, "key")
        cloud.terminate(node_id, "key", permit=a_permit())
        cloud.prices(["gpu-1"], "north")

    assert {asked["call"] for asked, _ in said} == set(CALLS)
    for asked, answer in said:
        assert fits(f"{asked['call']}_request", asked), asked
        assert fits(f"{asked['call']}_answer", answer), answer


def test_schema_and_protocol_refuse_the_same_machines() -> None:
    """A member of a wrong kind, a misspelt one, and one that is missing."""
    good = {"id": "m-1", "state": "running", "type": "gpu-1"}
    wrong = [{**good, name: []} for name in MACHINE] + [
        {**good, "protectd": "x"},
        {"id": "m-1", "state": "on", "type": "x"},
    ]
    assert fits("machine", good)
    assert [each for each in wrong if fits("machine", each)] == []
    assert [each for each in wrong if "id" in each and each["id"] != [] and doubt_of(each) is None] == []
    assert VERSION == 1
    assert {each.kind for each in MACHINE.values()} <= set(FORMS)
