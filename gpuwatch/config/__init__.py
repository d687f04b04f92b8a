"""One YAML file and the environment into `Settings`, and every mistake with its name and its remedy.

`keys` is what the dataclasses declare, `document` is YAML with lines, `reader` puts file and environment together (the
only importer of pydantic), `manual` writes docs/CONFIGURATION.md.
"""

from gpuwatch.config.reader import default_path, load, load_agent, load_handed, read, schema
from gpuwatch.config.yaml_file import ConfigError

__all__ = ["ConfigError", "default_path", "load", "load_agent", "load_handed", "read", "schema"]
