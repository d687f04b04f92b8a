"""What a policy document allows: the documented logic of each cloud's language, as far as ours use it.

A statement of AWS, Alibaba Cloud and Tencent Cloud has the same parts in other spellings, so they share one evaluator.
What it does not know (an operator, a form of an expression) is an error, so no policy passes by being misread.

Sources: AWS "Policy evaluation logic" and "Condition operators"; Alibaba Cloud "Policy structure and syntax" and
"Conditional operators" (there is no Null, and no IfExists); Tencent Cloud "Evaluation Logic" and "Condition"; Azure
"Understand Azure role definitions"; Google Cloud "Overview of IAM Conditions", "Configure resource-based access".
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a cloud asks its policies before it carries a call out: one action on one resource.

    `context` is what it fills in for this action and resource, and nothing else; a key may have several values.
    """

    action: str
    resource: str
    context: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)


def allowed_by_statements(documents: Sequence[Document], question: Question) -> bool:
    """AWS, Alibaba Cloud and Tencent Cloud: some statement allows it, and none denies it."""
    effects = {
        str(each["effect"]).lower()
        for document in documents
        for each in map(_lower_keys, _lower_keys(document)["statement"])
        if any(fnmatchcase(question.action, pattern) for pattern in each["action"])
        and any(_covers(pattern, question.resource) for pattern in each["resource"])
        and all(
            _holds(operator, wanted, question.context.get(key))
            for operator, keys in each.get("condition", {}).items()
            for key, wanted in keys.items()
        )
    }
    return effects == {"allow"}


def _lower_keys(document: Document) -> dict[str, Any]:
    return {key.lower(): value for key, value in document.items()}


def _covers(pattern: str, resource: str) -> bool:
    """Tencent Cloud's resources have six parts, of which an empty one stands for any."""
    if not pattern.startswith("qcs:"):
        return fnmatchcase(resource, pattern)
    parts = zip(pattern.split(":", 5), resource.split(":", 5), strict=True)
    return all(wanted == "" or fnmatchcase(given, wanted) for wanted, given in parts)


def _any(test: Callable[[str, str], bool]) -> Callable[[tuple[str, ...], tuple[str, ...]], bool]:
    """One of the values given is one of those that are wanted; without a value it does not hold."""
    return lambda given, wanted: any(test(each, one) for each in given for one in wanted)


def _all(test: Callable[[str, str], bool]) -> Callable[[tuple[str, ...], tuple[str, ...]], bool]:
    """Each of the values given is one of those that are wanted; without a value it holds."""
    return lambda given, wanted: all(any(test(each, one) for one in wanted) for each in given)


def _same(given: str, wanted: str) -> bool:
    return given == wanted


_OPERATORS: Mapping[str, Callable[[tuple[str, ...], tuple[str, ...]], bool]] = {
    "StringEquals": _any(_same),
    "StringLike": _any(fnmatchcase),
    "ArnLike": _any(fnmatchcase),
    "Bool": _any(_same),
    "Null": lambda given, wanted: (not given) is (wanted == ("true",)),
    "ForAllValues:StringEquals": _all(_same),
    "for_any_value:string_equal": _any(_same),
    "for_any_value:string_like": _any(fnmatchcase),
    "for_all_value:string_like": _all(fnmatchcase),
}


def _holds(operator: str, wanted: str | Sequence[str], given: str | tuple[str, ...] | None) -> bool:
    values = (given,) if isinstance(given, str) else given or ()
    return _OPERATORS[operator](values, (wanted,) if isinstance(wanted, str) else tuple(wanted))


def allowed_by_azure(roles: Sequence[Document], action: str, path: str) -> bool:
    """Azure: a role that is given at the resource or above allows the action, and does not take it out again."""

    def named(patterns: Sequence[str]) -> bool:
        return any(fnmatchcase(action.lower(), each.lower()) for each in patterns)

    return any(
        named(role["Actions"]) and not named(role["NotActions"])
        for role in roles
        if any(f"{path}/".lower().startswith(f"{scope}/".lower()) for scope in role["AssignableScopes"])
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GoogleResource:
    """What a condition of Google Cloud can know of a resource: labels are not among it."""

    type: str
    name: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)  # of the Resource Manager, by KEY's namespaced name


def allowed_by_google(
    bindings: Sequence[tuple[Document, str | None]],
    denials: Sequence[Document],
    permission: str,
    resource: GoogleResource,
) -> bool:
    """Google Cloud: a binding's condition holds (None: it has none), and no deny policy's rule does."""
    v2 = re.sub(r"^(\w+)\.", r"\1.googleapis.com/", permission)
    for rule in (each["denyRule"] for document in denials for each in document["rules"]):
        if v2 in rule["deniedPermissions"] and condition_holds(rule["denialCondition"]["expression"], resource):
            return False
    return any(
        permission in role["includedPermissions"] and (condition is None or condition_holds(condition, resource))
        for role, condition in bindings
    )


_TOKEN = re.compile(
    r"\s*(?:(?P<compare>resource\.type\s*(?P<operator>[!=]=)\s*'(?P<type>[^']*)')"
    r"|(?P<name>resource\.name\.extract\('(?P<template>[^']*)'\)\.startsWith\('(?P<prefix>[^']*)'\))"
    r"|(?P<tag>resource\.matchTag\('(?P<key>[^']*)',\s*'(?P<value>[^']*)'\))"
    r"|(?P<sign>&&|\|\||[!()]))"
)


def condition_holds(expression: str, resource: GoogleResource) -> bool:
    """Whether an expression of CEL holds: comparisons of type, name and tags, with !, &&, || and brackets."""
    words = list(_words(expression, resource))
    holds = _either(words)
    if words:
        raise ValueError(f"{expression!r}: nothing is known of {words}")
    return holds


def _words(expression: str, resource: GoogleResource) -> Iterator[str | bool]:
    at = 0
    while at < len(expression.rstrip()):
        found = _TOKEN.match(expression, at)
        if found is None:
            raise ValueError(f"nothing is known of {expression[at:]!r}")
        at = found.end()
        if found["compare"]:
            yield (resource.type == found["type"]) is (found["operator"] == "==")
        elif found["name"]:
            before, _, after = found["template"].partition("{name}")
            extracted = (
                resource.name.partition(before)[2].partition(after)[0] if after else resource.name.partition(before)[2]
            )
            yield extracted.startswith(found["prefix"])
        elif found["tag"]:
            yield resource.tags.get(found["key"]) == found["value"]
        else:
            yield found["sign"]


def _either(words: list[str | bool]) -> bool:
    holds = _both(words)
    while words and words[0] == "||":
        del words[0]
        holds = _both(words) or holds
    return holds


def _both(words: list[str | bool]) -> bool:
    holds = _one(words)
    while words and words[0] == "&&":
        del words[0]
        holds = _one(words) and holds
    return holds


def _one(words: list[str | bool]) -> bool:
    word = words.pop(0)
    if word == "!":
        return not _one(words)
    if word == "(":
        holds = _either(words)
        if words.pop(0) != ")":
            raise ValueError("a bracket is not closed")
        return holds
    if not isinstance(word, bool):
        raise TypeError(f"no comparison begins with {word!r}")
    return word
