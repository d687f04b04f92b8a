"""One YAML file and the environment into `Settings`, and every mistake with its name and its remedy.

`keys` is what the dataclasses declare, `document` is YAML with lines, `reader` puts file and environment together with
pydantic-settings, `agent_alone` is its short way for agents, `manual` writes docs/CONFIGURATION.md and docs/settings/.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuwatch.config.reader import default_path, load, load_agent, load_handed, read_settings, schema
    from gpuwatch.config.yaml_file import ConfigError

__all__ = ["ConfigError", "default_path", "load", "load_agent", "load_handed", "read_settings", "schema"]


def __getattr__(name: str) -> Any:  # noqa: ANN401  whatever the reader has
    """Load the reader, and with it every setting there is, when somebody wants it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("gpuwatch.config.reader"), name)
