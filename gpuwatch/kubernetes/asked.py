"""Owners and namespaces asked one by one, each once: for the last question before a change."""

from collections.abc import Callable, Iterable, Mapping
from urllib.parse import quote

from gpuwatch.clouds.errors import AuthFailedError, NotFoundError
from gpuwatch.kubernetes.calls import NAMESPACES
from gpuwatch.kubernetes.client import METADATA, Api
from gpuwatch.kubernetes.facts import OwnerFacts, job_facts, owner_facts
from gpuwatch.kubernetes.objects import Described, JobObject, OwnerReference
from gpuwatch.kubernetes.owners import JOB


class AskedNow:
    """What stands above some pods at this moment. `path` finds where objects of a kind are."""

    def __init__(self, api: Api, path: Callable[[tuple[str, str]], str | None]) -> None:
        """Nothing is asked yet."""
        self._api, self._path = api, path
        self._asked: dict[str, OwnerFacts | str | None] = {}

    def owner(self, reference: OwnerReference, namespace: str) -> OwnerFacts | str | None:
        """An owner; None: it does not exist any more; a sentence: we may not read it.

        Raises:
            CloudError: no answer.

        """
        if reference.uid not in self._asked:
            self._asked[reference.uid] = self._owner(reference, namespace)
        return self._asked[reference.uid]

    def namespaces(self, names: Iterable[str]) -> Mapping[str, OwnerFacts]:
        """Those of these names that exist; raises likewise."""
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
        try:
            path = self._path((reference.api_version, reference.kind))
            if path is None:
                return f"{what} cannot be read: {reference.api_version} has no {reference.kind} with a namespace"
            base, _, plural = path.rpartition("/")
            its = f"{base}/namespaces/{namespace}/{plural}/{quote(reference.name, safe='')}"
            if (reference.api_version, reference.kind) == JOB:
                found = job_facts(self._api.get(its, JobObject))
            else:
                found = owner_facts(self._api.get(its, Described, accept=METADATA))
        except NotFoundError:
            return None
        except AuthFailedError as error:
            return f"{what} cannot be read: {error}"
        # Another object may have its name by now.
        return found if found.uid == reference.uid else None
