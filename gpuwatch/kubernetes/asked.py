"""What the API server is asked one by one: owners and namespaces right before a change, and what it lets us do."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from urllib.parse import quote

import msgspec

from gpuwatch.clouds.errors import AuthFailedError, CloudError, NotFoundError
from gpuwatch.kubernetes import Access
from gpuwatch.kubernetes.calls import IN_NAMESPACES, NAMESPACES, RIGHTS, Right, Use
from gpuwatch.kubernetes.client import METADATA, METADATA_LIST, Api
from gpuwatch.kubernetes.facts import OwnerFacts, job_facts, owner_facts
from gpuwatch.kubernetes.objects import AccessReview, ApiResources, Described, JobObject, OwnerReference, Version
from gpuwatch.kubernetes.owners import JOB, POD
from gpuwatch.kubernetes.unreadable import protected_owner, read_or_protect

_DESCRIBED = msgspec.json.Decoder(Described)


class AskedNow:
    """What stands above some pods at this moment. `path` finds where objects of a kind are."""

    def __init__(self, api: Api, path: Callable[[tuple[str, str]], str | None]) -> None:
        """Nothing is asked yet."""
        self._api, self._path = api, path
        self._asked: dict[str, OwnerFacts | str | None] = {}
        self._silent: dict[tuple[str, str], str] = {}  # why kinds have no answer

    def owner(self, reference: OwnerReference, namespace: str) -> OwnerFacts | str | None:
        """An owner; None: it does not exist any more; a sentence: we may not read it, or its kind is broken.

        A kind without an answer is not asked for again: one of them costs its own pods, and no other's time.
        """
        if reference.uid not in self._asked:
            self._asked[reference.uid] = self._owner(reference, namespace)
        return self._asked[reference.uid]

    def namespaces(self, names: Iterable[str]) -> Mapping[str, OwnerFacts]:
        """Those of these names that exist.

        Raises:
            CloudError: no answer.

        """
        found = {}
        for name in sorted(set(names)):
            try:
                described = self._api.get(f"{NAMESPACES}/{name}", Described, accept=METADATA)
            except NotFoundError:
                continue
            found[name] = owner_facts(described, of_namespace=True)
        return found

    def _owner(self, reference: OwnerReference, namespace: str) -> OwnerFacts | str | None:
        what = f"its owner {reference.kind} {reference.name}"
        kind = (reference.api_version, reference.kind)
        if kind in self._silent:
            return f"{what} cannot be read: {self._silent[kind]}"
        try:
            if kind == POD:
                return self._pod(reference, namespace)
            path = self._path(kind)
            if path is None:
                return f"{what} cannot be read: {reference.api_version} has no {reference.kind} with a namespace"
            base, _, plural = path.rpartition("/")
            its = f"{base}/namespaces/{namespace}/{plural}/{quote(reference.name, safe='')}"
            if kind == JOB:
                found = job_facts(self._api.get(its, JobObject))
            else:
                found = owner_facts(self._api.get(its, Described, accept=METADATA))
        except NotFoundError:
            return None
        except AuthFailedError as error:
            return f"{what} cannot be read: {error}"
        except CloudError as error:
            self._silent[kind] = str(error)
            return f"{what} cannot be read: {error}"
        # Another object may have its name by now.
        return found if found.uid == reference.uid else None

    def _pod(self, reference: OwnerReference, namespace: str) -> OwnerFacts | None:
        """A pod that owns another; pods are listed, for the role gets none by its name."""
        path, query = f"{NAMESPACES}/{namespace}/pods", {"fieldSelector": f"metadata.name={reference.name}"}
        for page in self._api.pages(path, query, METADATA_LIST):
            for item in page.items or ():
                found = read_or_protect(bytes(item), _owner_facts, protected_owner)
                if found is not None and found.uid == reference.uid:
                    return found
        return None


def _owner_facts(item: bytes) -> OwnerFacts:
    return owner_facts(_DESCRIBED.decode(item))


_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def server_version(api: Api) -> str:
    """The API server's server_version; raises CloudError."""
    return api.get("/version", Version).git_version


def accesses(api: Api, uses: AbstractSet[Use], namespaces: Sequence[str]) -> Iterator[Access]:
    """Each right that these uses of the cluster need; raises CloudError.

    The chart gives rights to workloads in some namespaces alone: a workload elsewhere is refused.
    """
    for right in RIGHTS:
        inside = right.use in IN_NAMESPACES
        if right.use not in uses or (inside and not namespaces) or (right.foreign and not _knows_kind(api, right)):
            continue
        places = namespaces if inside else [None]
        found = {place: {verb for verb in right.verbs if _is_granted(api, right, verb, place)} for place in places}
        granted = set[str]().union(*found.values())
        resource = f"{right.resource}/{right.subresource}" if right.subresource else right.resource
        yield Access(
            resource=resource + (f" of {right.group}" if right.group else ""),
            allowed=tuple(verb for verb in right.verbs if verb in granted),
            refused=tuple(verb for verb in right.verbs if verb not in granted),
            reason=right.why,
            namespaces=tuple(each for each in namespaces if found[each] == set(right.verbs)) if inside else None,
        )


def _knows_kind(api: Api, right: Right) -> bool:
    """Whether the cluster has such a kind: any server_version of its group."""
    try:
        api.get(f"/apis/{right.group}", ApiResources)
    except NotFoundError:
        return False
    return True


def may_patch(api: Api, group: str, resource: str, namespace: str) -> bool:
    """Whether we may patch objects of a namespace; raises CloudError."""
    return _is_granted(api, Right(group=group, resource=resource, verbs=("patch",), why=""), "patch", namespace)


def _is_granted(api: Api, right: Right, verb: str, namespace: str | None) -> bool:
    attributes = {
        **({} if namespace is None else {"namespace": namespace}),
        "group": right.group,
        "resource": right.resource,
        "subresource": right.subresource,
        "verb": verb,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    status = api.ask(_REVIEWS, body, AccessReview).status
    return status is not None and status.allowed
