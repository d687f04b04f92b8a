"""Asks the agents directly: the embedded default, good for one site. Every doubt about an answer is a failure in words."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le

from gpuwatch.model.knobs import STRICT, Knob, Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapeKnobs:
    """How the agents are reached."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    scheme: Annotated[Literal["http", "https"], Knob("How agents are spoken to.")] = "http"
    port: Annotated[int, Ge(1), Le(65535), Knob("The agents' port, at the address that the cloud tells.")] = 9460
    timeout: Annotated[Seconds, Gt(0), Knob("An agent that has not answered in full by then is unknown.")] = 5.0
    concurrency: Annotated[int, Gt(0), Le(2000), Knob("So many agents are asked at the same time.")] = 100
    targets: Annotated[
        dict[str, str], Knob("Base URLs by node id or name, where the address of the cloud does not lead to the agent.")
    ] = field(default_factory=dict)
