"""The table of the files in iam/ on docs/clouds/README.md: which roles each cloud has, from the documents."""

import json
from collections.abc import Iterator, Mapping, Sequence

from gpuwatch.clouds.settings import CLOUDS as PACKAGES

_CLOUDS = {
    "aws": "AWS",
    "azure": "Azure",
    "gcp": "Google Cloud",
    "alibaba": "Alibaba Cloud",
    "tencent": "Tencent Cloud",
}
# What each file is for; the order of the table.
_ALLOWS = {
    "observe": "list what `status`, `plan` and `unused` show",
    "reclaim": "stop, start, tag machines; on AWS, Alibaba Cloud and Tencent Cloud also end them and groups' members",
    "terminate": "end machines; on Azure also members of scale sets",
    "scale": "grow groups; on AWS, Alibaba Cloud and Tencent Cloud also launch, on Google Cloud also end members",
    "launch": "launch machines",
    "shield": "[protect members](../policies/scale-in-protection.md) from a scale-in",
    "assume": "enter roles named `gpuwatch-controller` of [other accounts](#several-accounts)",
    "disks": "start machines with [volumes under keys of your own](aws.md#volumes-under-keys-of-your-own)",
    "keys": "see the [age of keys](../security.md#age-of-keys)",
    "prices": "ask for [live prices](../money.md#fetch-prices-from-the-clouds)",
    "quotas": "show what is left of quotas",
    "secrets": "read [secrets](../security.md#secrets) below `/gpuwatch/` and named `gpuwatch/…`",
    "scan": "for [`gpuwatch scan`](../scan.md): list machines in all regions, and read the load that the cloud's "
    "monitor shows; write it without `--region`",
}
_WORDS_OF_ACTIONS = {"action", "actions", "includedpermissions"}
_CONDITION = (".condition", ".deny")
_ALONE = "scan"  # for a person, who needs no other file


def render_roles() -> str:
    """The table: a role that no cloud has, or a file without a row, is an error.

    Raises:
        ValueError: the rows are not the roles of the clouds.

    """
    files = {cloud: _documents(cloud) for cloud in _CLOUDS}
    known = {name for documents in files.values() for name in documents}
    if known != set(_ALLOWS):
        raise ValueError(f"the table of roles has {sorted(_ALLOWS)}, expected {sorted(known)}")
    rows = [
        f"| `{name}` | {allows} | {' | '.join(_cell(cloud, name, files[cloud]) for cloud in _CLOUDS)} |"
        for name, allows in _ALLOWS.items()
    ]
    return "\n".join(
        [f"| file | allows to | {' | '.join(_CLOUDS.values())} |", f"| --- {'| --- ' * (len(_CLOUDS) + 1)}|", *rows]
    )


def _documents(cloud: str) -> Mapping[str, frozenset[str]]:
    """The actions that each role of a cloud allows."""
    made = PACKAGES[cloud].policies(fleet="default", regions=(), partition="aws", scopes=())
    found = {file.removesuffix(".json"): frozenset(_actions(json.loads(text))) for file, text in made.items()}
    return {name: actions for name, actions in found.items() if not name.endswith(_CONDITION)}


def _actions(document: object) -> Iterator[str]:
    if isinstance(document, Mapping):
        if str(document.get("Effect", document.get("effect", "allow"))).lower() == "deny":
            return
        for key, value in document.items():
            if key.lower() in _WORDS_OF_ACTIONS:
                yield from [value] if isinstance(value, str) else value
            else:
                yield from _actions(value)
    elif isinstance(document, Sequence) and not isinstance(document, str):
        for each in document:
            yield from _actions(each)


def _cell(cloud: str, name: str, documents: Mapping[str, frozenset[str]]) -> str:
    """Whether a role has the rights of `observe` too, or needs no other, with a link to its file."""
    if name not in documents:
        return "-"
    file = f"../../iam/{'' if cloud == 'aws' else f'{cloud}/'}{name}.json"
    has = "alone" if name == _ALONE else "whole" if documents["observe"] <= documents[name] else "part"
    return f"[{has}]({file})"
