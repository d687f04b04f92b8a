"""What holds in each pool, and where it comes from: a line of the file, a variable, the profile, or the default."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpuwatch.config.keys import GROUPS, NAME, Key, Path, values_at
from gpuwatch.config.settings import Settings
from gpuwatch.config.yaml_file import Origin, show_value
from gpuwatch.model.fleet import DEFAULT_POOL
from gpuwatch.policies import PoolRules
from gpuwatch.policies.profiles import DECIDED

_HIDDEN = "(hidden)"


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """One setting of a pool: its key and its value as one would write them, and where it comes from."""

    pool: str
    key: str
    value: str
    source: str


def of_pools(settings: Settings, origin: Origin) -> Iterator[InForce]:
    """Every setting of every pool; the pool `default` exists without being written."""
    pools = {DEFAULT_POOL: PoolRules(), **settings.pools}
    for name, rules in pools.items():
        for key in origin.keys.values():
            if key.path[:2] != ("pools", NAME) or key.kind in GROUPS:
                continue
            for path, value in values_at(rules, key.path[2:], ("pools", name)):
                written, source = _show_value(key, value, path), _source(path, rules, origin)
                yield InForce(pool=name, key=".".join(path), value=written, source=source)


def _show_value(key: Key, value: object, path: Path) -> str:
    hidden = show_value(value, path)
    if hidden == _HIDDEN or isinstance(value, bool):
        return hidden
    return "none" if value is None else key.show(value)


def _source(path: Path, rules: PoolRules, origin: Origin) -> str:
    if path in origin.overrides or path in origin.lines:
        return origin.where(path)
    if path[2] == "idle" and path[-1] in DECIDED:
        return f"profile {rules.profile}"
    return "default"
