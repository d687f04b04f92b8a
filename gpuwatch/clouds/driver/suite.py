"""The contract of drivers, tried on one: `gpuwatch cloud test`.

Without a machine or launch arguments it only reads. What must not reach the cloud goes to a trap on loopback with
secrets that are made up; a driver gets a change for it only after a read has shown that it asks there.
"""

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from gpuwatch.clouds import FLEET_TAG, POOL_TAG
from gpuwatch.clouds.driver import line
from gpuwatch.clouds.driver.process import Ended, check_executable, environment_of
from gpuwatch.clouds.driver.protocol import CALLS, PRICE, VERSION, doubt_of
from gpuwatch.clouds.driver.settings import DriverSettings
from gpuwatch.clouds.driver.trap import BROKEN, LOST, SILENT, Trap, trap
from gpuwatch.clouds.errors import CloudError, CloudUnavailableError, NotFoundError, NotSentError
from gpuwatch.model.decision import DECISION_TAG
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.json_document import read_json
from gpuwatch.runtime.printable import legible

KEPT, BROKE, NOT_TESTED = "kept", "broken", "not tested"
NOBODY = "gpuwatch-test-nobody"

_MARK = "DRIVER_TEST"  # the variable by which what a driver leaves running is found
_LONGEST = 400  # characters of what came
_LOOKS = 5  # machines that are asked for one by one
_STOP_SECONDS, _CHANGE_SECONDS = 5.0, 60.0  # of permits
_PATIENCE_SECONDS, _LOOK_SECONDS = 900.0, 5.0  # for a change to arrive


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """One sentence of the contract: `result` is kept, broken or not tested, and `why` says more.

    A broken one has the last request without its secrets, what came, and what would be right.
    """

    says: str
    result: str
    why: str
    sent: str | None = None
    came: str | None = None
    right: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteDocument:
    """What a driver calls itself, the calls that it offers, and what came of each sentence of the contract."""

    driver: str
    name: str | None
    calls: tuple[str, ...]
    sentences: list[Sentence]


class _Broken(Exception):  # noqa: N818  what a sentence is
    """How the driver breaks it."""


class _NotTested(Exception):  # noqa: N818  what a sentence is
    """What the test lacks."""


_Check = Callable[["Suite"], str | None]
_SENTENCES: list[tuple[str, str, str, _Check]] = []


def _sentence(says: str, *, right: str, needs: str = "describe") -> Callable[[_Check], _Check]:
    """A sentence, what would be right, the call without which it is not tested; how it is tried."""

    def kept(check: _Check) -> _Check:
        _SENTENCES.append((says, right, needs, check))
        return check

    return kept


class Suite:
    """One test of one driver."""

    def __init__(
        self,
        driver: DriverSettings,
        *,
        clock: Clock,
        endpoint: str | None = None,
        region: str | None = None,
        machine: str | None = None,
        launch: Mapping[str, str] | None = None,
        kill_after: float = 2.0,
    ) -> None:
        """Nothing is run yet."""
        self._driver, self._clock, self._kill_after = driver, clock, kill_after
        self._endpoint, self._region, self._machine, self._launch = endpoint, region, machine, launch
        self._path, self._run_id = Path(driver.executable or ""), f"gpuwatch-test-{uuid4().hex[:12]}"
        self._sent: dict[str, Any] = {}
        self._came, self._name, self._stopped = "", "", False
        self._calls: tuple[str, ...] = ("",)  # what needs no call
        self._machines: list[dict[str, Any]] | None = None

    def run(self) -> SuiteDocument:
        """Try each sentence in turn."""
        found = [self._judge(*each) for each in _SENTENCES]
        return SuiteDocument(driver=str(self._path), name=self._name or None, calls=self._calls[2:], sentences=found)

    def _judge(self, says: str, right: str, needs: str, check: _Check) -> Sentence:
        if needs not in self._calls:
            return Sentence(says=says, result=NOT_TESTED, why=f"the driver does not offer {needs}")
        self._sent, self._came = {}, ""
        try:
            return Sentence(says=says, result=KEPT, why=check(self) or "")
        except _NotTested as reason:
            return Sentence(says=says, result=NOT_TESTED, why=str(reason))
        except (_Broken, CloudError) as reason:
            hidden = {**self._sent, "secrets": dict.fromkeys(self._sent.get("secrets", ()), "***")}
            sent = json.dumps(hidden) if self._sent else None
            return Sentence(says=says, result=BROKE, why=str(reason), sent=sent, came=self._came, right=right)

    # What is sent.

    def _send(self, call: str, *, seconds: float, trapped: Trap | None = None, **more: object) -> Ended:
        secrets = line.read_secrets(self._driver)
        if trapped is not None:
            secrets = {name: f"made-up-{name}" for name in secrets}
        ends = self._clock.now() + timedelta(seconds=seconds)
        due = {"deadline": ends.isoformat()} if call in CALLS and CALLS[call].change else {}
        told = {"gpuwatch": VERSION, "call": call, "fleet": "gpuwatch-test", "region": self._region}
        told |= {"endpoint": trapped.url if trapped else self._endpoint, "options": dict(self._driver.options)}
        self._sent, self._came = {**told, "secrets": secrets, **due, **more}, ""
        ended = line.run(
            self._path,
            json.dumps(self._sent).encode(),
            environment=environment_of(self._driver.environment) | {_MARK: self._run_id},
            seconds=seconds,
            before=lambda: None,
        )
        said = line.mask_secrets(ended.output.decode("utf-8", "replace"), self._sent["secrets"])
        self._came = f"status {ended.status}: {legible(said, _LONGEST)}"
        return ended

    def _ask(self, call: str, *, seconds: float | None = None, **more: Any) -> dict[str, Any]:  # noqa: ANN401  members
        """The answer; raises CloudError."""
        ended = self._send(call, seconds=self._driver.call_timeout if seconds is None else seconds, **more)
        return line.answer_of(call, call, ended, driver=self._path.name, request=self._sent)

    def _get(self, node_id: str) -> dict[str, Any] | None:
        machine = self._ask("get", id=node_id).get("machine")
        return None if machine is None else self._sound(machine)

    def _sound(self, machine: dict[str, Any]) -> dict[str, Any]:
        doubt = doubt_of(machine, self._region)
        if doubt is not None:
            raise _Broken(f"the machine {machine['id']}: {doubt}")
        return machine

    def _change(self, call: str, node_id: str, **more: Any) -> None:  # noqa: ANN401  members
        seconds = _STOP_SECONDS if call == "stop" else _CHANGE_SECONDS
        self._ask(call, seconds=seconds, id=node_id, key=f"{self._run_id}-{call}", **more)

    def _await(self, node_id: str, *states: str) -> None:
        """Look until it is in one of the states; what is gone counts as terminated."""
        ends, state = self._clock.uptime() + _PATIENCE_SECONDS, ""
        while self._clock.uptime() < ends:
            try:
                state = (self._get(node_id) or {"state": "terminated"})["state"]
            except NotFoundError:
                state = "terminated"
            if state in states:
                return
            self._clock.sleep(_LOOK_SECONDS)
        raise _Broken(f"{node_id} is {state} after {_PATIENCE_SECONDS / 60:.0f} minutes, and not {' or '.join(states)}")

    # Reading.

    @_sentence("Nobody but root and this user decides what runs.", right="an executable of root's", needs="")
    def _is_fit(self) -> None:
        check_executable(self._path)

    @_sentence("describe names the cloud and the calls that the driver offers.", right="as in the schema", needs="")
    def _describes(self) -> str:
        found = self._ask("describe")
        self._name, self._calls = found["name"], ("", "describe", *found["calls"])
        return f"{self._name}: {', '.join(found['calls'])}"

    @_sentence("Another version is refused.", right="an error, or a failure")
    def _refuses_version(self) -> None:
        self._refuses("describe", gpuwatch=VERSION + 98)

    @_sentence("An unknown call is refused.", right="an error, or a failure")
    def _refuses_call(self) -> None:
        self._refuses("dance")

    def _refuses(self, call: str, **more: Any) -> None:  # noqa: ANN401  members
        ended = self._send(call, seconds=self._driver.call_timeout, **more)
        with suppress(ValueError):
            found = read_json(ended.output) if ended.status == 0 else {"error": ""}
            if isinstance(found, dict) and "error" in found:
                return
        raise _Broken("it answered")

    @_sentence("list shows each machine once, without a doubt.", right="machines as in the schema")
    def _lists(self) -> str:
        found: list[dict[str, Any]] = self._ask("list")["machines"]
        ids = [self._sound(each)["id"] for each in found]
        twice = next((each for each in ids if ids.count(each) > 1), None)
        if twice is not None:
            raise _Broken(f"the list has {twice} more than once")
        self._machines = found
        return f"{len(found)} machines: the cloud's console must show as many"

    def _listed_machines(self) -> list[dict[str, Any]]:
        if not self._machines:
            raise _NotTested("list shows no machine" if self._machines == [] else "list gives no usable answer")
        return self._machines

    @_sentence("A list is whole.", right="every page, or an error")
    def _lists_all(self) -> None:
        first = {each["id"] for each in self._listed_machines()}
        missing = first ^ {each["id"] for each in self._ask("list")["machines"]} or {self._machine} - first - {None}
        if missing:
            raise _Broken(f"a list is without {', '.join(sorted(map(str, missing))[:_LOOKS])}")

    @_sentence("get shows a machine as list does.", right="the same type, GPUs, region and tags")
    def _gets(self) -> None:
        machines = self._listed_machines()
        for each in machines[:: max(1, len(machines) // _LOOKS)][:_LOOKS]:
            found = self._get(each["id"]) or {}
            wrong = [name for name in ("id", "type", "gpus", "region", "tags") if found.get(name) != each.get(name)]
            if wrong:
                raise _Broken(f"get and list differ in {wrong[0]} of {each['id']}")

    @_sentence("An id that does not exist is not_found.", right="the error not_found")
    def _gets_nobody(self) -> None:
        with suppress(NotFoundError):
            self._ask("get", id=NOBODY)
            raise _Broken("it answered")

    @_sentence("find shows no machine for a key that nobody used.", right="the key, and no machine", needs="find")
    def _finds_nobody(self) -> None:
        if "machine" in self._ask("find", key=self._run_id):
            raise _Broken("it shows a machine")

    @_sentence("prices are above 0, and of types that were asked for.", right="rows as in the schema", needs="prices")
    def _prices(self) -> str:
        types = sorted({each["type"] for each in self._listed_machines()})
        found = self._ask("prices", types=types)["prices"]
        for each in found:
            doubt = doubt_of(each, self._region, PRICE)
            if doubt is not None or each["type"] not in types:
                raise _Broken(doubt or f"nobody asked for {each['type']}")
        return f"types: {len(types)}, prices: {len(found)}"

    @_sentence("Wrong secrets give no list.", right="the error auth")
    def _needs_secrets(self) -> None:
        if not self._driver.secrets:
            raise _NotTested("it needs --secret NAME=FILE")
        with suppress(CloudError):
            self._ask("list", secrets={name: f"made-up-{name}" for name in self._driver.secrets})
            raise _Broken("it answered")

    # Doubt.

    @contextmanager
    def _open_trap(self, how: str) -> Iterator[Trap]:
        """A trap that the driver is known to use."""
        with trap(BROKEN) as shown:
            with suppress(CloudError):
                self._ask("list", trapped=shown)
            if not shown.seen:
                raise _NotTested("the driver does not ask at the address in `endpoint`")
        with trap(how) as trapped:
            yield trapped

    @_sentence("A read without the cloud's answer is a doubt.", right="unavailable, or a failure")
    def _doubts_reads(self) -> None:
        for how in (BROKEN, LOST):
            with self._open_trap(how) as trapped, suppress(CloudUnavailableError):
                self._ask("list", trapped=trapped)
                raise _Broken(f"it answered, and the cloud gave {how}")

    def _change_without_answer(self) -> tuple[int, CloudError | None]:
        """How often it was sent, and what the driver says about it."""
        call = next((each for each in ("stop", "terminate", "start") if each in self._calls), None)
        if call is None:
            raise _NotTested("the driver offers no change")
        with self._open_trap(LOST) as trapped:
            try:
                self._ask(call, seconds=_CHANGE_SECONDS, trapped=trapped, id=NOBODY, key=self._run_id)
            except CloudError as error:
                return trapped.times_changed(NOBODY), error
            return trapped.times_changed(NOBODY), None

    @_sentence("A change is sent once.", right="no second request")
    def _sends_once(self) -> None:
        times, _ = self._change_without_answer()
        if times > 1:
            raise _Broken(f"it was sent {times} times")

    @_sentence("A change without the cloud's answer is a doubt.", right="unavailable, or a failure")
    def _doubts_changes(self) -> None:
        times, error = self._change_without_answer()
        if not isinstance(error, CloudUnavailableError) or (times and isinstance(error, NotSentError)):
            raise _Broken("the driver takes it for done" if error is None else "the driver takes it for not done")

    @_sentence("Nothing runs after the deadline.", right="children that stay in the driver's process group")
    def _ends(self) -> None:
        with trap(SILENT, 2 * self._kill_after) as silent, suppress(CloudError):
            self._ask("list", seconds=self._kill_after, trapped=silent)
        left = _left_running(f"{_MARK}={self._run_id}".encode())
        for each in left:
            with suppress(OSError):
                os.kill(each, signal.SIGKILL)
        if left:
            raise _Broken(f"{len(left)} processes went on, and are killed now")

    # Changes that the user asks for.

    def _named_machine(self, *states: str) -> str:
        if self._machine is None:
            raise _NotTested("it needs --machine ID")
        state = (self._get(self._machine) or {}).get("state")
        if state not in states:
            raise _NotTested(f"{self._machine} is {state}")
        return self._machine

    @_sentence("Tags come back, and others stay.", right="the new tag among the old ones", needs="tag")
    def _tags(self) -> str:
        node_id = self._named_machine("running", "stopped")
        before = (self._get(node_id) or {}).get("tags", {})
        tags = {DECISION_TAG: f"{self._run_id}-tag"}
        self._change("tag", node_id, tags=tags)
        if (self._get(node_id) or {}).get("tags", {}) != before | tags:
            raise _Broken("get shows other tags")
        return f"the tag {DECISION_TAG} stays"

    @_sentence("A stop ends in stopped, also if it comes twice.", right="the states of the schema", needs="stop")
    def _stops(self) -> None:
        if "start" not in self._calls:
            raise _NotTested("the driver does not offer start")
        node_id = self._named_machine("running")
        self._stopped = True
        self._change("stop", node_id)
        self._await(node_id, "stopped")
        with suppress(CloudError):
            self._change("stop", node_id)
        self._await(node_id, "stopped")

    @_sentence("A start ends in running.", right="the states of the schema", needs="start")
    def _starts(self) -> None:
        node_id = self._named_machine("stopped")
        if not self._stopped:  # a machine that somebody else stopped stays down
            raise _NotTested("the test did not stop it")
        self._change("start", node_id)
        self._await(node_id, "running")

    @_sentence("The same key is the same machine, with its tags.", right="one machine that find shows", needs="launch")
    def _launches(self) -> str:
        if self._launch is None or "terminate" not in self._calls:
            raise _NotTested("it needs --launch NAME=TEXT, and a driver that offers terminate")
        arguments = {"pool": "gpuwatch-test", **self._launch}
        tags = {FLEET_TAG: "gpuwatch-test", POOL_TAG: arguments["pool"], DECISION_TAG: self._run_id}
        made: list[str] = []
        try:
            for _ in range(2):
                given = {"arguments": arguments, "tags": tags, "key": self._run_id}
                made.append(self._ask("launch", seconds=_CHANGE_SECONDS, **given)["id"])
            found = self._ask("find", key=self._run_id).get("machine", {})
            if {*made, found.get("id")} != {made[0]} or not tags.items() <= self._sound(found).get("tags", {}).items():
                raise _Broken("it made a second machine, or find does not show the first one with its tags")
            self._await(made[0], "running")
        finally:
            for each in dict.fromkeys(made):
                self._change("terminate", each)
        self._await(made[0], "terminating", "terminated")
        return f"{made[0]} was made and ended"


def _left_running(mark: bytes) -> list[int]:
    """Processes with the variable in their environment."""
    found = []
    for each in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in each.read_bytes().split(b"\0"):
                found.append(int(each.parent.name))
    return found
