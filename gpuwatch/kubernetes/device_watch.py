"""Claims, classes, slices and taint rules of devices, followed in the versions that the API server serves.

An API server without the group has no claims: then nothing is followed, and nothing is in doubt. What may not be read
is a doubt that costs pods with claims alone.
"""

from collections.abc import Callable, Collection
from typing import TypeVar

import msgspec

from gpuwatch.clouds.errors import CloudError, NotFoundError
from gpuwatch.kubernetes.client import PLAIN, Api
from gpuwatch.kubernetes.device_facts import (
    ClassFacts,
    DeviceClaimFacts,
    SliceFacts,
    TaintRuleFacts,
    WantedDevices,
    claim_facts,
    class_facts,
    slice_facts,
    taint_rule_facts,
)
from gpuwatch.kubernetes.device_objects import ClaimObject, ClassObject, SliceObject, TaintRuleObject
from gpuwatch.kubernetes.devices import Devices
from gpuwatch.kubernetes.kept import Facts
from gpuwatch.kubernetes.objects import ApiResources
from gpuwatch.kubernetes.optional_watch import served_versions
from gpuwatch.kubernetes.unreadable import least_of, read_or_protect
from gpuwatch.kubernetes.watch import Watch
from gpuwatch.runtime.clock import Clock

_NAME = "resource.k8s.io"
_GROUP = f"/apis/{_NAME}"
_VERSIONS = ("v1", "v1beta2", "v1beta1")  # the newest first
_RULES, _VERSIONS_OF_RULES = "devicetaintrules", ("v1", "v1beta2", "v1alpha3")
_AGAIN_SECONDS = 300.0  # until an API server without the group, or without the rules, is asked again

_CLAIM = msgspec.json.Decoder(ClaimObject)
_CLASS = msgspec.json.Decoder(ClassObject)
_SLICE = msgspec.json.Decoder(SliceObject)
_RULE = msgspec.json.Decoder(TaintRuleObject)
_F = TypeVar("_F", bound=Facts)
_Watches = Watch[DeviceClaimFacts] | Watch[ClassFacts] | Watch[SliceFacts] | Watch[TaintRuleFacts]


class DeviceWatch:
    """All four kinds. Threads follow them from the first `begin` that finds them until `close`."""

    def __init__(self, api: Api, clock: Clock, silence_seconds: float) -> None:
        """Nothing is asked yet."""
        self._api, self._clock, self._silence = api, clock, silence_seconds
        self._claims: Watch[DeviceClaimFacts] | None = None
        self._classes: Watch[ClassFacts] | None = None
        self._slices: Watch[SliceFacts] | None = None
        self._rules: Watch[TaintRuleFacts] | None = None
        self._rules_doubt: str | None = None
        self._doubt: str | None = "they were not looked for yet"
        self._next_at = 0.0

    def begin(self, wait_seconds: float) -> None:
        """Find out what is served, follow it, and wait for the first lists; does nothing where they are followed."""
        if any(isinstance(each.failure, NotFoundError) for each in self._watches()):
            self.close()  # another version is served by now
            self._next_at = 0.0
        if self._rules is not None or self._clock.monotonic() < self._next_at:
            return
        self._next_at = self._clock.monotonic() + (_AGAIN_SECONDS if self._doubt is None else self._silence)
        try:
            served = served_versions(self._api, _NAME)
        except CloudError as error:
            self._doubt = str(error)
            return
        version = next((each for each in _VERSIONS if each in served), None)
        self._doubt = f"the API server serves {', '.join(sorted(served))} of it alone" if served else None
        if version is None:
            return
        self._doubt = None
        if not self._watches():
            self._follow(f"{_GROUP}/{version}", wait_seconds)
        try:
            self._follow_rules(served, wait_seconds)
            self._rules_doubt = None
        except CloudError as error:
            self._rules_doubt, self._next_at = str(error), self._clock.monotonic() + self._silence

    def devices(self) -> Devices:
        """What claims, classes and slices show now."""
        if self._claims is None or self._classes is None or self._slices is None:
            return Devices(doubt=self._doubt)
        return Devices.from_facts(
            self._claims.kept.all(),
            self._classes.kept.all(),
            tuple(self._slices.kept.all()),
            self._why_unknown(self._claims, self._classes, self._slices),
            () if self._rules is None else tuple(self._rules.kept.all()),
            self._rules_doubt if self._rules is None else self._why_unknown(self._rules),
        )

    def close(self) -> None:
        """Follow nothing any more."""
        for watch in self._watches():
            watch.close()
        self._claims = self._classes = self._slices = self._rules = None

    def _watches(self) -> tuple[_Watches, ...]:
        if self._claims is None or self._classes is None or self._slices is None:
            return ()
        return self._claims, self._classes, self._slices, *(() if self._rules is None else (self._rules,))

    def _why_unknown(self, *watches: _Watches) -> str | None:
        """Why one of them is not known, as a clause."""
        for watch in watches:
            if not watch.listed or watch.silent_seconds > self._silence:
                what = watch.path.rpartition("/")[2]
                return f"the API server shows no {what} ({watch.failure or 'they were not listed yet'})"
        return None

    def _follow(self, base: str, wait_seconds: float) -> None:
        self._claims = self._watch(f"{base}/resourceclaims", _read_claim)
        self._classes = self._watch(f"{base}/deviceclasses", _read_class)
        self._slices = self._watch(f"{base}/resourceslices", _read_slice)
        until = self._clock.monotonic() + wait_seconds
        for watch in self._watches():
            watch.start()
        for watch in self._watches():
            watch.wait(max(0.0, until - self._clock.monotonic()))

    def _follow_rules(self, served: Collection[str], wait_seconds: float) -> None:
        """Follow them where the API server has them, which most do not; raises CloudError."""
        for version in (each for each in _VERSIONS_OF_RULES if each in served):
            base = f"{_GROUP}/{version}"
            if any(each.name == _RULES for each in self._api.get(base, ApiResources).resources or ()):
                self._rules = self._watch(f"{base}/{_RULES}", _read_rule)
                self._rules.start()
                self._rules.wait(wait_seconds)
                return

    def _watch(self, path: str, read: Callable[[bytes], _F | None]) -> Watch[_F]:
        return Watch(self._api, self._clock, path, read, accept=(PLAIN, PLAIN), silence_seconds=self._silence)


def _read_claim(item: bytes) -> DeviceClaimFacts | None:
    return read_or_protect(item, lambda item: claim_facts(_CLAIM.decode(item)), _doubtful_claim)


def _read_class(item: bytes) -> ClassFacts | None:
    return read_or_protect(item, lambda item: class_facts(_CLASS.decode(item)), _doubtful_class)


def _read_slice(item: bytes) -> SliceFacts | None:
    return read_or_protect(item, lambda item: slice_facts(_SLICE.decode(item)), _doubtful_slice)


def _read_rule(item: bytes) -> TaintRuleFacts | None:
    return read_or_protect(item, lambda item: taint_rule_facts(_RULE.decode(item)), _doubtful_rule)


def _doubtful_rule(item: bytes, why: str) -> TaintRuleFacts:
    """Make a rule that taints every device."""
    del why
    _, _, uid, version = least_of(item)
    return TaintRuleFacts(uid, version, None, None, None)


def _doubtful_claim(item: bytes, why: str) -> DeviceClaimFacts:
    """Make a claim of one device that may be a GPU."""
    del why
    name, namespace, uid, version = least_of(item)
    wants = (WantedDevices(alternatives=(("", 1),)),)
    return DeviceClaimFacts(
        namespace=namespace,
        name=name,
        uid=uid,
        version=version,
        wants=wants,
        devices=None,
        users=frozenset(),
        odd="cannot be read",
    )


def _doubtful_class(item: bytes, why: str) -> ClassFacts:
    """Make a class of which the name says what it is."""
    del why
    name, _, uid, version = least_of(item)
    return ClassFacts(name=name, uid=uid, version=version, driver=None)


def _doubtful_slice(item: bytes, why: str) -> SliceFacts:
    """Make a slice without a device."""
    del why
    _, _, uid, version = least_of(item)
    return SliceFacts(uid=uid, version=version, driver="", pool="", generation=0, node=None, devices=())
