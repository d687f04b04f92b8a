"""How a setting is declared: a dataclass field with a sentence, a unit and bounds next to the code that obeys it.

`gpuwatch.config.settings` composes these dataclasses into the configuration file; pydantic validates them there.
Nothing here imports pydantic, so the running agent reads its settings without paying for the validator.
"""

from dataclasses import dataclass
from typing import Any

from gpuwatch.model.duration import format_duration

# Every dataclass of settings carries this: a misspelt key is an error, and so is a number that is none.
STRICT: dict[str, object] = {"extra": "forbid", "allow_inf_nan": False}


@dataclass(frozen=True, slots=True)
class Setting:
    """One sentence about a setting; it becomes its description in docs/settings/ and in the JSON schema."""

    sentence: str

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Any) -> dict[str, Any]:  # noqa: ANN401  pydantic's protocol is untyped here
        """Hand the sentence to editors."""
        schema: dict[str, Any] = handler(core_schema)
        return {**schema, "description": self.sentence}


@dataclass(frozen=True, slots=True)
class Floor:
    """The shortest wait that is sensible in production, in seconds; with `or_none` a wait of 0 is a choice, too.

    A shorter one is nearly always a slip (`30s` for `30m`) and takes machines away from their users. The reader refuses
    it unless `limits.allow_short_waits` says that it is meant.
    """

    seconds: float
    or_none: bool = False

    def allows(self, seconds: float) -> bool:
        """Whether a wait is long enough."""
        return seconds >= self.seconds or (self.or_none and seconds == 0)

    def __str__(self) -> str:
        """`of at least 5m`."""
        return f"of {'0s, or of ' if self.or_none else ''}at least {format_duration(self.seconds)}"


@dataclass(frozen=True, slots=True)
class Among:
    """Names of the user's choice stand among the keys of a section: `kubernetes.prod` next to `kubernetes.name`."""

    section: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """Values that are right by themselves and wrong together; `keys` are theirs, the likeliest culprit first."""

    keys: tuple[tuple[str, ...], ...]
    wrong: str
    right: str
