"""`gpuwatch cloud test`: a driver that keeps its contract, and drivers that each break one sentence."""

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpuwatch.cli.main import commands
from gpuwatch.clouds.driver import trap
from gpuwatch.clouds.driver.settings import DriverSettings
from gpuwatch.clouds.driver.suite import BROKE, KEPT, NOT_TESTED, Suite, SuiteDocument
from gpuwatch.runtime.clock import ManualClock, SystemClock
from tests.support.clouds.driver.little_cloud import TOKEN
from tests.support.clouds.driver.world import DriverWorld, a_world
from tests.support.fakes.cloud_worlds import CPU_TEMPLATE, MINE, TEMPLATE
from tests.support.real.agents import eventually

NEED_PERMISSION = (
    "Tags come back, and others stay.",
    "A stop ends in stopped, also if it comes twice.",
    "A start ends in running.",
    "The same key is the same machine, with its tags.",
)


@pytest.fixture
def world() -> Iterator[DriverWorld]:
    """Little Cloud with seven machines, which are two pages."""
    with a_world(ManualClock()) as made:
        for _ in range(7):
            made.launch(MINE)
        yield made


def tried(world: DriverWorld, **options: Any) -> SuiteDocument:  # noqa: ANN401  of the suite
    """The report."""
    driver = DriverSettings(executable=str(world.path), secrets={"token": str(world.path.with_name("token"))})
    return Suite(driver, clock=world.clock, endpoint=world.server.url, region="north", kill_after=0.05, **options).run()


def results(found: SuiteDocument, result: str) -> set[str]:
    """The sentences with it."""
    return {each.says for each in found.sentences if each.result == result}


def everything(world: DriverWorld) -> dict[str, Any]:
    """The permission to change."""
    arguments = {"template": TEMPLATE, "version": "$Default", "region": "north"}
    return {"machine": list(world.fake.machines)[-1], "launch": arguments}


def test_the_example_keeps_every_sentence_that_reading_shows(world: DriverWorld) -> None:
    """And the report says what is not tested, and why."""
    found = tried(world)
    assert results(found, BROKE) == set()
    assert results(found, NOT_TESTED) == set(NEED_PERMISSION)
    assert found.name == "Little Cloud"
    assert "stop" in found.calls
    assert {each.why for each in found.sentences if "list shows" in each.says} == {
        "7 machines: the cloud's console must show as many"
    }


def test_without_permission_the_cloud_gets_no_change(world: DriverWorld) -> None:
    """Whatever reaches the cloud is a read, and machines and tags are as they were."""
    before = str(world.fake.machines)
    tried(world)
    assert {entry.request.method for entry in world.server.log} == {"GET"}
    assert str(world.fake.machines) == before


def test_the_secrets_reach_the_cloud_and_no_one_else(world: DriverWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trap gets made-up ones, and the report none."""
    seen: list[str] = []
    take = trap._Handler.parse_request

    def noted(self: Any) -> bool:  # noqa: ANN401  a handler
        found = take(self)
        seen.append(str(self.headers))
        return found

    monkeypatch.setattr(trap._Handler, "parse_request", noted)
    world.path.write_text(world.path.read_text().replace('"name": "Little Cloud"', '"name": str(request)'))
    found = tried(world)
    assert seen
    assert TOKEN not in "".join(seen) + repr([(each.sent, each.came) for each in found.sentences])


def test_the_example_keeps_every_sentence_when_it_may_change(world: DriverWorld) -> None:
    """The machine runs again, and what was launched ends."""
    options = everything(world)
    found = tried(world, **options)
    assert results(found, KEPT) == {each.says for each in found.sentences}
    world.settle("")
    assert world.fake.machines[options["machine"]].status == "on"
    assert [each.status for each in world.fake.machines.values() if each.key] == ["deleted"]


def test_what_was_launched_ends_also_when_a_sentence_breaks(world: DriverWorld) -> None:
    """A driver that makes two machines for a key has both of them ended."""
    broken(world, '"key": request["key"]})["id"]}', '"key": str(id(request))})["id"]}')
    found = tried(world, **everything(world))
    assert results(found, BROKE) == {"The same key is the same machine, with its tags."}
    assert [each.status for each in world.fake.machines.values() if each.key] == ["deleting"] * 2


def test_a_machine_that_does_not_run_is_left_alone(world: DriverWorld) -> None:
    """A stop would show nothing, and a start is for one that the stop of the suite has stopped."""
    options = everything(world)
    del options["launch"]
    world.fake.machines[options["machine"]].status = "booting"
    world.clock.jump(0)
    found = tried(world, **options)
    assert "A stop ends in stopped, also if it comes twice." in results(found, NOT_TESTED)
    assert [each.asked for each in world.server.changes()] == []


def test_a_machine_that_somebody_stopped_is_not_started(world: DriverWorld) -> None:
    """It would run, and cost, when the test is over."""
    named = everything(world)["machine"]
    world.fake.machines[named].status = "off"
    found = tried(world, machine=named)
    assert set(NEED_PERMISSION[1:]) <= results(found, NOT_TESTED)
    assert world.fake.machines[named].status == "off"


def broken(world: DriverWorld, old: str, new: str) -> None:
    """The example with one mistake."""
    text = world.path.read_text(encoding="utf-8")
    assert old in text
    world.path.write_text(text.replace(old, new), encoding="utf-8")


DANCE = "An unknown call is refused."
FORM = "describe names the cloud and the calls that the driver offers."
LIST = "list shows each machine once, without a doubt."
WHOLE = "A list is whole."
SAME = "get shows a machine as list does."
NOBODY = "An id that does not exist is not_found."
FINDS = "find shows no machine for a key that nobody used."
PRICES = "prices are above 0, and of types that were asked for."
SECRETS = "Wrong secrets give no list."
READS = "A read without the cloud's answer is a doubt."
ONCE = "A change is sent once."
CHANGES = "A change without the cloud's answer is a doubt."
TAGS, STOP, START, LAUNCH = NEED_PERMISSION
REFUSED = "    except Refused as refused:"
PAGES = 'if not said["more"]:\n            break\n    if len(found) != said["total"]:'
# What is replaced in the example, by what, and which sentences that breaks.
MISTAKES: dict[str, tuple[str, str, set[str]]] = {
    "no name": ('"name": "Little Cloud", ', "", {FORM}),
    "any version": ('request["gpuwatch"] != 1 or ', "", {"Another version is refused."}),
    "any call": (
        '    call = request["call"]\n',
        '    call = request["call"]\n    if call == "dance":\n        return answered()\n',
        {DANCE},
    ),
    "a word of its own": ("[machine(each) for", "[machine(each) | {'flavour': 'x'} for", {LIST}),
    "a machine twice": ("in found.values()]", "in [*found.values(), *found.values()]]", {LIST}),
    "the first page alone": (PAGES, "break\n    if False:", {WHOLE}),
    "get knows no type": ('machine(said["machine"])', 'machine(said["machine"]) | {"type": "x"}', {SAME}),
    "an unknown id is a failure": ('404: "not_found", ', "", {NOBODY}),
    "an unknown id is gone": ('said = {"error": refused.error}', "said = gone(request, refused)", {NOBODY}),
    "finds nothing": ('if said["machines"] else {}', "if True else {}", {FINDS}),
    "finds any machine": ('key=request["key"])', "page=0)", {FINDS, LAUNCH}),
    "free of charge": ('"usd_per_hour": each["hourly"]', '"usd_per_hour": 0', {PRICES}),
    "a price nobody asked for": ('{"type": each["size"]', '{"type": "gpu-9"', {PRICES}),
    "a wrong secret is no machine": (
        "    if 400 <=",
        "    if answer.status == 401:\n        return NONE\n    if 400 <=",
        {SECRETS},
    ),
    "an error is no machine": (
        "    if 400 <=",
        "    if answer.status == 500:\n        return NONE\n    if 400 <=",
        {READS},
    ),
    "sends again": ("connection.getresponse()", "again(connection, method, path, headers)", {ONCE}),
    "no answer is done": (REFUSED, "    except OSError:\n        said = {'id': request['id']}\n" + REFUSED, {CHANGES}),
    "no answer is a no": (REFUSED, "    except OSError:\n        said = no('refused')\n" + REFUSED, {READS, CHANGES}),
    "no answer is not sent": (REFUSED, "    except OSError:\n        said = no('not_sent')\n" + REFUSED, {CHANGES}),
    "tags get lost": ('request["tags"])["id"]}', '{"Name": "x"})["id"]}', {TAGS}),
    "off is unknown": ('"off": "stopped"', '"off": "unknown"', {STOP}),
    "a second stop starts": (
        "def stop(request):\n",
        "def stop(request):\n    if is_off(request):\n        return start(request)\n",
        {STOP},
    ),
    "a start is a stop": ("/start", "/stop", {START}),
    "launches without tags": ('"labels": request["tags"]', '"labels": {}', {LAUNCH}),
}
HELPERS = """
NONE = {"machines": [], "more": False, "total": 0, "account": "x"}


def again(connection, method, path, headers):
    try:
        return connection.getresponse()
    except OSError:
        if method == "GET":
            raise
        connection.close()
        connection.request(method, path, None, headers)
        return connection.getresponse()


def answered():
    json.dump({"gpuwatch": 1, "call": "dance"}, sys.stdout)


def no(kind):
    return {"error": {"kind": kind, "message": "no"}}


def gone(request, refused):
    return {"gone": request["id"]} if refused.error["kind"] == "not_found" else {"error": refused.error}


def is_off(request):
    return get(request)["machine"]["state"] == "stopped"


def machine(found):"""


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_breaks_its_own_sentence(mistake: str, world: DriverWorld) -> None:
    """All others that can be tried are kept; the report has what was sent, what came, and what is right."""
    old, new, expected = MISTAKES[mistake]
    broken(world, old, new)
    broken(world, "\ndef machine(found):", HELPERS)
    found = tried(world, **everything(world))
    assert results(found, BROKE) == expected
    for each in found.sentences:
        if each.result == BROKE:
            assert each.why
            assert each.right
            assert json.loads(each.sent or "")["secrets"] == {"token": "***"}
            assert each.came is not None


def test_a_driver_that_anyone_can_write_is_not_run(world: DriverWorld) -> None:
    """Nothing else is tried then."""
    world.path.chmod(0o777)
    found = tried(world)
    assert "Nobody but root and this user decides what runs." in results(found, BROKE)
    assert results(found, KEPT) == set()
    assert world.server.log == []


def test_a_driver_that_ignores_the_address_gets_no_change_for_the_trap(world: DriverWorld) -> None:
    """Its cloud would get it."""
    broken(world, 'request["endpoint"] or "https://api.little.example"', repr(world.server.url))
    found = tried(world)
    assert "A change is sent once." in results(found, NOT_TESTED)
    assert world.server.changes() == []


def ended(pid: str) -> bool:
    """Whether the process is gone, or only waits to be reaped."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
    return True


def test_a_child_that_leaves_the_group_is_found_and_killed(tmp_path: Path) -> None:
    """A real process, which would outlive the deadline."""
    path, note = tmp_path / "driver", tmp_path / "pid"
    path.write_text(
        f"#!{sys.executable} -IS\nimport json, os, sys, time\nasked = json.load(sys.stdin)\n"
        "if asked['call'] == 'list' and asked['endpoint']:\n"
        "    if os.fork() == 0:\n        os.setsid()\n        os.close(0), os.close(1), os.close(2)\n"
        f"        open({str(note)!r}, 'w').write(str(os.getpid()))\n        time.sleep(600)\n"
        f"    while not os.path.exists({str(note)!r}):\n        time.sleep(0.01)\n"
        "print(json.dumps({'gpuwatch': 1, 'call': 'describe', 'name': 'x', 'calls': ['list', 'get']}"
        " if asked['call'] == 'describe' else {'gpuwatch': 1, 'call': asked['call'],"
        " 'error': {'kind': 'refused', 'message': 'no'}}))\n",
        encoding="utf-8",
    )
    path.chmod(0o755)
    found = Suite(DriverSettings(executable=str(path)), clock=SystemClock(), kill_after=60).run()
    assert "Nothing runs after the deadline." in results(found, BROKE)
    pid = note.read_text(encoding="utf-8")
    eventually(lambda: ended(pid))


def test_the_command_tells_and_exits(world: DriverWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """0 where all is kept, 1 where a sentence is broken, 2 for options that are none."""
    words = ["cloud", "test", str(world.path), "--endpoint", world.server.url, "--region", "north"]
    words += ["--secret", f"token={world.path.with_name('token')}"]
    monkeypatch.setattr(Suite.__init__, "__kwdefaults__", {**(Suite.__init__.__kwdefaults__ or {}), "kill_after": 0.05})
    done = CliRunner().invoke(commands, words)
    assert done.exit_code == 0, done.output
    assert "kept        A list is whole." in done.output
    assert "not tested  Tags come back, and others stay. (it needs --machine ID)" in done.output
    broken(world, '"off": "stopped"', '"on": "on"')
    broken(world, '"on": "running"', '"on": "up"')
    done = CliRunner().invoke(commands, words)
    assert done.exit_code == 1
    assert "broken      list shows each machine once, without a doubt." in done.output
    assert "right: machines as in the schema" in done.output
    assert TOKEN not in done.output
    said = json.loads(CliRunner().invoke(commands, [*words, "--json"]).stdout)
    assert said["schema"] == "gpuwatch.cloud.test/1"
    assert CliRunner().invoke(commands, [*words, "--launch", CPU_TEMPLATE]).exit_code == 2
