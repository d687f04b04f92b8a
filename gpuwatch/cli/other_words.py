"""What people type for a command that has another name here, and commands that stand within a group."""

from collections.abc import Iterator

import click

# Words of other programs, of earlier versions, and of everyday use.
_MEANT = {
    "ack": "acknowledge",
    "advise": "recommend",
    "daemon": "controller",
    "dry-run": "plan",
    "exporter": "agent",
    "gpus": "top",
    "grafana": "export dashboards",
    "help": "--help",
    "history": "audit log",
    "hold": "snooze",
    "keep": "snooze",
    "leftovers": "unused",
    "list": "status",
    "logs": "audit log",
    "ls": "status",
    "monitor": "top",
    "nodes": "status",
    "orphans": "unused",
    "prometheus": "export alerts",
    "ps": "top",
    "run": "controller",
    "savings": "report",
    "serve": "controller",
    "server": "controller",
    "simulate": "demo",
    "spend": "cost",
    "start": "controller",
    "unpause": "resume",
    "watch": "status --watch",
    "why": "explain",
}


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
