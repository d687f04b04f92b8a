"""The README's commands do what its reader expects of them: they run as they stand, on a small fleet at moto."""

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from click.testing import CliRunner
from moto.server import ThreadedMotoServer

from gpuwatch.cli.controller import assemble_parts
from gpuwatch.cli.main import commands
from gpuwatch.clouds import FLEET_TAG
from gpuwatch.config import load
from gpuwatch.controller.round import step
from tests.support.markdown import blocks

README = Path("README.md")
REGION = "us-east-1"
_SERVICES = {"agent", "controller"}  # they go on for ever; docs/quickstart.md starts them
_OF_A_HOST = {"probe", "snooze", "top"}  # they want a GPU, or a folder of the system; likewise
_WANT_HISTORY = {"backtest", "recommend"}  # a ledger of one round has none


def lines() -> list[str]:
    """What the README tells to type after `gpuwatch`, comments apart."""
    typed = [re.split(r"\s#|\s>", line)[0].strip() for block in blocks(README, "sh") for line in block.splitlines()]
    words = [line.removeprefix("gpuwatch ") for line in typed if line.startswith("gpuwatch ")]
    return [line for line in words if line.split()[0] not in _SERVICES | _OF_A_HOST]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the README's configuration, a ledger of one round, and one machine, NODE."""
    folder = tmp_path_factory.mktemp("readme")
    (block,) = blocks(README, "yaml")
    (folder / "gpuwatch.yaml").write_text(block, encoding="utf-8")
    days = "".join(f"2026-03-{day:02}T00:00:00Z,{100 + day % 7}\n" for day in range(1, 32))
    (folder / "spend.csv").write_text(f"time,value\n{days}", encoding="utf-8")
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        endpoint = "http://{}:{}".format(*server.get_host_and_port())
        for name, value in {
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": REGION,
            "GPUWATCH_CLOUD__ENDPOINT_URL": endpoint,
            "GPUWATCH_CONFIG": str(folder / "gpuwatch.yaml"),
            "GPUWATCH_LEDGER__PATH": str(folder / "ledger.db"),
            "GPUWATCH_SIGNALS__TARGETS__NODE": "http://127.0.0.1:9",  # nobody is there: it is unknown
        }.items():
            patch.setenv(name, value)
        try:
            ec2 = boto3.Session().client("ec2", endpoint_url=endpoint)  # one of its own: other tests watch theirs
            ec2.run_instances(
                ImageId=ec2.register_image(Name="gpu")["ImageId"],
                InstanceType="g6.xlarge",
                MinCount=1,
                MaxCount=1,
                TagSpecifications=[
                    {
                        "ResourceType": "instance",
                        "Tags": [{"Key": "Name", "Value": "NODE"}, {"Key": FLEET_TAG, "Value": "ml-research"}],
                    }
                ],
            )
            with assemble_parts(load(None, os.environ), read_only=False) as parts:
                step(parts)
            yield folder
        finally:
            server.stop()


@pytest.mark.parametrize("line", lines())
def test_a_line_of_the_readme_runs(site: Path, line: str) -> None:
    """As it stands, with the README's own configuration: it says something, or that there is no history yet."""
    assert site.is_dir()

    done = CliRunner().invoke(commands, shlex.split(line))

    assert done.output.strip()
    assert done.exit_code == (2 if line.split(maxsplit=1)[0] in _WANT_HISTORY else 0), f"gpuwatch {line}\n{done.output}"
    assert isinstance(done.exception, SystemExit | None), f"gpuwatch {line}: {done.exception!r}"
