"""Compute Engine and its managed instance groups, in several projects and regions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from gpuwatch.clouds import FLEET_TAG, CloudError, CloudUnavailableError, Leftover, NotFoundError, refuse_foreign_tags
from gpuwatch.clouds.disks import by_id, in_use
from gpuwatch.clouds.gcp import actions, launches, standing, survey
from gpuwatch.clouds.gcp import groups as gcp_groups
from gpuwatch.clouds.gcp.actions import Home
from gpuwatch.clouds.gcp.calls import LIST_INSTANCES
from gpuwatch.clouds.gcp.client import Client
from gpuwatch.clouds.gcp.credentials import Credentials as Given
from gpuwatch.clouds.gcp.errors import NOT_FOUND, NOT_READY
from gpuwatch.clouds.gcp.groups import Group, Templates
from gpuwatch.clouds.gcp.instances import Instance, Translator
from gpuwatch.clouds.gcp.labels import labels_of
from gpuwatch.clouds.gcp.machine_types import region_of
from gpuwatch.clouds.gcp.operations import ended, launch_that_ended
from gpuwatch.clouds.gcp.places import Listing, Zone
from gpuwatch.clouds.keys import Credentials
from gpuwatch.clouds.permissions import Identity, Needs, Permission, Quota
from gpuwatch.clouds.permit import Permit
from gpuwatch.clouds.places import Views, anywhere, gathered
from gpuwatch.clouds.provider import ALL
from gpuwatch.clouds.silence import Outlook, Recall, missed
from gpuwatch.clouds.survey import CloudUse, Surveyed
from gpuwatch.model.fleet import Node, NodeGroup
from gpuwatch.model.sight import Silence
from gpuwatch.runtime.clock import Clock


class GcpCloud:
    """The GPU machines and groups of some projects and regions. Credentials are found by Google's own rules."""

    def __init__(
        self,
        *,
        fleet: str,
        clock: Clock,
        regions: Sequence[str],
        projects: Sequence[str] = (),
        credentials_file: Path | None = None,
        credentials: Any = None,  # noqa: ANN401  google-auth's own
        endpoint_url: str | None = None,
        **options: Any,  # noqa: ANN401  of the client
    ) -> None:
        """Nothing is sent yet.

        Raises:
            CloudError: there is no region, or the fleet's name does not fit into a label.

        """
        if not regions:
            raise CloudError("no region is known; set cloud.regions, for example [us-central1], or [all] to look only")
        labels_of({FLEET_TAG: fleet})  # a fleet that no label can name would be empty for ever
        self._fleet, self._clock, self._regions = fleet, clock, tuple(dict.fromkeys(regions))
        self._projects = tuple(dict.fromkeys(projects))
        self._credentials = Given(credentials_file, given=credentials)
        self._options = {"credentials": self._credentials, "clock": clock, "endpoint_url": endpoint_url, **options}
        self._translator = Translator(fleet=fleet, clock=clock)
        self._templates = Templates()
        self._views: Views[Zone] = Views(clock, cloud="Compute Engine")
        self._group_views: Views[Client] = Views(clock, cloud="Compute Engine")
        self._made: list[Listing] | None = None

    # Reading.

    def nodes(self) -> Sequence[Node]:
        """All GPU machines that exist, in every project and region; of a silent project or zone as last seen."""
        found: dict[str, Node] = {}
        for _, nodes in anywhere(self._all, Listing.nodes, Listing.last_nodes, Listing.silenced):
            found |= {node.id: node for node in nodes}
        return tuple(found[node_id] for node_id in sorted(found))

    def node(self, node_id: str) -> Node:
        """One machine as Compute Engine sees it now; gone only where an operation says so."""
        listing, home = self._at(node_id)
        if home is not None:
            try:
                return listing.one(actions.described(home, node_id))
            except NotFoundError:
                gone = ended(listing.client, node_id, home.zone)
                if gone is None:
                    raise
                return gone
        for each in self._all:
            gone = ended(each.client, node_id)
            if gone is not None:
                return gone
        raise _unknown(node_id, self._all)

    def lacks(self, node: Node) -> bool:
        """Whether a whole list of its project is without it."""
        listing = next((each for each in self._all if each.client.project == node.account), None)
        if listing is None:
            raise NotFoundError(f"{node.account} is not among cloud.gcp.projects", code=NOT_FOUND)
        return listing.lacks(node.id)

    def find(self, key: str) -> Node | None:
        """The machine launched with that key, by the name made of it; labels may be anybody's."""
        for listing in self._all:
            instance = launches.existing(listing.client, key)
            if instance is not None:
                listing.remember(instance)
                return listing.one(instance)
        for listing in self._all:
            gone = launch_that_ended(listing.client, launches.name_of(key))
            if gone is not None:
                return gone
        return None

    def groups(self) -> Sequence[NodeGroup]:
        """The managed instance groups of this fleet, and all others that have GPU machines."""
        clients = {each.client: each for each in self._all}
        by_project = self._group_views.groups(list(clients), lambda client: self._groups_of(clients[client]))
        return tuple(sorted((group for _, found in by_project for group in found), key=lambda group: group.id))

    def group(self, group_id: str) -> NodeGroup:
        """One group as it is now."""
        client = self._client_of_group(group_id)
        return self._node_group(client, gcp_groups.known(client, group_id))

    def leftovers(self) -> Sequence[Leftover]:
        """Disks, addresses, snapshots and images that no running machine uses, in every project and region."""
        found = gathered(self._all, lambda each: survey.unused(each.client, each.wanted))
        try:  # an image may be used in another project, so all must answer
            found += survey.old_images([each.client for each in self._all], self._clock.now())
        except CloudError as error:
            missed(Silence(where="images", reason=str(error), known=False), error)
        return tuple(sorted(found, key=lambda each: each.id))

    def disks(self) -> Sequence[Leftover]:
        """Disks of machines in use, in every project and region."""
        running = in_use(self.nodes())
        return by_id(gathered(self._all, lambda each: survey.disks_in_use(each.client, each.wanted, running)))

    # Places that give no answer.

    def recall(self, past: Recall) -> None:
        """Ask this for what a place had that has shown nothing yet."""
        self._views.recall(past)
        self._group_views.recall(past)

    def outlook(self) -> Outlook:
        """What the newest lists rest on: zones, and projects that gave no answer."""
        zones, groups = self._views.outlook(), self._group_views.outlook()
        projects = tuple(each for listing in self._all for each in listing.silent)
        told = {each.where for each in projects}
        return Outlook(
            places=zones.places | groups.places,
            silent=(*projects, *zones.silent, *(each for each in groups.silent if each.where not in told)),
        )

    # Acting. A key names a launch, and the end of a group's member; asking for the rest twice changes nothing more.

    def stop(self, node_id: str, key: str, *, permit: Permit) -> None:
        """Ask for a stop."""
        del key
        self._done(node_id, lambda home: actions.stop(home, node_id, permit))

    def start(self, node_id: str, key: str) -> None:
        """Ask for a start."""
        del key
        if not self._done(node_id, lambda home: actions.start(home, node_id, self._clock)):
            raise CloudError(f"{node_id} is gone: it cannot be started", code=NOT_READY)

    def terminate(self, node_id: str, key: str, *, permit: Permit, group: str | None = None) -> None:
        """Ask for the end of a machine; with a group, of its place there too."""
        if group is None:
            self._done(node_id, lambda home: actions.terminate(home, node_id, permit))
            return
        now, fleet = self._clock.now(), self._fleet
        self._done(
            node_id,
            lambda home: actions.terminate_member(home, node_id, group, permit, key=key, fleet=fleet, now=now),
        )

    def launch(self, arguments: Mapping[str, str], key: str) -> str:
        """Ask for one machine, in the project and region that the arguments name."""
        listing, region = self._place(arguments)
        node_id, zone = launches.launch(
            listing.client,
            self._clock,
            self._templates,
            self._translator.types,
            arguments,
            key,
            fleet=self._fleet,
            region=region,
        )
        listing.homes[node_id] = Home(client=listing.client, zone=zone, name=launches.name_of(key))
        return node_id

    def grow(self, group_id: str, size: int, key: str) -> None:
        """Raise a group's target size."""
        del key
        actions.grow(self._client_of_group(group_id), group_id, size, fleet=self._fleet)

    def shrink(self, group_id: str, size: int, key: str) -> None:
        """Take back the places of a group that no machine could be made for."""
        actions.shrink(self._client_of_group(group_id), group_id, size, key=key, fleet=self._fleet)

    def protect(self, node_id: str, group_id: str, key: str, *, on: bool) -> None:
        """Refuse: Google's groups know no such protection."""
        del node_id, key, on
        actions.protect(self._client_of_group(group_id), group_id, fleet=self._fleet)

    def tag(self, node_id: str, tags: Mapping[str, str], key: str) -> None:
        """Set labels of the allow-list."""
        del key
        refuse_foreign_tags(tags)
        if not self._done(node_id, lambda home: actions.tag(home, node_id, tags)):
            raise NotFoundError(f"{node_id} is gone", code=NOT_FOUND)

    # Our own standing; nothing is carried out.

    def may(self, needs: Needs) -> Iterator[Permission]:
        """By reading, and by testIamPermissions."""
        for listing in self._all:
            yield from standing.may_read(listing.client)
            if needs.act:
                homes = {node_id: listing.homes[node_id] for node_id in needs.node_ids if node_id in listing.homes}
                yield from standing.may_act(listing.client, homes, terminate=needs.terminate)
                yield from standing.may_change_groups(listing.client) if needs.groups else ()
        for arguments in needs.launches:
            yield standing.may_launch(self._place(arguments)[0].client)

    def unfit(self, launches_: Sequence[Mapping[str, str]]) -> Iterator[str]:
        """Why templates do not fit: their machine type has no GPU of NVIDIA."""
        for arguments in launches_:
            listing, region = self._place(arguments)
            client = listing.client
            template = self._templates.read(client, launches.template_path(arguments))
            place = launches.place_of(client, arguments, template, region)
            why = launches.no_gpu(client, self._translator.types, arguments, template, place)
            if why is not None:
                yield why

    def identity(self) -> Identity:
        """In the first project."""
        return standing.identity(self._all[0].client, self._credentials)

    def unencrypted(self, node_ids: Sequence[str]) -> Sequence[str]:
        """Nothing: Google encrypts every disk."""
        del node_ids
        return ()

    def credentials(self) -> Credentials:
        """Those that we were given."""
        return standing.credentials(self._all[0].client, self._credentials)

    def elsewhere(self) -> Sequence[Surveyed]:
        """GPU machines in regions that the settings do not name."""
        apart = Translator(fleet=self._fleet, clock=self._clock)
        return [each for listing in self._all for each in survey.elsewhere(listing, apart)]

    def quotas(self) -> Sequence[Quota]:
        """GPUs that each project may have in each of its regions, and in all together."""
        found = gathered(self._all, lambda each: standing.quotas(each.client, each.wanted))
        return tuple(sorted(found, key=lambda each: (each.region, each.name)))

    # For people who look for forgotten machines.

    @property
    def monitor(self) -> str:
        """Cloud Monitoring."""
        return survey.MONITOR

    def use_of(self, nodes: Sequence[Node], seconds: float) -> Mapping[str, CloudUse]:
        """In the project of each."""
        end = self._clock.now()
        found: dict[str, CloudUse] = {}
        for listing in self._all:
            ids = [node.id for node in nodes if node.account == listing.client.project]
            found |= survey.use_in(listing.client, ids, end - timedelta(seconds=seconds), end)
        return found

    # Which place.

    @property
    def _all(self) -> list[Listing]:
        """Each project's machines; without a project in the settings that of the credentials."""
        if self._made is None:
            projects = self._projects or tuple(filter(None, [self._credentials.project]))
            if not projects:
                raise CloudError("no project is known; set cloud.gcp.projects, for example [my-project]")
            self._made = [
                Listing(Client(project, **self._options), self._translator, self._views, self._wanted)
                for project in projects
            ]
        return self._made

    def _wanted(self, region: str) -> bool:
        return ALL in self._regions or region in self._regions

    def _done(self, node_id: str, act: Callable[[Home], None]) -> bool:
        """Do it where the machine is; False: the machine is gone, which an operation proves.

        Raises:
            NotFoundError: nobody knows such a machine.
            CloudError: it was not done, or nobody knows.

        """
        listing, home = self._at(node_id)
        if home is None:
            if any(ended(each.client, node_id) is not None for each in self._all):
                return False
            raise _unknown(node_id, self._all)
        try:
            act(home)
        except NotFoundError:
            if ended(listing.client, node_id, home.zone) is None:
                raise
            return False
        return True

    def _at(self, node_id: str) -> tuple[Listing, Home | None]:
        """The project that has it, and where; looked for in all zones where it was not seen yet."""
        if not (node_id.isascii() and node_id.isdigit()):
            raise _unknown(node_id, self._all)
        for listing in self._all:
            if node_id in listing.homes:
                return listing, listing.homes[node_id]
        for listing in self._all:
            scopes = listing.client.scopes(LIST_INSTANCES, query={"filter": f"id = {node_id}"})
            for content in scopes.values():
                for each in content if not isinstance(content, CloudError) else ():
                    listing.remember(Instance(described=each, project=listing.client.project))
            if node_id in listing.homes:
                return listing, listing.homes[node_id]
            for content in scopes.values():
                if isinstance(content, CloudError):
                    raise CloudUnavailableError(str(content), code=content.code)
        return self._all[0], None

    def _place(self, arguments: Mapping[str, str]) -> tuple[Listing, str]:
        """Project and region of a launch; the first ones where none are named."""
        account, region = arguments.get("account"), arguments.get("region")
        zone = arguments.get("zone") or arguments.get("subnet", "").partition("/")[0]
        region = region or (region_of(zone) if zone else self._regions[0])
        listing = next((each for each in self._all if account in {None, "", each.client.project}), None)
        if listing is None or not self._wanted(region) or region == ALL:
            raise NotFoundError(
                f"{region} of project {account or 'any'} is not among cloud.regions and cloud.gcp.projects"
            )
        return listing, region

    def _client_of_group(self, group_id: str) -> Client:
        project = gcp_groups.project_of(group_id)
        for listing in self._all:
            if listing.client.project == project:
                return listing.client
        raise NotFoundError(f"{group_id} is in none of cloud.gcp.projects", code=NOT_FOUND)

    def _groups_of(self, listing: Listing) -> list[NodeGroup]:
        client = listing.client
        shown = [
            self._node_group(client, group)
            for group in gcp_groups.listed(client, listing.wanted).values()
            if group.enrolled(self._fleet) or self._has_gpus(client, group)
        ]
        return self._group_views.keep_groups(client, shown)

    def _has_gpus(self, client: Client, group: Group) -> bool:
        for path in group.templates:
            template = self._templates.get(client, path)
            facts = self._translator.types.get(client, group.zones[0], template.machine_type)
            if template.gpu_count or (facts is not None and facts.gpu_count):
                return True
        return False

    def _node_group(self, client: Client, group: Group) -> NodeGroup:
        members = gcp_groups.members(client, group)
        types = frozenset(self._templates.get(client, path).machine_type for path in group.templates)
        now = self._clock.now()
        return gcp_groups.as_node_group(client, group, fleet=self._fleet, now=now, members=members, types=types)


def _unknown(node_id: str, listings: Sequence[Listing]) -> NotFoundError:
    places = ", ".join(str(each.client) for each in listings)
    return NotFoundError(f"Compute Engine knows no instance {node_id} in {places}", code=NOT_FOUND)
