"""Which configuration file is meant, and how two processes know that they have the same settings.

Nothing is judged here, and little is loaded: `gpuwatch status` asks by this for the controller next to it.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from gpuwatch.runtime.program import LEDGER_PATH
from gpuwatch.runtime.program import VARIABLE as TRACEBACK_VARIABLE

DEFAULT_PATH = Path("/etc/gpuwatch/gpuwatch.yaml")
PREFIX = "GPUWATCH_"  # of every variable that is a setting
FILE_VARIABLE = f"{PREFIX}CONFIG"
_LEDGER_VARIABLE = f"{PREFIX}LEDGER__PATH"


def default_path(env: Mapping[str, str]) -> Path | None:
    """The file that is read unless another is named: $GPUWATCH_CONFIG, else the one in /etc, else none."""
    if env.get(FILE_VARIABLE):
        return Path(env[FILE_VARIABLE])
    try:
        return DEFAULT_PATH if DEFAULT_PATH.exists() else None
    except PermissionError:  # in a folder that this user may not enter; whoever reads it says so
        return DEFAULT_PATH


def fingerprint(path: Path | None, env: Mapping[str, str]) -> str:
    """The same for the same file, with the same text, and the same variables. Take it before you read the settings.

    Empty, and never the same, if the file cannot be read: the reader of the settings says so.
    """
    path = path or default_path(env)
    ours = sorted((name, value) for name, value in env.items() if name.startswith(PREFIX))
    given = [each for each in ours if each[0] not in {FILE_VARIABLE, TRACEBACK_VARIABLE}]
    try:
        text = b"" if path is None else path.read_bytes()
    except OSError:
        return ""
    return hashlib.sha256(f"{path and path.absolute()}\0{given}\0".encode(errors="replace") + text).hexdigest()


def ledger_path(path: Path | None, env: Mapping[str, str]) -> Path:
    """Where `ledger.path` is, of file, variable or default, found without a judgement.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not YAML.

    """
    import yaml  # noqa: PLC0415  the agent needs the names above alone

    if env.get(_LEDGER_VARIABLE):
        return Path(env[_LEDGER_VARIABLE])
    path = path or default_path(env)
    if path is None:
        return Path(LEDGER_PATH)
    try:
        written = yaml.load(path.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  both are safe
    except (yaml.YAMLError, LookupError, AttributeError, TypeError) as error:  # the latter for values with wrong tags
        raise ValueError(str(error)) from error
    section = written.get("ledger") if isinstance(written, dict) else None
    found = section.get("path") if isinstance(section, dict) else None
    return path.absolute().parent / (found if isinstance(found, str) and found else LEDGER_PATH)
