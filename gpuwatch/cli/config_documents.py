"""What `gpuwatch config` prints for programs."""

from typing import TypedDict


class ConfigWarning(TypedDict):
    """A choice that is allowed and misleads; `remedy` is null where the sentence has it."""

    sentence: str
    remedy: str | None


class CheckDocument(TypedDict):
    """The settings are valid: their file (null: all defaults), what they say in a line, and what to think about.

    `undecided_pools` still need `idle.instance_store`, which says what to do with local disks.
    """

    source: str | None
    summary: str
    warnings: list[ConfigWarning]
    undecided_pools: list[str]


class SettingDocument(TypedDict):
    """A setting as one would write it, and where it comes from."""

    value: str
    source: str


class ShowDocument(TypedDict):
    """Every setting of every pool by its key."""

    settings: dict[str, SettingDocument]
