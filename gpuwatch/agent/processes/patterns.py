"""The administrator's patterns of processes: entries of `agent.workloads` and `agent.services`."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Any

_FORM = r"^(unit|program|user|slice):\S+$"
_KINDS = ("unit", "program", "user", "slice")


@dataclass(frozen=True, slots=True)
class PatternText:
    """Accepts `unit:GLOB`, `program:GLOB`, `user:GLOB` and `slice:GLOB`, where not everything matches."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> dict[str, Any]:  # noqa: ANN401  pydantic's protocol is untyped here
        """Judge the text here."""
        del source, handler
        return {"type": "function-plain", "function": {"type": "no-info", "function": self.parse}}

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Any) -> dict[str, Any]:  # noqa: ANN401  pydantic's protocol is untyped here
        """Tell editors what is right."""
        del core_schema, handler
        return {"type": "string", "pattern": _FORM}

    @staticmethod
    def parse(value: object) -> str:
        """The text.

        Raises:
            ValueError: it is no pattern, or one that every process matches.

        """
        by, colon, glob = value.partition(":") if isinstance(value, str) else ("", "", "")
        if not colon or by not in _KINDS or not glob or any(each.isspace() for each in glob):
            msg = f"{value!r} is not a pattern of processes; expected unit:, program:, user: or slice: and a name"
            raise ValueError(msg)
        if not glob.strip("*?"):
            msg = f"{value!r} matches every process; expected a name, with * for its parts"
            raise ValueError(msg)
        return f"{by}:{glob}"


ProcessPattern = Annotated[str, PatternText()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """One entry: what it looks at (unit, program, user or slice), and the pattern as of fnmatch."""

    by: str
    glob: str

    @classmethod
    def from_text(cls, text: str) -> "Pattern":
        """From the text of the setting, which is valid."""
        by, _, glob = text.partition(":")
        return cls(by=by, glob=glob)

    def matches(self, names: tuple[str, ...]) -> bool:
        """Whether one of these names matches."""
        return any(name and fnmatchcase(name, self.glob) for name in names)
