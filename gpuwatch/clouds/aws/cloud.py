"""EC2 and its Auto Scaling groups, in several accounts and regions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import boto3

from gpuwatch.clouds import NO_GPU, CloudError, Leftover, NotFoundError, refuse_foreign_tags
from gpuwatch.clouds.aws import (
    actions,
    group_activities,
    standing,
    survey,
)
from gpuwatch.clouds.aws import groups as aws_groups
from gpuwatch.clouds.aws import instances as aws_machines
from gpuwatch.clouds.aws.errors import asking
from gpuwatch.clouds.aws.groups import Group
from gpuwatch.clouds.aws.instances import Instance, Translator
from gpuwatch.clouds.aws.notices import Notices
from gpuwatch.clouds.aws.places import Region, Regions
from gpuwatch.clouds.aws.settings import AccountSettings
from gpuwatch.clouds.disks import by_id, in_use
from gpuwatch.clouds.group_refusals import Refusals
from gpuwatch.clouds.keys import Credentials, DiskKey
from gpuwatch.clouds.permissions import Identity, Needs, Permission, Quota
from gpuwatch.clouds.permit import Permit
from gpuwatch.clouds.places import Views, WithViews, attempt, gathered
from gpuwatch.clouds.survey import CloudUse, Surveyed, elsewhere, every_place, use_by_place
from gpuwatch.model.fleet import Node, NodeGroup, NodeState
from gpuwatch.runtime.clock import Clock

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef

_IDS_A_CALL = 100  # a filter takes up to 200 values


class AwsCloud(WithViews[Region]):
    """The GPU machines and groups of some accounts and regions. Credentials are found by boto3's own rules."""

    def __init__(  # noqa: PLR0913  the settings of a cloud are many
        self,
        *,
        fleet: str,
        clock: Clock,
        regions: Sequence[str] = (),
        accounts: Mapping[str, AccountSettings] | None = None,
        profile: str | None = None,
        endpoint_url: str | None = None,
        session: boto3.Session | None = None,
        page_size: int = 500,
    ) -> None:
        """Nothing is sent yet.

        Raises:
            AuthFailedError: the profile does not exist.
            CloudError: there is no region.

        """
        self._fleet = fleet
        self._clock = clock
        self._page_size = page_size
        self._translator = Translator(fleet=fleet, clock=clock)
        self._notices = Notices(clock)
        self._refusals = Refusals(clock)
        self._homes: dict[str, Region] = {}  # by the id of a node
        self._views: Views[Region] = Views(clock, cloud="EC2")
        with asking("credentials"):
            self._places = Regions(
                session=session or boto3.Session(profile_name=profile),
                regions=regions,
                accounts=accounts or {},
                clock=clock,
                endpoint_url=endpoint_url,
            )

    # Reading.

    def nodes(self) -> Sequence[Node]:
        """All GPU machines that are not terminated, in every account and region; of a silent one as last seen."""
        listed: dict[str, Node] = {}
        for place, nodes in self._views.nodes(self._places.all, self._nodes):
            for node in nodes:
                listed[node.id] = node
                self._homes[node.id] = place
        self._homes = {node_id: self._homes[node_id] for node_id in listed}
        return tuple(listed[node_id] for node_id in sorted(listed))

    def node(self, node_id: str) -> Node:
        """One machine as EC2 sees it now."""
        place, instance = self._look_for(node_id)
        return self._node_of(place, instance)

    def lacks(self, node: Node) -> bool:
        """Whether a whole list of its region and account is without it, or has it as terminated."""
        place = self._places.at(node.region, node.account)
        there = aws_machines.alive(aws_machines.listed(place, [], page_size=self._page_size))
        return node.id not in {each.id for each in there}

    def find(self, key: str) -> Node | None:
        """The machine launched with that key, by EC2's own record of the token; tags may be anybody's."""
        answers = self._places.everywhere(lambda place: attempt(lambda: self._launched(place, key)))
        for found in answers:
            if isinstance(found, Node):
                return found
        for found in answers:
            if isinstance(found, CloudError):
                raise found
        return None

    def groups(self) -> Sequence[NodeGroup]:
        """The Auto Scaling groups of this fleet, and all others that have GPU machines."""
        by_place = self._views.groups(self._places.all, self._groups)
        found = [group for _, groups in by_place for group in groups]
        return tuple(sorted(found, key=lambda group: group.id))

    def group(self, group_id: str) -> NodeGroup:
        """One group as it is now."""
        place = self._place_of_group(group_id)
        group = aws_groups.known(place, place.reading, group_id)
        return self._told(place, group)

    def leftovers(self) -> Sequence[Leftover]:
        """Volumes, addresses, images and snapshots that no running machine uses, in every account and region."""
        stopped = [node.id for node in self.nodes() if node.state is NodeState.STOPPED]
        homes = self._homes
        now = self._clock.now()
        found = gathered(
            self._places.all,
            lambda place: [
                *survey.unused(place, [node_id for node_id in stopped if homes[node_id] is place]),
                *survey.old_images(place, now),
                *survey.lone_snapshots(place),
            ],
        )
        return by_id(found)

    def disks(self) -> Sequence[Leftover]:
        """Volumes of machines in use, in every account and region."""
        here = self._by_place(in_use(self.nodes()))
        return by_id(gathered(self._places.all, lambda place: survey.disks_in_use(place, here[place])))

    # Acting. The keys are for launches alone: EC2 has no token for the rest, and asking twice changes nothing more.

    def stop(self, node_id: str, key: str, *, permit: Permit) -> None:
        """Ask for a stop."""
        del key
        actions.stop(self._home(node_id), node_id, permit)

    def start(self, node_id: str, key: str) -> None:
        """Ask for a start."""
        del key
        actions.start(self._home(node_id), node_id)

    def terminate(self, node_id: str, key: str, *, permit: Permit, group: str | None = None) -> None:
        """Ask for the end of a machine; with a group, of its place there too."""
        del key
        if group is None:
            actions.terminate(self._home(node_id), node_id, permit)
        else:
            place = self._place_of_group(group)
            actions.terminate_member(place, node_id, group, permit, fleet=self._fleet, now=self._clock.now())

    def launch(self, arguments: Mapping[str, str], key: str) -> str:
        """Ask for one machine, in the account and region that the arguments name."""
        place = self._places.at(arguments.get("region") or None, arguments.get("account") or None)
        actions.launch_request(arguments, key, fleet=self._fleet)  # nothing is asked with a key that is no token
        why = self._no_gpu(place, arguments)
        if why is not None:
            raise CloudError(why, code=NO_GPU)
        node_id = actions.launch(place, arguments, key, fleet=self._fleet)
        self._homes[node_id] = place
        return node_id

    def grow(self, group_id: str, size: int, key: str) -> None:
        """Raise a group's desired size."""
        del key
        actions.grow(self._place_of_group(group_id), group_id, size, fleet=self._fleet)

    def shrink(self, group_id: str, size: int, key: str) -> None:
        """Take back what a group lacks."""
        del key
        actions.shrink(self._place_of_group(group_id), group_id, size, fleet=self._fleet)

    def protect(self, node_id: str, group_id: str, key: str, *, on: bool) -> None:
        """Set a member's protection against its group's own scale-in, or lift it."""
        del key
        actions.protect(self._place_of_group(group_id), node_id, group_id, on=on, fleet=self._fleet)

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
                tried = next((node_id for node_id in needs.node_ids if self._homes.get(node_id) is place), None)
                yield from standing.may_act(place, tried, terminate=needs.terminate)
                yield from standing.may_change_groups(place) if needs.groups else ()
        for arguments in needs.launches:
            place = self._places.at(arguments.get("region") or None, arguments.get("account") or None)
            yield standing.may_launch(place, arguments, fleet=self._fleet)

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
        """Volumes of these machines, in every account and region."""
        here = self._by_place(node_ids)
        return tuple(gathered(self._places.all, lambda place: survey.unencrypted(place, here[place])))

    def credentials(self) -> Credentials:
        """Those that we were given."""
        return standing.credentials(self._places.entrance)

    def disk_keys(self, node_ids: Sequence[str]) -> Sequence[DiskKey]:
        """Keys of the volumes of these machines, in every account and region."""
        here = self._by_place(node_ids)
        found = gathered(self._places.all, lambda place: survey.disk_keys(place, here[place]))
        return tuple(sorted(found, key=lambda each: each.id))

    def elsewhere(self) -> Sequence[Surveyed]:
        """GPU machines in enabled regions that the settings do not name."""
        apart = Translator(fleet=self._fleet, clock=self._clock)  # what other regions say of types stays there
        return elsewhere(self._places, survey.machines_of(apart, page_size=self._page_size))

    # For people who look for forgotten machines.

    def survey(self) -> Sequence[Surveyed]:
        """GPU machines in every enabled region of each account, those of the settings first."""
        apart = Translator(fleet=self._fleet, clock=self._clock)
        return every_place(self._places, survey.machines_of(apart, page_size=self._page_size))

    @property
    def monitor(self) -> str:
        """CloudWatch."""
        return survey.MONITOR

    def use_of(self, nodes: Sequence[Node], seconds: float) -> Mapping[str, CloudUse]:
        """In the region and the account of each."""
        return use_by_place(self._places, nodes, survey.use_in, self._clock.now(), seconds)

    def quotas(self) -> Sequence[Quota]:
        """Limits on the vCPUs of P and G machines, in every account and region."""
        apart = Translator(fleet=self._fleet, clock=self._clock)

        def vcpus(place: Region, name: str) -> int | None:
            kind = apart.type(place, name)
            return None if kind is None else kind.vcpus

        found = gathered(self._places.all, lambda place: standing.quotas(place, vcpus, page_size=self._page_size))
        return tuple(sorted(found, key=lambda each: (each.region, each.name)))

    # Within one place.

    def _no_gpu(self, place: Region, arguments: Mapping[str, str]) -> str | None:
        """Why a launch would bring no node; None also where nobody can tell before it."""
        try:
            name = actions.type_of_launch(place, arguments)
            kind = None if name is None else self._translator.type(place, name)
        except CloudError:
            return None
        if kind is None or (kind.gpu_count > 0 and kind.nvidia):
            return None
        template = arguments["template"]
        return f"the launch template {template} makes a machine of type {name}, which has no GPU of NVIDIA"

    def _nodes(self, place: Region) -> list[Node]:
        """The place's GPU machines; its groups are asked for where a machine says that it is in one.

        What was there before and is not listed is asked for once more by its id. No filter by state: EC2 would leave
        out a state that we have never heard of.
        """
        instances = aws_machines.listed(place, [], page_size=self._page_size)
        missing = self._views.left_out(place, [instance.id for instance in instances])
        for begin in range(0, len(missing), _IDS_A_CALL):
            ids = missing[begin : begin + _IDS_A_CALL]
            by_id: FilterTypeDef = {"Name": "instance-id", "Values": ids}
            instances += aws_machines.listed(place, [by_id], page_size=self._page_size)
        alive = aws_machines.alive(instances)
        groups: dict[str, Group] = {}
        if any(instance.group_name for instance in alive):
            groups = {group.name: group for group in aws_groups.listed(place)}
        nodes = list(self._translator.nodes(place, alive, groups, self._notices))
        return self._views.keep(place, nodes, [instance.id for instance in instances])

    def _told(self, place: Region, group: Group) -> NodeGroup:
        """A group in our words; of one that is ours and lacks members, with why."""
        told = group.as_node_group(place, fleet=self._fleet, now=self._clock.now())
        return self._refusals.added(told, place.name, lambda: group_activities.attempts(place, group))

    def _groups(self, place: Region) -> list[NodeGroup]:
        groups = aws_groups.listed(place)
        self._translator.learn(place, (name for group in groups for name in group.types))
        shown = [
            self._told(place, group)
            for group in groups
            if group.enrolled(self._fleet) or self._translator.has_gpus(place, group.types)
        ]
        return self._views.keep_groups(place, shown)

    def _launched(self, place: Region, key: str) -> Node | None:
        found = aws_machines.listed(place, [{"Name": "client-token", "Values": [key]}], page_size=self._page_size)
        if not found:
            return None
        node = self._node_of(place, found[0])
        self._homes[node.id] = place
        return node

    def _node_of(self, place: Region, instance: Instance) -> Node:
        """One machine, with its group where it says that it is in one."""
        name = instance.group_name
        group = None if name is None else aws_groups.named(place, place.reading, name)
        return self._translator.node(place, instance, group)

    # Which place.

    def _by_place(self, node_ids: Iterable[str]) -> dict[Region, list[str]]:
        wanted = set(node_ids)
        return {
            place: [name for name, home in self._homes.items() if home is place and name in wanted]
            for place in self._places.all
        }

    def _home(self, node_id: str) -> Region:
        """The place of an id; costs a call only where there are several and none has shown it yet."""
        candidates = self._candidates(node_id)
        return candidates[0] if len(candidates) == 1 else self._look_for(node_id)[0]

    def _look_for(self, node_id: str) -> tuple[Region, Instance]:
        """Ask each place that may have it."""
        for place in self._candidates(node_id):
            try:
                instance = aws_machines.described(place, place.reading, node_id)
            except NotFoundError:
                continue
            self._homes[node_id] = place
            return place, instance
        raise NotFoundError(f"EC2 knows no instance {node_id} in {self._places}", code="InvalidInstanceID.NotFound")

    def _candidates(self, node_id: str) -> list[Region]:
        """The places in which an id may be found: its own, if that is known."""
        return [self._homes[node_id]] if node_id in self._homes else self._places.all

    def _place_of_group(self, group_id: str) -> Region:
        """The place that a group's ARN names; its account is asked for only where several share the region."""
        region = aws_groups.region_of_group(group_id)
        several = sum(place.region == region for place in self._places.all) > 1
        return self._places.at(region, aws_groups.account_of_group(group_id) if several else None)
