"""Asks the metadata service again and again: facts once, notices every few seconds. Nothing else waits for it.

If the service cannot be asked, the notices stay as they were, and `trouble` says why.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from gpuwatch.agent.metadata.base import Facts, Garbage, MetadataService, Notice, facts_in, notices_in
from gpuwatch.agent.metadata.client import MetadataClient, MetadataError
from gpuwatch.agent.metadata.detect import DMI, service_of
from gpuwatch.agent.metadata.hook import NoticeHook
from gpuwatch.agent.metadata.settings import MetadataSettings
from gpuwatch.agent.metadata.state_file import Announced, NoticeMemory
from gpuwatch.model.cloud_notice import CloudNotice
from gpuwatch.runtime.clock import Clock

_LOG = logging.getLogger(__name__)

_FACTS_AGAIN_SECONDS = 600.0
_FACTS_FAILED_SECONDS = 30.0
_LASTING = frozenset({"unreachable", "timeout", "hop_limit", "endpoint"})  # the next question would fare no better


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why the service does not answer, and what would help, if known."""

    cause: str
    detail: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStatus:
    """What is known of the instance. `up` is None before the first look."""

    provider: str
    facts: Facts = field(default_factory=Facts)
    notices: tuple[Announced, ...] = ()
    up: bool | None = None
    trouble: Trouble | None = None
    hook_statuses: Mapping[str, int] = field(default_factory=dict)
    checkpoint_at: datetime | None = None  # as the program said at the last notice

    @property
    def told(self) -> tuple[CloudNotice, ...] | None:
        """The notices for the controller; None: not known, as the service was not asked yet or gives no answer."""
        if not self.notices and not self.up:
            return None
        return tuple(
            CloudNotice(
                kind=each.kind,
                action=each.action,
                deadline=each.deadline,
                seen_at=each.seen_at,
                checkpoint_at=self.checkpoint_at,
            )
            for each in self.notices
        )


def instance_id(settings: MetadataSettings, clock: Clock, *, dmi: Path = DMI) -> str | None:
    """What the cloud calls this machine, asked once; None outside of clouds, or where its service gives no answer."""
    service = service_of(settings.provider, dmi)
    if service is None:
        return None
    client = MetadataClient(service, clock, timeout_seconds=settings.timeout, endpoint=settings.endpoint)
    facts = Facts()
    for question in service.facts:
        try:
            body = client.ask(question)
        except MetadataError:
            return facts.instance_id
        found = None if body is None else facts_in(question, body, facts)
        facts = found if isinstance(found, Facts) else facts
    return facts.instance_id


class InstanceWatcher:
    """One machine's metadata, watched by one thread; outside of clouds it does nothing."""

    def __init__(self, settings: MetadataSettings, clock: Clock, *, dmi: Path = DMI) -> None:
        """Nothing is asked before `start`."""
        service = service_of(settings.provider, dmi)
        self._look = None if service is None else _Look(service, settings, clock)
        self._interval_seconds = settings.interval
        self._clock = clock
        self._stopping = threading.Event()
        self._status = None if service is None else InstanceStatus(provider=service.provider)

    def status(self) -> InstanceStatus | None:
        """The result of the last look; None outside of clouds. Never waits."""
        status = self._status
        if status is None or self._look is None:
            return None
        hook = self._look.hook
        return replace(status, hook_statuses=hook.statuses, checkpoint_at=hook.checkpoint_at)

    def notices(self) -> tuple[CloudNotice, ...] | None:
        """The notices for the controller; None: not known. Never waits."""
        status = self.status()
        return None if status is None else status.told

    def start(self, named: Callable[[str], None]) -> None:
        """Begin, if there is a service; returns at once. `named` is called with the instance id once it is known."""
        if self._look is not None:
            threading.Thread(target=self._run, args=(named,), name="instance", daemon=True).start()

    def stop(self) -> None:
        """Stop looking; a program that runs for a notice goes on."""
        self._stopping.set()

    def step(self) -> float:
        """Look once; returns the seconds to wait, so that looks begin one interval after another."""
        begin = self._clock.monotonic()
        before = self._status
        if self._look is not None and before is not None:
            try:
                status = self._look.once()
            except Exception as error:  # noqa: BLE001  the watcher must go on
                if before.trouble is None or before.trouble.cause != "error":
                    _LOG.exception("the look at the cloud's notices failed")
                wrong = Trouble(cause="error", detail=f"{type(error).__name__}: {error}", remedy="see the agent's log")
                status = replace(before, up=False, trouble=wrong)
            self._status = status
            _log_changes(status, before)
        return max(0.0, self._interval_seconds - (self._clock.monotonic() - begin))

    def _run(self, named: Callable[[str], None]) -> None:
        """Look again and again until `stop` is called."""
        named_id = None
        while not self._stopping.is_set():
            wait_seconds = self.step()
            found = None if self._status is None else self._status.facts.instance_id
            if found is not None and found != named_id:
                named(found)
                named_id = found
            self._stopping.wait(wait_seconds)


class _Look:
    """Asks the service, and holds what is known between looks."""

    def __init__(self, service: MetadataService, settings: MetadataSettings, clock: Clock) -> None:
        self._service = service
        self._clock = clock
        self._client = MetadataClient(service, clock, timeout_seconds=settings.timeout, endpoint=settings.endpoint)
        self._memory = NoticeMemory(Path(settings.state))
        self.hook = NoticeHook(settings, self._memory, clock)
        self._facts = Facts()
        self._facts_due: float | None = clock.monotonic()
        self._facts_trouble: Trouble | None = None
        self._standing: dict[str, tuple[Notice, ...]] = {}

    def once(self) -> InstanceStatus:
        """Ask what is due, and start the program where a notice is new."""
        now = self._clock.monotonic()
        if self._facts_due is not None and now >= self._facts_due:
            self._facts_due = None
            self._facts_trouble = self._ask_facts(now)
        trouble = self._ask_notices() or self._facts_trouble
        at = self._clock.now()
        standing = {
            notice.key: self._memory.with_deadline(notice, at) for found in self._standing.values() for notice in found
        }
        if trouble is None:
            self._memory.forget(standing, at)
        self.hook.consider(standing.values())
        return InstanceStatus(
            provider=self._service.provider,
            facts=self._facts,
            notices=tuple(standing.values()),
            up=trouble is None,
            trouble=trouble,
        )

    def _ask_facts(self, now: float) -> Trouble | None:
        """Ask for all facts, in order, and again later if one is missing; returns the first trouble."""
        wrong: Trouble | None = None
        for question in self._service.facts:
            try:
                body = self._client.ask(question)
            except MetadataError as error:
                self._facts_due = now + _FACTS_FAILED_SECONDS
                return self._trouble(error.cause, error.detail)
            found = None if body is None else facts_in(question, body, self._facts)
            if isinstance(found, Facts):
                self._facts = found
                continue
            self._facts_due = now + _FACTS_AGAIN_SECONDS
            if found is not None:
                wrong = wrong or self._trouble("garbage", found.words)
        return wrong

    def _ask_notices(self) -> Trouble | None:
        """The notices, the most urgent first; those of a failed request stay as they were."""
        wrong: Trouble | None = None
        for question in self._service.notices:
            if self._facts.lifecycle in question.not_for:
                continue
            try:
                body = self._client.ask(question)
            except MetadataError as error:
                wrong = wrong or self._trouble(error.cause, error.detail)
                if error.cause in _LASTING:
                    break
                continue
            found = () if body is None else notices_in(question, body, self._facts)
            if isinstance(found, Garbage):
                wrong = wrong or self._trouble("garbage", found.words)
            else:
                self._standing[question.path] = found
        return wrong

    def _trouble(self, cause: str, detail: str) -> Trouble:
        return Trouble(cause=cause, detail=detail, remedy=self._service.remedies.get(cause, ""))


def _log_changes(status: InstanceStatus, before: InstanceStatus) -> None:
    """Log what has changed since the last look."""
    trouble, earlier = status.trouble, before.trouble
    if trouble is not None and (earlier is None or trouble.cause != earlier.cause):
        remedy = f"; {trouble.remedy}" if trouble.remedy else ""
        _LOG.warning("the cloud's notices are not known (%s): %s%s", trouble.cause, trouble.detail, remedy)
    if trouble is None and earlier is not None:
        _LOG.info("the %s metadata service answers again", status.provider)
    known = {notice.key for notice in before.notices}
    for notice in status.notices:
        if notice.key not in known:
            by = "" if notice.deadline is None else f" by {notice.deadline:%Y-%m-%d %H:%M:%S} UTC"
            _LOG.warning("the cloud gives notice of %s (%s)%s", notice.kind.value, notice.action, by)
