"""Alibaba Cloud's ECS and its scaling groups, in several accounts and regions."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from gpuwatch.clouds import (
    NO_GPU,
    START_IS_DONE,
    STOP_IS_DONE,
    TERMINATE_IS_DONE,
    CloudError,
    CloudUnavailableError,
    NotFoundError,
)
from gpuwatch.clouds.alibaba import actions, client, instances, standing, survey
from gpuwatch.clouds.alibaba import groups as scaling
from gpuwatch.clouds.alibaba.client import Client, Wire
from gpuwatch.clouds.alibaba.errors import INCORRECT_STATE, NO_INSTANCE
from gpuwatch.clouds.alibaba.groups import Group, attempts
from gpuwatch.clouds.alibaba.instances import Instance, MachineTypes, Translator
from gpuwatch.clouds.alibaba.places import Region, Regions
from gpuwatch.clouds.alibaba.seen import End, Seen
from gpuwatch.clouds.permissions import Needs, Permission, Quota
from gpuwatch.clouds.permit import Permit
from gpuwatch.clouds.provider import AccountSettings
from gpuwatch.clouds.regions import RegionCloud
from gpuwatch.model.fleet import Node, NodeGroup, NodeState
from gpuwatch.model.stops import StopAnswer
from gpuwatch.runtime.clock import Clock

_ENDS_A_ROUND = 50  # machines that a list leaves out and that are asked about one by one


class AlibabaCloud(RegionCloud[Region, Node, Group]):
    """The GPU machines and scaling groups of some accounts and regions. Credentials: the SDK's own chain."""

    SERVICE = "ECS"
    NO_SUCH = NO_INSTANCE
    NO_GROUP = scaling.NO_GROUP
    acts, own, looks = actions, standing, survey
    monitor = survey.MONITOR
    _places: Regions

    def __init__(  # noqa: PLR0913  the settings of a cloud are many
        self,
        *,
        fleet: str,
        clock: Clock,
        provider: Any = None,  # noqa: ANN401  the SDK has no types
        profile: str | None = None,
        accounts: Mapping[str, AccountSettings] | None = None,
        regions: Sequence[str] = (),
        page_size: int = instances.PAGE_SIZE,
        wire: Wire | None = None,
        endpoint_url: str | None = None,
    ) -> None:
        """Nothing is sent yet. `provider` gives the credentials in place of the SDK's chain.

        Raises:
            CloudError: there is no region.

        """
        super().__init__(fleet=fleet, clock=clock)
        self._page_size = page_size
        self._translator, self._types = Translator(fleet=fleet), MachineTypes()
        self._seen = Seen(clock)
        self._places = Regions(
            provider=client.of_chain(profile) if provider is None else provider,
            regions=regions,
            accounts=accounts or {},
            clock=clock,
            wire=wire or Wire(),
            endpoint_url=endpoint_url,
        )

    def node(self, node_id: str) -> Node:
        """One machine as ECS sees it now; one that we saw and that ECS denies twice is gone."""
        return self._find_machine(node_id)[1]

    # Acting.

    def stop(self, node_id: str, key: str, *, permit: Permit) -> StopAnswer:
        """Ask for a stop that ends the bill.

        ECS refuses it of a machine that does not run, and shows neither time nor cause of a stop: a stop that it
        accepted is known by that, and by the time of the last start, which a later stop would have to follow.
        """
        del key
        place, ran = self._home(node_id), True
        try:
            actions.stop(place, node_id, permit)
        except CloudUnavailableError:
            self._seen.stops(node_id)
            raise
        except CloudError as error:
            self._unless(STOP_IS_DONE, place, node_id, error)
            ran = False
        self._seen.stops(node_id)
        return StopAnswer(ran=ran)

    def start(self, node_id: str, key: str) -> None:
        """Ask for a start."""
        del key
        place = self._home(node_id)
        try:
            actions.start(place, node_id)
        except CloudError as error:
            self._unless(START_IS_DONE, place, node_id, error)

    def terminate(self, node_id: str, key: str, *, permit: Permit, group: str | None = None) -> None:
        """Ask for the end of a machine; with a group, of its place there too."""
        place = self._home(node_id) if group is None else self._home_of_group(group)
        now = self._clock.now()
        if not self._seen.has(node_id):
            with suppress(CloudError):  # it is looked at once, since nothing will be shown of it after its end
                self._node_at(place, place.acting, node_id)
        try:
            if group is None:
                actions.terminate(place, node_id, permit)
            else:
                actions.terminate_member(place, node_id, group, permit, key=key, fleet=self._fleet, now=now)
        except CloudUnavailableError:
            self._seen.ends(node_id, accepted=False)
            raise
        except CloudError as error:
            end = self._seen.end(node_id) if error.code.startswith(INCORRECT_STATE) else None
            if end is End.POSSIBLE:  # ECS may refuse it because of the stop, or because of the end
                raise CloudUnavailableError(f"{error}; whether it ends is not known", code=error.code) from None
            if end is None:
                self._unless(TERMINATE_IS_DONE, place, node_id, error)
        else:
            self._seen.ends(node_id, accepted=True)

    def launch(self, arguments: Mapping[str, str], key: str) -> str:
        """Ask for one machine, in the account and region that the arguments name."""
        place = self._place_for(arguments)
        request = actions.launch_request(place, arguments, key, _version(place, arguments), fleet=self._fleet)
        why = self._no_gpu(arguments)
        if why is not None:
            raise CloudError(why, code=NO_GPU)
        node_id = actions.launch(place, request)
        self._seen.note_launch(key, node_id)
        return node_id

    def _unless(self, done: frozenset[NodeState], place: Region, node_id: str, error: CloudError) -> None:
        """Take "incorrect state" and "no such machine" for success where it is where it should go, or on its way."""
        if not error.code.startswith(INCORRECT_STATE) and not isinstance(error, NotFoundError):
            raise error
        found = self._node_at(place, place.acting, node_id)
        if found is None or done.isdisjoint({found.state, found.last_shown}):
            raise error

    # Our own standing, and what people look at.

    def _may_act(self, place: Region, needs: Needs) -> Iterator[Permission]:
        yield from standing.may_act(place, self._machine_to_try(place, needs.node_ids), terminate=needs.terminate)
        yield from standing.may_change_groups(place) if needs.groups else ()

    def _may_beyond(self, place: Region, node_ids: Sequence[str]) -> Iterator[Permission]:
        tried = self._machine_to_try(place, node_ids)
        yield from () if tried is None else standing.may_change(place, tried)

    def _may_launch(self, arguments: Mapping[str, str]) -> Iterator[Permission]:
        place = self._place_for(arguments)
        yield standing.may_launch(place, arguments, _version(place, arguments), fleet=self._fleet)

    def _quotas(self, place: Region) -> Iterable[Quota]:
        return standing.quotas(place)

    def _apart(self) -> Callable[[Region], Iterable[Node]]:
        return survey.machines_of(self._translator, self._clock.now())

    # Within one place.

    def _nodes(self, place: Region) -> list[Node]:
        """The place's GPU machines. What was there before and is not listed is asked for by its id, and once more."""
        found = instances.list_instances(place, {}, size=self._page_size)
        missing = self._views.left_out(place, [each["InstanceId"] for each in found])
        found += instances.of_ids(place, place.reading, missing)
        there = {each["InstanceId"] for each in found}
        ended = [name for name in missing if name not in there][:_ENDS_A_ROUND]
        groups = {name: group for group in scaling.every_group(place) for name in group.members}
        shown = [self._instance(each) for each in found]
        nodes = self._translator.nodes(place, shown, groups, self._clock.now())
        gone = [name for name in ended if instances.is_denied(place.reading, name)]
        return self._views.keep(place, nodes, [*there, *gone])

    def _remember(self, listed: Mapping[str, Node]) -> None:
        """Keep what was seen for a day, and where it was."""
        self._seen.forget()
        for node in listed.values():
            if node.state is not NodeState.UNKNOWN:
                self._seen.note(node)
        homes = self._homes.items()
        self._homes = {each: home for each, home in homes if each in listed or self._seen.has(each)}

    def _ids(self, place: Region) -> set[str]:
        """Of the proof that a machine is gone: where there is nothing else either, the right is asked for again."""
        place.reading.empty.clear()
        return {each["InstanceId"] for each in instances.list_instances(place, {}, size=self._page_size)}

    def _describe_machine(self, place: Region, node_id: str) -> Node:
        found = self._node_at(place, place.reading, node_id)
        if found is None:
            raise NotFoundError(f"ECS knows no instance {node_id} in {place.name}", code=NO_INSTANCE)
        return found

    def _find_launched(self, place: Region, key: str) -> Node | None:
        """By the name that the launch gave it."""
        name = actions.name_of(key)
        found = instances.list_instances(place, {"InstanceName": name}, size=self._page_size)
        named = [each for each in found if each.get("InstanceName") == name]
        if not named:
            return None
        self._seen.note_launch(key, named[0]["InstanceId"])
        return self._node_of(place, place.reading, named[0])

    def _ended_launch(self, key: str) -> Node | None:
        node_id = self._seen.of_key(key)
        try:
            return None if node_id is None else self.node(node_id)
        except NotFoundError:
            return None  # not yet

    def _node_at(self, place: Region, line: Client, node_id: str) -> Node | None:
        """A machine of the place; None: the place does not know it, and we have never seen it there."""
        found = instances.of_ids(place, line, [node_id])
        if found:
            return self._node_of(place, line, found[0])
        last = self._seen.last_of_gone(node_id)
        return last if last is not None and instances.is_denied(line, node_id) else None

    def _node_of(self, place: Region, line: Client, described: Mapping[str, Any]) -> Node:
        instance = self._instance(described)
        group = scaling.group_of(place, line, instance.id)
        self._homes[instance.id] = place
        return self._seen.note(self._translator.node(place, instance, group, self._clock.now()))

    def _instance(self, described: Mapping[str, Any]) -> Instance:
        return Instance(described=described, ending=self._seen.ending(described))

    def _no_gpu(self, arguments: Mapping[str, str]) -> str | None:
        place = self._place_for(arguments)
        try:
            template = arguments["template"]
            name = arguments.get("instance_type") or scaling.template_type(place, template, _asked_version(arguments))
            gpus = None if name is None else self._types.gpus(place, name)
        except CloudError:
            return None
        if gpus is None or (gpus[0] > 0 and gpus[1]):
            return None
        return self._without_gpu(arguments, name)

    # Its groups.

    def _listed_groups(self, place: Region) -> list[Group]:
        return scaling.every_group(place)

    def _known_group(self, place: Region, group_id: str) -> Group:
        return scaling.one_group(place, place.reading, group_id)

    def _groups(self, place: Region) -> list[NodeGroup]:
        shown = []
        for group in self._listed_groups(place):
            told = self._group_in_our_words(place, group)
            types = [told.instance_type] if told.instance_type else scaling.types_of(place, group)
            if group.is_enrolled(self._fleet) or self._types.has_gpus(place, types):
                shown.append(told)
        return self._views.keep_groups(place, shown)

    def _has_gpus(self, place: Region, group: Group) -> bool:
        return self._types.has_gpus(place, scaling.types_of(place, group))

    def _group_in_our_words(self, place: Region, group: Group) -> NodeGroup:
        """A group with its members' types and zones, or what it would launch, and with why it lacks members."""
        members = instances.of_ids(place, place.reading, sorted(group.members))
        types = {each["InstanceType"] for each in members} or scaling.types_of(place, group)
        zones = {each["ZoneId"] for each in members}
        told = group.as_node_group(place, fleet=self._fleet, now=self._clock.now(), types=types, zones=zones)
        return self._refusals.with_refusal(told, place.name, lambda: attempts(place, group.id))


def _asked_version(arguments: Mapping[str, str]) -> str | None:
    """The version of the template that the arguments name, without the $ of other clouds; None: the default."""
    return (arguments.get("version") or "").removeprefix("$") or None


def _version(place: Region, arguments: Mapping[str, str]) -> str | None:
    """The number of that version, as RunInstances takes it; None: the template's default."""
    asked = _asked_version(arguments)
    if asked in (None, "Default"):
        return None
    return scaling.newest_version(place, arguments["template"]) if asked == "Latest" else asked
