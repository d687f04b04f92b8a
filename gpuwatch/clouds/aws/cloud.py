"""EC2 and its Auto Scaling groups, in several accounts and regions."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import boto3

from gpuwatch.clouds import NO_GPU, CloudError, Leftover
from gpuwatch.clouds.aws import actions, standing, survey
from gpuwatch.clouds.aws import groups as scaling
from gpuwatch.clouds.aws import instances as machines
from gpuwatch.clouds.aws.disk_keys import DiskKeys
from gpuwatch.clouds.aws.errors import asking
from gpuwatch.clouds.aws.groups import Group, attempts
from gpuwatch.clouds.aws.instances import Instance, Translator
from gpuwatch.clouds.aws.notices import Notices
from gpuwatch.clouds.aws.places import Region, Regions
from gpuwatch.clouds.keys import DiskKey
from gpuwatch.clouds.permissions import Needs, Permission, Quota
from gpuwatch.clouds.permit import Permit
from gpuwatch.clouds.places import gather_from
from gpuwatch.clouds.provider import AccountSettings
from gpuwatch.clouds.regions import RegionCloud
from gpuwatch.model.fleet import Node, NodeGroup
from gpuwatch.model.stops import StopAnswer
from gpuwatch.runtime.clock import Clock

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef

_IDS_A_CALL = 100  # a filter takes up to 200 values


class AwsCloud(RegionCloud[Region, Instance, Group]):
    """The GPU machines and groups of some accounts and regions. Credentials are found by boto3's own rules."""

    _places: Regions
    acts, own, looks = actions, standing, survey
    monitor = survey.MONITOR
    SERVICE = "EC2"
    NO_SUCH = "InvalidInstanceID.NotFound"
    NO_GROUP = "GroupNotFound"

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
        super().__init__(fleet=fleet, clock=clock)
        self._page_size = page_size
        self._keys = DiskKeys(clock)
        self._translator = Translator(fleet=fleet, clock=clock, keys=self._keys)
        self._notices = Notices(clock)
        with asking("credentials"):
            self._places = Regions(
                session=session or boto3.Session(profile_name=profile),
                regions=regions,
                accounts=accounts or {},
                clock=clock,
                endpoint_url=endpoint_url,
            )

    def node(self, node_id: str) -> Node:
        """One machine as EC2 sees it now."""
        return self._node_of(*self._find_machine(node_id))

    # Acting. The keys are for launches alone: EC2 has no token for the rest, and asking twice changes nothing more.

    def stop(self, node_id: str, key: str, *, permit: Permit) -> StopAnswer:
        """Ask for a stop."""
        del key
        return actions.stop(self._home(node_id), node_id, permit)

    def start(self, node_id: str, key: str) -> None:
        """Ask for a start."""
        del key
        actions.start(self._home(node_id), node_id)
        self._keys.note_start(node_id)

    def terminate(self, node_id: str, key: str, *, permit: Permit, group: str | None = None) -> None:
        """Ask for the end of a machine; with a group, of its place there too."""
        del key
        if group is None:
            actions.terminate(self._home(node_id), node_id, permit)
        else:
            place = self._home_of_group(group)
            actions.terminate_member(place, node_id, group, permit, fleet=self._fleet, now=self._clock.now())

    def launch(self, arguments: Mapping[str, str], key: str) -> str:
        """Ask for one machine, in the account and region that the arguments name."""
        place = self._place_for(arguments)
        actions.launch_request(arguments, key, fleet=self._fleet)  # nothing is asked with a key that is no token
        why = self._no_gpu(arguments)
        if why is not None:
            raise CloudError(why, code=NO_GPU)
        node_id = actions.launch(place, arguments, key, fleet=self._fleet)
        self._homes[node_id] = place
        return node_id

    # Our own standing, and what people look at.

    def disk_keys(self, node_ids: Sequence[str]) -> Sequence[DiskKey]:
        """Keys of the volumes of these machines, in every account and region."""
        found = gather_from(self._places.all, lambda place: survey.disk_keys(place, self._here(place, node_ids)))
        return tuple(sorted(found, key=lambda each: each.id))

    def _may_act(self, place: Region, needs: Needs) -> Iterator[Permission]:
        yield from standing.may_act(place, self._machine_to_try(place, needs.node_ids), terminate=needs.terminate)
        yield from standing.may_change_groups(place) if needs.groups else ()

    def _may_beyond(self, place: Region, node_ids: Sequence[str]) -> Iterator[Permission]:
        tried = self._machine_to_try(place, node_ids)
        yield from () if tried is None else standing.may_change(place, tried)

    def _may_launch(self, arguments: Mapping[str, str]) -> Iterator[Permission]:
        yield standing.may_launch(self._place_for(arguments), arguments, fleet=self._fleet)

    def _quotas(self, place: Region) -> Iterable[Quota]:
        """Limits on the vCPUs of P and G machines."""
        apart = Translator(fleet=self._fleet, clock=self._clock)

        def vcpus(place: Region, name: str) -> int | None:
            kind = apart.types.type(place, name)
            return None if kind is None else kind.vcpus

        return standing.quotas(place, vcpus, page_size=self._page_size)

    def _list_unused(self, place: Region, stopped: frozenset[str], now: datetime) -> Iterable[Leftover]:
        return [*super()._list_unused(place, stopped, now), *survey.lone_snapshots(place)]

    def _apart(self) -> Callable[[Region], Iterable[Node]]:
        apart = Translator(fleet=self._fleet, clock=self._clock)  # what other regions say of types stays there
        return survey.machines_of(apart, page_size=self._page_size)

    # Within one place.

    def _nodes(self, place: Region) -> list[Node]:
        """The place's GPU machines; its groups are asked for where a machine says that it is in one.

        What was there before and is not listed is asked for once more by its id. No filter by state: EC2 would leave
        out a state that we have never heard of.
        """
        instances = machines.list_instances(place, [], page_size=self._page_size)
        missing = self._views.left_out(place, [instance.id for instance in instances])
        for begin in range(0, len(missing), _IDS_A_CALL):
            named: FilterTypeDef = {"Name": "instance-id", "Values": missing[begin : begin + _IDS_A_CALL]}
            instances += machines.list_instances(place, [named], page_size=self._page_size)
        alive = machines.alive(instances)
        groups: dict[str, Group] = {}
        if any(instance.group_name for instance in alive):
            groups = {group.name: group for group in scaling.every_group(place)}
        nodes = list(self._translator.nodes(place, alive, groups, self._notices))
        return self._views.keep(place, nodes, [instance.id for instance in instances])

    def _ids(self, place: Region) -> set[str]:
        return {each.id for each in machines.alive(machines.list_instances(place, [], page_size=self._page_size))}

    def _describe_machine(self, place: Region, node_id: str) -> Instance:
        return machines.describe_instance(place, place.reading, node_id)

    def _find_launched(self, place: Region, key: str) -> Node | None:
        """By EC2's own record of the token."""
        found = machines.list_instances(place, [{"Name": "client-token", "Values": [key]}], page_size=self._page_size)
        return self._node_of(place, found[0]) if found else None

    def _node_of(self, place: Region, instance: Instance) -> Node:
        """One machine, with its group where it says that it is in one."""
        name = instance.group_name
        group = None if name is None else scaling.find_group(place, place.reading, name)
        return self._translator.node(place, instance, group)

    def _no_gpu(self, arguments: Mapping[str, str]) -> str | None:
        place = self._place_for(arguments)
        try:
            name = actions.type_of_launch(place, arguments)
            kind = None if name is None else self._translator.types.type(place, name)
        except CloudError:
            return None
        if kind is None or (kind.gpu_count > 0 and kind.nvidia):
            return None
        return self._without_gpu(arguments, name)

    # Its groups.

    def _listed_groups(self, place: Region) -> list[Group]:
        groups = scaling.every_group(place)
        self._translator.types.learn(place, (name for group in groups for name in group.types))
        return groups

    def _known_group(self, place: Region, group_id: str) -> Group:
        return scaling.one_group(place, place.reading, group_id)

    def _has_gpus(self, place: Region, group: Group) -> bool:
        return self._translator.types.has_gpus(place, group.types)

    def _group_in_our_words(self, place: Region, group: Group) -> NodeGroup:
        told = group.as_node_group(place, fleet=self._fleet, now=self._clock.now())
        return self._refusals.with_refusal(told, place.name, lambda: attempts(place, group))

    def _home_of_group(self, group_id: str) -> Region:
        """The place that a group's ARN names; its account is asked for only where several share the region."""
        region = scaling.region_of_group(group_id)
        several = sum(place.region == region for place in self._places.all) > 1
        return self._places.place_at(region, scaling.account_of_group(group_id) if several else None)
