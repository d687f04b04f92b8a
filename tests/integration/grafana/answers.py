"""`python -m tests.integration.grafana.answers FILE`: what panels' queries give for the story, for page.tsx to draw."""

import json
import sys
import tempfile
from pathlib import Path

from tests.support.builders.dashboard_story import ENDS, Story
from tests.support.dashboards import LOOKBACK, NAMES, STEP, Asked, load, panels
from tests.support.real.tsdb import prometheus


def main(file: Path) -> None:
    """Each dashboard with its panels' answers, by panel and query."""
    story = Story().played()
    with (
        tempfile.TemporaryDirectory() as folder,
        prometheus(Path(folder) / "story", story.history, lookback=LOOKBACK) as url,
    ):
        asked = Asked(url, story)
        document = {
            name: {
                "board": (board := load(name)),
                "answers": {
                    panel["id"]: {target["refId"]: asked.of(target) for target in panel["targets"]}
                    for panel in panels(board)
                },
            }
            for name in NAMES
        }
    file.write_text(json.dumps({"ends": ENDS, "step": STEP, "boards": document}), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
