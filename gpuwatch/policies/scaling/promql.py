"""PURE: what is plainly wrong with a PromQL expression, found without a server.

It judges brackets, quotes, operators and words, which Prometheus and all that speak its language (Thanos, Mimir,
VictoriaMetrics) agree on. Whether functions and metrics exist only the server can say: `gpuwatch doctor controller`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise

_CLOSES = {"(": ")", "[": "]", "{": "}"}
_TOKEN = re.compile(
    r"""(?P<comment>\#[^\n]*)
    |(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`[^`]*`)
    |(?P<quote>["'`])
    |(?P<word>[A-Za-z_:][A-Za-z0-9_:.]*)
    |(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+|[A-Za-z]\w*)?)
    |(?P<operator>=~|!~|==|!=|>=|<=|[-+*/%^<>=@,])
    |(?P<bracket>[()\[\]{}])
    |(?P<odd>\S)""",
    re.VERBOSE,
)
_BINARY = {"and", "or", "unless", "atan2", "if", "ifnot", "default"}  # the last three are VictoriaMetrics'
# Words that stand next to others.
_JOINING = {"by", "without", "on", "ignoring", "group_left", "group_right", "bool", "offset", "limit", "limitk", "WITH"}
_JOINING |= {"keep_metric_names", "prefix", "fill", "fill_left", "fill_right", "smoothed", "anchored"} | _BINARY
_JOINING |= {"sum", "min", "max", "avg", "group", "stddev", "stdvar", "count", "count_values", "bottomk", "topk"}
_JOINING |= {"quantile", "limit_ratio"}
_SIGNS = {"+", "-"}
_MATCH = {"=", "!=", "=~", "!~"}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int  # of its first character, from 1

    @property
    def joins(self) -> bool:
        """Whether something must stand on both sides."""
        return self.kind == "operator" or (self.kind == "word" and self.text.lower() in _BINARY)

    @property
    def names(self) -> bool:
        """Whether it is a name or a number that cannot follow another one."""
        return self.kind == "number" or (self.kind == "word" and self.text not in _JOINING)


def trouble(expression: str) -> str | None:
    """What is wrong, as the rest of a sentence that begins with the expression's key; None: nothing is plain."""
    tokens = [each for each in _tokens(expression) if each.kind != "comment"]
    if not tokens:
        return "is empty"
    return next(chain(_quotes(tokens), _brackets(tokens), _values(tokens), _gaps(tokens)), None)


def _tokens(expression: str) -> Iterator[_Token]:
    for found in _TOKEN.finditer(expression):
        yield _Token(found.lastgroup or "odd", found[0], found.start() + 1)


def _quotes(tokens: list[_Token]) -> Iterator[str]:
    for each in tokens:
        if each.kind == "quote":
            yield f"has a quote {each.text} at character {each.at} that is not closed"
        elif each.kind == "odd" and each.text != "$":  # a variable of VictoriaMetrics' or of a template stays its own
            yield f"has {each.text!r} at character {each.at}, which PromQL does not know"


def _brackets(tokens: list[_Token]) -> Iterator[str]:
    open_ones: list[_Token] = []
    for each in tokens:
        if each.kind != "bracket":
            continue
        if each.text in _CLOSES:
            open_ones.append(each)
        elif not open_ones or _CLOSES[open_ones[-1].text] != each.text:
            yield f"has '{each.text}' at character {each.at} without a bracket that it closes"
            return
        else:
            open_ones.pop()
    for each in open_ones:
        yield f"has '{each.text}' at character {each.at} that is not closed"


def _values(tokens: list[_Token]) -> Iterator[str]:
    """Label values in braces need quotes."""
    inside = 0
    for each, following in zip(tokens, [*tokens[1:], None], strict=True):
        inside += {"{": 1, "}": -1}.get(each.text, 0) if each.kind == "bracket" else 0
        if (
            inside
            and each.kind == "operator"
            and each.text in _MATCH
            and (following is None or following.kind != "text")
        ):
            value = "nothing" if following is None else f"'{following.text}'"
            yield f"compares a label with {value} at character {each.at}; label values stand in quotes"


def _gaps(tokens: list[_Token]) -> Iterator[str]:
    """An operator with nothing on one side, or two names with nothing between them."""
    first, last = tokens[0], tokens[-1]
    if first.joins and first.text not in _SIGNS:
        yield f"begins with '{first.text}'"
    if last.joins:
        yield f"ends with '{last.text}'"
    in_range = 0  # of time: [5m:1m] has no operator
    for one, other in pairwise(tokens):
        in_range += {"[": 1, "]": -1}.get(one.text, 0) if one.kind == "bracket" else 0
        if (one.names or one.text in {"}", "]"}) and other.names and not in_range:
            yield f"has '{one.text}' and '{other.text}' next to each other at character {other.at}"
        closes = other.kind == "bracket" and other.text == ")" and one.text != ","
        if one.joins and (closes or (other.joins and other.text not in _SIGNS)):
            yield f"has nothing after '{one.text}' at character {one.at}"
