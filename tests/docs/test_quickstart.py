"""What a newcomer types works: the quick start's blocks in one shell, in order, against an EC2 played by moto."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from gpuwatch.clouds import FLEET_TAG
from tests.support.components import require
from tests.support.paths import ROOT

PAGE = ROOT / "docs/quickstart.md"
REGION = "us-east-1"
_PATIENCE_SECONDS = 600.0
_SIGNALS = ("PEOPLE", "GPU_PROCESS_CPU", "CPU", "DISK", "NETWORK", "INHIBITORS", "JUPYTER", "SLURM")


def steps(page: str) -> list[tuple[str, list[str]]]:
    """Each sh block with the lines that it shall print: those of the text block right after it."""
    found = re.findall(r"^```sh\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", page, re.MULTILINE | re.DOTALL)
    return [(block, text.splitlines()) for block, text in found]


def pattern(line: str) -> re.Pattern[str]:
    """A line of the page: `…` stands for anything, blanks for any blanks."""
    words = [".*" if word == "…" else re.escape(word) for word in re.findall(r"…|[^…\s]+|\s+", line.strip())]
    return re.compile(re.sub(r"(\\\s|\s)+", r"\\s+", "".join(words)))


def free_port() -> int:
    """A port that nobody has at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def user(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of somebody who has one enrolled machine, `trainer`, and is logged in at it."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        endpoint = "http://{}:{}".format(*server.get_host_and_port())
        credentials = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": REGION}
        ec2 = boto3.client(
            "ec2",
            region_name=REGION,
            endpoint_url=endpoint,
            aws_access_key_id="testing",
            aws_secret_access_key="testing",  # noqa: S106  moto's
        )
        tags = {"Name": "trainer", FLEET_TAG: "research"}
        (machine,) = ec2.run_instances(
            ImageId=ec2.register_image(Name="gpu")["ImageId"],
            InstanceType="g6.xlarge",
            MinCount=1,
            MaxCount=1,
            TagSpecifications=[
                {"ResourceType": "instance", "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
            ],
        )["Instances"]
        agent = {"METADATA__PROVIDER": "none", "KERNEL_LOG": "none", "HEALTH_FILE": "none", "CONTROL_SOCKET": "none"}
        agent |= {"NODE_ID": str(machine["InstanceId"]), "EVIDENCE__SNOOZE__DIRECTORY": str(tmp_path / "snoozes")}
        agent |= {f"EVIDENCE__{name}__ENABLED": "false" for name in _SIGNALS}  # the tester's machine is another matter
        yield {
            **os.environ,
            **credentials,
            **{f"GPUWATCH_AGENT__{name}": value for name, value in agent.items()},
            "GPUWATCH_CLOUD__ENDPOINT_URL": endpoint,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        }
    finally:
        server.stop()


def played(blocks: list[str], folder: Path, environment: dict[str, str]) -> tuple[list[str], int]:
    """What each block printed, in one shell with job control as a terminal has it, and the shell's exit status."""
    marked = "".join(f"printf '\\n@ {number}\\n'\n{block}" for number, block in enumerate(blocks))
    ports = {"9460": str(free_port()), "9461": str(free_port())}
    script = re.sub("|".join(ports), lambda found: ports[found.group()], f"set -em\n{marked}")
    log = folder / "printed"
    with log.open("w") as printed:
        shell = subprocess.Popen(
            [require("bash"), "-c", script],
            cwd=folder,
            env={**environment, "GPUWATCH_CONTROLLER__PORT": ports["9461"], "GPUWATCH_AGENT__PORT": ports["9460"]},
            stdout=printed,
            stderr=subprocess.STDOUT,
        )
    try:
        shell.wait(_PATIENCE_SECONDS)
    finally:
        for pid in _descendants(shell.pid):
            os.kill(pid, signal.SIGKILL)
        shell.kill()
        shell.wait()
    return re.split(r"^@ \d+\n", log.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:], shell.returncode


def _descendants(pid: int) -> list[int]:
    """The processes that a shell that is still there has begun."""
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    children = [int(child) for child in listed.read_text(encoding="ascii").split()] if listed.exists() else []
    return [*children, *(each for child in children for each in _descendants(child))]


def test_the_quick_start_works(user: dict[str, str], tmp_path: Path) -> None:
    """Every block runs without an error and prints what the page says, in the page's order."""
    require("curl")
    asked = steps(PAGE.read_text(encoding="utf-8"))

    printed, status = played([block for block, _ in asked], tmp_path, user)

    logs = "\n".join(f"{log.name}: {log.read_text(encoding='utf-8')[-2000:]}" for log in tmp_path.glob("*.log"))
    assert status == 0, f"block {len(printed)} ended with {status}:\n{printed[-1]}\n{logs}"
    for (block, lines), seen in zip(asked, printed, strict=True):
        begin = 0
        for line in lines:
            found = pattern(line).search(seen, begin)
            assert found, f"{block}\nshould print {line!r} and printed\n{seen}\n{logs}"
            begin = found.end()


def test_a_page_that_promises_too_much_is_found() -> None:
    """A line that is not printed matches nothing, and `…` does not reach beyond its line."""
    ((block, lines),) = steps("```sh\ngpuwatch x\n```\n```text\nOK: … done\n```\n")

    assert block == "gpuwatch x\n"
    assert pattern(lines[0]).search("OK:  all is  done")
    assert not pattern(lines[0]).search("OK: all\nis done")
    assert not pattern(lines[0]).search("all is done")
