"""Azure's virtual machines and scale sets, in several subscriptions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from azure.core.credentials import TokenCredential

from gpuwatch.clouds import NO_GPU, CloudError, Leftover, NotFoundError
from gpuwatch.clouds.azure import actions, groups, instances, standing, survey
from gpuwatch.clouds.azure.actions import Order
from gpuwatch.clouds.azure.client import Renewing
from gpuwatch.clouds.azure.errors import NOT_FOUND
from gpuwatch.clouds.azure.groups import ScaleSet
from gpuwatch.clouds.azure.instances import Machine, Sizes
from gpuwatch.clouds.azure.nodes import Surroundings, Translator, locks_of
from gpuwatch.clouds.azure.places import Subscription, Subscriptions, name_for, same
from gpuwatch.clouds.azure.seen import Paths
from gpuwatch.clouds.azure.settings import MANAGERS, SubscriptionSettings, TemplateSettings
from gpuwatch.clouds.keys import Credentials
from gpuwatch.clouds.permissions import Identity, Needs, Permission, Quota
from gpuwatch.clouds.permit import Permit
from gpuwatch.clouds.placed import PlacedCloud
from gpuwatch.clouds.places import attempt
from gpuwatch.clouds.survey import CloudUse, Surveyed
from gpuwatch.model.fleet import Node, NodeGroup
from gpuwatch.model.stops import StopAnswer
from gpuwatch.runtime.clock import Clock


class AzureCloud(PlacedCloud[Subscription, ScaleSet]):
    """The GPU machines and scale sets of some subscriptions. Credentials are found by azure-identity's own rules."""

    SERVICE = "Azure"
    NO_GROUP = NOT_FOUND
    acts = actions
    monitor = survey.MONITOR

    def __init__(  # noqa: PLR0913  the settings of a cloud are many
        self,
        *,
        fleet: str,
        clock: Clock,
        subscriptions: Mapping[str, SubscriptionSettings],
        regions: Sequence[str] = (),
        templates: Mapping[str, TemplateSettings] | None = None,
        national_cloud: str = "public",
        endpoint_url: str | None = None,
        credential: TokenCredential | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Nothing is sent yet; `options` are those of azure-core's transport.

        Raises:
            CloudError: there is no subscription.

        """
        super().__init__(fleet=fleet, clock=clock)
        self._templates = dict(templates or {})
        self._scope = f"{MANAGERS[national_cloud]}/.default"
        self._credential = Renewing(credential, national_cloud, self._scope, clock)
        self._sizes = Sizes(clock)
        self._translator = Translator(fleet=fleet, clock=clock, sizes=self._sizes)
        self._paths = Paths(clock)
        self._places = Subscriptions(
            credential=self._credential,
            subscriptions=subscriptions,
            regions=regions,
            base=endpoint_url or MANAGERS[national_cloud],
            scope=self._scope,
            clock=clock,
            options=options or {},
        )
        self._graph = standing.graph(self._credential, national_cloud, endpoint_url, clock=clock, options=options or {})

    def node(self, node_id: str) -> Node:
        """One machine as Azure sees it now; in the state TERMINATED where it was seen to go, or is gone for long."""
        try:
            place, machine = self._find_machine(node_id)
        except NotFoundError:
            gone = self._paths.last_of_gone(node_id)
            if gone is None:
                raise
            return gone
        return self._node_of(place, machine)

    # Acting. The keys are for launches alone: asking twice for the rest changes nothing more.

    def stop(self, node_id: str, key: str, *, permit: Permit) -> StopAnswer:
        """Ask for a deallocation."""
        del key
        found = self._target(node_id)
        return StopAnswer(ran=False) if found is None else actions.stop(*found, permit)

    def start(self, node_id: str, key: str) -> None:
        """Ask for a start."""
        del key
        found = self._target(node_id)
        if found is None:
            raise CloudError(f"{node_id} is gone: it is not started", code=actions.WRONG_STATE)
        actions.start(*found, self._clock)

    def terminate(self, node_id: str, key: str, *, permit: Permit, group: str | None = None) -> None:
        """Ask for the end of a machine; with a group, of its place there too."""
        del key
        found = self._target(node_id)
        if found is None:
            return
        place, machine = found
        if group is None:
            actions.terminate(place, machine, permit)
        else:
            home = self._places.of_path(group)
            scale_set = groups.one_group(home, group)
            size = 0 if scale_set.desired is not None else len(groups.members_of(home, scale_set))
            actions.terminate_member(
                place, machine, scale_set, permit, fleet=self._fleet, now=self._clock.now(), members=size
            )
        self._paths.ends(node_id)

    def launch(self, arguments: Mapping[str, str], key: str) -> str:
        """Ask for one machine from a template of the settings."""
        order = actions.make_order(self._places, self._templates, arguments, key)
        why = self._bare(order, arguments["template"])
        if why is not None:
            raise CloudError(why, code=NO_GPU)
        machine = actions.launch_machine(order, key, arguments.get("pool"), fleet=self._fleet, clock=self._clock)
        self._paths.learn(machine.id, machine.path)
        return machine.id

    def _protect(self, node_id: str, group_id: str, *, on: bool) -> None:
        place, machine = self._find_machine(node_id, urgent=True)
        actions.protect(place, machine, group_id, on=on, fleet=self._fleet)

    def _tag(self, node_id: str, tags: Mapping[str, str]) -> None:
        place, machine = self._find_machine(node_id, urgent=True)
        actions.tag(place, machine, tags)

    # Our own standing, and what people look at. Azure encrypts every managed disk at rest.

    def identity(self) -> Identity:
        """In the first subscription."""
        return standing.identity(self._places.all[0], self._credential, self._scope)

    def credentials(self) -> Credentials:
        """Those of our token."""
        claims = standing.claims_of(self._credential, self._scope)
        return standing.credentials(self._graph, claims, self._clock.now())

    def quotas(self) -> Sequence[Quota]:
        """In the regions of the settings; where these name none, in those that have machines of ours."""
        return standing.quotas(self._places.all, self._sizes, self.nodes())

    def _may_read(self, place: Subscription) -> Iterator[Permission]:
        """By the actions that our roles allow."""
        return standing.may_read(place)

    def _may_act(self, place: Subscription, needs: Needs) -> Iterator[Permission]:
        paths = self._paths.paths_of(needs.node_ids).values()
        tried = next((path for path in paths if same(path).startswith(same(place.root))), None)
        yield from standing.may_act(place, tried, terminate=needs.terminate)
        yield from standing.may_change_groups(place) if needs.groups else ()

    def _may_beyond(self, place: Subscription, node_ids: Sequence[str]) -> Iterator[Permission]:
        """Roles hold by resource group, so one machine of each is asked about."""
        paths = [path for path in self._paths.paths_of(node_ids).values() if same(path).startswith(same(place.root))]
        one_each = {same(path).split("/")[4]: path for path in reversed(paths)}
        for path in one_each.values():
            yield from standing.may_change(place, path)

    def _may_launch(self, arguments: Mapping[str, str]) -> Iterator[Permission]:
        template = self._templates.get(arguments["template"])
        if template is not None:
            place = self._places.place_at(arguments.get("account") or template.subscription)
            yield from standing.may_launch(place, template.resource_group or "")

    def _list_unused(self, place: Subscription, stopped: frozenset[str], now: datetime) -> Iterable[Leftover]:
        own = self._templates.values()
        return [*survey.list_unused(place, self._paths.backwards(stopped)), *survey.old_images(place, own, now)]

    def _disks_in_use(self, place: Subscription, node_ids: frozenset[str]) -> Iterable[Leftover]:
        return survey.disks_in_use(place, self._paths.backwards(node_ids))

    def elsewhere(self) -> Sequence[Surveyed]:
        """GPU machines in regions and subscriptions that the settings do not name."""
        return survey.elsewhere(self._places, self._apart(), self._paths)

    def survey(self) -> Sequence[Surveyed]:
        """Every region with GPU machines of every subscription that the credentials may see."""
        return survey.every_place(self._places, self._apart(), self._paths)

    def use_of(self, nodes: Sequence[Node], seconds: float) -> Mapping[str, CloudUse]:
        """Use of CPU and network, by Azure Monitor; a machine with an unknown path is left out."""
        end, paths = self._clock.now(), self._paths.paths_of(node.id for node in nodes)
        return survey.use_of(self._places.all[0], paths, end - timedelta(seconds=seconds), end)

    def _apart(self) -> Translator:
        """What other places show is no news of the fleet."""
        return Translator(fleet=self._fleet, clock=self._clock, sizes=self._sizes)

    # Within one place.

    def _nodes(self, place: Subscription) -> list[Node]:
        """The place's GPU machines; what was there before and is not listed is asked for by itself."""
        scale_sets = groups.every_group(place)
        found = instances.list_machines(place)
        uniform = [group for group in scale_sets if self._looked_into(place, group)]
        for group in uniform:
            found += instances.members(place, group.described)
        found = self._paths.saw(found)
        answered = {machine.id for machine in found}
        for node_id in self._views.left_out(place, answered):
            again = attempt(lambda node_id=node_id: self._at_its_path(node_id)[1])  # type: ignore[misc]  # a default
            if isinstance(again, Machine):
                found.append(again)
                answered.add(node_id)
            elif isinstance(again, NotFoundError) and self._paths.last_of_gone(node_id) is not None:
                answered.add(node_id)
        around = Surroundings(
            groups={group.id: group for group in scale_sets},
            locks=locks_of(place),
            addresses=instances.addresses(place, [group.path for group in uniform]),
        )
        made = [machine for machine in found if not machine.never_made]
        nodes = list(self._translator.nodes(place, made, around))
        self._paths.note_shown(nodes)
        return self._views.keep(place, nodes, answered)

    def _looked_into(self, place: Subscription, group: ScaleSet) -> bool:
        """Whether the members of a Uniform scale set may be nodes; those without GPUs are not listed at all."""
        if not group.uniform or not place.covers(group.region):
            return False
        return group.size is None or group.is_enrolled(self._fleet) or self._has_gpus(place, group)

    def _has_gpus(self, place: Subscription, group: ScaleSet) -> bool:
        return self._translator.has_gpus(place, group.region, group.size)

    def _groups(self, place: Subscription) -> list[NodeGroup]:
        shown = []
        flexible: list[Machine] | None = None
        for group in groups.every_group(place):
            if not place.covers(group.region) or not (group.is_enrolled(self._fleet) or self._has_gpus(place, group)):
                continue
            if not group.uniform and flexible is None:
                flexible = instances.list_machines(place)
            there = instances.members(place, group.described) if group.uniform else flexible or []
            members = [each for each in there if each.group == group.id]
            shown.append(self._translator.scale_set(place, group, members))
        return self._views.keep_groups(place, shown)

    @property
    def _all(self) -> Sequence[Subscription]:
        return self._places.all

    def _place_of(self, region: str | None, account: str | None) -> Subscription:
        del region  # a subscription has all
        return self._places.place_at(account)

    def _place_named(self, arguments: Mapping[str, str]) -> Subscription | None:
        """Its own, or its template's."""
        template = self._templates.get(arguments.get("template", ""))
        account = arguments.get("account") or (None if template is None else template.subscription)
        found = attempt(lambda: self._places.place_at(account)) if account else None
        return found if isinstance(found, Subscription) else None

    def _ids(self, place: Subscription) -> set[str]:
        return {each.id for each in groups.all_machines(place)}

    def _find_launched(self, place: Subscription, key: str) -> Node | None:
        """By its name in the resource groups of the templates."""
        named = {each.resource_group or "" for each in self._templates.values() if self._is_in(place, each)}
        for group in sorted(named):
            machine = actions.find_launched(place, group, key)
            if machine is not None and machine.id:
                return self._node_of(place, machine)
        return None

    def _is_in(self, place: Subscription, template: TemplateSettings) -> bool:
        return self._places.place_at(template.subscription) is place

    def _ended_launch(self, key: str) -> Node | None:
        return self._paths.gone_by_name(name_for(key))

    def _listed_groups(self, place: Subscription) -> list[ScaleSet]:
        return groups.every_group(place)

    def _known_group(self, place: Subscription, group_id: str) -> ScaleSet:
        return groups.one_group(place, group_id)

    def _group_in_our_words(self, place: Subscription, group: ScaleSet) -> NodeGroup:
        return self._translator.scale_set(place, group, groups.members_of(place, group))

    def _home_of_group(self, group_id: str) -> Subscription:
        return self._places.of_path(group_id)

    def _node_of(self, place: Subscription, machine: Machine) -> Node:
        """One machine with its scale set, locks and address, as the list would tell it."""
        (machine,) = self._paths.saw([machine])
        scale_sets = {}
        if machine.group is not None:
            found = attempt(lambda: groups.one_group(place, machine.group or ""))
            scale_sets = {found.id: found} if isinstance(found, ScaleSet) else {}
        paths = [group.path for group in scale_sets.values() if machine.uniform]
        around = Surroundings(groups=scale_sets, locks=locks_of(place), addresses=instances.addresses(place, paths))
        node = self._translator.node(place, machine, around)
        self._paths.note_shown([node])
        return node

    def _no_gpu(self, arguments: Mapping[str, str]) -> str | None:
        """Say also that a template cannot be read."""
        try:
            order = actions.make_order(self._places, self._templates, arguments, "gpuwatch-doctor")
        except CloudError as error:
            return str(error)
        return self._bare(order, arguments["template"])

    def _bare(self, order: Order, template: str) -> str | None:
        try:
            size = self._sizes.size(order.place, order.region, order.size) if order.size and order.region else None
        except CloudError:
            return None
        if size is None or (size.gpu_count > 0 and size.readable):
            return None
        return f"the template {template} makes a machine of size {order.size}, which has no GPU that the agent can read"

    # Which machine.

    def _target(self, node_id: str) -> tuple[Subscription, Machine] | None:
        """The machine right before a change; None: it is gone, and was seen to go."""
        try:
            return self._find_machine(node_id, urgent=True)
        except NotFoundError:
            if self._paths.last_of_gone(node_id) is None:
                raise
            return None

    def _find_machine(self, node_id: str, *, urgent: bool = False) -> tuple[Subscription, Machine]:
        """The machine at the path where it was last; where it is not there, wherever else it is."""
        try:
            return self._at_its_path(node_id, urgent=urgent)
        except NotFoundError:
            return self._anywhere(node_id)

    def _at_its_path(self, node_id: str, *, urgent: bool = False) -> tuple[Subscription, Machine]:
        path = self._paths.paths_of([node_id]).get(node_id)
        if path is None:
            raise NotFoundError(f"the path of {node_id} is not known yet", code=NOT_FOUND)
        place = self._places.of_path(path)
        return self._note_machine(place, actions.now_at(place, path, node_id, urgent=urgent))

    def _note_machine(self, place: Subscription, machine: Machine) -> tuple[Subscription, Machine]:
        """Remember a machine, so that its end can be reported later."""
        (machine,) = self._paths.saw([machine])
        if not self._paths.has_shown(machine.id):
            self._paths.note_shown([self._translator.node(place, machine, Surroundings())])
        return place, machine

    def _anywhere(self, node_id: str) -> tuple[Subscription, Machine]:
        """A machine in all lists: it is new to us, or was moved to another resource group, which keeps its id."""
        for place in self._places.all:
            found = groups.all_machines(place)
            self._paths.saw(found)
            for machine in found:
                if machine.id == node_id:
                    return self._note_machine(place, machine)
        raise NotFoundError(f"Azure knows no machine {node_id} in {self._places}", code=NOT_FOUND)
