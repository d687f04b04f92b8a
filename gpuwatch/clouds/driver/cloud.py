"""A cloud behind a driver. What the protocol cannot say for certain is a doubt: `docs/clouds/driver.md`.

1. Before a change its machine, or what was launched with its key, is looked at: what is done already is not asked for.
2. A change is asked for once. Without a usable answer nobody knows whether it happened.
3. A machine that a list leaves out is asked for by its id, and stays as last seen until the driver says that it ended.
4. A call that the driver does not offer is refused before anything is run.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuwatch.clouds import (
    FLEET_TAG,
    POOL_TAG,
    START_IS_DONE,
    STOP_IS_DONE,
    TERMINATE_IS_DONE,
    CloudError,
    Leftover,
    NotFoundError,
    refuse_foreign_tags,
)
from gpuwatch.clouds.driver.line import NOT_OFFERED, Line
from gpuwatch.clouds.driver.protocol import doubt_of, node_of
from gpuwatch.clouds.driver.settings import DriverSettings
from gpuwatch.clouds.permit import Permit, permit_in_force
from gpuwatch.clouds.places import Views, attempt, everywhere
from gpuwatch.clouds.provider import ALL
from gpuwatch.clouds.sightings import Sightings
from gpuwatch.clouds.silence import Outlook, Recall, as_last_seen
from gpuwatch.clouds.without_groups import NO_GROUPS, WithoutGroups
from gpuwatch.model.decision import DECISION_TAG
from gpuwatch.model.fleet import Node, NodeGroup, NodeState
from gpuwatch.model.stops import StopAnswer
from gpuwatch.runtime.clock import Clock

_NO_SUCH = "NoSuchMachine"  # our own codes
_MOST_LOOKS = 20  # at machines that a list leaves out, in one round


@dataclass(frozen=True, slots=True)
class Place:
    """A region, or None: all that the driver shows."""

    region: str | None

    @property
    def name(self) -> str:
        """The region, for messages."""
        return self.region or "all regions"

    def holds(self, thing: Node | NodeGroup) -> bool:
        """Whether it is of this region."""
        return self.region in {None, thing.region}


class DriverCloud(WithoutGroups):
    """The machines that a driver shows; it has no groups."""

    whose = "drivers"

    def __init__(
        self,
        *,
        fleet: str,
        clock: Clock,
        driver: DriverSettings,
        regions: Sequence[str] = (),
        endpoint_url: str | None = None,
    ) -> None:
        """Nothing is run yet.

        Raises:
            CloudError: the executable is not fit to be run.

        """
        self._fleet, self._clock = fleet, clock
        self.line = Line(driver, fleet=fleet, clock=clock, endpoint_url=endpoint_url)
        named = dict.fromkeys(regions)
        self._all = [Place(None)] if not named or ALL in named else [Place(region) for region in named]
        self._views: Views[Place] = Views(clock, cloud=f"The driver {self.line.path.name}")
        self._sightings = Sightings(clock)
        self._homes: dict[str, Place] = {}
        self._last: dict[str, Node] = {}  # as they were shown without doubt

    # Reading.

    def nodes(self) -> Sequence[Node]:
        """All GPU machines that exist; of a silent region as last seen."""
        listed: dict[str, Node] = {}
        for place, nodes in self._views.nodes(self._all, self._nodes):
            for node in nodes:
                listed[node.id] = node
                self._homes[node.id] = place
        self._homes = {each: home for each, home in self._homes.items() if each in listed}
        self._last = {each: node for each, node in self._last.items() if each in listed}
        return tuple(listed[each] for each in sorted(listed))

    def _nodes(self, place: Place) -> list[Node]:
        found, account = self._list(place)
        shown = {each["id"]: self._node(each, place, account) for each in found}
        for node_id in [each for each, times in Counter(each["id"] for each in found).items() if times > 1]:
            shown[node_id] = self._in_doubt(shown[node_id], "the driver's list has it more than once")
        answered = set(shown)
        for node_id in self._views.left_out(place, shown)[:_MOST_LOOKS]:
            looked = attempt(lambda node_id=node_id: self._get(place, node_id))  # type: ignore[misc]
            if not isinstance(looked, CloudError):
                answered.add(node_id)
            if isinstance(looked, Node):
                shown[node_id] = looked
        there = [each for each in shown.values() if each.state is not NodeState.TERMINATED and each.gpu_count != 0]
        return self._views.keep(place, there, answered)

    def _list(self, place: Place) -> tuple[list[Mapping[str, Any]], str | None]:
        """The machines of a place in the driver's words, and their account."""
        answer = self.line.ask("list", place.region)
        return answer["machines"], answer.get("account")

    def _node(self, machine: Mapping[str, Any], place: Place, account: str | None) -> Node:
        """A machine as the driver shows it now; in doubt as last seen, in an unknown state."""
        node = node_of(machine, region=place.region, account=account, fleet=self._fleet, now=self._clock.now())
        if doubt_of(machine, place.region) is not None:
            return self._in_doubt(node, node.unseen or "")
        not_offered = f"its driver {self.line.path.name} does not offer"
        if node.cannot_stop is None and not self.line.offers("stop"):
            node = replace(node, cannot_stop=f"{not_offered} stop")
        if node.cannot_terminate is None and not self.line.offers("terminate"):
            node = replace(node, cannot_terminate=f"{not_offered} terminate")
        if node.launched_at is None:
            node = self._sightings.with_sight(node)
        self._last[node.id] = node
        return node

    def _in_doubt(self, node: Node, why: str) -> Node:
        return as_last_seen(self._last.get(node.id, node), why)

    def node(self, node_id: str) -> Node | None:
        """One machine as the driver shows it now; None: the cloud says that it has ended."""
        return self._find_machine(node_id)[1]

    def _find_machine(self, node_id: str) -> tuple[Place, Node | None]:
        """The machine and its place; raises NotFoundError where no place has it."""
        home = self._homes.get(node_id)
        places = self._all if home is None else [home]
        for place in places:
            try:
                found = self._get(place, node_id)
            except NotFoundError:
                if len(places) == 1:
                    raise
                continue
            if found is None and len(places) > 1:
                continue  # what has ended in one region may run in another
            self._homes[node_id] = place
            return place, found
        raise NotFoundError(f"the driver knows no machine {node_id} in {len(places)} regions", code=_NO_SUCH)

    def _get(self, place: Place, node_id: str) -> Node | None:
        answer = self.line.ask("get", place.region, id=node_id)
        return None if "machine" not in answer else self._node(answer["machine"], place, answer.get("account"))

    def lacks(self, node: Node) -> bool:
        """Whether a whole list of its region is without it."""
        place = next((each for each in self._all if each.holds(node)), None)
        if place is None:
            raise NotFoundError(f"{node.region} is not among cloud.regions", code=_NO_SUCH)
        found, account = self._list(place)
        if account != node.account:
            raise NotFoundError(f"the driver shows the account {account} now, not {node.account}", code=_NO_SUCH)
        ended = NodeState.TERMINATED
        return all(each["id"] != node.id or each.get("state") == ended for each in found)

    def find(self, key: str, arguments: Mapping[str, str] | None = None) -> Node | None:
        """The machine launched with that key, by what the driver's cloud knows of the launch."""
        named = (arguments or {}).get("region")
        answers = everywhere(self._all, lambda place: attempt(lambda: self._find_launch(place, key)))
        for place, found in zip(self._all, answers, strict=True):
            if isinstance(found, Node):
                self._homes[found.id] = place
                return found
        for place, found in zip(self._all, answers, strict=True):
            if isinstance(found, CloudError) and (not named or place.region in {None, named}):
                raise found
        return None

    def _find_launch(self, place: Place, key: str) -> Node | None:
        answer = self.line.ask("find", place.region, key=key)
        return None if "machine" not in answer else self._node(answer["machine"], place, answer.get("account"))

    def leftovers(self) -> Sequence[Leftover]:
        """Refuse: drivers do not show them, and an empty list would say that there is nothing."""
        raise CloudError(f"drivers do not show what is left over, so {self.line.path.name} does not", code=NOT_OFFERED)

    # Regions that give no answer.

    def recall(self, past: Recall) -> None:
        """Ask this for what a region had that has shown nothing yet."""
        self._views.recall(past)

    def outlook(self) -> Outlook:
        """What the newest list rests on."""
        return self._views.outlook()

    # Acting.

    def stop(self, node_id: str, key: str, *, permit: Permit) -> StopAnswer:
        """Ask for a stop, where the machine does not stop or end already."""
        place, before = self._find_machine(node_id)
        if before is None or before.state in STOP_IS_DONE:
            return StopAnswer(ran=False)
        answer = self._change("stop", place, node_id, key, permit)
        ran = answer.get("ran", before.state is NodeState.RUNNING)
        return StopAnswer(ran=ran, request=answer.get("request") if ran else None)

    def start(self, node_id: str, key: str) -> None:
        """Ask for a start, where the machine does not start or run already."""
        place, before = self._find_machine(node_id)
        if before is None:
            raise CloudError(f"{node_id} has ended: it cannot be started", code=_NO_SUCH)
        if before.state not in START_IS_DONE:
            self._change("start", place, node_id, key, permit_in_force())

    def terminate(self, node_id: str, key: str, *, permit: Permit, group: str | None = None) -> None:
        """Ask for the end of one machine, where it does not end already."""
        if group is not None:
            raise CloudError(f"{node_id}: drivers have no groups", code=NO_GROUPS)
        place, before = self._find_machine(node_id)
        if before is not None and before.state not in TERMINATE_IS_DONE:
            self._change("terminate", place, node_id, key, permit)

    def tag(self, node_id: str, tags: Mapping[str, str], key: str) -> None:
        """Set tags of the allow-list."""
        refuse_foreign_tags(tags)
        place, before = self._find_machine(node_id)
        if before is None:
            raise NotFoundError(f"{node_id} has ended: it takes no tags", code=_NO_SUCH)
        self._change("tag", place, node_id, key, permit_in_force(), tags=dict(tags))

    def _change(
        self, call: str, place: Place, node_id: str, key: str, permit: Permit | None, **more: object
    ) -> Mapping[str, Any]:
        return self.line.ask(call, place.region, permit=permit, id=node_id, key=key, **more)

    def launch(self, arguments: Mapping[str, str], key: str) -> str:
        """Ask for one machine, where none was launched with this key."""
        named = arguments.get("region")
        place = next((each for each in self._all if not named or each.region in {None, named}), None)
        if place is None:
            raise NotFoundError(f"{named} is not among cloud.regions", code=_NO_SUCH)
        there = self._find_launch(place, key)
        if there is None:
            tags = {FLEET_TAG: self._fleet, POOL_TAG: arguments["pool"], DECISION_TAG: key}
            answer = self.line.ask(
                "launch", place.region or named, permit=permit_in_force(), arguments=dict(arguments), tags=tags, key=key
            )
            self._homes[answer["id"]] = place
            return str(answer["id"])
        self._homes[there.id] = place
        return there.id

    # For the doctor and for people.

    def prices(self, types: Sequence[str], region: str | None) -> Sequence[Mapping[str, Any]] | None:
        """What the driver says of prices; None: it does not offer them."""
        if not self.line.offers("prices"):
            return None
        found: Sequence[Mapping[str, Any]] = self.line.ask("prices", region, types=list(types))["prices"]
        return found


__all__ = ["NOT_OFFERED", "DriverCloud", "Place"]
