"""The one form of every `--json`: an object that begins with its schema, and times in UTC that end in Z."""

from gpuwatch.runtime.json_document import VERSION, json_text

__all__ = ["VERSION", "json_text"]
