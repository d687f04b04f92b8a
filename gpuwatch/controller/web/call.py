"""One request to the API that was found to be right, and how it is refused."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from gpuwatch.controller.web.state import State


class RefusedError(Exception):
    """The request is answered with this status and sentence."""

    def __init__(self, status: HTTPStatus, sentence: str, *, allow: str | None = None) -> None:
        """`sentence` is for people; `allow` the methods that there are."""
        super().__init__(sentence)
        self.status = status
        self.allow = allow


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request that was found to be right. `named` are the parts of its path, `who` is who acts."""

    state: State
    query: Any
    named: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    who: str = ""
    user: str | None = None
    why_not: str | None = None
