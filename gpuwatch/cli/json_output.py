"""The one form of every `--json`: an object that begins with its schema, and times in UTC that end in Z."""

from collections.abc import Mapping
from typing import Any

import msgspec

VERSION = 1  # of all documents; it grows when a field changes its meaning or goes, never for a new field


def json_text(kind: str, body: Mapping[str, Any] | msgspec.Struct) -> str:
    """One document. `kind` names it (`status`); `body` has builtins, structs, and datetimes with a time zone."""
    fields = msgspec.to_builtins(body, builtin_types=())
    return msgspec.json.encode({"schema": f"gpuwatch.{kind}/{VERSION}", **fields}).decode()
