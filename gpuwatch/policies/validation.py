"""PURE: what is wrong together, and what is known to mislead, in all pools' rules and names."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpuwatch.model.fleet import DEFAULT_POOL
from gpuwatch.model.setting import Contradiction
from gpuwatch.model.slips import fold_text, meant_name
from gpuwatch.policies import PoolRules, batch, scaling, schedule
from gpuwatch.policies.scaling.settings import PENDING
from gpuwatch.policies.spot import settings

Path = tuple[str, ...]


def contradictions(pools: Mapping[str, PoolRules], calendars: Mapping[str, Sequence[str]]) -> Iterator[Contradiction]:
    """What no single key's bounds can tell."""
    yield from schedule.calendar_contradictions(calendars, ("calendars",))
    yield from _names(pools)
    for name, rules in pools.items():
        here = ("pools", name)
        yield from scaling.contradictions(rules.scaling, (*here, "scaling"))
        yield from schedule.contradictions(rules.schedule, calendars, (*here, "schedule"))
        yield from settings.contradictions(rules.offers, rules.capacity, rules.interruptible, here)
        yield from batch.contradictions(rules, here)
        if rules.approval and rules.kubernetes.pods.action != "report":
            yield Contradiction(
                keys=((*here, "approval"), (*here, "kubernetes", "pods", "action")),
                wrong=f"pools.{name}.approval is true, and `gpuwatch approve` is for machines: "
                "no pod would ever be ended",
                right=f"approval: false, or pools.{name}.kubernetes.pods.action: report",
            )
        for unit, least, most in (
            ("nodes", rules.min_nodes, rules.max_nodes),
            ("gpus", rules.min_gpus, rules.max_gpus),
        ):
            if most is not None and most < least:
                yield Contradiction(
                    keys=((*here, f"max_{unit}"), (*here, f"min_{unit}")),
                    wrong=f"pools.{name}.max_{unit} ({most}) is below pools.{name}.min_{unit} ({least})",
                    right=f"a max_{unit} of {least} or more",
                )
        yield from _bounds_of_the_unit(rules, here)
        if rules.unit == "gpus":
            yield from _without_sizes(rules, here)
        if rules.health.action == "replace" and rules.idle.action != "terminate":
            yield Contradiction(
                keys=((*here, "health", "action"), (*here, "idle", "action")),
                wrong=f"pools.{name}.health.action is replace, and pools.{name}.idle.action {rules.idle.action}",
                right="idle.action: terminate (only what is terminated is replaced), or health.action: drain",
            )


def _bounds_of_the_unit(rules: PoolRules, here: Path) -> Iterator[Contradiction]:
    """Bounds in what the pool does not count: nothing would ever look at them. `max_nodes` holds in every pool."""
    other, unit = ("gpus", "nodes") if rules.unit == "nodes" else ("nodes", "gpus")
    bounds = {(*here, f"{end}_{other}"): getattr(rules, f"{end}_{other}") for end in ("min", "max")}
    for name, window in rules.schedule.items():
        at = (*here, "schedule", name)
        bounds |= {(*at, f"{end}_{other}"): getattr(window, f"{end}_{other}") for end in ("min", "max")}
    for key, value in bounds.items():
        if value and key != (*here, "max_nodes"):
            yield Contradiction(
                keys=(key, (*here, "unit")),
                wrong=f"{'.'.join(key)} is {value}, and {'.'.join(here)}.unit is {rules.unit}",
                right=f"{key[-1].replace(other, unit)}, or unit: {other}",
            )


def _without_sizes(rules: PoolRules, here: Path) -> Iterator[Contradiction]:
    """What a pool that counts GPUs cannot have, because nobody would know how many a machine brings, or needs."""
    at, unit = ".".join(here), (*here, "unit")
    known: dict[str | None, tuple[str, int]] = {}
    for name, offer in rules.offers.items():
        key = (*here, "offers", name, "gpus")
        other, gpus = known.setdefault(offer.instance_type, (name, offer.gpus or 0))
        if offer.gpus is None:
            yield Contradiction(
                keys=(key, unit),
                wrong=f"{at}.unit is gpus, and the offer {name} does not say how many GPUs its machine has",
                right=f"gpus, the number in {offer.instance_type or 'its machine type'}",
            )
        elif gpus and gpus != offer.gpus:
            yield Contradiction(
                keys=(key, (*here, "offers", other, "gpus")),
                wrong=f"the offer {name} says gpus: {offer.gpus}, and {other} of the same type says {gpus}",
                right="the same number in both",
            )
        elif rules.max_gpus is not None and offer.gpus > rules.max_gpus:
            yield Contradiction(
                keys=(key, (*here, "max_gpus")),
                wrong=f"the offer {name} brings {offer.gpus} GPUs, and {at}.max_gpus is {rules.max_gpus}: "
                "it would never be asked",
                right=f"a max_gpus of {offer.gpus} or more, or no such offer",
            )
    if rules.launch.template is not None:
        yield Contradiction(
            keys=((*here, "launch", "template"), unit),
            wrong=f"{at}.unit is gpus, and launch does not say how many GPUs its machine has",
            right="an offer with that template, its instance_type and gpus, in place of launch",
        )
    if rules.batch.work:
        yield Contradiction(
            keys=((*here, "batch"), unit),
            wrong=f"{at}.batch counts the work of nodes of one size, and {at}.unit is gpus",
            right="unit: nodes with offers of one size, or a pool without a deadline",
        )
    for name, metric in rules.scaling.metrics.items():
        if metric.signal == PENDING:
            yield Contradiction(
                keys=((*here, "scaling", "metrics", name, "signal"), unit),
                wrong=f"{at}.scaling.metrics.{name}.signal is {PENDING}, and {at}.unit is gpus: a pod needs its GPUs "
                "on one node",
                right="unit: nodes with offers of one size, or another signal",
            )


def without_cluster(pools: Mapping[str, PoolRules]) -> Iterator[Contradiction]:
    """What pools say of a cluster where none is in the settings: nothing of it would ever happen."""
    for name, rules in pools.items():
        key = rules.kubernetes.without_cluster
        if key is not None:
            yield Contradiction(
                keys=(("pools", name, "kubernetes", key),),
                wrong=f"pools.{name}.kubernetes.{key} needs a cluster, and no cluster is set",
                right="the section kubernetes with in_cluster: true or a kubeconfig",
            )


def scaled_by_pods(pools: Mapping[str, PoolRules], *, cluster: bool) -> Iterator[Contradiction]:
    """Pools that scale by waiting pods without a cluster, or that another autoscaler scales by them."""
    for at, name, rules in _by_pods(pools):
        owner = ("pools", name, "kubernetes", "node_owner")
        if not cluster:
            yield Contradiction(
                keys=((*at, "signal"),),
                wrong=f"{'.'.join(at)}.signal is {PENDING}, and no cluster is set",
                right="the section kubernetes with in_cluster: true or a kubeconfig",
            )
        if rules.kubernetes.node_owner in {"cluster-autoscaler", "karpenter"}:
            yield Contradiction(
                keys=((*at, "signal"), owner),
                wrong=f"{'.'.join(at)}.signal is {PENDING}, and {'.'.join(owner)} is {rules.kubernetes.node_owner}, "
                "which adds nodes for the same pods",
                right="node_owner: gpuwatch, and the pool taken out of the other autoscaler; or another signal",
            )


def _by_pods(pools: Mapping[str, PoolRules]) -> Iterator[tuple[Path, str, PoolRules]]:
    for name, rules in pools.items():
        for metric, each in rules.scaling.metrics.items():
            if each.signal == PENDING:
                yield ("pools", name, "scaling", "metrics", metric), name, rules


def unknown(pools: Mapping[str, PoolRules], written: Iterable[tuple[Path, str]]) -> Iterator[Contradiction]:
    """Pools, by the keys that name them, that the settings do not have."""
    known = {DEFAULT_POOL, *pools}
    for path, name in written:
        if name not in known:
            yield Contradiction(
                keys=(path,),
                wrong=f"the settings have no pool {name!r}",
                right=f"a pool of the settings. {meant_name(name, known)}",
            )


def _names(pools: Mapping[str, PoolRules]) -> Iterator[Contradiction]:
    """Names that people could not tell apart, or not write in a tag: a slip would put a machine under other rules."""
    seen = {fold_text(DEFAULT_POOL): DEFAULT_POOL}
    for name in pools:
        if not name.strip() or name != name.strip():
            yield Contradiction(
                keys=(("pools", name),), wrong=f"the name {name!r} is empty or has blanks around it", right="a word"
            )
        other = seen.setdefault(fold_text(name) or name, name)
        if other != name:
            yield Contradiction(
                keys=(("pools", name),),
                wrong=f"the names {name!r} and {other!r} differ in case, blanks or punctuation only",
                right="names that differ in their letters or digits; `default` is always one of them",
            )


def warnings(pools: Mapping[str, PoolRules]) -> Iterator[Contradiction]:
    """Choices that are allowed and known to mislead."""
    for name, rules in pools.items():
        yield from scaling.warnings(rules.scaling, ("pools", name, "scaling"))
        yield from batch.warnings(rules, ("pools", name))
    for at, name, rules in _by_pods(pools):
        if rules.min_nodes < 1:
            yield Contradiction(
                keys=(at,),
                wrong=f"{'.'.join(at)} is unknown while the pool has no node in the cluster: no labels show which pods "
                "would fit, and nothing brings the pool back",
                right=f"pools.{name}.min_nodes of at least 1, or a total by promql as well",
            )


def undecided_pools(pools: Mapping[str, PoolRules]) -> tuple[str, ...]:
    """The pools that may remove nodes, and for which nobody has decided about data on local disks, by name."""
    removes = {"stop", "terminate"}
    return tuple(
        name
        for name, rules in pools.items()
        if rules.idle.instance_store == "ask" and removes & {rules.idle.action, rules.idle.occupied}
    )
