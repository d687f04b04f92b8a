"""What to do instead: parts that are not installed, and words that people type for a command with another name."""

import difflib
import re
from collections.abc import Iterable, Iterator

import click

from gpuwatch.runtime.installed import DISTRIBUTION, MissingExtraError, install_command

_OURS = "gpuwatch"  # the name of the modules
_DEFAULT_CLOUD = "aws"


def install_hint(error: ImportError) -> str:
    """What is missing, and the command that installs the extra that brings it."""
    if isinstance(error, MissingExtraError):
        return str(error)
    from importlib import metadata  # a fifth of the start-up, for an error alone

    module = (error.name or "").partition(".")[0]
    try:
        wanted = metadata.requires(DISTRIBUTION) or ()
    except metadata.PackageNotFoundError:
        wanted = ()
    matches = (re.match(rf"{re.escape(module)}\b.*extra == ['\"](\w+)", each, re.IGNORECASE) for each in wanted)
    brought = [found[1] for found in matches if found is not None]
    # What every cloud's extra brings is missing with all of them: then that of the cloud that is the default.
    extra = _DEFAULT_CLOUD if _DEFAULT_CLOUD in brought else next(iter(brought), "controller")
    return f"{error}: {install_command(extra)}"


def is_missing_part(error: ImportError) -> bool:
    """Whether an extra brings what could not be imported; a module of our own that is missing is a bug."""
    return isinstance(error, MissingExtraError) or (error.name or _OURS).partition(".")[0] != _OURS


# Words that people type for an option with another name.
_OPTIONS = {"--url": ("--agent", "--prometheus"), "--host": ("--agent",), "--output": ("--json",), "-o": ("--json",)}
# And for one that a command cannot have: what to do instead.
_NO_OPTIONS = {
    ("snooze", "--node"): (
        "`gpuwatch snooze` keeps the machine on which it runs. "
        "Run it there, or give the machine the tag gpuwatch:snooze-until=TIME"
    )
}


def option_hint(error: click.NoSuchOption, typed: Iterable[str]) -> str | None:
    """What is wrong with an option that a command does not have, in better words; None: click has the better ones."""
    name = error.option_name
    if re.fullmatch(r"-\d", name):
        given = next((each for each in typed if each.startswith(name)), name)
        return f"{given!r} is below zero, or no option; a number or a duration is written without the -, such as 4h"
    told = _NO_OPTIONS.get(("" if error.ctx is None else error.ctx.info_name or "", name))
    if told is not None:
        return f"No such option {name!r}. {told}."
    known = set() if error.ctx is None else {option for each in error.ctx.command.params for option in each.opts}
    meant = [each for each in _OPTIONS.get(name, ()) if each in known]
    return f"No such option {name!r}. You may want {' or '.join(meant)}." if meant else None


# Words of other programs, of earlier versions, and of everyday use.
_MEANT = {
    "ack": "acknowledge",
    "advise": "recommend",
    "daemon": "controller",
    "disable": "pause",
    "dry-run": "plan",
    "exclude": "snooze",
    "exporter": "agent",
    "gpus": "top",
    "grafana": "export dashboards",
    "help": "--help",
    "history": "audit log",
    "hold": "snooze",
    "keep": "snooze",
    "kill": "pause",
    "leftovers": "unused",
    "list": "status",
    "logs": "audit log",
    "ls": "status",
    "monitor": "top",
    "nodes": "status",
    "off": "pause",
    "orphans": "unused",
    "prometheus": "export alerts",
    "protect": "snooze",
    "ps": "top",
    "run": "controller",
    "savings": "report",
    "serve": "controller",
    "server": "controller",
    "simulate": "demo",
    "spend": "cost",
    "tonight": "plan",
    "unpause": "resume",
    "watch": "status --watch",
    "why": "explain",
}


# Words for what no command does, and what to do instead.
_TOLD = {
    "install": "gpuwatch does not install itself; docs/install.md says how to install it",
    "start": "`gpuwatch agent` runs on a GPU host, `gpuwatch controller` on one machine (docs/systemd.md)",
    "stop": "No command stops a machine: the controller does, by its pools' rules. `gpuwatch pause` ends all actions",
    "uninstall": "Remove gpuwatch in the way in which you installed it (docs/install.md)",
    "update": "Update gpuwatch in the way in which you installed it (docs/upgrade.md)",
    "upgrade": "Update gpuwatch in the way in which you installed it (docs/upgrade.md)",
}
# What answers a question about one node, by the command that was given one.
_INSTEAD = {
    "blocked": "explain NODE",
    "pause": "pause --for DURATION",
    "plan": "explain NODE",
    "status": "explain NODE",
}
_LIKE = 0.75  # so much alike are a word and the command that was meant


def instead_of(word: str, root: click.Group) -> str | None:
    """What to say to somebody who typed a command that there is not; None: click has the better words."""
    told, meant = _TOLD.get(word.lower()), meant_by(word, root)
    near = difflib.get_close_matches(word, root.commands, 1, _LIKE)
    if word.lower() in root.commands or (near and told is None and meant is None):
        return None
    if told is not None:
        return f"No such command {word!r}. {told}."
    if meant is not None:
        return f"No such command {word!r}. You may want {meant}."
    return f"No such command {word!r}. `gpuwatch --help` lists all commands."


def argument_hint(command: str, words: str) -> str | None:
    """What to say of a word too many, as in `status NODE`; None: the words are good."""
    instead = _INSTEAD.get(command)
    return None if instead is None else f"{words}. You may want `gpuwatch {instead}`."


def meant_by(word: str, root: click.Command) -> str | None:
    """The command line that somebody who typed `word` probably wants; None: no command is like it."""
    named = [" ".join(path) for path in _paths(root) if path[-1] == word.lower()]
    lines = named or [line for line in (_MEANT.get(word.lower()),) if line is not None]
    return " or ".join(f"`gpuwatch {line}`" for line in lines) or None


def _paths(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command below this one."""
    for name, each in getattr(command, "commands", {}).items():
        yield (*path, name)
        yield from _paths(each, (*path, name))
