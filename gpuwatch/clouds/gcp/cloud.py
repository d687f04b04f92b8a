"""Compute Engine and its managed instance groups, in several projects and regions."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from gpuwatch.clouds import FLEET_TAG, CloudError, CloudUnavailableError, Leftover, NotFoundError
from gpuwatch.clouds.disks import by_id
from gpuwatch.clouds.gcp import actions, launches, standing, survey
from gpuwatch.clouds.gcp import groups as gcp_groups
from gpuwatch.clouds.gcp.actions import Home, ended_machine, launch_that_ended
from gpuwatch.clouds.gcp.client import Client
from gpuwatch.clouds.gcp.credentials import Credentials as Given
from gpuwatch.clouds.gcp.errors import NOT_FOUND, NOT_READY
from gpuwatch.clouds.gcp.groups import Group, Templates, region_of
from gpuwatch.clouds.gcp.iam import LIST_INSTANCES
from gpuwatch.clouds.gcp.instances import Instance, Translator
from gpuwatch.clouds.gcp.owners import labels_of
from gpuwatch.clouds.gcp.places import Listing, Zone
from gpuwatch.clouds.keys import Credentials
from gpuwatch.clouds.permissions import Identity, Needs, Permission, Quota
from gpuwatch.clouds.permit import Permit
from gpuwatch.clouds.placed import PlacedCloud
from gpuwatch.clouds.places import Views, anywhere, attempt, gather_from, in_doubt
from gpuwatch.clouds.provider import ALL
from gpuwatch.clouds.silence import Outlook, Recall, note_silence
from gpuwatch.clouds.survey import CloudUse, Surveyed
from gpuwatch.model.fleet import Node, NodeGroup
from gpuwatch.model.sight import Silence
from gpuwatch.model.stops import StopAnswer
from gpuwatch.runtime.clock import Clock


class GcpCloud(PlacedCloud[Listing, Group]):
    """The GPU machines and groups of some projects and regions. Credentials are found by Google's own rules."""

    SERVICE = "Compute Engine"
    NO_GROUP = NOT_FOUND
    acts = actions
    monitor = survey.MONITOR

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
        super().__init__(fleet=fleet, clock=clock)  # its views are those of groups
        self._regions = tuple(dict.fromkeys(regions))
        self._projects = tuple(dict.fromkeys(projects))
        self._credentials = Given(credentials_file, given=credentials)
        self._options = {"credentials": self._credentials, "clock": clock, "endpoint_url": endpoint_url, **options}
        self._translator = Translator(fleet=fleet, clock=clock)
        self._templates = Templates()
        self._zones: Views[Zone] = Views(clock, cloud=self.SERVICE)
        self._made: list[Listing] | None = None

    def node(self, node_id: str) -> Node:
        """One machine as Compute Engine sees it now; gone only where an operation says so."""
        listing, home = self._home_at(node_id)
        if home is not None:
            try:
                return listing.one(actions.describe_instance(home, node_id))
            except NotFoundError:
                gone = ended_machine(listing.client, node_id, home.zone)
                if gone is None:
                    raise
                return gone
        for each in self._all:
            gone = ended_machine(each.client, node_id)
            if gone is not None:
                return gone
        raise _unknown(node_id, self._all)

    def leftovers(self) -> Sequence[Leftover]:
        """Disks, addresses, snapshots and images that no running machine uses, in every project and region."""
        now = self._clock.now()
        found = gather_from(self._all, lambda each: self._list_unused(each, frozenset(), now))
        try:  # an image may be used in another project, so all must answer
            found += survey.old_images([each.client for each in self._all], now)
        except CloudError as error:
            note_silence(Silence(where="images", reason=str(error), known=False), error)
        return by_id(found)

    # Places that give no answer.

    def recall(self, past: Recall) -> None:
        """Ask this for what a place had that has shown nothing yet."""
        super().recall(past)
        self._zones.recall(past)

    def outlook(self) -> Outlook:
        """What the newest lists rest on: zones, and projects that gave no answer."""
        zones, groups = self._zones.outlook(), super().outlook()
        projects = tuple(each for listing in self._all for each in listing.silent)
        told = {each.where for each in projects}
        return Outlook(
            places=zones.places | groups.places,
            silent=(*projects, *zones.silent, *(each for each in groups.silent if each.where not in told)),
        )

    # Acting. A key names a launch, and the end of a group's member; asking for the rest twice changes nothing more.

    def stop(self, node_id: str, key: str, *, permit: Permit) -> StopAnswer:
        """Ask for a stop."""
        del key
        answers: list[StopAnswer] = []
        types = self._translator.types
        self._do_at_home(node_id, lambda home: answers.append(actions.stop(home, node_id, permit, types)))
        return answers[0] if answers else StopAnswer(ran=False)

    def start(self, node_id: str, key: str) -> None:
        """Ask for a start."""
        del key
        if not self._do_at_home(node_id, lambda home: actions.start(home, node_id, self._clock)):
            raise CloudError(f"{node_id} is gone: it cannot be started", code=NOT_READY)

    def terminate(self, node_id: str, key: str, *, permit: Permit, group: str | None = None) -> None:
        """Ask for the end of a machine; with a group, of its place there too."""
        if group is None:
            self._do_at_home(node_id, lambda home: actions.terminate(home, node_id, permit))
            return
        now, fleet = self._clock.now(), self._fleet
        self._do_at_home(
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

    def _protect(self, node_id: str, group_id: str, *, on: bool) -> None:
        """Refuse: Google's groups know no such protection."""
        del node_id, on
        actions.protect(self._home_of_group(group_id).client, group_id, fleet=self._fleet)

    def _tag(self, node_id: str, tags: Mapping[str, str]) -> None:
        if not self._do_at_home(node_id, lambda home: actions.tag(home, node_id, tags)):
            raise NotFoundError(f"{node_id} is gone", code=NOT_FOUND)

    # Our own standing, and what people look at. Google encrypts every disk.

    def identity(self) -> Identity:
        """In the first project."""
        return standing.identity(self._all[0].client, self._credentials)

    def credentials(self) -> Credentials:
        """Those that we were given."""
        return standing.credentials(self._all[0].client, self._credentials)

    def _quotas(self, place: Listing) -> Iterable[Quota]:
        """GPUs that the project may have in each of its regions, and in all together."""
        return standing.quotas(place.client, place.wanted)

    def _may_read(self, place: Listing) -> Iterator[Permission]:
        """By reading, and by testIamPermissions."""
        return standing.may_read(place.client)

    def _may_act(self, place: Listing, needs: Needs) -> Iterator[Permission]:
        homes = {node_id: place.homes[node_id] for node_id in needs.node_ids if node_id in place.homes}
        yield from standing.may_act(place.client, homes, terminate=needs.terminate)
        yield from standing.may_change_groups(place.client) if needs.groups else ()

    def _may_beyond(self, place: Listing, node_ids: Sequence[str]) -> Iterator[Permission]:
        tried = next((place.homes[node_id] for node_id in node_ids if node_id in place.homes), None)
        yield from () if tried is None else standing.may_change(tried.client, tried)

    def _may_launch(self, arguments: Mapping[str, str]) -> Iterator[Permission]:
        yield standing.may_launch(self._place(arguments)[0].client)

    def _list_unused(self, place: Listing, stopped: frozenset[str], now: datetime) -> Iterable[Leftover]:
        del stopped, now
        return survey.list_unused(place.client, place.wanted)

    def _disks_in_use(self, place: Listing, node_ids: frozenset[str]) -> Iterable[Leftover]:
        return survey.disks_in_use(place.client, place.wanted, node_ids)

    def elsewhere(self) -> Sequence[Surveyed]:
        """GPU machines in regions that the settings do not name."""
        apart = Translator(fleet=self._fleet, clock=self._clock)
        return [each for listing in self._all for each in survey.elsewhere(listing, apart)]

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
                Listing(Client(project, **self._options), self._translator, self._zones, self._is_wanted)
                for project in projects
            ]
        return self._made

    def _is_wanted(self, region: str) -> bool:
        return ALL in self._regions or region in self._regions

    def _do_at_home(self, node_id: str, act: Callable[[Home], None]) -> bool:
        """Do it where the machine is; False: the machine is gone, which an operation proves.

        Raises:
            NotFoundError: nobody knows such a machine.
            CloudError: it was not done, or nobody knows.

        """
        listing, home = self._home_at(node_id)
        if home is None:
            if any(ended_machine(each.client, node_id) is not None for each in self._all):
                return False
            raise _unknown(node_id, self._all)
        try:
            act(home)
        except NotFoundError:
            if ended_machine(listing.client, node_id, home.zone) is None:
                raise
            return False
        return True

    def _home_at(self, node_id: str) -> tuple[Listing, Home | None]:
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
        if listing is None or not self._is_wanted(region) or region == ALL:
            raise NotFoundError(
                f"{region} of project {account or 'any'} is not among cloud.regions and cloud.gcp.projects"
            )
        return listing, region

    def _place_of(self, region: str | None, account: str | None) -> Listing:
        del region  # a project has all
        for listing in self._all:
            if listing.client.project == account:
                return listing
        raise NotFoundError(f"{account} is not among cloud.gcp.projects", code=NOT_FOUND)

    # Within one project.

    def _everywhere(self) -> Iterator[tuple[Listing, list[Node]]]:
        return anywhere(self._all, Listing.nodes, Listing.last_nodes, Listing.note_silence)

    def _nodes(self, place: Listing) -> list[Node]:
        return place.nodes()

    def _ids(self, place: Listing) -> set[str]:
        return place.ids()

    def _find_launched(self, place: Listing, key: str) -> Node | None:
        """By the name made of the key."""
        instance = launches.existing(place.client, key)
        if instance is None:
            return None
        place.remember(instance)
        return place.one(instance)

    def _ended_launch(self, key: str) -> Node | None:
        ended_ones = (launch_that_ended(each.client, launches.name_of(key)) for each in self._all)
        return next((gone for gone in ended_ones if gone is not None), None)

    def _no_gpu(self, arguments: Mapping[str, str]) -> str | None:
        listing, region = self._place(arguments)
        template = self._templates.read(listing.client, launches.template_path(arguments))
        place = launches.place_of(listing.client, arguments, template, region)
        return launches.no_gpu(listing.client, self._translator.types, arguments, template, place)

    # Its groups.

    def _home_of_group(self, group_id: str) -> Listing:
        return self._place_of(None, gcp_groups.project_of(group_id))

    def _listed_groups(self, place: Listing) -> Iterable[Group]:
        return gcp_groups.every_group(place.client, place.wanted).values()

    def _groups(self, place: Listing) -> list[NodeGroup]:
        """The project's groups; one of a zone that gave no answer, or that cannot be looked into, as last seen."""
        silent: dict[str, CloudError] = {}
        shown: list[NodeGroup] = []
        for group in gcp_groups.every_group(place.client, place.wanted, silent).values():
            told = attempt(lambda group=group: self._shown_group(place, group))  # type: ignore[misc]  # a default
            if isinstance(told, CloudError):
                told = self._views.last_group(place, group.id, told) or self._without_members(place, group, told)
            shown += () if told is None else (told,)
        return self._views.keep_groups(place, shown, lambda group: silent.get(gcp_groups.scope_of(group.id)), silent)

    def _shown_group(self, place: Listing, group: Group) -> NodeGroup | None:
        """One group in our words; None: it is not ours, and is known to have no GPUs."""
        if group.is_enrolled(self._fleet) or self._has_gpus(place, group):
            return self._group_in_our_words(place, group)
        return None

    def _without_members(self, place: Listing, group: Group, error: CloudError) -> NodeGroup | None:
        """One of ours that nobody has looked into yet."""
        if not group.is_enrolled(self._fleet):
            return None
        now, types = self._clock.now(), frozenset[str]()
        bare = gcp_groups.as_node_group(place.client, group, fleet=self._fleet, now=now, members=(), types=types)
        return in_doubt(bare, error)

    def _known_group(self, place: Listing, group_id: str) -> Group:
        return gcp_groups.one_group(place.client, group_id)

    def _has_gpus(self, place: Listing, group: Group) -> bool:
        for path in group.templates:
            template = self._templates.get(place.client, path)
            facts = self._translator.types.get(place.client, group.zones[0], template.machine_type)
            if template.gpu_count or (facts is not None and facts.gpu_count):
                return True
        return False

    def _kind_of(self, place: Listing, group: Group, path: str) -> str:
        template = self._templates.get(place.client, path)
        facts = self._translator.types.get(place.client, group.zones[0], template.machine_type)
        attached = gcp_groups.attached_to(facts, template.accelerators)
        return f"{template.machine_type}+{attached}" if attached else template.machine_type

    def _group_in_our_words(self, place: Listing, group: Group) -> NodeGroup:
        members = gcp_groups.members(place.client, group)
        types = frozenset(self._kind_of(place, group, path) for path in group.templates)
        now = self._clock.now()
        return gcp_groups.as_node_group(place.client, group, fleet=self._fleet, now=now, members=members, types=types)


def _unknown(node_id: str, listings: Sequence[Listing]) -> NotFoundError:
    places = ", ".join(str(each.client) for each in listings)
    return NotFoundError(f"Compute Engine knows no instance {node_id} in {places}", code=NOT_FOUND)
