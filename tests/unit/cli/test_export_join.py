"""What `gpuwatch export join` writes, run as the tools would: with the real command and a real controller."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from gpuwatch.cli.main import commands
from gpuwatch.controller.join.settings import JoinSettings
from tests.support.real.joining import Controller

ADDRESS = "ctl.internal"


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    """One that listens."""
    made = Controller(join=JoinSettings(host="127.0.0.1", port=0, folder=str(tmp_path / "controller")))
    made.begin()
    yield made
    made.end()


def written(folder: Path, *words: str) -> dict[str, str]:
    """The files."""
    result = CliRunner().invoke(commands, ["export", "join", str(folder), *words])
    assert result.exit_code == 0, result.output
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


class Machine:
    """A folder of programs that stands in for a host: `aws` gives the token, `systemctl` does nothing."""

    def __init__(self, folder: Path, token: str) -> None:
        """Every call is written down with its arguments; gpuwatch is the real one."""
        self.folder, self.calls = folder, folder / "calls"
        folder.mkdir()
        (folder / "token").write_text(token, encoding="ascii")
        own = f'"$@" --node i-1 --folder {folder}/join --config {folder}/gpuwatch.yaml'
        programs = {
            "aws": f"cat {folder}/token",
            "systemctl": "true",
            "gpuwatch": f"exec {sys.executable} -m gpuwatch {own}",
        }
        for name, does in programs.items():
            program = folder / name
            program.write_text(f'#!/bin/sh\necho "{name} $*" >> {self.calls}\n{does}\n', encoding="ascii")
            program.chmod(0o755)

    def run(self, *argv: str, text: str = "") -> None:
        """Run a program of this machine."""
        path = f"{self.folder}:{os.environ['PATH']}"
        subprocess.run(argv, env={**os.environ, "PATH": path}, input=text, text=True, check=True, timeout=60)

    def judge(self, controller: Controller, token: str) -> None:
        """It has joined, its agent was started, and no argument had the secret."""
        assert set(controller.book.hosts) == {"i-1"}
        calls = self.calls.read_text(encoding="utf-8")
        assert token.split(".")[1] not in calls
        assert "systemctl restart gpuwatch-agent" in calls


def test_user_data_and_the_ssm_document_let_a_host_join(controller: Controller, tmp_path: Path) -> None:
    """The token comes out of the store through a pipe; the commands of the SSM document are those of the user data."""
    token = controller.token()
    machine = Machine(tmp_path / "machine", token)
    files = written(tmp_path / "out", controller.url, "--parameter", "/fleet/token")
    assert "--name /fleet/token" in files["user-data.sh"]
    machine.run("sh", str(tmp_path / "out/user-data.sh"))
    machine.judge(controller, token)

    lines = json.loads(files["ssm.json"])["mainSteps"][0]["inputs"]["runCommand"]
    assert lines == files["user-data.sh"].splitlines()[1:]


def test_cloud_init_lets_a_host_join_and_removes_the_token(controller: Controller, tmp_path: Path) -> None:
    """Its commands are run one after another, as cloud-init does, with its file in place."""
    token = controller.token()
    machine = Machine(tmp_path / "machine", token)
    text = written(tmp_path / "out", controller.url)["cloud-init.yaml"]
    place = tmp_path / "run"
    document = yaml.safe_load(
        text.replace("/run/gpuwatch-join", str(place)).replace("content: TOKEN", f"content: {token}")
    )
    (file,) = document["write_files"]
    place.mkdir()
    Path(file["path"]).write_text(file["content"], encoding="ascii")
    assert text.startswith("#cloud-config\n")
    assert file["permissions"] == "0600"
    for argv in document["runcmd"]:
        machine.run(shutil.which(argv[0], path=f"{machine.folder}:{os.environ['PATH']}") or argv[0], *argv[1:])
    machine.judge(controller, token)
    assert not place.exists()


def test_the_playbook_gives_the_token_on_standard_input(controller: Controller, tmp_path: Path) -> None:
    """Its command joins; the task is not logged, and done once."""
    token = controller.token()
    machine = Machine(tmp_path / "machine", token)
    (play,) = yaml.safe_load(written(tmp_path / "out", controller.url)["ansible.yml"])
    task = play["tasks"][0]
    given = task["ansible.builtin.command"]
    assert (task["no_log"], given["stdin"]) == (True, "{{ gpuwatch_join_token }}")
    assert given["creates"] == "/var/lib/gpuwatch-agent/join/agent.pem"
    machine.run(str(machine.folder / given["argv"][0]), *given["argv"][1:], text=token)
    machine.run(
        str(machine.folder / "systemctl"), "restart", play["handlers"][0]["ansible.builtin.systemd_service"]["name"]
    )
    machine.judge(controller, token)


@pytest.mark.parametrize("words", [["$(id)"], ["ctl;id"], [ADDRESS, "--parameter", "a b"], ["http://10.0.0.5"]])
def test_what_is_no_address_is_refused(tmp_path: Path, words: list[str]) -> None:
    """Nothing that a shell or YAML reads as more than a word gets into a file."""
    result = CliRunner().invoke(commands, ["export", "join", str(tmp_path / "out"), *words])
    assert result.exit_code == 2
    assert not (tmp_path / "out").exists()


def test_an_address_gets_the_usual_port_and_brackets(tmp_path: Path) -> None:
    """IPv6 is written as a URL has it."""
    assert "gpuwatch agent join 'https://[fd00::5]:9462' " in written(tmp_path / "six", "fd00::5")["user-data.sh"]
    assert f"gpuwatch agent join https://{ADDRESS}:9462 " in written(tmp_path / "name", ADDRESS)["user-data.sh"]
