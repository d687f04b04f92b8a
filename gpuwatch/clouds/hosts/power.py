"""Whether hosts with power control run, and how they are switched off and on.

Rules, all of them:

1. A BMC counts for a host only if the host's agent names the same system UUID, and no other host's does. The UUID is
   kept while the host is off. Without that proof its state is unknown, and nothing is done.
2. Off is what the BMC says, and what the agent does not contradict: an agent that answers is on a host that runs.
3. Before a stop the agent answers once more, and its BMC shows the same machine. Then a clean shutdown is asked for,
   never a forced one. An agent that powers off its own host is asked by name, over the controller's own connection.
4. A host that was asked to shut down is on its way down while its BMC shows it on and no agent answers, for as long as
   a shutdown may take.
5. A host that is ordered on, and stays off, is stopped, with the reason why its start failed.
6. Without a BMC (Wake-on-LAN) stopped is what we stopped, by its agent's own yes, and what nothing answers for since.
   All other silence stays unknown.
"""

import logging
import socket
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace

from gpuwatch.clouds.errors import BusyError, CloudError, CloudUnavailableError, NotSentError, ProtectedError
from gpuwatch.clouds.hosts.bmc import Bmc, Rests, Shown, is_refused_login
from gpuwatch.clouds.hosts.ipmi import Ipmi
from gpuwatch.clouds.hosts.redfish import Redfish, trusted_context
from gpuwatch.clouds.hosts.resets import Resets
from gpuwatch.clouds.hosts.settings import HostsSettings, PowerSettings, bmc_of
from gpuwatch.clouds.hosts.sources import Named
from gpuwatch.clouds.permit import Permit, permit_in_force
from gpuwatch.clouds.sightings import Sightings
from gpuwatch.clouds.silence import as_last_seen
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.power import PowerAnswer, PowerQuestion, is_of_one_host, same_host
from gpuwatch.model.stops import StopAnswer
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.secrets import read_secret

log = logging.getLogger(__name__)

UUID_TAG, RESET_TAG = "system-uuid", "last-reset"  # never written anywhere: so the ledger's rounds remember them
OWN_TAGS = frozenset({UUID_TAG, RESET_TAG})
CANNOT_END = "no such host is ever terminated"
NO_POWER = "NoPowerControl"  # our own codes
_NOT_ITS_OWN, _IN_DOUBT = "NotItsBmc", "PowerInDoubt"
_STARTS_SECONDS = 300.0  # for which a host that is ordered on may stay off
_ENDS_SECONDS = 2100.0  # for which a shutdown may take: systemd ends one that hangs after half an hour
_QUIET_SECONDS = 60.0  # for which nothing answers for a host that went down, before it counts as off
_NEVER = "its agent has not said which system UUID it has"

# Asks the agent of a host, within so many seconds; raises CloudError.
AskAgent = Callable[[Node, PowerQuestion, float | None], PowerAnswer]


def magic_packet(mac: str) -> bytes:
    """What wakes a card: six bytes of ones, and its address sixteen times."""
    return b"\xff" * 6 + bytes.fromhex(mac.replace(":", "").replace("-", "")) * 16


def send_packet(mac: str, host: str, port: int | None, permit: Permit | None) -> None:
    """Send it once, by UDP; nothing answers it. Raises NotSentError."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            if permit is not None:
                permit.check()
            line.sendto(magic_packet(mac), (host, port or 9))
    except OSError as error:
        raise NotSentError(f"no packet can be sent to {host}: {error.strerror}", code="NoPacket") from None


def nobody(node: Node, question: PowerQuestion, seconds: float | None) -> PowerAnswer:
    """Ask no agent: this program has no way to them."""
    del node, question, seconds
    raise NotSentError("no agent can be asked here", code="NoAgents")


class Powers:
    """The power of all hosts of the pools that have it; several threads may ask, each about another host."""

    def __init__(self, named: HostsSettings, clock: Clock) -> None:
        """Nothing is asked yet; raises CloudError where the certificates cannot be read."""
        self._rules, self._clock = named.power, clock
        try:
            self._contexts = {pool: trusted_context(each.ca) for pool, each in named.power.items()}
        except (OSError, ValueError) as error:
            raise CloudError(str(error), code="NoCertificates") from None
        self._bmcs: dict[tuple[str, str, str], Bmc] = {}
        self._uuids: dict[str, str] = {}  # by the hosts whose agents named them
        self._last: dict[str, NodeState] = {}  # as each was shown without doubt
        self._going: dict[str, tuple[str | None, float]] = {}  # the boot that ends, and since when, by its agent's yes
        self._ordered: dict[str, float] = {}  # when each was ordered on, until it runs
        self._rests, self._resets = Rests(clock), Resets(clock)
        self._stayed_off: dict[str, bool] = {}
        self._said: dict[str, str | None] = {}
        self._sightings = Sightings(clock)
        self.ask_agent: AskAgent = nobody

    def has_control(self, pool: str) -> bool:
        """Whether hosts of that pool have it."""
        return pool in self._rules

    def forget_all_but(self, named: Collection[str]) -> None:
        """Forget the UUIDs of all other hosts: one that left may be here under another name."""
        self._uuids = {name: uuid for name, uuid in list(self._uuids.items()) if name in named}

    def show_host(self, node: Node, named: Named, before: Node | None) -> Node:
        """The host as it is now; `before` is how it was seen before this process began."""
        return self._look_at_host(node, named, before, last_question=False)

    def _look_at_host(self, node: Node, named: Named, before: Node | None, *, last_question: bool) -> Node:
        if before is not None and node.id not in self._last:
            self._last[node.id] = (before.last_shown or before.state) if before.unseen else before.state
            if before.state is NodeState.STOPPING and self._rules[node.pool].start_by != "wake":
                self._going[node.id] = None, self._clock.uptime()
            self._resets.recall(node.id, before.tags.get(RESET_TAG))
            if (uuid := before.tags.get(UUID_TAG)) is not None:
                self._uuids.setdefault(node.id, uuid)
        node = replace(node, cannot_stop=None, cannot_terminate=CANNOT_END)
        judge = self._judge_by_bmc if self._rules[node.pool].start_by != "wake" else self._judge_by_agent
        found = judge(node, named, last_question=last_question)
        if found.state is not NodeState.UNKNOWN:
            self._last[node.id] = found.state
        if found.state is NodeState.RUNNING:
            self._ordered.pop(node.id, None)
        if found.state is NodeState.STOPPED and self._rules[node.pool].start_by != "wake":
            self._going.pop(node.id, None)
        self._say_once(node.id, found.cannot_stop or found.unseen)
        known = {UUID_TAG: self._uuids.get(node.id), RESET_TAG: self._resets.remember(node.id)}
        tags = {**found.tags, **{name: text for name, text in known.items() if text is not None}}
        sighted = self._sightings.with_sight(replace(found, tags=tags))
        return replace(sighted, sight=None) if self._stayed_off.get(node.id) else sighted

    def _judge_by_bmc(self, node: Node, named: Named, *, last_question: bool) -> Node:
        rules, bmc = self._rules[node.pool], named.bmc
        self._stayed_off.pop(node.id, None)
        if bmc is None:
            return replace(node, cannot_stop="no BMC is named for it (cloud.hosts.machines)")
        agent: PowerAnswer | CloudError | None = None
        if last_question or rules.stop_by == "agent" or node.id not in self._uuids:
            agent = self._ask_own_agent(node)
        try:
            shown = self._show_machine(node, bmc, patient=last_question)
        except CloudError as error:
            if last_question:
                raise NotSentError(str(error), code=error.code) from None
            ran = self._last.get(node.id, NodeState.RUNNING) is NodeState.RUNNING
            if ran or isinstance(agent or self._ask_own_agent(node), PowerAnswer):
                return replace(node, cannot_stop=str(error))
            return self._unseen(node, str(error))
        asked = self._seconds_since_stop(node.id) < _ENDS_SECONDS
        if agent is None and (asked or shown.state is not NodeState.RUNNING or self._not_its_own(node.id, bmc, shown)):
            agent = self._ask_own_agent(node)
        doubt, answers = self._not_its_own(node.id, bmc, shown), isinstance(agent, PowerAnswer)
        state = NodeState.RUNNING if answers else shown.state
        self._stayed_off[node.id] = doubt is None and self._resets.note(node.id, state, shown.reset_at)
        if isinstance(agent, PowerAnswer):
            return self._show_running(node, bmc, shown, agent, doubt)
        if shown.state is NodeState.RUNNING:
            if doubt is None and last_question:
                raise NotSentError(f"its agent gives no answer: {agent}", code=_IN_DOUBT)
            going = doubt is None and asked
            return (
                replace(node, state=NodeState.STOPPING) if going else self._show_running(node, bmc, shown, None, doubt)
            )
        if doubt is None and shown.state is NodeState.UNKNOWN:
            doubt = f"its BMC {bmc} does not say whether it is on"
        return self._unseen(node, doubt) if doubt is not None else self._down(node, shown.state)

    def _show_running(self, node: Node, bmc: str, shown: Shown, agent: PowerAnswer | None, doubt: str | None) -> Node:
        """A host that runs, as its BMC or its agent says, and why it cannot be switched off."""
        if agent is not None and self._seconds_since_stop(node.id) > _STARTS_SECONDS:
            self._going.pop(node.id, None)  # it has not gone down, or is up again
        if doubt is None and shown.state is not NodeState.RUNNING:
            doubt = f"its BMC {bmc} shows it {shown.state.value}, and its agent answers"
        refused = agent.refused if agent is not None and self._rules[node.pool].stop_by == "agent" else None
        on = bmc if doubt is None else None
        return replace(node, cannot_stop=doubt or shown.unable or refused, bmc_on=on)

    def _seconds_since_stop(self, node_id: str) -> float:
        """How long ago it was asked to shut down; long ago, if it never was."""
        return self._clock.uptime() - self._going.get(node_id, (None, -_ENDS_SECONDS))[1]

    def _say_once(self, node_id: str, why: str | None) -> None:
        """Say in the log why a host is not switched off or on, once for each reason."""
        if why is not None and self._said.get(node_id) != why:
            log.warning("%s is not switched off or on: %s", node_id, why)
        self._said[node_id] = why

    def _ask_own_agent(self, node: Node) -> PowerAnswer | CloudError:
        """What the agent says of its host, or why it says nothing."""
        try:
            agent = self.ask_agent(node, PowerQuestion(node=node.id), None)
        except CloudError as error:
            return error
        if is_of_one_host(agent.system_uuid):
            self._uuids[node.id] = str(agent.system_uuid).strip().lower()
        return agent

    def _judge_by_agent(self, node: Node, named: Named, *, last_question: bool) -> Node:
        if named.mac is None:
            return replace(node, cannot_stop="no MAC address is named for it (cloud.hosts.machines)")
        agent, ago = self._ask_own_agent(node), self._seconds_since_stop(node.id)
        if isinstance(agent, PowerAnswer):
            if ago < _STARTS_SECONDS and agent.boot_id == self._going[node.id][0]:
                return replace(node, state=NodeState.STOPPING)
            self._going.pop(node.id, None)
            return replace(node, cannot_stop=agent.refused)
        if last_question:
            raise NotSentError(f"its agent gives no answer: {agent}", code=_IN_DOUBT)
        if self._last.get(node.id) not in {NodeState.STOPPING, NodeState.STOPPED}:
            return node  # without an answer of its agent the controller takes it for unknown
        if type(agent) is not CloudUnavailableError:
            return self._unseen(node, str(agent))
        return self._down(node, NodeState.STOPPING if ago < _QUIET_SECONDS else NodeState.STOPPED)

    def _down(self, node: Node, state: NodeState) -> Node:
        """A host that is off, on its way up or on its way down."""
        ordered, failed = self._ordered.get(node.id), None
        if ordered is not None and (ago := self._clock.uptime() - ordered) > _STARTS_SECONDS:
            failed = f"it was ordered on {format_duration(ago)} ago, and is still off"
        return replace(node, state=state, failed_start=failed if state is NodeState.STOPPED else None)

    def _unseen(self, node: Node, why: str) -> Node:
        return as_last_seen(replace(node, state=self._last.get(node.id, node.state)), why)

    def _show_machine(self, node: Node, bmc: str, *, patient: bool) -> Shown:
        """What the BMC shows; one that gave no answer rests, but for a last question."""
        asked, password = self._bmc(node, bmc), self._password(node.pool)
        with self._rests.turn(bmc, password):
            for each in () if patient else (node.id, bmc):
                self._rests.check(each, password)
            try:
                shown = asked.show(self._uuids.get(node.id))
            except CloudError as error:  # of a chassis one system may be silent, and its login is refused for all
                self._rests.note_failure(bmc if is_refused_login(error) else node.id, password, error)
                raise
        for each in (node.id, bmc):
            self._rests.note_answer(each)
        return shown

    def _not_its_own(self, node_id: str, bmc: str, shown: Shown) -> str | None:
        """Why it is not proved that the BMC is this host's; None: it is."""
        uuid = self._uuids.get(node_id)
        if uuid is None:
            return f"nothing proves that the BMC {bmc} is its own: {_NEVER}"
        if not same_host(shown.uuid, uuid):
            its = f"the system UUID {shown.uuid}" if is_of_one_host(shown.uuid) else "no usable system UUID"
            return f"the BMC {bmc} is not its own: it shows {its}, and the agent says {uuid}"
        other = next((name for name, each in list(self._uuids.items()) if each == uuid and name != node_id), None)
        return None if other is None else f"{other} has the same system UUID, so no BMC is known to be its own"

    def _bmc(self, node: Node, address: str) -> Bmc:
        """A host's own view of a BMC, which it may share with others of its chassis."""
        key = node.id, node.pool, address
        found = self._bmcs.get(key)
        if found is None:
            found = self._bmcs[key] = self._make_bmc(self._rules[node.pool], node.pool, address)
        return found

    def _password(self, pool: str) -> bytes | None:
        """The password as it is now; None: it cannot be read."""
        with suppress(OSError, ValueError):
            return read_secret(self._rules[pool].password_file or "")
        return None

    def _make_bmc(self, rules: PowerSettings, pool: str, address: str) -> Bmc:
        place, secret, user = bmc_of(address), rules.password_file, rules.user or ""
        if place is None or secret is None:
            raise CloudError(f"{address!r} is not the address of a BMC, or it has no password", code=NO_POWER)

        def password() -> bytes:
            return read_secret(secret).rstrip(b"\r\n")

        if rules.start_by == "ipmi":
            return Ipmi(*place, user=user, password=password)
        return Redfish(*place, user=user, password=password, context=self._contexts[pool], clock=self._clock)

    # Acting.

    def stop(self, node: Node, named: Named, before: Node | None, permit: Permit) -> StopAnswer:
        """Ask for a clean shutdown, where the host runs, its agent answers, and its BMC is its own."""
        found = self._look_at_host(node, named, before, last_question=True)
        if found.state in {NodeState.STOPPED, NodeState.STOPPING}:
            return StopAnswer(ran=False)
        if found.state is not NodeState.RUNNING or found.cannot_stop is not None:
            why = found.cannot_stop or found.unseen
            raise ProtectedError(f"{node.id} is not switched off: {why}", code=_NOT_ITS_OWN)
        if self._rules[node.pool].stop_by == "agent":
            self._by_agent(node, permit)
        else:
            self._bmc(node, named.bmc or "").switch_off(permit)
            self._going[node.id] = None, self._clock.uptime()
        return StopAnswer(ran=True)

    def _by_agent(self, node: Node, permit: Permit) -> None:
        """Have the agent power its host off, before the permit runs out."""
        permit.check()
        left = permit.max_age_seconds - permit.age_seconds
        agent = self.ask_agent(node, PowerQuestion(node=node.id, off=True), left)
        if agent.refused is not None:
            raise CloudError(f"{node.id} is not powered off: {agent.refused}", code="RefusedByAgent")
        self._going[node.id] = agent.boot_id, self._clock.uptime()
        self._last[node.id] = NodeState.STOPPING

    def start(self, node: Node, named: Named, before: Node | None) -> None:
        """Order it on, where it is known to be off."""
        found = self._look_at_host(node, named, before, last_question=False)
        if found.state in {NodeState.PENDING, NodeState.RUNNING}:
            return
        if found.state is NodeState.STOPPING:
            raise BusyError(f"{node.id} is still on its way down", code="Stopping")
        if found.state is not NodeState.STOPPED:
            raise NotSentError(f"{node.id} is not switched on: {found.unseen}", code=_IN_DOUBT)
        rules, permit = self._rules[node.pool], permit_in_force()
        try:
            if rules.start_by == "wake":
                host, port = bmc_of(rules.broadcast) or (rules.broadcast, None)
                send_packet(named.mac or "", host, port, permit)
            else:
                self._bmc(node, named.bmc or "").switch_on(permit)
        except CloudUnavailableError as error:
            if not isinstance(error, NotSentError):
                self._ordered[node.id] = self._clock.uptime()
            raise
        self._ordered[node.id] = self._clock.uptime()
