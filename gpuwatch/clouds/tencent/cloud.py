"""CVM and its Auto Scaling groups, in several accounts and regions."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from gpuwatch.clouds import NotFoundError
from gpuwatch.clouds.permissions import Needs, Permission, Quota
from gpuwatch.clouds.permit import Permit
from gpuwatch.clouds.provider import AccountSettings
from gpuwatch.clouds.regions import RegionCloud
from gpuwatch.clouds.tencent import actions, instances, launches, standing, survey
from gpuwatch.clouds.tencent import groups as scaling
from gpuwatch.clouds.tencent.client import TIMEOUTS
from gpuwatch.clouds.tencent.groups import Group, attempts
from gpuwatch.clouds.tencent.instances import UNKNOWN_ID, Instance, Translator
from gpuwatch.clouds.tencent.places import Region, Regions
from gpuwatch.clouds.tencent.seen import History
from gpuwatch.clouds.tencent.settings import check_tag_value
from gpuwatch.model.fleet import Node, NodeGroup, NodeState
from gpuwatch.model.stops import StopAnswer
from gpuwatch.runtime.clock import Clock


class TencentCloud(RegionCloud[Region, Instance, Group]):
    """The GPU machines and groups of some accounts and regions."""

    SERVICE = "Tencent Cloud"
    NO_SUCH = UNKNOWN_ID
    NO_GROUP = "GroupNotFound"
    acts, own, looks = actions, standing, survey
    monitor = survey.MONITOR
    _places: Regions

    def __init__(
        self,
        *,
        fleet: str,
        clock: Clock,
        regions: Sequence[str] = (),
        accounts: Mapping[str, AccountSettings] | None = None,
        key_file: str | None = None,
        endpoint_url: str | None = None,
        timeouts: tuple[float, float] = TIMEOUTS,
    ) -> None:
        """Nothing is sent yet. `timeouts`: seconds to connect, and to wait for an answer.

        Raises:
            CloudError: there is no region, or no tag can have the fleet's name for its value.

        """
        check_tag_value("fleet", fleet)
        super().__init__(fleet=fleet, clock=clock)
        self._translator = Translator(fleet=fleet, clock=clock)
        self._history = History(clock)
        self._places = Regions(
            regions=regions,
            accounts=accounts or {},
            key_file=key_file,
            clock=clock,
            endpoint_url=endpoint_url,
            timeouts=timeouts,
        )

    def node(self, node_id: str) -> Node:
        """One machine as CVM shows it now, and terminated where it was ending and is shown no more."""
        try:
            place, instance = self._find_machine(node_id)
        except NotFoundError:
            ended = self._history.ended_machine(node_id)
            if ended is None:
                raise
            return ended
        return self._node_of(place, instance)

    # Acting. The keys are for launches alone: the other calls take no token, and asking twice changes nothing more.

    def stop(self, node_id: str, key: str, *, permit: Permit) -> StopAnswer:
        """Ask for a stop that also stops charging."""
        del key
        return actions.stop(self._home(node_id), node_id, permit, self._history)

    def start(self, node_id: str, key: str) -> None:
        """Ask for a start."""
        del key
        actions.start(self._home(node_id), node_id, self._history)

    def terminate(self, node_id: str, key: str, *, permit: Permit, group: str | None = None) -> None:
        """Ask for the end of a machine; with a group, of its place there too."""
        del key
        home = self._home(node_id)
        place = home if group is None else self._home_of_group(group)
        with self._history.ending(node_id):
            if group is None:
                actions.terminate(place, node_id, permit, self._history)
            else:
                actions.terminate_member(place, node_id, group, permit, self._history, fleet=self._fleet)

    def launch(self, arguments: Mapping[str, str], key: str) -> str:
        """Ask for one machine, in the account and region that the arguments name."""
        place = self._place_for(arguments)
        node_id = launches.launch(place, arguments, key, fleet=self._fleet, types=self._translator.types)
        self._homes[node_id] = place
        return node_id

    # Our own standing, and what people look at.

    def _may_act(self, place: Region, needs: Needs) -> Iterator[Permission]:
        yield standing.may_act(place, needs)

    def _may_launch(self, arguments: Mapping[str, str]) -> Iterator[Permission]:
        yield standing.may_launch(self._place_for(arguments), arguments, fleet=self._fleet)

    def _quotas(self, place: Region) -> Iterable[Quota]:
        return standing.quotas(place)

    def _apart(self) -> Callable[[Region], Iterable[Node]]:
        # What other regions say of types stays there.
        return survey.machines_of(Translator(fleet=self._fleet, clock=self._clock, asks_tke=False))

    # Within one place.

    def _nodes(self, place: Region) -> list[Node]:
        """The place's GPU machines. What was there before and is not listed is asked for once more by its id."""
        found = instances.list_instances(place.reading)
        missing = self._views.left_out(place, [instance.id for instance in found])
        found += instances.by_ids(place.reading, missing)
        alive = [each for each in found if each.state is not NodeState.TERMINATED]
        members = scaling.members(place) if alive else {}
        grouped = any(each.id in members for each in alive)
        groups = {group.id: group for group in scaling.every_group(place, members)} if grouped else {}
        nodes = [self._history.with_start_time(node) for node in self._translator.nodes(place, alive, members, groups)]
        gone = [node_id for node_id in missing if self._history.ended_machine(node_id) is not None]
        return self._views.keep(place, nodes, [*(instance.id for instance in found), *gone])

    def _remember(self, listed: Mapping[str, Node]) -> None:
        """Keep what ended a short time ago, too, and where it was."""
        self._history.keep(listed)
        homes = self._homes.items()
        self._homes = {each: home for each, home in homes if each in listed or self._history.last(each)}

    def _ids(self, place: Region) -> set[str]:
        return {each.id for each in instances.list_instances(place.reading)}

    def _describe_machine(self, place: Region, node_id: str) -> Instance:
        return instances.describe_instance(place.reading, node_id)

    def _find_launched(self, place: Region, key: str) -> Node | None:
        """By its name, which is the key."""
        for instance in instances.list_instances(place.reading, Filters=[{"Name": "instance-name", "Values": [key]}]):
            if instance.described.get("InstanceName") == key:  # the filter also finds longer names
                return self._node_of(place, instance)
        return None

    def _ended_launch(self, key: str) -> Node | None:
        return self._history.ended_by_name(key)

    def _node_of(self, place: Region, instance: Instance) -> Node:
        """One machine, with its group."""
        member = scaling.member(place.reading, instance.id)
        group = None if member is None else scaling.one_group(place.reading, member.group_id)
        return self._history.with_start_time(self._translator.node(place, instance, member, group))

    def _no_gpu(self, arguments: Mapping[str, str]) -> str | None:
        place = self._place_for(arguments)
        template = launches.template_of(place.reading, arguments)
        return launches.unfit(place, template, arguments, self._translator.types)

    def _home(self, node_id: str) -> Region:
        """The place of an id. A machine that this process has not seen is looked at: else nobody could tell its end."""
        if self._history.last(node_id) is None:
            try:
                self._node_of(*self._find_machine(node_id))
            except NotFoundError:
                if node_id not in self._homes:  # a launched one may not be listed yet
                    raise
        return self._homes[node_id]

    # Its groups.

    def _listed_groups(self, place: Region) -> list[Group]:
        return scaling.every_group(place, scaling.members(place))

    def _known_group(self, place: Region, group_id: str) -> Group:
        return scaling.one_group(place.reading, group_id)

    def _has_gpus(self, place: Region, group: Group) -> bool:
        return self._translator.types.has_gpus(place, group.types)

    def _group_in_our_words(self, place: Region, group: Group) -> NodeGroup:
        now = self._clock.now()
        told = group.as_node_group(place, fleet=self._fleet, now=now)
        return self._refusals.with_refusal(told, place.name, lambda: attempts(place, group.id, now))
