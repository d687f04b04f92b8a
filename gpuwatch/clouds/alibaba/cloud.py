"""Alibaba Cloud's ECS and its scaling groups, in several accounts and regions."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from gpuwatch.clouds import (
    NO_GPU,
    START_IS_DONE,
    STOP_IS_DONE,
    TERMINATE_IS_DONE,
    CloudError,
    CloudUnavailableError,
    Leftover,
    NotFoundError,
    refuse_foreign_tags,
)
from gpuwatch.clouds.alibaba import actions, credentials, instances, standing, survey
from gpuwatch.clouds.alibaba import groups as scaling
from gpuwatch.clouds.alibaba.client import Client
from gpuwatch.clouds.alibaba.errors import INCORRECT_STATE, NO_INSTANCE
from gpuwatch.clouds.alibaba.group_activities import attempts
from gpuwatch.clouds.alibaba.groups import Group
from gpuwatch.clouds.alibaba.instances import Instance, Translator
from gpuwatch.clouds.alibaba.machine_types import MachineTypes
from gpuwatch.clouds.alibaba.places import Region, Regions
from gpuwatch.clouds.alibaba.seen import End, Seen
from gpuwatch.clouds.alibaba.settings import AccountSettings
from gpuwatch.clouds.alibaba.wire import Wire
from gpuwatch.clouds.disks import by_id, in_use
from gpuwatch.clouds.group_refusals import Refusals
from gpuwatch.clouds.keys import Credentials
from gpuwatch.clouds.permissions import Identity, Needs, Permission, Quota
from gpuwatch.clouds.permit import Permit
from gpuwatch.clouds.places import Views, WithViews, attempt, everywhere, gathered
from gpuwatch.clouds.survey import CloudUse, Surveyed, elsewhere, every_place, use_by_place
from gpuwatch.model.fleet import Node, NodeGroup, NodeState
from gpuwatch.runtime.clock import Clock

_ENDS_A_ROUND = 50  # machines that a list leaves out and that are asked about one by one


class AlibabaCloud(WithViews[Region]):
    """The GPU machines and scaling groups of some accounts and regions. Credentials: the SDK's own chain."""

    def __init__(  # noqa: PLR0913  the settings of a cloud are many
        self,
        *,
        fleet: str,
        clock: Clock,
        regions: Sequence[str] = (),
        accounts: Mapping[str, AccountSettings] | None = None,
        profile: str | None = None,
        endpoint_url: str | None = None,
        provider: Any = None,  # noqa: ANN401  the SDK has no types
        page_size: int = instances.PAGE_SIZE,
        wire: Wire | None = None,
    ) -> None:
        """Nothing is sent yet. `provider` gives the credentials in place of the SDK's chain.

        Raises:
            CloudError: there is no region.

        """
        self._fleet, self._clock, self._page_size = fleet, clock, page_size
        self._translator, self._types = Translator(fleet=fleet), MachineTypes()
        self._seen = Seen(clock)
        self._refusals = Refusals(clock)
        self._views: Views[Region] = Views(clock, cloud="ECS")
        self._group_homes: dict[str, Region] = {}
        self._places = Regions(
            provider=credentials.of_chain(profile) if provider is None else provider,
            regions=regions,
            accounts=accounts or {},
            clock=clock,
            wire=wire or Wire(),
            endpoint_url=endpoint_url,
        )

    # Reading.

    def nodes(self) -> Sequence[Node]:
        """All GPU machines, in every account and region; of a silent one as last seen."""
        self._seen.forget()
        found: dict[str, Node] = {}
        for place, nodes in self._views.nodes(self._places.all, self._nodes):
            for node in nodes:
                found[node.id] = node
                if node.state is not NodeState.UNKNOWN:
                    self._seen.note(place, node)
        return tuple(found[node_id] for node_id in sorted(found))

    def node(self, node_id: str) -> Node:
        """One machine as ECS sees it now; one that we saw and that ECS denies twice is gone."""
        place = self._seen.home(node_id)
        for each in [place] if place is not None else self._places.all:
            found = self._node(each, each.reading, node_id)
            if found is not None:
                return found
        raise NotFoundError(f"ECS knows no instance {node_id} in {self._places}", code=NO_INSTANCE)

    def lacks(self, node: Node) -> bool:
        """Whether a whole list of its region and account is without it."""
        place = self._places.at(node.region, node.account)
        return node.id not in {each["InstanceId"] for each in instances.listed(place, {}, size=self._page_size)}

    def find(self, key: str) -> Node | None:
        """The machine launched with that key, by the name that the launch gave it."""
        answers = everywhere(self._places.all, lambda place: attempt(lambda: self._launched(place, key)))
        for found in answers:
            if isinstance(found, Node):
                return found
        for found in answers:
            if isinstance(found, CloudError):
                raise found
        node_id = self._seen.of_key(key)
        try:
            return None if node_id is None else self.node(node_id)
        except NotFoundError:
            return None  # not yet

    def groups(self) -> Sequence[NodeGroup]:
        """The scaling groups of this fleet, and all others that have GPU machines."""
        found = [group for _, groups in self._views.groups(self._places.all, self._groups) for group in groups]
        return tuple(sorted(found, key=lambda group: group.id))

    def group(self, group_id: str) -> NodeGroup:
        """One group as it is now."""
        place = self._home_of_group(group_id)
        return self._told(place, scaling.known(place, place.reading, group_id))

    def leftovers(self) -> Sequence[Leftover]:
        """Disks, addresses, snapshots and images that no running machine uses, in every account and region."""
        stopped = frozenset(node.id for node in self.nodes() if node.state is NodeState.STOPPED)
        now = self._clock.now()
        found = gathered(
            self._places.all, lambda place: [*survey.unused(place, stopped), *survey.old_images(place, now)]
        )
        return by_id(found)

    def disks(self) -> Sequence[Leftover]:
        """Disks of machines in use, in every account and region."""
        running = in_use(self.nodes())
        return by_id(gathered(self._places.all, lambda place: survey.disks_in_use(place, running)))

    # Acting.

    def stop(self, node_id: str, key: str, *, permit: Permit) -> None:
        """Ask for a stop that ends the bill."""
        del key
        place = self._home(node_id)
        try:
            actions.stop(place, node_id, permit)
        except CloudUnavailableError:
            self._seen.stops(node_id)
            raise
        except CloudError as error:
            self._unless(STOP_IS_DONE, place, node_id, error)
        self._seen.stops(node_id)

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
        if self._seen.home(node_id) is None:
            with suppress(CloudError):  # it is looked at once, since nothing will be shown of it after its end
                self._node(place, place.acting, node_id)
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
        place = self._places.at(arguments.get("region") or None, arguments.get("account") or None)
        request = actions.launch_request(place, arguments, key, _version(place, arguments), fleet=self._fleet)
        why = self._no_gpu(place, arguments)
        if why is not None:
            raise CloudError(why, code=NO_GPU)
        node_id = actions.launch(place, request)
        self._seen.launched(key, node_id)
        return node_id

    def grow(self, group_id: str, size: int, key: str) -> None:
        """Raise a group's desired size."""
        actions.grow(self._home_of_group(group_id), group_id, size, key=key, fleet=self._fleet)

    def shrink(self, group_id: str, size: int, key: str) -> None:
        """Take back what a group lacks."""
        actions.shrink(self._home_of_group(group_id), group_id, size, key=key, fleet=self._fleet)

    def protect(self, node_id: str, group_id: str, key: str, *, on: bool) -> None:
        """Set a member's protection against its group's own scale-in, or lift it."""
        del key
        actions.protect(self._home_of_group(group_id), node_id, group_id, on=on, fleet=self._fleet)

    def tag(self, node_id: str, tags: Mapping[str, str], key: str) -> None:
        """Set tags of the allow-list."""
        del key
        refuse_foreign_tags(tags)
        actions.tag(self._home(node_id), node_id, tags)

    # Our own standing; nothing is carried out.

    def may(self, needs: Needs) -> Iterator[Permission]:
        """By DryRun, in every account and region."""
        for place in self._places.all:
            yield from standing.may_read(place)
            if needs.act:
                tried = next((name for name in needs.node_ids if self._seen.home(name) is place), None)
                yield from standing.may_act(place, tried, terminate=needs.terminate)
                yield from standing.may_change_groups(place) if needs.groups else ()
        for arguments in needs.launches:
            place = self._places.at(arguments.get("region") or None, arguments.get("account") or None)
            yield standing.may_launch(place, arguments, _version(place, arguments), fleet=self._fleet)

    def unfit(self, launches: Sequence[Mapping[str, str]]) -> Iterator[str]:
        """Why templates do not fit: their machine type has no GPU of NVIDIA."""
        for arguments in launches:
            place = self._places.at(arguments.get("region") or None, arguments.get("account") or None)
            why = self._no_gpu(place, arguments)
            if why is not None:
                yield why

    def identity(self) -> Identity:
        """In the first place."""
        return standing.identity(self._places.all[0])

    def unencrypted(self, node_ids: Sequence[str]) -> Sequence[str]:
        """Disks of these machines, in every account and region."""
        wanted = frozenset(node_ids)
        return tuple(gathered(self._places.all, lambda place: survey.unencrypted(place, wanted)))

    def credentials(self) -> Credentials:
        """Those that we were given."""
        return standing.credentials(self._places.entrance)

    def quotas(self) -> Sequence[Quota]:
        """The vCPUs that the account may have in each region."""
        found = gathered(self._places.all, standing.quotas)
        return tuple(sorted(found, key=lambda each: (each.region, each.name)))

    def elsewhere(self) -> Sequence[Surveyed]:
        """GPU machines in regions that the settings do not name."""
        return elsewhere(self._places, survey.machines_of(self._translator, self._clock.now()))

    # For people who look for forgotten machines.

    def survey(self) -> Sequence[Surveyed]:
        """GPU machines in every region of each account, those of the settings first."""
        return every_place(self._places, survey.machines_of(self._translator, self._clock.now()))

    @property
    def monitor(self) -> str:
        """CloudMonitor."""
        return survey.MONITOR

    def use_of(self, nodes: Sequence[Node], seconds: float) -> Mapping[str, CloudUse]:
        """In the region and the account of each."""
        return use_by_place(self._places, nodes, survey.use_in, self._clock.now(), seconds)

    # Within one place.

    def _nodes(self, place: Region) -> list[Node]:
        """The place's GPU machines. What was there before and is not listed is asked for by its id, and once more."""
        found = instances.listed(place, {}, size=self._page_size)
        missing = self._views.left_out(place, [each["InstanceId"] for each in found])
        found += instances.of_ids(place, place.reading, missing)
        there = {each["InstanceId"] for each in found}
        ended = [name for name in missing if name not in there][:_ENDS_A_ROUND]
        groups = {name: group for group in scaling.listed(place) for name in group.members}
        shown = [self._instance(each) for each in found]
        nodes = self._translator.nodes(place, shown, groups, self._clock.now())
        gone = [name for name in ended if instances.denied(place.reading, name)]
        return self._views.keep(place, nodes, [*there, *gone])

    def _groups(self, place: Region) -> list[NodeGroup]:
        shown = []
        for group in scaling.listed(place):
            self._group_homes[group.id] = place
            told = self._told(place, group)
            if group.enrolled(self._fleet) or self._has_gpus(place, group, told):
                shown.append(told)
        return self._views.keep_groups(place, shown)

    def _has_gpus(self, place: Region, group: Group, told: NodeGroup) -> bool:
        types = [told.instance_type] if told.instance_type else scaling.types_of(place, group)
        return self._types.has_gpus(place, types)

    def _told(self, place: Region, group: Group) -> NodeGroup:
        """A group with its members' types and zones, or what it would launch, and with why it lacks members."""
        members = instances.of_ids(place, place.reading, sorted(group.members))
        types = {each["InstanceType"] for each in members} or scaling.types_of(place, group)
        zones = {each["ZoneId"] for each in members}
        told = group.as_node_group(place, fleet=self._fleet, now=self._clock.now(), types=types, zones=zones)
        return self._refusals.added(told, place.name, lambda: attempts(place, group.id))

    def _launched(self, place: Region, key: str) -> Node | None:
        name = actions.name_of(key)
        found = instances.listed(place, {"InstanceName": name}, size=self._page_size)
        named = [each for each in found if each.get("InstanceName") == name]
        if not named:
            return None
        self._seen.launched(key, named[0]["InstanceId"])
        return self._node_of(place, place.reading, named[0])

    def _node(self, place: Region, line: Client, node_id: str) -> Node | None:
        """A machine of the place; None: the place does not know it, and we have never seen it there."""
        found = instances.of_ids(place, line, [node_id])
        if found:
            return self._node_of(place, line, found[0])
        last = self._seen.gone(node_id)
        return last if last is not None and instances.denied(line, node_id) else None

    def _node_of(self, place: Region, line: Client, described: Mapping[str, Any]) -> Node:
        instance = self._instance(described)
        group = scaling.group_of(place, line, instance.id)
        return self._seen.note(place, self._translator.node(place, instance, group, self._clock.now()))

    def _instance(self, described: Mapping[str, Any]) -> Instance:
        return Instance(described=described, ending=self._seen.ending(described))

    def _no_gpu(self, place: Region, arguments: Mapping[str, str]) -> str | None:
        """Why a launch would bring no node; None also where nobody can tell before it."""
        template = arguments["template"]
        try:
            name = arguments.get("instance_type") or scaling.template_type(place, template, _asked(arguments))
            gpus = None if name is None else self._types.gpus(place, name)
        except CloudError:
            return None
        if gpus is None or (gpus[0] > 0 and gpus[1]):
            return None
        return f"the launch template {template} makes a machine of type {name}, which has no GPU of NVIDIA"

    def _unless(self, done: frozenset[NodeState], place: Region, node_id: str, error: CloudError) -> None:
        """Take "incorrect state" and "no such machine" for success where it is where it should go, or on its way."""
        if not error.code.startswith(INCORRECT_STATE) and not isinstance(error, NotFoundError):
            raise error
        found = self._node(place, place.acting, node_id)
        if found is None or done.isdisjoint({found.state, found.last_shown}):
            raise error

    # Which place.

    def _home(self, node_id: str) -> Region:
        """The place of an id; costs a call only where there are several and none has shown it yet."""
        place = self._seen.home(node_id)
        if place is not None:
            return place
        places = self._places.all
        if len(places) == 1:
            return places[0]
        self.node(node_id)
        return self._seen.home(node_id) or places[0]

    def _home_of_group(self, group_id: str) -> Region:
        """The place that has shown a group; the others are asked."""
        if group_id not in self._group_homes:
            for place in self._places.all:
                try:
                    scaling.known(place, place.reading, group_id)
                except NotFoundError:
                    continue
                self._group_homes[group_id] = place
                break
            else:
                raise NotFoundError(f"there is no scaling group {group_id} in {self._places}", code=scaling.NO_GROUP)
        return self._group_homes[group_id]


def _asked(arguments: Mapping[str, str]) -> str | None:
    """The version of the template that the arguments name, without the $ of other clouds; None: the default."""
    return (arguments.get("version") or "").removeprefix("$") or None


def _version(place: Region, arguments: Mapping[str, str]) -> str | None:
    """The number of that version, as RunInstances takes it; None: the template's default."""
    asked = _asked(arguments)
    if asked in (None, "Default"):
        return None
    return scaling.newest_version(place, arguments["template"]) if asked == "Latest" else asked
