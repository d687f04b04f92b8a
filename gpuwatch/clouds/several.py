"""Several clouds as one: every machine with the name of its cloud, every change to exactly one of them.

Rules, all of them:

1. A cloud that gives no answer changes nothing of the others' answers. Its machines count as it showed them last, in an
   unknown state, and its groups are protected. What one showed that has never answered in this process is recalled;
   without a memory to ask (`recall`) it fails the list.
2. A change goes to the cloud that shows its machine or group. An id that no list has shown is looked for in each cloud.
3. An id that two clouds show names no machine for certain: its state is unknown, and nothing is done with it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar, cast

from gpuwatch.clouds import Cloud, Leftover, refuse_foreign_tags
from gpuwatch.clouds.disks import HasDisks, by_id
from gpuwatch.clouds.errors import CloudError, NotFoundError
from gpuwatch.clouds.part import Owners, Part, list_parts
from gpuwatch.clouds.permissions import Diagnosable, Identity, Needs, Permission, Quota, Quotas
from gpuwatch.clouds.permit import Permit
from gpuwatch.clouds.places import everywhere
from gpuwatch.clouds.silence import Listed, Outlook, Recall
from gpuwatch.clouds.survey import Searchable, Surveyed
from gpuwatch.model.fleet import Node, NodeGroup, NodeState
from gpuwatch.model.stops import StopAnswer

AMBIGUOUS, NOWHERE = "AmbiguousId", "NoSuchCloud"  # our own codes

Answer = TypeVar("Answer")
Thing = TypeVar("Thing", Node, NodeGroup)


class SeveralClouds:
    """The clouds of the section `clouds`, by their names and in their order."""

    def __init__(self, clouds: Mapping[str, Cloud]) -> None:
        """Nothing is asked yet; at least one cloud."""
        self.parts = dict(clouds)
        self._parts = {name: Part(name, cloud) for name, cloud in clouds.items()}
        self._homes, self._group_homes = Owners(), Owners()
        self._launched: dict[str, str] = {}  # the cloud of each launch of this process, by its key

    # Reading.

    def nodes(self) -> Sequence[Node]:
        """The GPU machines of all clouds; of a silent one as last seen."""
        shown: list[Node] = []
        for part, answer in self._answers(lambda cloud: tuple(cloud.nodes())):
            part.trouble = answer if isinstance(answer, CloudError) else None
            if isinstance(answer, CloudError):
                shown += part.last_nodes(answer)
            else:
                part.nodes = [replace(node, cloud=part.name) for node in answer]
                part.answered = True
                shown += part.nodes
            part.note_answer(part.trouble)
        self._homes = Owners()
        return self._merge_shown(shown, self._homes)

    def node(self, node_id: str) -> Node | None:
        """One machine as its cloud sees it now."""
        found = self._find_thing(node_id, self._homes, lambda cloud: cloud.node(node_id))
        return None if found is None else self._certain(found, self._homes)

    def lacks(self, node: Node) -> bool:
        """Whether a whole list of its region and account in its cloud is without it."""
        part = self._parts.get(node.cloud)
        if part is None or not isinstance(part.cloud, Listed):
            raise NotFoundError(f"no cloud {node.cloud!r} can say whether it has {node.id}", code=NOWHERE)
        with part.asking():
            return part.cloud.lacks(node)

    def find(self, key: str, arguments: Mapping[str, str] | None = None) -> Node | None:
        """The machine launched with that key: in the cloud that was asked for it, else in any."""
        asked = self._launched.get(key) or (arguments or {}).get("cloud")
        asked = asked if asked in self._parts else None
        parts = list(self._parts.values()) if asked is None else [self._parts[asked]]
        answers = everywhere(parts, lambda part: part.attempt(lambda cloud: cloud.find(key, arguments)))
        for part, found in zip(parts, answers, strict=True):
            if isinstance(found, Node):
                self._homes.add(found.id, part.name)
                return self._certain(replace(found, cloud=part.name), self._homes)
        for found in answers:
            if isinstance(found, CloudError):
                raise found
        return None

    def groups(self) -> Sequence[NodeGroup]:
        """The groups of all clouds; those of a silent one as last seen, and protected from every change."""
        shown: list[NodeGroup] = []
        for part, answer in self._answers(lambda cloud: tuple(cloud.groups())):
            part.no_groups = answer if isinstance(answer, CloudError) else None
            if isinstance(answer, CloudError):
                shown += part.last_groups(answer)
            else:
                part.groups = [replace(group, cloud=part.name) for group in answer]
                shown += part.groups
        self._group_homes = Owners()
        return self._merge_shown(shown, self._group_homes)

    def group(self, group_id: str) -> NodeGroup:
        """One group as its cloud sees it now."""
        found = self._find_thing(group_id, self._group_homes, lambda cloud: cloud.group(group_id))
        if found is None:
            raise NotFoundError(f"no cloud knows the group {group_id}", code=NOWHERE)
        return self._certain(found, self._group_homes)

    def leftovers(self) -> Sequence[Leftover]:
        """What is billed and used by no running machine, in all clouds."""
        by_part = list_parts(list(self._parts.values()), lambda cloud: cloud.leftovers())
        return by_id(replace(each, cloud=part.name) for part, each in by_part)

    def disks(self) -> Sequence[Leftover]:
        """Disks of machines in use, of each cloud that shows them."""
        able = [part for part in self._parts.values() if isinstance(part.cloud, HasDisks)]
        by_part = list_parts(able, lambda cloud: cast("HasDisks", cloud).disks())
        return by_id(replace(each, cloud=part.name) for part, each in by_part)

    # Clouds that give no answer.

    def recall(self, past: Recall) -> None:
        """Ask this for what a cloud showed that has never answered in this process."""
        for part in self._parts.values():
            part.recall(past)

    def outlook(self) -> Outlook:
        """What the newest lists rest on, of all clouds."""
        found = [part.outlook() for part in self._parts.values()]
        return Outlook(
            places=frozenset(place for each in found for place in each.places),
            silent=tuple(silence for each in found for silence in each.silent),
        )

    # Acting: each by the one cloud that has the machine or the group.

    def stop(self, node_id: str, key: str, *, permit: Permit) -> StopAnswer:
        """Ask its cloud for a stop."""
        with self._home(node_id).asking() as cloud:
            return cloud.stop(node_id, key, permit=permit)

    def start(self, node_id: str, key: str) -> None:
        """Ask its cloud for a start."""
        with self._home(node_id).asking() as cloud:
            cloud.start(node_id, key)

    def terminate(self, node_id: str, key: str, *, permit: Permit, group: str | None = None) -> None:
        """Ask its cloud for the end of one machine, and of its place in its group."""
        with self._home(node_id).asking() as cloud:
            cloud.terminate(node_id, key, permit=permit, group=group)

    def launch(self, arguments: Mapping[str, str], key: str) -> str:
        """Ask the cloud that the argument `cloud` names; it may be left out where there is one."""
        named = arguments.get("cloud") or (next(iter(self._parts)) if len(self._parts) == 1 else "")
        if named not in self._parts:
            there = ", ".join(self._parts)
            raise CloudError(f"a launch names the cloud {named!r}, and there are: {there}", code=NOWHERE)
        self._launched[key] = named
        own = {name: value for name, value in arguments.items() if name != "cloud"}
        with self._parts[named].asking() as cloud:
            node_id = cloud.launch(own, key)
        self._homes.add(node_id, named)
        return node_id

    def grow(self, group_id: str, size: int, key: str) -> None:
        """Raise a group's desired size in its cloud."""
        with self._home_of_group(group_id).asking() as cloud:
            cloud.grow(group_id, size, key)

    def shrink(self, group_id: str, size: int, key: str) -> None:
        """Take back what a group wants in its cloud."""
        with self._home_of_group(group_id).asking() as cloud:
            cloud.shrink(group_id, size, key)

    def protect(self, node_id: str, group_id: str, key: str, *, on: bool) -> None:
        """Set a member's protection in its cloud, or lift it."""
        with self._home(node_id).asking() as cloud:
            cloud.protect(node_id, group_id, key, on=on)

    def tag(self, node_id: str, tags: Mapping[str, str], key: str) -> None:
        """Set tags of the allow-list in its cloud."""
        refuse_foreign_tags(tags)
        with self._home(node_id).asking() as cloud:
            cloud.tag(node_id, tags, key)

    # Our own standing in each cloud that can be asked for it.

    def may(self, needs: Needs) -> Iterator[Permission]:
        """What each cloud allows, of what is needed there; a silent one is one permission that was not tried."""
        for part in self._parts.values():
            if not isinstance(part.cloud, Diagnosable):
                continue
            own = replace(
                needs, node_ids=self._machines_of(part, needs.node_ids), launches=self._launches(part, needs.launches)
            )
            try:
                for each in part.cloud.may(own):
                    yield replace(each, where=f"{part.name}: {each.where}")
            except CloudError as error:
                yield Permission(call="all calls", where=part.name, allowed=None, reason=str(error))

    def may_beyond(self, node_ids: Sequence[str]) -> Iterator[Permission]:
        """What each cloud allows on machines that are not the fleet's; of a silent one nothing is known."""
        for part in self._parts.values():
            if isinstance(part.cloud, Diagnosable):
                with suppress(CloudError):
                    for each in part.cloud.may_beyond(self._machines_of(part, node_ids)):
                        yield replace(each, where=f"{part.name}: {each.where}")

    def identity(self) -> Identity:
        """Who we are in each cloud; each has a clock of its own, so there is no common time."""
        names = []
        for part in self._parts.values():
            if isinstance(part.cloud, Diagnosable):
                with part.asking():
                    names.append(f"{part.cloud.identity().name} in {part.name}")
        return Identity(name=", ".join(names), at=None)

    def unfit(self, launches: Sequence[Mapping[str, str]]) -> Iterator[str]:
        """Launches that would bring no node."""
        for part in self._parts.values():
            if isinstance(part.cloud, Diagnosable):
                with part.asking():
                    yield from (f"{part.name}: {each}" for each in part.cloud.unfit(self._launches(part, launches)))

    def unencrypted_disks(self, node_ids: Sequence[str]) -> Sequence[str]:
        """Volumes of these machines that are not encrypted."""
        able = [part for part in self._parts.values() if isinstance(part.cloud, Diagnosable)]
        of_part = {id(part.cloud): self._machines_of(part, node_ids) for part in able}
        by_part = list_parts(able, lambda cloud: cast("Diagnosable", cloud).unencrypted_disks(of_part[id(cloud)]))
        return tuple(f"{part.name}: {each}" for part, each in by_part)

    def elsewhere(self) -> Sequence[Surveyed]:
        """Regions that the settings do not name, of each cloud that can be searched."""
        found: list[Surveyed] = []
        for part in self._parts.values():
            if isinstance(part.cloud, Searchable):
                searched = part.cloud
                answer = part.attempt(lambda _, searched=searched: tuple(searched.elsewhere()))  # type: ignore[misc]
                if isinstance(answer, CloudError):
                    found.append(Surveyed(where=f"other than named in {part.name}", trouble=str(answer)))
                else:
                    found += [replace(each, where=f"{part.name}: {each.where}") for each in answer]
        return tuple(found)

    def quotas(self) -> Sequence[Quota]:
        """The account's limits in each cloud that shows them."""
        able = [part for part in self._parts.values() if isinstance(part.cloud, Quotas)]
        by_part = list_parts(able, lambda cloud: cast("Quotas", cloud).quotas())
        return tuple(replace(each, cloud=part.name) for part, each in by_part)

    # Which cloud.

    def _answers(self, ask: Callable[[Cloud], Answer]) -> list[tuple[Part, Answer | CloudError]]:
        """Each cloud's answer or error, in their order; where none answers, nobody sees anything.

        Raises:
            CloudError: of the first cloud, if all failed.

        """
        parts = list(self._parts.values())
        answers = everywhere(parts, lambda part: part.attempt(ask))
        failed = [each for each in answers if isinstance(each, CloudError)]
        if failed and len(failed) == len(answers):
            raise failed[0]
        return list(zip(parts, answers, strict=True))

    def _merge_shown(self, shown: Sequence[Thing], owners: Owners) -> tuple[Thing, ...]:
        """Each id once, in the order of the ids."""
        first: dict[str, Thing] = {}
        for each in shown:
            owners.add(each.id, each.cloud)
            first.setdefault(each.id, each)
        return tuple(self._certain(first[name], owners) for name in sorted(first))

    @staticmethod
    def _certain(found: Thing, owners: Owners) -> Thing:
        """The same, and in doubt where its id is in two clouds."""
        clouds = owners.of.get(found.id, ())
        if len(clouds) < 2:  # noqa: PLR2004  two clouds
            return found
        doubt = f"the clouds {' and '.join(clouds)} both show its id {found.id}"
        if isinstance(found, Node):
            return replace(found, state=NodeState.UNKNOWN, protected=doubt)
        return replace(found, protected=doubt)

    def _find_thing(self, name: str, owners: Owners, ask: Callable[[Cloud], Thing | None]) -> Thing | None:
        """What the clouds that may have it say of an id; None: each cloud says for certain that it does not exist.

        Raises:
            NotFoundError: no cloud knows it, and that proves nothing.
            CloudError: no cloud showed it, and one gave no answer.

        """
        homes = owners.of.get(name) or tuple(self._parts)
        parts = [self._parts[home] for home in homes]
        found: list[Thing] = []
        failed: list[CloudError] = []
        for part, answer in zip(parts, everywhere(parts, lambda part: part.attempt(ask)), strict=True):
            if isinstance(answer, CloudError):
                failed.append(answer)
            elif answer is not None:
                owners.add(name, part.name)
                found.append(replace(answer, cloud=part.name))
        if found:
            return found[0]
        if failed:
            raise next((each for each in failed if not isinstance(each, NotFoundError)), failed[0])
        return None

    def _home(self, node_id: str) -> Part:
        """The one cloud that has the machine; costs a call to each only where no list has shown it yet."""
        if node_id not in self._homes.of:
            self.node(node_id)
        return self._only(node_id, self._homes)

    def _home_of_group(self, group_id: str) -> Part:
        """The one cloud that has the group."""
        if group_id not in self._group_homes.of:
            self.group(group_id)
        return self._only(group_id, self._group_homes)

    def _only(self, name: str, owners: Owners) -> Part:
        """The only cloud that shows an id.

        Raises:
            NotFoundError: none does.
            CloudError: two do.

        """
        homes = owners.of.get(name, ())
        if not homes:
            raise NotFoundError(f"no cloud knows {name}", code=NOWHERE)
        if len(homes) > 1:
            raise CloudError(f"the clouds {' and '.join(homes)} both show {name}: nothing is done", code=AMBIGUOUS)
        return self._parts[homes[0]]

    def _machines_of(self, part: Part, node_ids: Sequence[str]) -> tuple[str, ...]:
        """Those of these machines that are in this cloud alone."""
        return tuple(node_id for node_id in node_ids if self._homes.of.get(node_id) == (part.name,))

    def _launches(self, part: Part, launches: Sequence[Mapping[str, str]]) -> tuple[Mapping[str, str], ...]:
        """Those of these launches that name this cloud, without its name."""
        alone = len(self._parts) == 1
        mine = [each for each in launches if each.get("cloud") == part.name or (alone and not each.get("cloud"))]
        return tuple({name: value for name, value in each.items() if name != "cloud"} for each in mine)
