"""A driver that is a shell script: what it answers, and what it does before, is a test's choice."""

import json
from pathlib import Path
from typing import Any

from gpuwatch.clouds.driver.cloud import DriverCloud
from gpuwatch.clouds.driver.protocol import CALLS
from gpuwatch.clouds.driver.settings import DriverSettings
from gpuwatch.clouds.permit import Permit
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import Clock, ManualClock
from tests.support.builders.fleet import NOW

SECRET = "hunter-seven-green"  # noqa: S105  of a fake
MACHINES = [{"id": name, "state": "running", "type": "gpu-1", "gpus": 1} for name in ("m-1", "m-2")]


class Driver:
    """An executable that answers each call with what the folder has for it, and writes its requests down."""

    def __init__(self, folder: Path) -> None:
        """It offers every call, and shows two machines that run."""
        self.folder, self.path = folder, folder / "driver"
        (folder / "secret").write_text(SECRET, encoding="utf-8")
        self.script(
            f"""read -r request
            printf '%s\\n' "$request" >>{folder}/asked
            call=${{request#*'"call": "'}}; call=${{call%%'"'*}}
            env >{folder}/environment; printf '%s\\n' "$0" "$@" >{folder}/arguments
            if [ -e {folder}/$call.sh ]; then . {folder}/$call.sh; fi
            cat {folder}/$call"""
        )
        self.says("describe", name="Nowhere", calls=list(CALLS))
        self.says("list", machines=MACHINES)
        self.says("get", machine=MACHINES[0])
        for call in ("stop", "start", "terminate", "tag"):
            self.says(call, id="m-1")

    def script(self, text: str) -> None:
        """What it is."""
        self.path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        self.path.chmod(0o755)

    def says(self, call: str, **answer: object) -> None:
        """Its answer to a call from now on."""
        self.prints(call, json.dumps({"gpuwatch": 1, "call": call, **answer}))

    def prints(self, call: str, text: str | bytes) -> None:
        """The same, whatever it is."""
        (self.folder / call).write_bytes(text.encode() if isinstance(text, str) else text)

    def does(self, call: str, script: str) -> None:
        """What it does before it answers."""
        (self.folder / f"{call}.sh").write_text(script, encoding="utf-8")

    def asked(self, call: str) -> list[dict[str, Any]]:
        """The requests of a call."""
        path = self.folder / "asked"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [each for each in map(json.loads, lines) if each["call"] == call]

    def cloud(self, regions: tuple[str, ...] = (), clock: Clock | None = None, **settings: Any) -> DriverCloud:  # noqa: ANN401  of a driver
        """The adapter."""
        secrets = {"token": str(self.folder / "secret")}
        driver = DriverSettings(executable=str(self.path), secrets=secrets, **settings)
        return DriverCloud(fleet="lab", clock=clock or ManualClock(wall=NOW), driver=driver, regions=regions)


def a_permit(seconds: float = 60.0, *, leads: bool = True) -> Permit:
    """One that holds for so long by the clock of the test, which stands still."""
    return Permit.asked_now(ManualClock(wall=NOW), seconds, lambda: leads)


def states(cloud: DriverCloud) -> dict[str, NodeState]:
    """The list."""
    return {node.id: node.state for node in cloud.nodes()}
