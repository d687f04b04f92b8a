"""The cloud: the fleet, what we may do with it, what is unsafe in it, what it costs."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from gpuwatch.cli.doctor.context import ControllerCase
from gpuwatch.cli.doctor.report import Finding, fine, first_names, make_finding
from gpuwatch.clouds import ClockSkewError, Cloud, CloudError
from gpuwatch.clouds.named import kinds, parts_of
from gpuwatch.clouds.permissions import Diagnosable, Needs
from gpuwatch.clouds.silence import partial
from gpuwatch.clouds.survey import Searchable
from gpuwatch.clouds.unseen import HEADING, unseen_of
from gpuwatch.config.settings import Settings
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import Node
from gpuwatch.model.offers import price_key
from gpuwatch.model.readable import how_many
from gpuwatch.model.usage import FLEET_TAG
from gpuwatch.money.prices.open import open_book
from gpuwatch.money.prices.overrides_file import PricesError
from gpuwatch.money.prices.price_book import NoPrice
from gpuwatch.policies import PoolRules

SKEW_SECONDS = 5.0
_CLOCK = "this clock against the cloud's"


def fleet(case: ControllerCase) -> Iterator[Finding]:
    """The fleet can be listed, and somebody is enrolled where the controller may act."""
    where = f"the fleet {case.settings.fleet!r} in {kinds(case.settings.named_clouds)}"
    try:
        nodes = case.nodes
    except (CloudError, ImportError) as error:
        yield make_finding("cloud.unusable", where, str(error))
        return
    for each in case.silent:
        yield make_finding("cloud.unusable", f"the fleet in {each.name}", each.reason)
    enrolled = sum(node.enrolled for node in nodes)
    text = f"{len(nodes)} GPU machines, {enrolled} enrolled, mode {case.settings.mode}"
    others = [node.id for node in nodes if not node.enrolled]
    if others:
        text += f"; only looked at: {first_names(others)}"
    named = Counter(each.tags[FLEET_TAG] for each in nodes if each.tags.get(FLEET_TAG))
    if not enrolled and named:
        fleets = ", ".join(f"{how_many(count, 'machine')} of {fleet!r}" for fleet, count in named.most_common(3))
        yield make_finding("fleet.other", where, f"{text}. By their tags: {fleets}")
    elif case.settings.mode == "enforce" and not enrolled:
        yield make_finding("enrolment.none", where, text)
    else:
        yield fine("fleet", where, text)


def regions(case: ControllerCase) -> Iterator[Finding]:
    """GPU machines in regions of our accounts that the settings do not name: the classic forgotten machine."""
    key = "clouds.<name>.regions" if case.settings.clouds else "cloud.regions"
    where = f"regions that {key} does not name"
    if list_fleet(case) is None:
        yield skipped_finding(where)
        return
    if not isinstance(case.cloud, Searchable):
        return
    try:
        places = case.cloud.elsewhere()
    except CloudError as error:
        yield make_finding("regions.unseen", where, str(error))
        return
    for place in places:
        if place.machines:
            text = f"{len(place.machines)} GPU machines: {first_names(place.machines)}"
            yield make_finding("regions.unwatched", f"the region {place.where}", text)
        elif place.trouble is not None:
            yield make_finding("regions.unseen", f"the region {place.where}", place.trouble)
    refused = [place.where for place in places if place.refused is not None]
    if places and len(refused) == len(places):
        yield make_finding("regions.unseen", where, f"no listing is allowed in any of them ({places[0].refused})")
    elif not any(place.machines or place.trouble for place in places):
        text = f"no GPU machine in {len(places) - len(refused)} others"
        yield fine("regions", where, text + (f"; not allowed to look in {first_names(refused)}" if refused else ""))


def permissions(case: ControllerCase) -> Iterator[Finding]:
    """Each call that these settings need, tried without being carried out; those that are allowed are one finding."""
    where = "permissions of the controller's role"
    nodes = list_fleet(case)
    if nodes is None:
        yield skipped_finding(where)
        return
    if not isinstance(case.cloud, Diagnosable):
        yield fine("permissions", where, "this cloud has no way to try them")
        return
    allowed: dict[str, list[str]] = {}
    try:
        for each in case.cloud.may(needs_of(case.settings, nodes)):
            looked_at = f"permission {each.call} in {each.where}"
            if each.allowed:
                allowed.setdefault(each.where, []).append(each.call)
            else:
                code = "permission.untried" if each.allowed is None else "permission.denied"
                yield make_finding(code, looked_at, each.reason)
    except CloudError as error:  # a launch in a region that is not in the settings
        yield make_finding("cloud.unusable", where, str(error))
    for place, calls in allowed.items():
        yield fine("permissions", f"permissions in {place}", f"allowed: {', '.join(calls)}")


def reach(case: ControllerCase) -> Iterator[Finding]:
    """What stolen credentials could do to machines that are not the fleet's, tried without being carried out."""
    where = "permissions on machines that are not the fleet's"
    nodes = list_fleet(case)
    foreign = [node.id for node in nodes or () if not node.enrolled]
    if not foreign or not isinstance(case.cloud, Diagnosable):
        return
    try:
        found = list(case.cloud.may_beyond(foreign))
    except CloudError as error:
        yield make_finding("cloud.unusable", where, str(error))
        return
    allowed: dict[str, list[str]] = {}
    for each in found:
        if each.allowed:
            allowed.setdefault(each.where, []).append(each.call)
    alike: dict[str, list[str]] = {}  # a person's own credentials may do the same in every place
    for place, calls in allowed.items():
        alike.setdefault(", ".join(calls), []).append(place)
    for changes, places in alike.items():
        yield make_finding("permission.beyond", where, f"{changes} allowed in {first_names(places)}")
    refused = dict.fromkeys(each.where for each in found if each.allowed is False and each.where not in allowed)
    if refused:
        yield fine("permissions", where, f"not allowed in {first_names(list(refused))}")


def unseen(case: ControllerCase) -> Iterator[Finding]:
    """What gpuwatch takes for granted of the clouds of the settings, because nobody has seen it there."""
    for provider in dict.fromkeys(each.provider for each in case.settings.named_clouds.values()):
        rows = unseen_of(provider)
        if rows:
            yield make_finding("cloud.unseen", f"{provider}: {HEADING.lower()}", "; ".join(each.what for each in rows))


def templates(case: ControllerCase) -> Iterator[Finding]:
    """What the pools would launch has GPUs."""
    where = "launch templates of the pools"
    nodes = list_fleet(case)
    if nodes is None:
        yield skipped_finding(where)
        return
    launches = needs_of(replace(case.settings, mode="enforce"), nodes).launches
    if not launches or not isinstance(case.cloud, Diagnosable):
        return
    try:
        unfit = tuple(case.cloud.unfit(launches))
    except CloudError as error:
        yield make_finding("cloud.unusable", where, str(error))
        return
    for sentence in unfit:
        yield make_finding("template.no_gpu", where, sentence)
    if not unfit:
        yield fine("templates", where, "none makes machines without a GPU")


def clock(case: ControllerCase) -> Iterator[Finding]:
    """This clock against each cloud's, which shows whole seconds in its Date."""
    try:
        parts = parts_of(case.cloud)
    except (CloudError, ImportError):
        yield skipped_finding(_CLOCK)
        return
    for name, cloud in parts.items():
        yield _clock(case, cloud, f"{_CLOCK}: {name}" if name else _CLOCK)


def _clock(case: ControllerCase, cloud: Cloud, where: str) -> Finding:
    """Compare our clock with one cloud's."""
    try:
        identity = cloud.identity() if isinstance(cloud, Diagnosable) else None
    except ClockSkewError as error:
        return make_finding("clock.cloud", where, str(error))
    except CloudError:
        return skipped_finding(where)
    if identity is None or identity.at is None:
        return fine("clock", where, "the cloud does not give its time")
    skew = (identity.at - case.clock.now()).total_seconds()
    seen = f"the cloud's is {format_duration(abs(skew))} {'ahead' if skew > 0 else 'behind'}; asked as {identity.name}"
    return make_finding("clock.cloud", where, seen) if abs(skew) > SKEW_SECONDS else fine("clock", where, seen)


def volumes(case: ControllerCase) -> Iterator[Finding]:
    """Volumes of GPU machines, enrolled or not."""
    where = "volumes of the GPU machines"
    nodes = list_fleet(case)
    if nodes is None:
        yield skipped_finding(where)
        return
    if not isinstance(case.cloud, Diagnosable):
        return
    try:
        with partial() as silent:
            open_ones = case.cloud.unencrypted_disks([node.id for node in nodes])
    except CloudError as error:
        yield make_finding("cloud.unusable", where, str(error))
        return
    for each in silent:
        yield make_finding("cloud.unusable", f"volumes of the GPU machines in {each.name}", each.reason)
    if silent and not open_ones:
        return
    if open_ones:
        yield make_finding(
            "volumes.unencrypted", where, f"{len(open_ones)} are not encrypted: {first_names(open_ones)}"
        )
    else:
        yield fine("volumes", where, "all are encrypted")


def prices(case: ControllerCase) -> Iterator[Finding]:
    """What each kind of machine in the fleet costs."""
    where = "prices of the fleet's machines"
    settings, now = case.settings, case.clock.now()
    nodes = list_fleet(case)
    if nodes is None:
        yield skipped_finding(where)
        return
    try:
        book = open_book(
            settings.prices,
            clouds=settings.named_clouds,
            clock=case.clock,
            background=False,
        )
    except (PricesError, ImportError) as error:
        yield make_finding("prices.unknown", where, str(error))
        return
    hires = {hire.key: hire for hire in map(price_key, nodes)}
    unknown = sorted(key for key, hire in hires.items() if isinstance(book.find(hire, now), NoPrice))
    if unknown:
        yield make_finding("prices.unknown", where, f"of {len(hires)} kinds, without a price: {first_names(unknown)}")
    else:
        yield fine("prices", where, f"known for every kind of machine there ({len(hires)})")


def needs_of(settings: Settings, nodes: "tuple[Node, ...]") -> Needs:
    """What these settings will make the controller do, and what it can be tried on."""
    act = settings.mode == "enforce"
    rules = settings.rulebook.pools
    return Needs(
        act=act,
        terminate=any(each.idle.action == "terminate" for each in rules.values()),
        groups=any(node.enrolled and node.group is not None for node in nodes),
        node_ids=tuple(node.id for node in nodes if node.enrolled and node.protected is None),
        launches=tuple(each for name, rule in rules.items() if act for each in _launches(name, rule)),
    )


def _launches(pool: str, rules: PoolRules) -> Iterator[dict[str, str]]:
    """What launches of a pool ask for."""
    for name, each in rules.offers.items():
        yield each.arguments(name, pool)
    if not rules.offers and rules.launch.template is not None:
        yield {
            "template": rules.launch.template,
            "version": rules.launch.version,
            "cloud": rules.launch.cloud or "",
            "region": rules.launch.region or "",
            "account": rules.launch.account or "",
            "subnet": next(iter(rules.launch.subnets), ""),
            "instance_type": rules.launch.instance_type or "",
            "pool": pool,
        }


def list_fleet(case: ControllerCase) -> "tuple[Node, ...] | None":
    """The fleet; None where it cannot be listed, which `fleet` reports."""
    try:
        return tuple(case.nodes)
    except (CloudError, ImportError):
        return None


def skipped_finding(where: str) -> Finding:
    """Another finding says why."""
    return make_finding("cloud.skipped", where, "the fleet cannot be listed")
