"""The section `clouds`: several clouds by names, or the one of the section `cloud`, which has the name ""."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from gpuwatch.clouds import Cloud, CloudError
from gpuwatch.clouds import settings as one
from gpuwatch.clouds.provider import ALL, StartCommand
from gpuwatch.clouds.settings import CLOUDS, CloudSettings
from gpuwatch.clouds.several import SeveralClouds
from gpuwatch.model.setting import Contradiction
from gpuwatch.model.slips import fold_text, meant_name, nearest
from gpuwatch.policies.spot.settings import OfferRules
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.secrets import NoStores, Stores, unread

Path = tuple[str, ...]
Clouds = Mapping[str, CloudSettings]

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
_RIGHT_NAME = "1 to 32 of a-z, 0-9 and -, such as bj or aws-eu; - neither first nor last"


def section(name: str) -> Path:
    """Where the settings of a cloud are written."""
    return ("clouds", name) if name else ("cloud",)


def name_keys(text: str, name: str) -> str:
    """A cloud's own sentence about its settings, with the keys that these have under its name."""
    if not name:
        return text
    keys = "|".join(("provider", "regions", "endpoint_url", *(rf"{cloud}\.(?!com\b)" for cloud in CLOUDS)))
    return re.sub(rf"(?<![\w.-])cloud\.(?={keys})", f"clouds.{name}.", text)


def contradictions(clouds: Clouds) -> Iterator[Contradiction]:
    """Mistakes in each cloud's settings that no single key's bounds show."""
    for name, cloud in clouds.items():
        yield from (_move_contradiction(each, name) for each in one.contradictions(cloud))


def names(clouds: Iterable[str]) -> Iterator[Contradiction]:
    """Names that cannot be written in a metric, a command and a key of prices, and those that look the same."""
    seen: dict[str, str] = {}
    for name in clouds:
        if not _NAME.fullmatch(name):
            yield Contradiction(keys=(("clouds", name),), wrong=f"{name!r} is no name of a cloud", right=_RIGHT_NAME)
        other = seen.setdefault(fold_text(name), name)
        if other != name:
            yield Contradiction(
                keys=(("clouds", name),),
                wrong=f"the names {name!r} and {other!r} differ in punctuation only",
                right="names that differ in their letters or digits",
            )


def unknown_regions(clouds: Clouds, launches: Iterable[tuple[Path, str, str | None]]) -> Iterator[Contradiction]:
    """Regions that a cloud does not have: its own, and those where pools launch in it, by their keys.

    `launches` are the key, the region and the cloud's name; None is the only cloud.
    """
    launches = list(launches)
    for name, cloud in clouds.items():
        here = [(path, region) for path, region, asked in launches if (asked or "") == name or len(clouds) == 1]
        yield from (_move_contradiction(each, name) for each in one.unknown_regions(cloud, here))


def unmatched_regions(clouds: Clouds, written: Iterable[tuple[Path, str, Sequence[str]]]) -> Iterator[Contradiction]:
    """Patterns of regions that no region of their clouds is like, by their keys: they would allow nothing.

    Each is a key, the pattern, and the clouds that it is about (none named: all). Where the regions of one of these are
    not known without asking it, nothing is said.
    """
    for path, pattern, where in written:
        here = [cloud for name, cloud in clouds.items() if not where or name in where]
        names = [cloud.own.region_names() if cloud.provider in CLOUDS else None for cloud in here]
        known = {region for each in names if each is not None for region in each}
        if None in names or any(fnmatchcase(region, pattern) for region in known):
            continue
        providers = " or ".join(dict.fromkeys(cloud.provider for cloud in here))
        every = pattern.strip().lower() == ALL
        near = "no pool's regions: without any, all are allowed" if every else nearest(pattern, known)
        yield Contradiction(
            keys=(path,),
            wrong=f"{pattern!r} is no region of {providers}",
            right=near or "a region that it has, or a pattern such as eu-*",
        )


def unknown(clouds: Clouds, written: Iterable[tuple[Path, str]]) -> Iterator[Contradiction]:
    """Names of clouds, by the keys that have them, that the settings do not have."""
    for path, name in written:
        if name not in clouds or not name:
            known = ", ".join(filter(None, clouds))
            yield Contradiction(
                keys=(path,),
                wrong=f"the settings have no cloud {name!r}",
                right=f"a cloud of `clouds`. {meant_name(name, clouds)}"
                if known
                else "no cloud, or clouds in `clouds`",
            )


def regionless(clouds: Clouds, launches: Iterable[tuple[str, str | None, str | None]]) -> Iterator[Contradiction]:
    """Pools that launch, by name, cloud and region, and name no region although the cloud's settings do not, either."""
    pools = [(pool, asked) for pool, asked, region in launches if region is None]
    for name, cloud in clouds.items():
        here = [pool for pool, asked in pools if (asked or "") == name or len(clouds) == 1]
        yield from (_move_contradiction(each, name) for each in one.regionless(cloud, here))


def unfit_tags(clouds: Clouds, written: Iterable[tuple[Path, str, str, Sequence[str]]]) -> Iterator[Contradiction]:
    """Names that machines carry in their tags and that a cloud cannot hold there.

    Each is a key, the tag, the name, and the clouds in which such machines are (none named: all).
    """
    for path, tag, text, where in written:
        for name, cloud in clouds.items():
            if cloud.provider not in CLOUDS or (where and name not in where):
                continue
            why = cloud.own.unfit_tag(tag, text)
            if why is not None:
                place = f"{cloud.provider}, the cloud {name}" if name else cloud.provider
                yield Contradiction(
                    keys=(path, (*section(name), "provider")),
                    wrong=f"{text!r} does not fit into a tag on {place}: {why}",
                    right="a shorter name, best in small letters, digits, - and _",
                )
                break


def everywhere(clouds: Clouds) -> Iterator[str]:
    """What it means that all regions are looked at, for people."""
    for name, cloud in clouds.items():
        if cloud.everywhere:
            yield (
                f"{'.'.join((*section(name), 'regions'))} is [all]: gpuwatch looks at every region that the account "
                "may use, and acts in each of them on machines that are enrolled, by the pool's rules"
            )


def homeless(clouds: Clouds, launches: Iterable[tuple[str, str | None]]) -> Iterator[Contradiction]:
    """Pools that launch, by name and cloud, and do not say in which of several clouds."""
    for pool, cloud in launches:
        if cloud is None and len(clouds) > 1:
            yield Contradiction(
                keys=(("pools", pool, "launch", "cloud"), ("pools", pool, "launch", "template")),
                wrong=f"pools.{pool}.launch has a template and does not say in which cloud it is",
                right=f"launch.cloud: one of {', '.join(clouds)}",
            )


def homeless_offers(
    clouds: Clouds, pool: str, allowed: Sequence[str], offers: Mapping[str, OfferRules]
) -> Iterator[Contradiction]:
    """A pool's offers that do not say where they are, or are where the pool's nodes are left alone."""
    for name, each in offers.items():
        path = ("pools", pool, "offers", name)
        if each.cloud is None and len(clouds) > 1:
            yield Contradiction(
                keys=((*path, "cloud"),),
                wrong=f"the offer {name} does not say in which cloud it is",
                right=f"cloud: one of {', '.join(clouds)}",
            )
        elif allowed and each.cloud in clouds and each.cloud not in allowed:
            yield Contradiction(
                keys=((*path, "cloud"), ("pools", pool, "clouds")),
                wrong=f"the offer {name} is in {each.cloud}, which is not among pools.{pool}.clouds "
                f"({', '.join(allowed)}): its new nodes would be left alone",
                right="one of the pool's clouds",
            )
        for kind in (cloud for key, cloud in clouds.items() if each.cloud in {None, key}):
            if each.region is None and kind.everywhere and kind.own.launches_name_regions:
                yield Contradiction(
                    keys=((*path, "region"),),
                    wrong=f"cloud.regions is [all], and the offer {name} does not say in which region its template is",
                    right="its region as well",
                )


def urls(clouds: Clouds) -> dict[Path, str]:
    """Each cloud's base URL, by its key, where one is set."""
    return {
        (*section(name), "endpoint_url"): each.endpoint_url
        for name, each in clouds.items()
        if each.endpoint_url is not None
    }


def _move_contradiction(found: Contradiction, name: str) -> Contradiction:
    """A cloud's mistake at the place where its settings are."""
    keys = tuple((*section(name), *key[1:]) if key[0] == "cloud" else key for key in found.keys)
    return replace(found, keys=keys, wrong=name_keys(found.wrong, name), right=name_keys(found.right, name))


@dataclass(frozen=True, slots=True)
class SeveralStores:
    """The secret stores of several clouds: of two that have the same kind of store, the first is asked."""

    parts: tuple[Stores, ...]
    forms: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Keep each form of the name once."""
        forms = dict.fromkeys(form for part in self.parts for form in part.forms)
        object.__setattr__(self, "forms", tuple(forms))

    def fetch(self, store: str, name: str) -> bytes:
        """The secret; raises OSError."""
        for part in self.parts:
            if any(form.partition(":")[0] == store for form in part.forms):
                return part.fetch(store, name)
        raise unread(f"{store}:{name}", "no store is set up")


def secret_stores(clouds: Clouds) -> Stores:
    """The stores that references to secrets may lead to."""
    found = tuple(stores for each in clouds.values() if (stores := each.secret_stores).forms)
    if len(clouds) == 1 or len(found) == 1:
        return found[0] if found else NoStores()
    return SeveralStores(found)


def connect(
    clouds: Clouds, *, fleet: str, clock: Clock, around: Callable[[Cloud, str], Cloud] = lambda cloud, _: cloud
) -> Cloud:
    """The clouds of the settings as one; nothing is sent yet. `around` is put around each, with its name for people.

    Raises:
        ValueError: a provider does not exist.
        CloudError: one of them cannot be set up.
        ImportError: an extra is not installed.

    """
    if "" in clouds:
        return around(one.connect(clouds[""], fleet=fleet, clock=clock), clouds[""].provider)
    made: dict[str, Cloud] = {}
    for name, cloud in clouds.items():
        try:
            made[name] = around(one.connect(cloud, fleet=fleet, clock=clock), name)
        except CloudError as error:
            error.args = (f"cloud {name}: {name_keys(str(error), name)}", *error.args[1:])
            raise
    return SeveralClouds(made)


def parts_of(cloud: Cloud) -> Mapping[str, Cloud]:
    """The clouds that are asked as one, by name; the only one has the name ""."""
    return cloud.parts if isinstance(cloud, SeveralClouds) else {"": cloud}


def kinds(clouds: Clouds) -> str:
    """The clouds for people: `bj (tencent), us (aws)`, or the provider of the only one."""
    return ", ".join(f"{name} ({each.provider})" if name else each.provider for name, each in clouds.items())


def providers(clouds: Clouds) -> dict[str, str]:
    """The provider of each cloud, by its name."""
    return {name: each.provider for name, each in clouds.items()}


def provider_of(clouds: Clouds, name: str) -> str | None:
    """The provider of the cloud of that name; None: no such cloud, or no name where there are several."""
    if name in clouds:
        return clouds[name].provider
    kinds = {each.provider for each in clouds.values()}
    return next(iter(kinds)) if not name and len(kinds) == 1 else None


def start_command(clouds: Clouds) -> StartCommand:
    """The commands of each cloud's own command line."""

    def command(cloud: str, node_id: str, region: str | None) -> str | None:
        provider = provider_of(clouds, cloud)
        return None if provider not in CLOUDS else CLOUDS[provider].start_command(node_id, region)

    return command
