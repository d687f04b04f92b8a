"""`python -m dashboards.source`: dashboards/*.json."""

import json
from collections.abc import Callable
from pathlib import Path

from dashboards.source.controller import controller
from dashboards.source.cost import cost
from dashboards.source.fleet import fleet
from dashboards.source.node import node
from dashboards.source.parts import Json

FOLDER = Path(__file__).parent.parent
BOARDS: dict[str, Callable[[], Json]] = {"fleet": fleet, "node": node, "cost": cost, "controller": controller}


def rendered(name: str) -> str:
    """A dashboard's file."""
    return json.dumps(BOARDS[name](), indent=2, ensure_ascii=False, sort_keys=True) + "\n"


if __name__ == "__main__":
    for each in BOARDS:
        (FOLDER / f"{each}.json").write_text(rendered(each), encoding="utf-8")
