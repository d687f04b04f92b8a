"""PURE: facts about an idle node: where each lies on its scale of classes, and its words.

A length is counted in restarts' costs and put on a scale that doubles from class to class, from a
sixteenth to 64; counts on one that doubles about every two thirds of a class.
"""

import math

from gpuwatch.model.duration import format_duration
from gpuwatch.policies.idle_timeout.hazard import CLASSES, HINT, Asked, Hazard, factors

UNKNOWN = 0.0  # of a length or a part; numbers begin there
FREE_GPUS, PENDING_GPUS = f"{HINT}free_gpus", f"{HINT}kubernetes_pending"  # what schedulers tell without settings
_LEAST = 1 / 16
_PER_DOUBLING = 1.5
_LENGTHS = dict.fromkeys(("usual", "last", "long", "spell"), "its gaps") | {"turn": "the pool's pace"}
_TOLD = 1.25  # a factor below this, or above its inverse, is not worth a word
_MOST_TOLD = 2


def length(restarts: float) -> float:
    """A time in restarts' costs."""
    return round(1 + min(CLASSES - 2.01, max(0.0, math.log2(max(restarts, 1e-9) / _LEAST))), 2)


def count(number: float) -> float:
    """A number of things."""
    return round(min(CLASSES - 1.01, _PER_DOUBLING * math.log2(1 + max(0.0, number))), 2)


def ratio(part: float) -> float:
    """A part of a whole."""
    return round(1 + 4 * part, 2)


def words(hazard: Hazard, asked: Asked, restart: float) -> str:
    """The factors that matter most, as clauses; empty where none does."""
    found = sorted(factors(hazard, asked).items(), key=lambda each: -abs(math.log(each[1])))
    told = [
        f"{factor:.2g} times as often because {_fact_words(name, asked.facts[name], restart)}"
        for name, factor in found[:_MOST_TOLD]
        if not 1 / _TOLD < factor < _TOLD
    ]
    return f"it returns {', '.join(told)}" if told else ""


def _fact_words(name: str, at: float, restart: float) -> str:
    """One fact in words, near enough."""
    number = round(2 ** (at / _PER_DOUBLING) - 1)
    time = format_duration(float(f"{restart * _LEAST * 2 ** (at - 1):.2g}"))
    nodes = f"{number or 'no'} node{'' if number == 1 else 's'}"
    said = {
        "usual": f"its gaps usually last about {time}",
        "last": f"its last gap lasted about {time}",
        "long": f"about {(at - 1) / 4:.0%} of its gaps outlast a restart",
        "spell": f"it worked for about {time} before",
        "own": f"it was needed {number or 'no'} time{'' if number == 1 else 's'} within six restarts' time",
        "pace": f"it was needed about {number or 'no'} time{'' if number == 1 else 's'} within a week",
        "before": f"{nodes.replace('node', 'idle node', 1)} stand{'s' if number == 1 else ''} before it",
        "idled": f"{nodes} turned idle within half a restart's time",
        "turn": f"at the pool's pace its turn comes in about {time}",
        "window": f"a window of the schedule opens in about {time}",
        FREE_GPUS: f"about {number} GPU{'s are' if number != 1 else ' is'} free on nodes at work",
        PENDING_GPUS: f"pods that wait want about {number} GPU{'s' if number != 1 else ''}",
    }
    if at < 1 and name in _LENGTHS:
        return f"too little is known of {_LENGTHS[name]}"
    return said.get(name) or f"{name.removeprefix(HINT)} is about {number}"
