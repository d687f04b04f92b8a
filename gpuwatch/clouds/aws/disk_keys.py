"""Keys of one's own on machines' volumes: whether EC2 may use them when such a machine starts again.

Without the right to a grant EC2 accepts the start, and the machine falls back to stopped a moment later. So gpuwatch
asks before a stop, without any effect: KMS who owns the key and whether it is on, and IAM whether gpuwatch's own
policies allow the grant. A machine that did fall back is worth more than both: the key's own policy may refuse, which
IAM does not look at. What is known of a volume does not change; what is known of a key is asked again after an hour.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from gpuwatch.clouds import AuthFailedError, CloudError, CloudUnavailableError
from gpuwatch.clouds.aws.client import DescribedInstance
from gpuwatch.clouds.aws.places import Region
from gpuwatch.clouds.survey import batches
from gpuwatch.runtime.clock import Clock

_VALUES_A_FILTER = 200
_FRESH_SECONDS = 3600.0
_REMEMBERED_SECONDS = 86400.0  # a start that failed, after it was seen last
_LONGEST = 160  # characters of an error
_OURS, _ENABLED = "CUSTOMER", "Enabled"  # KeyManager and KeyState of DescribeKey
_NO_SUCH_ROLE, _NO_SUCH_KEY = "NoSuchEntity", "NotFoundException"
# StateReason's codes of what stops a machine; any other one of a stopped machine is why it did not start.
_STOPS = frozenset(
    {
        "",
        "Client.InstanceInitiatedShutdown",
        "Client.InstanceTerminated",
        "Client.UserInitiatedHibernate",
        "Client.UserInitiatedShutdown",
        "Server.ScheduledStop",
        "Server.SpotInstanceShutdown",
        "Server.SpotInstanceTermination",
    }
)
# Those that a key without a grant leads to: EC2 names the key in none of them.
_OF_A_KEY = re.compile(r"Client\.(InternalError|InvalidKMSKey|KMS|Kms)")
_GRANT = "; so it is where EC2 may not use the key of a volume (kms:CreateGrant)"
_ROLE = re.compile(r"arn:(?P<partition>[^:]+):sts::(?P<account>\d+):assumed-role/(?P<role>[^/]+)/")


def failed_start(described: DescribedInstance) -> str | None:
    """What EC2 says of a machine that did not start, for people; None: it says nothing of the kind.

    Sources: DescribeInstances, StateReason and StateTransitionReason.
    """
    reason = described.get("StateReason", {})
    code, message = reason.get("Code", ""), reason.get("Message", "")
    if code in _STOPS:
        return None
    words = message if message.startswith(code) else ": ".join(filter(None, [code, message]))
    more = described.get("StateTransitionReason", "")
    words = f"{words} ({more})" if more and more not in words else words
    return f"{words}{_GRANT}" if _OF_A_KEY.match(code) else words


def volumes_of(described: DescribedInstance) -> list[str]:
    """The ids of a machine's volumes, as it is described."""
    mapped = described.get("BlockDeviceMappings", ())
    return [name for each in mapped if (name := each.get("Ebs", {}).get("VolumeId"))]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFacts:
    """What was learnt of one key, and until when that holds.

    `own`: it is a customer's (None: not known). `against`: what stands against a start of a machine with it, as a
    clause (None: nothing is known to). `granted`: IAM allows the grant.
    """

    own: bool | None
    against: str | None
    until: float
    granted: bool


class DiskKeys:
    """What this process has learnt of volumes and keys, in every place."""

    def __init__(self, clock: Clock) -> None:
        """Nothing is asked yet."""
        self._clock = clock
        self._of_volume: dict[str, str | None] = {}
        self._facts: dict[tuple[str, str], KeyFacts] = {}
        self._failed: dict[str, tuple[str, str, float]] = {}  # by the key: machine, EC2's words, when it was seen last
        self._asked: set[str] = set()  # machines whose start was asked for by this process
        self._proven: set[str] = set()  # keys of machines that ran after that
        self._rests: dict[tuple[str, str], float] = {}  # until when a service of a place is left alone

    def note_start(self, node_id: str) -> None:
        """Remember that EC2 has accepted our start of a machine."""
        self._asked.add(node_id)

    def learn(self, place: Region, machines: Iterable[tuple[str, str, DescribedInstance]]) -> None:
        """Look up what is new of these machines: id, state, description."""
        machines, now = list(machines), self._clock.monotonic()
        self._learn_volumes(place, (name for _, _, described in machines for name in volumes_of(described)))
        for node_id, state, described in machines:
            keys, why = self._keys_of(described), failed_start(described)
            if state == "stopped" and why is not None and _OF_A_KEY.match(why):
                self._failed |= dict.fromkeys(keys, (node_id, why, now))
                self._proven -= keys
                self._asked.discard(node_id)
            elif state == "running":
                if node_id in self._asked:
                    self._proven |= keys
                    self._asked.discard(node_id)
                for key in keys:
                    self._facts_of(place, key)
                    self._forget(place, key, node_id)

    def _keys_of(self, described: DescribedInstance) -> set[str]:
        """The keys of its volumes, as far as they are known."""
        return {key for name in volumes_of(described) if (key := self._of_volume.get(name)) is not None}

    def against_start(self, place: Region, described: DescribedInstance) -> str | None:
        """Why a machine might not start again after a stop, as a clause; None: nothing is known to stand against it."""
        return next(filter(None, (self._against(place, key) for key in sorted(self._keys_of(described)))), None)

    def _against(self, place: Region, key: str) -> str | None:
        """What stands against a start of machines with a key."""
        failed = self._failed.get(key)
        if failed is not None and self._clock.monotonic() - failed[2] < _REMEMBERED_SECONDS:
            return f"its volumes have the key {key}, and {failed[0]} with the same key did not start: {failed[1]}"
        return None if key in self._proven else self._facts_of(place, key).against

    def _forget(self, place: Region, key: str, node_id: str) -> None:
        """Forget a failed start of a machine that runs, where our own right is shown."""
        failed = self._failed.get(key)
        if failed is not None and failed[0] == node_id and (key in self._proven or self._facts_of(place, key).granted):
            del self._failed[key]

    def _learn_volumes(self, place: Region, names: Iterable[str]) -> None:
        """Source: DescribeVolumes by filter, because one volume that is gone would fail a call by ids."""
        wanted = sorted({name for name in names if name not in self._of_volume})
        if not wanted or self._is_resting(place, "volumes"):
            return
        pages = place.reading.ec2.get_paginator("describe_volumes")
        try:
            for batch in batches(wanted, _VALUES_A_FILTER):
                with place.asking("DescribeVolumes"):
                    for page in pages.paginate(Filters=[{"Name": "volume-id", "Values": list(batch)}]):
                        for volume in page["Volumes"]:
                            self._of_volume[volume["VolumeId"]] = volume.get("KmsKeyId") or None
        except Exception:  # noqa: BLE001  whatever it is, it is about volumes alone: the machines are there
            self._let_rest(place, "volumes")

    def _facts_of(self, place: Region, key: str) -> KeyFacts:
        now, before = self._clock.monotonic(), self._facts.get((place.name, key))
        if before is not None and before.until > now:
            return before
        own, against = self._own_and_usable(place, key)
        granted, unknown = False, own is None
        if own and against is None:
            allowed, words = self._ask_right(place, key)
            granted, unknown = allowed is True, allowed is None
            against = None if allowed else f"its volumes have the key {key}, which is your own, and {words}"
        if unknown and before is not None:
            own, against, granted = before.own, before.against, before.granted
        found = KeyFacts(own=own, against=against, granted=granted, until=now + _FRESH_SECONDS)
        self._facts[place.name, key] = found
        return found

    def _own_and_usable(self, place: Region, key: str) -> tuple[bool | None, str | None]:
        """Whether a customer owns a key, and why it cannot be used. Source: KMS DescribeKey."""

        def ask() -> tuple[bool, str | None]:
            with place.asking("DescribeKey", service="KMS"):
                told = place.reading.kms.describe_key(KeyId=key)["KeyMetadata"]
                state, own = told.get("KeyState", _ENABLED), told["KeyManager"] == _OURS
            return own, None if state == _ENABLED else f"the key {key} of its volumes is {state}"

        try:
            return self._unless_resting(place, "KMS", ask) or (None, None)
        except CloudError as error:
            # A key that is gone, and not one that we may not see, ends every machine that needs it.
            return (True, f"there is no key {key} of its volumes") if error.code == _NO_SUCH_KEY else (None, None)

    def _ask_right(self, place: Region, key: str) -> tuple[bool | None, str]:
        """Whether our policies let EC2 use a key for us, and that as a clause. Source: SimulatePrincipalPolicy.

        A key's own policy may allow what ours do not, and refuse what they allow; a start alone shows that.
        """
        missing = "attach iam/disks.json"
        try:
            decision = self._unless_resting(place, "IAM", lambda: _simulate_grant(place, key))
        except CloudError as error:
            denied = isinstance(error, AuthFailedError)
            why = "iam:SimulatePrincipalPolicy is not allowed" if denied else str(error)[:_LONGEST]
            return None, f"nobody knows whether gpuwatch may use it for a start ({why}): {missing}"
        if decision is None:
            return None, f"nobody knows whether gpuwatch may use it for a start (IAM gives no answer): {missing}"
        return decision == "allowed", f"gpuwatch may not use it for a start (kms:CreateGrant: {decision}): {missing}"

    def _unless_resting(self, place: Region, service: str, ask: Callable[[], Any]) -> Any:  # noqa: ANN401  what `ask` gives
        """The answer, or None while a service that was silent is left alone: it may have no door in this network."""
        if self._is_resting(place, service):
            return None
        try:
            return ask()
        except CloudUnavailableError:
            self._let_rest(place, service)
            raise
        except CloudError:
            raise
        except Exception as error:
            raise CloudError(f"{service}: no usable answer ({type(error).__name__})") from error

    def _is_resting(self, place: Region, service: str) -> bool:
        return self._rests.get((place.name, service), 0.0) > self._clock.monotonic()

    def _let_rest(self, place: Region, service: str) -> None:
        self._rests[place.name, service] = self._clock.monotonic() + _FRESH_SECONDS


def _simulate_grant(place: Region, key: str) -> str:
    """IAM's decision on a grant for EC2 with our own policies: allowed, explicitDeny, or implicitDeny."""
    with place.asking("GetCallerIdentity", service="STS"):
        caller = str(place.reading.sts.get_caller_identity()["Arn"])
    if caller.endswith(":root"):
        return "allowed"
    for name in _principals(place, caller):
        try:
            with place.asking("SimulatePrincipalPolicy", service="IAM"):
                told = place.reading.iam.simulate_principal_policy(
                    PolicySourceArn=name,
                    ActionNames=["kms:CreateGrant"],
                    ResourceArns=[key],
                    ContextEntries=[
                        _context("kms:GrantIsForAWSResource", "boolean", "true"),
                        _context("kms:ViaService", "string", f"ec2.{place.region}.amazonaws.com"),
                        _context("aws:RequestedRegion", "string", place.region),
                    ],
                )
                return str(told["EvaluationResults"][0]["EvalDecision"])
        except CloudError as error:
            if error.code != _NO_SUCH_ROLE:
                raise
    raise CloudError(f"IAM knows no {caller}", code=_NO_SUCH_ROLE)


def _principals(place: Region, caller: str) -> Iterator[str]:
    """The names by which IAM may know us: STS leaves out the path of a role. Source: GetRole."""
    found = _ROLE.match(caller)
    if found is None:
        yield caller
        return
    yield f"arn:{found['partition']}:iam::{found['account']}:role/{found['role']}"
    with place.asking("GetRole", service="IAM"):
        yield str(place.reading.iam.get_role(RoleName=found["role"])["Role"]["Arn"])


def _context(name: str, kind: str, value: str) -> dict[str, object]:
    return {"ContextKeyName": name, "ContextKeyType": kind, "ContextKeyValues": [value]}
