"""CVM and its Auto Scaling groups, in several accounts and regions."""

from collections.abc import Iterator, Mapping, Sequence

from gpuwatch.clouds import CloudError, Leftover, NotFoundError
from gpuwatch.clouds import refuse_foreign_tags as refuse_foreign
from gpuwatch.clouds.disks import by_id, in_use
from gpuwatch.clouds.group_refusals import Refusals
from gpuwatch.clouds.keys import Credentials
from gpuwatch.clouds.permissions import Identity, Needs, Permission, Quota
from gpuwatch.clouds.permit import Permit
from gpuwatch.clouds.places import Views, WithViews, attempt, everywhere, gathered
from gpuwatch.clouds.survey import CloudUse, Surveyed, elsewhere, every_place, use_by_place
from gpuwatch.clouds.tencent import (
    actions,
    instances,
    launches,
    standing,
    survey,
)
from gpuwatch.clouds.tencent import groups as scaling
from gpuwatch.clouds.tencent.client import TIMEOUTS
from gpuwatch.clouds.tencent.group_activities import attempts
from gpuwatch.clouds.tencent.groups import Group
from gpuwatch.clouds.tencent.instances import UNKNOWN_ID, Instance, Translator
from gpuwatch.clouds.tencent.places import Place, Places
from gpuwatch.clouds.tencent.seen import History
from gpuwatch.clouds.tencent.settings import TencentAccountSettings
from gpuwatch.clouds.tencent.tag_limits import check_tag_value
from gpuwatch.model.fleet import Node, NodeGroup, NodeState
from gpuwatch.runtime.clock import Clock

_NO_GROUP = "GroupNotFound"


class TencentCloud(WithViews[Place]):
    """The GPU machines and groups of some accounts and regions."""

    def __init__(
        self,
        *,
        fleet: str,
        clock: Clock,
        regions: Sequence[str] = (),
        accounts: Mapping[str, TencentAccountSettings] | None = None,
        key_file: str | None = None,
        endpoint_url: str | None = None,
        timeouts: tuple[float, float] = TIMEOUTS,
    ) -> None:
        """Nothing is sent yet. `timeouts`: seconds to connect, and to wait for an answer.

        Raises:
            CloudError: there is no region, or no tag can have the fleet's name for its value.

        """
        check_tag_value("fleet", fleet)
        self._fleet, self._clock = fleet, clock
        self._translator = Translator(fleet=fleet, clock=clock)
        self._history = History(clock)
        self._refusals = Refusals(clock)
        self._views: Views[Place] = Views(clock, cloud="Tencent Cloud")
        self._homes: dict[str, Place] = {}  # by the id of a node
        self._group_homes: dict[str, Place] = {}
        self._places = Places(
            regions=regions,
            accounts=accounts or {},
            key_file=key_file,
            clock=clock,
            endpoint_url=endpoint_url,
            timeouts=timeouts,
        )

    # Reading.

    def nodes(self) -> Sequence[Node]:
        """All GPU machines that exist, in every account and region; of a silent one as last seen."""
        listed: dict[str, Node] = {}
        for place, nodes in self._views.nodes(self._places.all, self._nodes):
            for node in nodes:
                listed[node.id] = node
                self._homes[node.id] = place
        self._history.keep(listed)
        self._homes = {each: home for each, home in self._homes.items() if each in listed or self._history.last(each)}
        return tuple(listed[node_id] for node_id in sorted(listed))

    def node(self, node_id: str) -> Node:
        """One machine as CVM shows it now, and terminated where it was ending and is shown no more."""
        try:
            place, instance = self._look_for(node_id)
        except NotFoundError:
            ended = self._history.ended(node_id)
            if ended is None:
                raise
            return ended
        return self._node_of(place, instance)

    def lacks(self, node: Node) -> bool:
        """Whether a whole list of its region and account is without it."""
        place = self._places.at(node.region, node.account)
        return node.id not in {each.id for each in instances.listed(place.reading)}

    def find(self, key: str) -> Node | None:
        """The machine launched with that key, which is its name."""
        answers = everywhere(self._places.all, lambda place: attempt(lambda: self._launched(place, key)))
        for found in answers:
            if isinstance(found, Node):
                return found
        for found in answers:
            if isinstance(found, CloudError):
                raise found
        return self._history.ended_by_name(key)

    def groups(self) -> Sequence[NodeGroup]:
        """The Auto Scaling groups of this fleet, and all others that have GPU machines."""
        found: list[NodeGroup] = []
        for place, groups in self._views.groups(self._places.all, self._groups):
            self._group_homes |= {group.id: place for group in groups}
            found += groups
        return tuple(sorted(found, key=lambda group: group.id))

    def group(self, group_id: str) -> NodeGroup:
        """One group as it is now."""
        place = self._home_of_group(group_id)
        return self._told(place, scaling.known(place.reading, group_id))

    def leftovers(self) -> Sequence[Leftover]:
        """Disks, addresses and images that no running machine uses, in every account and region."""
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

    # Acting. The keys are for launches alone: the other calls take no token, and asking twice changes nothing more.

    def stop(self, node_id: str, key: str, *, permit: Permit) -> None:
        """Ask for a stop that also stops charging."""
        del key
        actions.stop(self._home(node_id), node_id, permit, self._history)

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
        place = self._places.at(arguments.get("region") or None, arguments.get("account") or None)
        node_id = launches.launch(place, arguments, key, fleet=self._fleet, types=self._translator.types)
        self._homes[node_id] = place
        return node_id

    def grow(self, group_id: str, size: int, key: str) -> None:
        """Raise a group's desired size."""
        del key
        actions.grow(self._home_of_group(group_id), group_id, size, fleet=self._fleet)

    def shrink(self, group_id: str, size: int, key: str) -> None:
        """Take back what a group lacks."""
        del key
        actions.shrink(self._home_of_group(group_id), group_id, size, fleet=self._fleet)

    def protect(self, node_id: str, group_id: str, key: str, *, on: bool) -> None:
        """Set a member's protection against its group's own scale-in, or lift it."""
        del key
        actions.protect(self._home_of_group(group_id), node_id, group_id, on=on, fleet=self._fleet)

    def tag(self, node_id: str, tags: Mapping[str, str], key: str) -> None:
        """Set tags of the allow-list."""
        del key
        refuse_foreign(tags)
        actions.tag(self._home(node_id), node_id, tags)

    # Our own standing; nothing is carried out.

    def may(self, needs: Needs) -> Iterator[Permission]:
        """By reading, and by RunInstances' DryRun, in every account and region."""
        for place in self._places.all:
            yield from standing.may_read(place)
            if needs.act:
                yield standing.may_act(place, needs)
        for arguments in needs.launches:
            place = self._places.at(arguments.get("region") or None, arguments.get("account") or None)
            yield standing.may_launch(place, arguments, fleet=self._fleet)

    def unfit(self, wanted: Sequence[Mapping[str, str]]) -> Iterator[str]:
        """Why templates do not fit: their machine type has no GPU of NVIDIA."""
        for arguments in wanted:
            place = self._places.at(arguments.get("region") or None, arguments.get("account") or None)
            template = launches.template_of(place.reading, arguments)
            why = launches.unfit(place, template, arguments, self._translator.types)
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
        """The account's limits in every region."""
        found = gathered(self._places.all, standing.quotas)
        return tuple(sorted(found, key=lambda each: (each.region, each.name)))

    def elsewhere(self) -> Sequence[Surveyed]:
        """GPU machines in regions of our accounts that the settings do not name; they are never acted on."""
        apart = Translator(fleet=self._fleet, clock=self._clock)  # what other regions say of types stays there
        return elsewhere(self._places, survey.machines_of(apart))

    # For people who look for forgotten machines.

    def survey(self) -> Sequence[Surveyed]:
        """GPU machines in every region of each account, those of the settings first."""
        return every_place(self._places, survey.machines_of(Translator(fleet=self._fleet, clock=self._clock)))

    @property
    def monitor(self) -> str:
        """Its name."""
        return survey.MONITOR

    def use_of(self, nodes: Sequence[Node], seconds: float) -> Mapping[str, CloudUse]:
        """In the region and the account of each."""
        return use_by_place(self._places, nodes, survey.use_in, self._clock.now(), seconds)

    # Within one place.

    def _nodes(self, place: Place) -> list[Node]:
        """The place's GPU machines. What was there before and is not listed is asked for once more by its id."""
        found = instances.listed(place.reading)
        missing = self._views.left_out(place, [instance.id for instance in found])
        found += instances.by_ids(place.reading, missing)
        alive = [each for each in found if each.state is not NodeState.TERMINATED]
        members = scaling.members(place) if alive else {}
        grouped = any(each.id in members for each in alive)
        groups = {group.id: group for group in scaling.listed(place, members)} if grouped else {}
        nodes = [self._history.seen(node) for node in self._translator.nodes(place, alive, members, groups)]
        gone = [node_id for node_id in missing if self._history.ended(node_id) is not None]
        return self._views.keep(place, nodes, [*(instance.id for instance in found), *gone])

    def _groups(self, place: Place) -> list[NodeGroup]:
        groups = scaling.listed(place, scaling.members(place))
        shown = [
            self._told(place, group)
            for group in groups
            if group.enrolled(self._fleet) or self._translator.types.has_gpus(place, group.types)
        ]
        return self._views.keep_groups(place, shown)

    def _told(self, place: Place, group: Group) -> NodeGroup:
        """A group in our words, with why it lacks members."""
        now = self._clock.now()
        told = group.as_node_group(place, fleet=self._fleet, now=now)
        return self._refusals.added(told, place.name, lambda: attempts(place, group.id, now))

    def _launched(self, place: Place, key: str) -> Node | None:
        named = instances.listed(place.reading, Filters=[{"Name": "instance-name", "Values": [key]}])
        for instance in named:
            if instance.described.get("InstanceName") == key:  # the filter also finds longer names
                self._homes[instance.id] = place
                return self._node_of(place, instance)
        return None

    def _node_of(self, place: Place, instance: Instance) -> Node:
        """One machine, with its group."""
        member = scaling.member(place.reading, instance.id)
        group = None if member is None else scaling.known(place.reading, member.group_id)
        return self._history.seen(self._translator.node(place, instance, member, group))

    # Which place.

    def _home(self, node_id: str) -> Place:
        """The place of an id. A machine that this process has not seen is looked at: else nobody could tell its end."""
        if self._history.last(node_id) is None:
            try:
                self._node_of(*self._look_for(node_id))
            except NotFoundError:
                if node_id not in self._homes:  # a launched one may not be listed yet
                    raise
        return self._homes[node_id]

    def _look_for(self, node_id: str) -> tuple[Place, Instance]:
        """Ask each place that may have it."""
        places = [self._homes[node_id]] if node_id in self._homes else self._places.all
        for place in places:
            try:
                instance = instances.described(place.reading, node_id)
            except NotFoundError:
                continue
            self._homes[node_id] = place
            return place, instance
        raise NotFoundError(f"Tencent Cloud lists no instance {node_id} in {self._places}", code=UNKNOWN_ID)

    def _home_of_group(self, group_id: str) -> Place:
        """The place of a group; its id does not name one, so each is asked that may have it."""
        if group_id in self._group_homes:
            return self._group_homes[group_id]
        for place in self._places.all:
            try:
                scaling.known(place.reading, group_id)
            except NotFoundError:
                continue
            self._group_homes[group_id] = place
            return place
        raise NotFoundError(f"there is no Auto Scaling group {group_id} in {self._places}", code=_NO_GROUP)
