"""How rounds, nodes and reasons look to people; pure rendering, no decision is made here."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from gpuwatch import guard
from gpuwatch.cli.last_round import Looked
from gpuwatch.clouds.tags import EXPIRED_REMEDY, has_expired
from gpuwatch.controller.context import LiveParts, unreached_in, unreached_words
from gpuwatch.controller.node_row import nodes_page
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.controller.round import Round
from gpuwatch.controller.startup_pause import decided_elsewhere
from gpuwatch.guard import Rulebook
from gpuwatch.guard.owner_limits import beyond
from gpuwatch.ledger.sqlite import IN_MEMORY
from gpuwatch.model.activity import State
from gpuwatch.model.currency import display_currency
from gpuwatch.model.decision import Step, Verb
from gpuwatch.model.duration import format_time
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.readable import how_many
from gpuwatch.model.sight import Silence
from gpuwatch.model.usage import FLEET_TAG
from gpuwatch.policies import unknown_pool
from gpuwatch.runtime.printable import legible

_NAMED = 5  # machines that one line names
_NAMED_HELD = 12  # likewise in `plan`, of those that nothing happens to
# What a code of a step that holds means, in `plan`; other codes are shown as they are.
_HELD = {
    "busy": "held, busy",
    "grace": "held, under notice",
    "waiting": "held, not idle for long enough",
    "unknown": "held, use unknown",
    "not_running": "held, not running",
    "min_nodes": "held, the pool's minimum",
    "no_price": "held, price unknown",
    "parked_report": "held, parked (only reported)",
    "occupied_report": "held, occupied (only reported)",
    "stalled_report": "held, stalled (only reported)",
    "idle_report": "held, idle (only reported)",
}


def round_line(done: Round) -> str:
    """A round in one line for the log."""
    if done.trouble is not None:
        return f"Round without a decision: {done.trouble}"
    nodes = done.observation.fleet.nodes
    use = Counter(node.activity.state.value for node in nodes if node.state is NodeState.RUNNING)
    seen = ", ".join(f"{use[state.value]} {state.value}" for state in State if use[state.value])
    acts = ", ".join(f"{act.review.step.verb} {act.review.step.node_id} {act.outcome.status}" for act in done.acts)
    refused = Counter(answer.rule for review in done.reviews for answer in review.refusals)
    rules = ", ".join(f"{rule} {count}" for rule, count in sorted(refused.items()))
    seen = f"{how_many(len(nodes), 'node')} ({seen or 'none running'})"
    line = f"Round: {seen}; {acts or 'no action'}; refused: {rules or 'nothing'}"
    late = sum(len(each.targets) for each in done.unreached or ())
    line = f"{line}; not reached: {how_many(late, 'step')}" if late else line
    mute = ", ".join(each.name for each in done.observation.fleet.silent)
    return f"{line}; no answer from {mute}" if mute else line


def silences(done: Round) -> Iterator[str]:
    """The places that gave no answer, and what that means."""
    return map(legible, map(silence_line, done.observation.fleet.silent))


def silence_line(silence: Silence) -> str:
    """Return a line about one silent place."""
    means = "What it showed last counts, and nothing is done there"
    if not silence.known:
        means = "Nobody knows what is there: pools that may have nodes in it do not grow"
    return f"Warning: no answer from {silence.name} ({silence.reason}). {means}."


def show_round(parts: LiveParts, done: Round, *, whole: bool = True) -> Looked:
    """What `status` shows of a round, but for the limits of the account; if not `whole`, without its nodes."""
    rules, leader = parts.rules, "" if parts.ledger.store.place == IN_MEMORY else parts.ledger.leader()
    return Looked(
        page=nodes_page(done, rules, whole=whole),
        pools=(*rules.known, *done.observation.fleet.pools),
        beneath=(
            *cautions(rules),
            *beyond_limits(done, rules),
            *remarks(done, leader),
            *addresses_of_nobody(done, parts.observing),
            *untried_lines(done, rules),
        ),
        currency=display_currency(),
        wrong_fleet=bool(fleets_instead(done)),
    )


def remarks(done: Round, leader: str) -> Iterator[str]:
    """`status`, beneath the table: pauses, advice, and which controller leads."""
    return map(legible, _remarks(done, leader))


def _remarks(done: Round, leader: str) -> Iterator[str]:
    seen = done.observation
    yield from silences(done)
    elsewhere = decided_elsewhere(seen.fleet, seen.ledger, seen.now)
    if elsewhere:
        named = ", ".join(node.id for node in elsewhere[:_NAMED]) + (", …" if len(elsewhere) > _NAMED else "")
        yield (
            f"Warning: another ledger has decided about {len(elsewhere)} machine(s) within a day ({named}): a second "
            "controller works on this fleet, or records were lost. Nothing is done to them."
        )
    for pause in done.observation.ledger.pauses:
        until = (
            "until somebody resumes it" if pause.until is None else f"until {format_time(pause.until, seconds=True)}"
        )
        what = "everything" if pause.pool is None else f"pool {pause.pool}"
        yield f"Paused: {what} {until}, by {pause.who}: {pause.reason or 'no reason given'}"
    yield from _tags(done)
    if of := fleets_instead(done):
        fleets = ", ".join(f"{how_many(count, 'machine')} of {fleet!r}" for fleet, count in of.most_common(_NAMED))
        yield (
            f"Warning: no machine is of the fleet that the setting `fleet` names. By their tags {FLEET_TAG}: {fleets}."
            " Correct `fleet` if it is one of those."
        )
    late, when = unreached_in(done)
    for each in late.unreached:
        yield f"Allowed, not reached {when}: {how_many(len(each.targets), 'step')} ({each.verb.value}): {each.why}."
    for decision in done.decisions:
        for clamp in decision.clamps:
            yield f"Pool {decision.pool}: {clamp}"
        for advice in decision.advice:
            yield f"Advice for {advice.target}: {advice.reason.sentence}"
    if leader:
        yield f"Controller of the newest round: {leader}"


def fleets_instead(done: Round) -> Counter[str]:
    """The fleets of the machines' tags, where no machine is of the fleet of the settings; else empty."""
    nodes = done.observation.fleet.nodes
    if any(each.enrolled for each in nodes):
        return Counter()
    return Counter(each.tags[FLEET_TAG] for each in nodes if each.tags.get(FLEET_TAG))


def addresses_of_nobody(done: Round, signals: ObserveSettings) -> Iterator[str]:
    """`status`: addresses of agents that the settings have for a machine which is not there."""
    for name, words in signals.of_nobody(done.observation.fleet.nodes):
        yield legible(f"Warning: signals.targets.{name}: {words}")


def _tags(done: Round) -> Iterator[str]:
    """What people should correct in tags: pools that the settings do not have, and protection that is over."""
    for each in done.proposals:
        if each.reason.code == unknown_pool.CODE:
            yield f"Warning: pool {each.pool!r}: {each.reason.sentence}"
    now, nodes = done.observation.now, done.observation.fleet.nodes
    over = [node.id for node in nodes if node.enrolled and has_expired(node.tags, now)]
    if over:
        text = f"The time in the tag gpuwatch:protect of {len(over)} nodes is over: {', '.join(over[:_NAMED])}"
        yield f"Warning: {text}{', …' if len(over) > _NAMED else ''}. {EXPIRED_REMEDY}"


def cautions(rules: Rulebook) -> Iterator[str]:
    """`status`, first of what is beneath the table: settings that no fleet which people use should have."""
    return (f"Warning: {each}" for each in rules.limits.cautions)


def beyond_limits(done: Round, rules: Rulebook) -> Iterator[str]:
    """`status`, after these: the owners who have more than they may."""
    return map(legible, (f"Warning: {each}" for each in beyond(done.observation.fleet, rules.limits.per_owner)))


def untried_lines(done: Round, rules: Rulebook) -> Iterator[str]:
    """`status`, beneath that: the pools that would remove nodes and wait for a backtest."""
    pools, kept = done.observation.fleet.pools, done.observation.ledger.backtests
    for pool, (_, sentence, remedy) in guard.untried_pools(pools, rules, kept, done.observation.now):
        yield f"Pool {pool} removes no node: {sentence} {remedy}"


def plan_text(done: Round) -> str:
    """`plan`: what this round would do, what is refused and why, and what it leaves alone."""
    if done.trouble is not None:
        return done.trouble
    names = {node.id: node.name for node in done.observation.fleet.nodes}
    fleet = done.observation.fleet
    clouds = {node.id: node.cloud for node in fleet.nodes} | {group.id: group.cloud for group in fleet.groups}
    lines = [*map(silence_line, fleet.silent), *_tags(done)]
    for review in done.reviews:
        word = "would" if review.allowed else "may not"
        name = _name_of_node(review.step.node_id, names, clouds)
        lines.append(f"{word} {review.step.verb} {name}: {review.step.reason.sentence}")
        lines += [f"    {answer.rule}: {answer.sentence} {answer.remedy}" for answer in review.refusals]
        unreached = unreached_words(review.step, *unreached_in(done)) if review.allowed else None
        lines += [] if unreached is None else [f"    {unreached}"]
    for decision in done.decisions:
        lines += [f"pool {decision.pool}: {clamp}" for clamp in decision.clamps]
        held = _held_names(decision.steps, names)
        lines += [f"pool {decision.pool}: advice for {each.target}: {each.reason.sentence}" for each in decision.advice]
        lines += [f"pool {decision.pool}: {len(found)} {_HELD.get(code, code)}: {_some(found)}" for code, found in held]
    return "\n".join(map(legible, lines)) or "There are no nodes."


def _held_names(steps: Iterable[Step], names: dict[str, str]) -> list[tuple[str, list[str]]]:
    """The names of the nodes that nothing happens to, by the reason's code; the largest group first."""
    found: dict[str, list[str]] = {}
    for step in steps:
        if step.verb is Verb.HOLD:
            found.setdefault(step.reason.code, []).append(names.get(step.node_id, step.node_id))
    return sorted(((code, sorted(group)) for code, group in found.items()), key=lambda each: (-len(each[1]), each[0]))


def _some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - _NAMED_HELD
    return ", ".join(names[:_NAMED_HELD]) + (f" and {more} more" if more > 0 else "")


def _name_of_node(node_id: str, names: dict[str, str], clouds: dict[str, str]) -> str:
    """An id with its name, where it has one of its own, and with its cloud, where that has a name."""
    name = names.get(node_id, node_id)
    about = ", ".join(each for each in ("" if name == node_id else name, clouds.get(node_id, "")) if each)
    return f"{node_id} ({about})" if about else node_id
