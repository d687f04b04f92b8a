"""What each obstacle is called for people, what would free the money that it holds back, and at which risk."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuwatch.guard.obstacles import Obstacle

_MOST_KEYS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """An obstacle for people: its name, the setting or act that would free the money, and the risk of that.

    `key` is a pool's setting; `act` has `{keys}` in its place, or `{pool}` for a pool's name in a command.
    """

    name: str
    act: str
    risk: str
    key: str = ""


_NO_RISK = "none"
_ENDS_WORK = "the process ends after its notice; what it has not saved is lost"
_DISKS_GO = "a terminated machine and its disks do not come back"
ADVICE: Mapping[Obstacle, Advice] = {
    Obstacle.PAID_ANYWAY: Advice(
        name="paid for anyway",
        act="let others use it, or end the reservation, Capacity Block, Dedicated Host or prepaid term",
        risk="the same capacity may not be there again",
    ),
    Obstacle.NOT_ENROLLED: Advice(
        name="not enrolled",
        act="tag it gpuwatch:fleet with the value of the setting `fleet`",
        risk="gpuwatch may then stop it when it is idle; ask its owner first",
    ),
    Obstacle.GROUP_WITHOUT_CONSENT: Advice(
        name="group without consent",
        act="tag the group itself gpuwatch:fleet, as its machines, and set {keys} to `terminate`",
        risk=f"idle members go together with their places: {_DISKS_GO}",
        key="idle.action",
    ),
    Obstacle.OTHER_SYSTEM: Advice(
        name="managed by another system",
        act="let that system scale it down",
        risk="it would only replace a machine that gpuwatch stops",
    ),
    Obstacle.UNKNOWN_POOL: Advice(
        name="unknown pool",
        act="correct its tag gpuwatch:pool, or add the pool to `pools`",
        risk="the machine then follows that pool's rules",
    ),
    Obstacle.OTHER_CLOUD: Advice(
        name="in another cloud than its pool",
        act="correct its tag gpuwatch:pool, or add its cloud to {keys}",
        risk="the machine then follows that pool's rules",
        key="clouds",
    ),
    Obstacle.PROTECTED: Advice(
        name="protected",
        act="remove the tag that protects it; `gpuwatch explain NODE` names it",
        risk="somebody set it on purpose; ask its owner first",
    ),
    Obstacle.STILL_BILLED: Advice(
        name="billed when stopped, too",
        act="see `gpuwatch explain NODE`; {keys} set to `terminate` removes it",
        risk=_DISKS_GO,
        key="idle.action",
    ),
    Obstacle.CANNOT_STOP: Advice(
        name="the cloud cannot do it",
        act="see `gpuwatch explain NODE`; {keys} set to `terminate` removes what cannot be stopped",
        risk=_DISKS_GO,
        key="idle.action",
    ),
    Obstacle.NO_POWER: Advice(
        name="no power control",
        act="let others use it, or ask its owner to switch it off",
        risk=_NO_RISK,
    ),
    Obstacle.MAY_NOT_START: Advice(
        name="might not start again",
        act="give gpuwatch the right to the key of its volumes; `gpuwatch explain NODE` names it",
        risk="a grant lets EC2 decrypt these volumes for gpuwatch's starts, and for nothing else",
    ),
    Obstacle.SCALE_IN_PROTECTION: Advice(
        name="scale-in protection",
        act="remove its scale-in protection in the cloud",
        risk="somebody set it on purpose; ask its owner first",
    ),
    Obstacle.GROUP_MEMBER: Advice(
        name="member of a group",
        act="set {keys} to `terminate`: a group replaces a member that is stopped",
        risk=_DISKS_GO,
        key="idle.action",
    ),
    Obstacle.GROUP_SIZE: Advice(
        name="the group's own rules",
        act="lower the group's MinSize, or see `gpuwatch explain NODE`",
        risk="the group becomes smaller than its owner wanted",
    ),
    Obstacle.IDLE_REPORT: Advice(
        name="idle is only reported",
        act="set {keys} to `stop`",
        risk="idle machines of the pool are stopped after their notice",
        key="idle.action",
    ),
    Obstacle.OCCUPIED: Advice(name="occupied", act="set {keys} to `stop`", risk=_ENDS_WORK, key="idle.occupied"),
    Obstacle.PARKED: Advice(
        name="parked",
        act="set {keys} to `stop`",
        risk="GPU memory is lost, such as a loaded model or a notebook's variables",
        key="idle.parked",
    ),
    Obstacle.STALLED: Advice(name="stalled", act="set {keys} to `stop`", risk=_ENDS_WORK, key="idle.stalled"),
    Obstacle.LOCAL_DISKS: Advice(
        name="local disks in use",
        act="set {keys} to `discard`, or to `keep` if such machines are to stay",
        risk="with `discard` a stop empties these disks: checkpoints and data on them are lost",
        key="idle.instance_store",
    ),
    Obstacle.LOW_COVERAGE: Advice(
        name="too few of the pool answer",
        act="repair the pool's other agents, or the network to them",
        risk=_NO_RISK,
    ),
    Obstacle.NO_PRICE: Advice(
        name="price not known",
        act="write its price into the file of `prices.file`, or set {keys} to a duration",
        risk=_NO_RISK,
        key="idle.timeout",
    ),
    Obstacle.DEMAND: Advice(
        name="about to be needed",
        act="nothing: work waits for the pool, or a window of its schedule opens soon",
        risk=_NO_RISK,
    ),
    Obstacle.FLOOR: Advice(
        name="the pool's minimum",
        act="lower {keys} (or min_gpus), or the minimum of its schedule or scaling",
        risk="the next job waits until a machine has started",
        key="min_nodes",
    ),
    Obstacle.SNOOZED: Advice(
        name="snoozed",
        act="wait, or take the snooze back",
        risk="somebody asked for the machine; ask its owner first",
    ),
    Obstacle.LEFT_ALONE: Advice(
        name="started again each time",
        act="turn off what starts it or raises its group's size; then `gpuwatch resume --pool {pool}`",
        risk="somebody, or a scheduler, wants it running; ask its owner first",
    ),
    Obstacle.OTHER_LEDGER: Advice(
        name="another ledger decides",
        act="run one ledger for a fleet; `gpuwatch status` names the machines",
        risk="two controllers do not see each other's notices and limits",
    ),
    Obstacle.MASS_IDLENESS: Advice(
        name="a sensor is suspected",
        act="if they are really idle, `gpuwatch acknowledge --pool {pool}`; else repair the sensor",
        risk="if a sensor is broken, machines that work are stopped",
    ),
    Obstacle.GIVEN_UP: Advice(
        name="a stop was given up",
        act="remove the cause that `gpuwatch explain NODE` names",
        risk=_NO_RISK,
    ),
    Obstacle.NOT_NOTIFIED: Advice(
        name="its notice reached nobody", act="`gpuwatch notify test` shows what is wrong", risk=_NO_RISK
    ),
    Obstacle.APPROVAL: Advice(
        name="waits for approval",
        act="`gpuwatch approve`, or the page",
        risk="the machine is stopped at once",
    ),
    Obstacle.LIMITS: Advice(
        name="limits on stops",
        act="wait, or raise the limit that `gpuwatch explain NODE` names",
        risk="a mistake stops more machines within the hour",
    ),
    Obstacle.NO_BACKTEST: Advice(
        name="no backtest",
        act="`gpuwatch backtest --ledger --pool {pool} --keep`",
        risk=_NO_RISK,
    ),
    Obstacle.PAUSED: Advice(
        name="paused",
        act="`gpuwatch resume`",
        risk="somebody paused it for a reason, which `gpuwatch status` shows",
    ),
    Obstacle.OBSERVE: Advice(
        name="observe mode",
        act="read `gpuwatch plan`, then set `mode: enforce`",
        risk="gpuwatch then stops machines, each after its notice",
    ),
    Obstacle.NO_AGENT: Advice(
        name="no agent answers",
        act="install the agent, or see `gpuwatch doctor controller`",
        risk=_NO_RISK,
    ),
    Obstacle.UNKNOWN_USE: Advice(
        name="its agent is in doubt",
        act="`gpuwatch explain NODE` says why",
        risk=_NO_RISK,
    ),
    Obstacle.GPUS_MISSING: Advice(
        name="GPUs are missing",
        act="find the GPUs that its agent does not see: driver, host, virtual machines",
        risk=_NO_RISK,
    ),
    Obstacle.DOUBTFUL_VERDICT: Advice(
        name="old or impossible verdict",
        act="check its agent, and both clocks",
        risk=_NO_RISK,
    ),
    Obstacle.NO_EVIDENCE: Advice(
        name="required evidence is missing",
        act="give its agent that signal, or shorten {keys}",
        risk="without the signal, use that it alone would show is not seen",
        key="idle.required_evidence",
    ),
}


def act_text(obstacle: Obstacle, pools: Sequence[str]) -> str:
    """What would free the money, with the keys of these pools."""
    advice = ADVICE[obstacle]
    keys = [f"pools.{pool}.{advice.key}" for pool in pools[:_MOST_KEYS]]
    more = len(pools) - len(keys)
    named = " and ".join(filter(None, [", ".join(keys), f"that of {more} more pools" if more > 0 else ""]))
    return advice.act.replace("{keys}", named).replace("{pool}", pools[0] if len(pools) == 1 else "NAME")
