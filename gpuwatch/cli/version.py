"""The command `gpuwatch version`: which build this is, and which parts are installed with it."""

import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import TypedDict

from gpuwatch.cli.base import commands, json_option, say
from gpuwatch.cli.json_output import json_text

_CONTROLLER = ("aiohttp", "apscheduler", "cryptography", "itsdangerous", "jinja2", "sqlalchemy")
# The modules that each extra of pyproject.toml brings.
EXTRAS = {
    "auth": ("bcrypt",),
    "aws": (*_CONTROLLER, "boto3"),
    "controller": _CONTROLLER,
    "demo": _CONTROLLER,
    "forecast": ("statsmodels",),
    "notify": (*_CONTROLLER, "apprise"),
    "postgres": (*_CONTROLLER, "psycopg"),
}
_GIT_SECONDS = 2.0


class VersionDocument(TypedDict):
    """Which build this is. `commit` is null where the build did not write it down; `extras` are those installed."""

    version: str
    commit: str | None
    python: str
    extras: list[str]


@commands.command()
@json_option
def version(*, as_json: bool) -> None:
    """Show the version, the commit, the Python and the installed extras."""
    found = installed()
    if as_json:
        say(json_text("version", found))
        return
    extras = ", ".join(found["extras"]) or "none"
    say(f"gpuwatch {found['version']}")
    for name, value in (("commit", found["commit"] or "not known"), ("Python", found["python"]), ("extras", extras)):
        say(f"    {name:<7} {value}")


def installed() -> VersionDocument:
    """This build and its parts; no module is loaded for it."""
    from gpuwatch.runtime.build import build  # noqa: PLC0415  loaded by this command only

    number, revision, python = build()
    extras = [name for name, modules in EXTRAS.items() if all(find_spec(module) is not None for module in modules)]
    return {"version": number, "commit": revision or _checked_out(), "python": python, "extras": extras}


def _checked_out() -> str | None:
    """The commit of the checkout that this code lies in."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_SECONDS, check=True)  # noqa: S603  ours
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
