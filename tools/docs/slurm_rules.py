"""The rules on docs/slurm.md, which the docstrings of the modules that keep them say."""

import re
from datetime import timedelta
from types import ModuleType

from gpuwatch.model import slurm_queue, slurm_wake
from gpuwatch.model.duration import format_duration
from tools.docs.text import filled

_MODULES = {"slurm_queue": slurm_queue, "slurm_wake": slurm_wake}
_PLACE = re.compile(r"(<!-- rules of (\w+) -->)\n.*?(<!-- end of rules -->)", re.DOTALL)
_RULE = re.compile(r"^\d\. .*?(?=^\d\. |^$|\Z)", re.MULTILINE | re.DOTALL)
_CONSTANT = re.compile(r"`(?:(\w+)\.)?([A-Z_]+)`")


def with_rules(page: str) -> str:
    """The page with the rules in their places; what people wrote stays.

    Raises:
        ValueError: the page has not one place for each module.

    """
    places = [found[1] for found in _PLACE.findall(page)]
    if sorted(places) != sorted(_MODULES):
        raise ValueError(f"the page has places for the rules of {places}, expected {sorted(_MODULES)}")
    return _PLACE.sub(lambda found: "\n".join([found[1], *_rules(_MODULES[found[2]]), found[3]]), page)


def _rules(module: ModuleType) -> list[str]:
    rules = [" ".join(each.split()) for each in _RULE.findall(module.__doc__ or "")]
    return [filled(_CONSTANT.sub(lambda found: _value(module, found[1], found[2]), each), "   ") for each in rules]


def _value(module: ModuleType, other: str | None, name: str) -> str:
    """What a constant is, as people write it."""
    value = getattr(_MODULES[other] if other else module, name)
    return format_duration(value.total_seconds() if isinstance(value, timedelta) else value)
