"""Configurations for tests: the keys there are, and files that are read or refused."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from gpuwatch.config import ConfigError, keys, load
from gpuwatch.config.keys import GROUPS, NAME, Key
from gpuwatch.config.settings import Settings

KEYS = keys.declared_keys(Settings)
VALUES = [key for key in KEYS.values() if key.kind not in GROUPS]
POOL = "training"


def read(file: Path, text: str = "", env: Mapping[str, str] | None = None) -> Settings:
    """The settings of such a file in such an environment."""
    file.write_text(text)
    return load(file, env or {})


def mistakes(file: Path, text: str = "", env: Mapping[str, str] | None = None) -> str:
    """What is told of a file and an environment that are refused."""
    with pytest.raises(ConfigError) as caught:
        read(file, text, env)
    return str(caught.value).replace(f"{file}:", "FILE:").replace(str(file), "FILE")


def named(key: Key) -> tuple[str, ...]:
    """A key's path with the pool's name in it."""
    return tuple(POOL if part == NAME else part for part in key.path)
