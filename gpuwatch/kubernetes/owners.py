"""What owns pods, of whatever kind: each kind is looked up once and then followed, its metadata alone.

Of Jobs it is more, for one that has no failure left makes no other pod for an evicted one.

A kind that may not be read leaves its objects unknown, and that is said on their pods; it is no trouble of the whole.
So does a kind that is there no more, or may be read no more, or that has a broken definition or conversion
webhook: people name the owner of a pod at will, and take kinds of their own away.
Pods that own others are known already.
"""

import logging
import re
import threading
from collections.abc import Callable, Iterable

import msgspec

from gpuwatch.clouds.errors import AuthFailedError, CloudError, NotFoundError
from gpuwatch.kubernetes.client import METADATA, METADATA_LIST, PLAIN, Api
from gpuwatch.kubernetes.errors import UNAUTHORIZED
from gpuwatch.kubernetes.facts import OwnerFacts, is_of_daemons, job_facts, owner_facts
from gpuwatch.kubernetes.objects import ApiResources, Described, JobObject, OwnerReference
from gpuwatch.kubernetes.unreadable import protected_owner, read_or_protect
from gpuwatch.kubernetes.watch import Watch
from gpuwatch.model.duration import format_duration
from gpuwatch.runtime.clock import Clock

_LOG = logging.getLogger(__name__)
_DESCRIBED = msgspec.json.Decoder(Described)
_JOB = msgspec.json.Decoder(JobObject)
_NEVER_READ = frozenset({("v1", "Secret"), ("v1", "ConfigMap")})  # whatever our rights are, and whoever names one
_API_VERSION = re.compile(r"(?:[a-z0-9][a-z0-9.-]*/)?[a-z][a-z0-9-]*")  # the API server takes any text in an owner's
_MOST_KINDS = 64  # all that the chart names, and as many again
_OF_US = frozenset({"Unauthorized", str(UNAUTHORIZED)})  # our token, and not this kind
_LONGEST_SHOWN = 60
_AGAIN_SECONDS = 300.0  # until a kind that was refused is looked up again
_SOON_SECONDS = 30.0  # until one is looked up again of which the API server did not answer
_QUICK_SECONDS = 1.0  # an answer that takes longer holds up each round that asks
_NAMED = 8  # kinds in a line

Kind = tuple[str, str]  # API version and kind
JOB: Kind = ("batch/v1", "Job")
POD: Kind = ("v1", "Pod")
PodOf = Callable[[str], OwnerFacts | None]  # a pod that has not ended, by its uid


def _no_pod(_: str) -> None:
    """No pod is known to own another."""


class Owners:
    """The owners of the pods that were seen."""

    def __init__(self, api: Api, clock: Clock, silence_seconds: float, pod_of: PodOf = _no_pod) -> None:
        """Nothing is followed yet."""
        self._api, self._clock, self._silence = api, clock, silence_seconds
        self._pod_of = pod_of
        self._told: frozenset[Kind] = frozenset()
        self._lock = threading.Lock()
        self._watches: dict[Kind, Watch[OwnerFacts]] = {}
        self._refused: dict[Kind, tuple[str, float]] = {}
        self._paths: dict[Kind, str] = {}

    @property
    def watches(self) -> list[Watch[OwnerFacts]]:
        """Those that follow a kind."""
        with self._lock:
            return list(self._watches.values())

    def follow(self, references: Iterable[OwnerReference | None], wait_seconds: float) -> None:
        """Follow the kinds of these owners, and of those above them, and wait for their first lists."""
        self._let_go()
        wanted = {(each.api_version, each.kind) for each in references if each is not None}
        until = self._clock.monotonic() + wait_seconds
        asked: set[Kind] = set()
        while new := wanted - asked:
            asked |= new
            for watch in [watch for kind in sorted(new) if (watch := self._begin(kind)) is not None]:
                watch.wait(max(0.0, until - self._clock.monotonic()))
            with self._lock:
                followed = [self._watches[kind] for kind in new if kind in self._watches]
            wanted = {
                (facts.owner.api_version, facts.owner.kind)
                for watch in followed
                for facts in watch.kept.all()
                if facts.owner is not None
            }
        self._tell()

    def owner_of(self, reference: OwnerReference, namespace: str) -> OwnerFacts | str | None:
        """An owner; None: it does not exist any more; a sentence: nobody can tell."""
        del namespace  # its uid says it all
        kind = (reference.api_version, reference.kind)
        if kind == POD:
            return self._pod_of(reference.uid)
        what = f"its owner {reference.kind} {reference.name}"
        with self._lock:
            watch = self._watches.get(kind)
            refused = self._refused.get(kind)
        if watch is None:
            return f"{what} cannot be read: {refused[0]}" if refused is not None else f"{what} was not read yet"
        if not watch.listed:
            return f"{what} cannot be read: {watch.failure or 'it was not listed yet'}"
        if watch.silent_seconds > self._silence:
            silence = format_duration(round(watch.silent_seconds))
            why = "" if watch.failure is None else f" ({watch.failure})"
            return f"{what} is not known: the API server has been silent about its kind for {silence}{why}"
        return watch.kept.get(reference.uid)

    def close(self) -> None:
        """Follow nothing any more."""
        for watch in self.watches:
            watch.close()

    def _tell(self) -> None:
        """Say in one line which kinds cannot be read, once for each set of kinds."""
        with self._lock:
            unread = {kind for kind, watch in self._watches.items() if not watch.listed and watch.failure is not None}
            unread |= self._refused.keys()
        if unread - self._told:
            names = [f"{name} of {version}"[:_LONGEST_SHOWN] for version, name in sorted(unread)]
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            _LOG.warning(
                "Owners of pods that cannot be read keep their pods: %s%s. Name these kinds in the chart's value "
                "controller.kubernetes.workloads, or give the controller's role get, list and watch of them",
                ", ".join(names[:_NAMED]),
                more,
            )
        self._told = frozenset(unread)

    def _let_go(self) -> None:
        """Follow no kind any more that the API server has refused for longer than its silence may last."""
        with self._lock:
            over = {kind: watch for kind, watch in self._watches.items() if self._is_over(watch)}
            for kind, watch in over.items():
                del self._watches[kind]
                self._paths.pop(kind, None)
                self._refused[kind] = (str(watch.failure), self._clock.monotonic() + _AGAIN_SECONDS)
        for watch in over.values():
            watch.close()

    def _is_over(self, watch: Watch[OwnerFacts]) -> bool:
        why = watch.failure
        if not isinstance(why, AuthFailedError | NotFoundError) or why.code in _OF_US:
            return False
        return not watch.listed or watch.silent_seconds > self._silence

    def _begin(self, kind: Kind) -> Watch[OwnerFacts] | None:
        """Follow a kind; None: it is followed already, or cannot be."""
        now = self._clock.monotonic()
        with self._lock:
            if kind in self._watches or is_of_daemons(*kind) or kind == POD:
                return None
            if kind in self._refused and now < self._refused[kind][1]:
                return None
            full = len(self._watches) >= _MOST_KINDS
        try:
            path = None if full else self.path(kind)
            refusal = f"more than {_MOST_KINDS} kinds own pods" if full else f"{kind[0]} has no {kind[1]}"
        except (AuthFailedError, NotFoundError) as error:
            path, refusal = None, str(error)
        except CloudError as error:
            took = self._clock.monotonic() - now
            with self._lock:
                self._refused[kind] = (str(error), now + (_SOON_SECONDS if took < _QUICK_SECONDS else _AGAIN_SECONDS))
            return None
        with self._lock:
            if path is None:
                self._refused[kind] = (refusal, now + _AGAIN_SECONDS)
                return None
            self._refused.pop(kind, None)
            watch = self._watches[kind] = Watch(
                self._api,
                self._clock,
                path,
                _job if kind == JOB else _owner,
                accept=(PLAIN, PLAIN) if kind == JOB else (METADATA_LIST, METADATA),
                silence_seconds=self._silence,
            )
        watch.level = logging.INFO  # `_tell` has one line for all kinds
        watch.start()
        return watch

    def path(self, kind: Kind) -> str | None:
        """Where objects of a kind are listed; None: the API server does not know it, or they have no namespace.

        Raises:
            CloudError: no answer.

        """
        if kind in self._paths:
            return self._paths[kind]
        version, name = kind
        if kind in _NEVER_READ or _API_VERSION.fullmatch(version) is None:
            raise AuthFailedError(f"gpuwatch asks for no {name} of {version[:_LONGEST_SHOWN]!r}", code="NotAsked")
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        for resource in self._api.get(base, ApiResources).resources or ():
            if resource.kind == name and resource.namespaced and "/" not in resource.name:
                self._paths[kind] = f"{base}/{resource.name}"
                return self._paths[kind]
        return None


def _owner(item: bytes) -> OwnerFacts | None:
    return read_or_protect(item, lambda item: owner_facts(_DESCRIBED.decode(item)), protected_owner)


def _job(item: bytes) -> OwnerFacts | None:
    return read_or_protect(item, lambda item: job_facts(_JOB.decode(item)), protected_owner)
