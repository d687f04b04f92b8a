"""`gpuwatch doctor --record DIR`: one look at the clouds by read rights alone, written down for others to replay.

A file `CLOUD.jsonl` has one object a line for each request: `source`, `look` (what was looked for), `call`, `region`,
`method`, `uri`, `request`, `status`, `headers` and `body`; `request` and `body` are texts. `about.json` has what a
replay needs. Whatever could name somebody is replaced (`gpuwatch.clouds.pseudonyms`); nothing is asked but what lists
and describes.
"""

import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuwatch import __version__
from gpuwatch.cli.doctor.runner import broken_at
from gpuwatch.clouds import Cloud, CloudError
from gpuwatch.clouds.disks import HasDisks
from gpuwatch.clouds.keys import HasDiskKeys
from gpuwatch.clouds.permissions import Diagnosable, Quotas
from gpuwatch.clouds.pseudonyms import Pseudonyms
from gpuwatch.clouds.recording import Exchange, recording
from gpuwatch.clouds.silence import partial
from gpuwatch.clouds.survey import Monitored, survey_cloud
from gpuwatch.model.fleet import Node

_MONITORED_SECONDS = 86400.0
ABOUT = "about.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What was written: how many exchanges of each cloud, and by the name of each look why it had no answer."""

    exchanges: Mapping[str, int]
    troubles: Mapping[str, str]


def look_once(cloud: Cloud, begin: Callable[[str], None] = lambda _: None) -> Mapping[str, str]:
    """Ask a cloud for all that it can list; gives by name what could not be had, and why. Nothing is changed.

    `begin` hears the name of each look before it begins.
    """
    nodes: Sequence[Node] = ()
    troubles: dict[str, str] = {}
    for name, ask in _list_looks(cloud):
        begin(name)
        try:
            with partial() as silent:
                found = ask(nodes)
        except CloudError as error:
            troubles[name] = str(error)
            continue
        except Exception as error:  # noqa: BLE001  what breaks an adapter is what others need to see most
            troubles[name] = f"an error of gpuwatch itself: {broken_at(error)}"
            continue
        nodes = found if name == "machines" else nodes
        troubles |= {f"{name} of {each.name}": each.reason for each in silent}
    return troubles


def _list_looks(cloud: Cloud) -> Iterator[tuple[str, Callable[[Sequence[Node]], Sequence[Node]]]]:
    """What is asked, in this order; the machines first, since others ask for them by their ids."""
    yield "machines", lambda _: tuple(cloud.nodes())
    yield "one machine", lambda nodes: _no_nodes([cloud.node(each.id) for each in nodes[:1]])
    yield "groups", lambda _: _no_nodes(cloud.groups())
    yield "leftovers", lambda _: _no_nodes(cloud.leftovers())
    yield "places", lambda _: _no_nodes(survey_cloud(cloud))
    if isinstance(cloud, HasDisks):
        yield "disks", lambda _: _no_nodes(cloud.disks())
    if isinstance(cloud, HasDiskKeys):
        yield "disk keys", lambda nodes: _no_nodes(cloud.disk_keys([each.id for each in nodes]))
    if isinstance(cloud, Diagnosable):
        yield "identity", lambda _: _no_nodes([cloud.identity()])
        yield "disks without encryption", lambda nodes: _no_nodes(cloud.unencrypted_disks([each.id for each in nodes]))
    if isinstance(cloud, Quotas):
        yield "quotas", lambda _: _no_nodes(cloud.quotas())
    if isinstance(cloud, Monitored):
        yield "monitor", lambda nodes: _no_nodes(cloud.use_of(nodes, _MONITORED_SECONDS))


def _no_nodes(_: object) -> tuple[Node, ...]:
    return ()


def record_clouds(clouds: Mapping[str, Callable[[], Cloud]], fleet: str, folder: Path) -> Recording:
    """Look once at each cloud and write what was said into a new or empty folder.

    Raises:
        FileExistsError: the folder has something in it.
        OSError: it cannot be written.
        ImportError: the extra of a cloud is not installed.

    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty")
    heard: list[tuple[str, Exchange]] = []
    troubles: dict[str, str] = {}
    look = [""]  # the name of the present one
    for name, connect in clouds.items():
        with recording(lambda each: heard.append((look[-1], each))):
            try:
                found = look_once(connect(), look.append)
            except CloudError as error:
                found = {"the cloud": str(error)}
        troubles |= {f"{name}: {what}" if len(clouds) > 1 else what: why for what, why in found.items()}
    written = _replace_all(heard, fleet)
    for file, text in written.items():
        with os.fdopen(os.open(folder / file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.write(text)
    counts = {
        cloud: sum(each.cloud == cloud for _, each in heard) for cloud in sorted({each.cloud for _, each in heard})
    }
    return Recording(exchanges=counts, troubles=troubles)


def _replace_all(heard: Sequence[tuple[str, Exchange]], fleet: str) -> Mapping[str, str]:
    """The files by their names. All is read twice: a sentence may quote a name that a later answer has."""
    names = Pseudonyms(secrets.token_bytes(32))
    for _ in range(2):
        lines: dict[str, list[str]] = {}
        for look, each in heard:
            told = _line(look, each, names)
            lines.setdefault(f"{each.cloud}.jsonl", []).append(json.dumps(told, ensure_ascii=False))
        about = {"fleet": names.text(fleet), "version": __version__}
    return {file: "\n".join(found) + "\n" for file, found in lines.items()} | {ABOUT: json.dumps(about) + "\n"}


def _line(look: str, each: Exchange, names: Pseudonyms) -> dict[str, object]:
    return {
        "source": "gpuwatch doctor",
        "look": look,
        "call": each.call,
        "region": each.region,
        "method": each.method,
        "uri": names.url(each.url),
        "request": None if each.sent is None else names.body(each.sent),
        "status": each.status,
        "headers": {
            name: names.url(told) if "/" in told and ":" in told else told for name, told in each.headers.items()
        },
        "body": None if each.body is None else names.body(each.body),
    }
