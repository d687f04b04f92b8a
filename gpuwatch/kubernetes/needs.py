"""PURE: what a pod needs of its node, and what a node offers, as the scheduler counts them.

Requests: containers and sidecars together, or what it takes while an init container runs, with the sidecars before it;
what is set for the pod as a whole instead; and the overhead of its runtime. A container that was resized counts with
what it has. https://kubernetes.io/docs/concepts/scheduling-eviction/pod-overhead/
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor

from gpuwatch.kubernetes.objects import (
    Allocated,
    Container,
    LabelSelector,
    PodAffinityTerm,
    PodObject,
    PodSpec,
    PodStatus,
    Resources,
    Term,
)
from gpuwatch.kubernetes.objects import SpreadConstraint as SpreadObject
from gpuwatch.model.bounds import bounded_name
from gpuwatch.model.placing import NODE_NAME, Needs, PodTerm, Requirement, Selector, Spread, Toleration

_SCHEDULER = "default-scheduler"
_QUANTITY = re.compile(r"([0-9]{0,18}(?:\.[0-9]{0,18})?)(?:[eE]([+-]?[0-9]{1,2})|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII)
_SUFFIXES = {
    **{suffix: Fraction(1000) ** power for power, suffix in enumerate(("", "k", "M", "G", "T", "P", "E"))},
    **{suffix: Fraction(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
    **{suffix: Fraction(1, 1000**power) for power, suffix in enumerate(("m", "u", "n"), 1)},
}
# A pod that Kueue itself admits; one of a group takes over the quota of the one that it replaces.
_MANAGED, _POD_GROUP = "kueue.x-k8s.io/managed", "kueue.x-k8s.io/pod-group-name"
_CPU = "cpu"
_NONE: Counter[str] = Counter()
_OF_PODS = frozenset({"cpu", "memory"})  # may be set for a pod as a whole; and huge pages, as they are


class _UnreadableError(ValueError):
    """A text that is no amount."""


def needs_of(pod: PodObject) -> Needs:
    """What a pod needs; the same object for all that are alike."""
    spec = pod.spec or PodSpec()
    labels = pod.metadata.labels or {}
    try:
        requests, doubt = _requests(pod, spec), _doubt(spec, labels)
    except _UnreadableError as error:
        requests, doubt = (), f"its request {error} cannot be read"
    affinity = spec.affinity
    near = _required_terms(None if affinity is None else affinity.pod_affinity)
    apart = _required_terms(None if affinity is None else affinity.pod_anti_affinity)
    if doubt is None and any(_names_some_namespaces(each) for each in near):
        doubt = "its affinity is about namespaces by their labels"
    spreads = [each for each in spec.topology_spread_constraints or () if each.when_unsatisfiable == "DoNotSchedule"]
    return _same(
        Needs(
            requests=requests,
            selector=tuple(sorted((spec.node_selector or {}).items())),
            alternatives=_alternatives(spec),
            tolerations=tolerations_of(spec),
            ports=_ports(spec),
            near=tuple(map(_pod_term, near)),
            apart=tuple(map(_pod_term, apart)),
            spread=tuple(_spread(each, labels) for each in spreads),
            doubt=doubt,
        )
    )


def offers_of(allocatable: Mapping[str, str]) -> Mapping[str, int]:
    """What a node offers; of what cannot be read nothing."""
    return {what: _offer_amount(what, text) for what, text in allocatable.items()}


@lru_cache(maxsize=4096)
def _same(needs: Needs) -> Needs:
    """One object for all pods of a workload: there are far fewer kinds of pods than pods."""
    return needs


def _doubt(spec: PodSpec, labels: Mapping[str, str]) -> str | None:
    """Why its place cannot be foretold, as a clause."""
    if labels.get(_MANAGED) == "true" and _POD_GROUP not in labels:
        return "Kueue puts the pod that replaces it back into its queue"
    if spec.scheduler_name not in {"", _SCHEDULER}:
        return f"its scheduler is {bounded_name(spec.scheduler_name)}, and gpuwatch does not know the rules of that"
    disk = next((each.name for each in spec.volumes or () if each.is_network_disk), None)
    return None if disk is None else f"where its volume {bounded_name(disk)} can be mounted is not known"


@lru_cache(maxsize=4096)
def _fraction(text: str) -> Fraction:
    found = _QUANTITY.fullmatch(text)
    if found is None or not any(each.isdigit() for each in found[1]):
        raise _UnreadableError(bounded_name(text))
    number = Fraction(found[1].rstrip(".") or "0") if found[1][0] != "." else Fraction(f"0{found[1]}")
    return number * (Fraction(10) ** int(found[2]) if found[2] else _SUFFIXES[found[3] or ""])


def _request_amount(what: str, text: str) -> int:
    return ceil(_fraction(text) * (1000 if what == _CPU else 1))


def _offer_amount(what: str, text: str) -> int:
    try:
        return floor(_fraction(text) * (1000 if what == _CPU else 1))
    except _UnreadableError:
        return 0


def _requests(pod: PodObject, spec: PodSpec) -> tuple[tuple[str, int], ...]:
    """All that a pod requests, by resource."""
    status = pod.status or PodStatus()
    resized = {
        each.name: _allocation(each)
        for each in (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    }
    begins = spec.init_containers or ()
    for each in begins:
        if each.restart_policy != "Always":
            resized.pop(each.name, None)
    sidecars: Counter[str] = Counter()
    starting: Counter[str] = Counter()
    for each in begins:
        own = _amounts(each.resources) | resized.get(each.name, _NONE)
        if each.restart_policy == "Always":
            sidecars.update(own)
        starting |= sidecars if each.restart_policy == "Always" else sidecars + own
    running = sum(
        (_amounts(each.resources) | resized.get(each.name, _NONE) for each in spec.containers or ()), sidecars
    )
    found = running | starting
    whole = _amounts(spec.resources)
    for what, amount in (whole | _allocation(status)).items() if whole else ():
        if what in _OF_PODS or what.startswith("hugepages-"):
            found[what] = max(amount, sum(amounts[what] for amounts in resized.values()))
    found.update(Counter({what: _request_amount(what, text) for what, text in (spec.overhead or {}).items()}))
    return tuple(sorted((what, amount) for what, amount in found.items() if amount > 0))


def _amounts(resources: Resources | None) -> Counter[str]:
    """Requests; the API server writes limits into them where they are left out."""
    if resources is None:
        return Counter()
    texts = {**(resources.limits or {}), **(resources.requests or {})}
    return Counter({what: _request_amount(what, text) for what, text in texts.items()})


def _allocation(told: Allocated) -> Counter[str]:
    """What it was promised, or what it still has, where that is more: it was asked to take less a moment ago."""
    promised = {what: _request_amount(what, text) for what, text in (told.allocated_resources or {}).items()}
    requests = (told.resources.requests if told.resources is not None else None) or {}
    return Counter(promised) | Counter({what: _request_amount(what, text) for what, text in requests.items()})


def _alternatives(spec: PodSpec) -> tuple[tuple[Requirement, ...], ...]:
    """Its required node affinity; a node's name is looked up among its labels."""
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    terms = (affinity.required.node_selector_terms if affinity is not None and affinity.required else None) or ()
    return tuple(
        (*map(_requirement, term.match_expressions or ()), *map(_requirement_of_name, term.match_fields or ()))
        for term in terms
    )


def tolerations_of(spec: PodSpec) -> tuple[Toleration, ...]:
    """The taints that a pod bears, with what the API server takes where a field is not set."""
    return tuple(
        Toleration(
            key=each.key or "",
            operator=each.operator or "Equal",
            value=each.value or "",
            effect=each.effect or "",
        )
        for each in spec.tolerations or ()
    )


def _ports(spec: PodSpec) -> tuple[tuple[str, int], ...]:
    """The ports that it takes of its host."""
    containers: Iterable[Container] = [*(spec.containers or ()), *(spec.init_containers or ())]
    return tuple(
        sorted(
            (port.protocol or "TCP", port.host_port)
            for each in containers
            for port in each.ports or ()
            if port.host_port
        )
    )


def _required_terms(terms: object) -> Sequence[PodAffinityTerm]:
    return getattr(terms, "required", None) or ()


def _names_some_namespaces(term: PodAffinityTerm) -> bool:
    chosen = term.namespace_selector
    return chosen is not None and bool(chosen.match_labels or chosen.match_expressions)


def _pod_term(term: PodAffinityTerm) -> PodTerm:
    """A term; namespaces that are chosen by labels are all of them, which is doubt where the pods have to be near."""
    namespaces = None if term.namespace_selector is not None else tuple(sorted(term.namespaces or ()))
    return PodTerm(topology=term.topology_key, selector=_selector(term.label_selector), namespaces=namespaces)


def _spread(spread: SpreadObject, labels: Mapping[str, str]) -> Spread:
    selector = _selector(spread.label_selector)
    alike = tuple((key, labels[key]) for key in spread.match_label_keys or () if key in labels)
    if selector is not None and alike:
        selector = Selector(exact=(*selector.exact, *alike), terms=selector.terms)
    return Spread(
        topology=spread.topology_key,
        most_skew=spread.max_skew,
        selector=selector,
        least_domains=spread.min_domains or 1,
        by_affinity=spread.node_affinity_policy != "Ignore",
        by_taints=spread.node_taints_policy == "Honor",
    )


def _selector(selector: LabelSelector | None) -> Selector | None:
    if selector is None:
        return None
    return Selector(
        exact=tuple(sorted((selector.match_labels or {}).items())),
        terms=tuple(map(_requirement, selector.match_expressions or ())),
    )


def _requirement(term: Term) -> Requirement:
    return Requirement(key=term.key, operator=term.operator, values=tuple(term.values or ()))


def _requirement_of_name(term: Term) -> Requirement:
    """About a node's fields, of which there is one."""
    return Requirement(key=NODE_NAME, operator=term.operator, values=tuple(term.values or ()))
