"""Commands before a stop on a really booted systemd: by whom they run, and what the agent then says."""

import shutil
from collections.abc import Iterator

import pytest

from gpuwatch.model.activity import State
from tests.support.real.agents import eventually
from tests.support.real.gpu_host import AGENT, SETTINGS, Host, booted_host
from tests.support.real.systemd_container import UNITS

pytestmark = pytest.mark.component("systemd-nspawn")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """It, booted, with a stand-in NVIDIA driver."""
    with booted_host(tmp_path_factory.mktemp("booted")) as made:
        yield made


def test_commands_before_a_stop_run_with_the_rights_of_their_people(host: Host) -> None:
    """Through a socket that is the agent's alone: root's command as root, alice's as alice; neither is work.

    What they say keeps the machine. Without the socket it stays, and the sentence names what to enable.
    """
    wanted = "agent:\n  before_stop: {command: [sh, -c, 'echo the work of `id -un`; exit 4'], owners: true}\n"
    processes = "processes: {interval: 200ms}"
    settings = SETTINGS.replace("processes: {enabled: false}", processes).replace("agent:\n", wanted)
    host.settings(settings.replace("agent:\n", "agent:\n  services: ['program:python3*']\n"))
    own = "install -d -o alice -m 700 /home/alice /home/alice/.config /home/alice/.config/gpuwatch; "
    script = "/home/alice/.config/gpuwatch/before-stop"
    own += f"printf '#!/bin/sh\\nsleep 8; id -un > /tmp/alice; id -un' > {script}; chmod 755 {script}"
    host.restart_fresh(AGENT)
    host.becomes(State.IDLE)
    host.run("sh", "-c", own)

    def answer() -> str:
        return host.post("/v1/before-stop", '{"verb": "stop"}')

    try:
        assert '"running"' in answer()
        eventually(lambda: "is gpuwatch-before-stop.socket enabled?" in answer(), answer)
        shutil.copy(UNITS / "gpuwatch-before-stop.socket", host.root / "etc/systemd/system")
        host.install("gpuwatch-before-stop@.service", ["agent", "before-stop", "--socket"])
        host.restart_fresh(AGENT)  # a stop of the agent takes its socket along
        host.run("systemctl", "start", "gpuwatch-before-stop.socket")
        host.becomes(State.IDLE)
        assert '"running"' in answer()
        eventually(lambda: host.run("pgrep", "--uid", "alice", "sleep", check=False), answer)
        host.becomes(State.IDLE)  # also if a look has met what this test runs there
        still_runs = host.run("pgrep", "--uid", "alice", "sleep", check=False)
        eventually(lambda: '"refused"' in answer(), answer)
        refused, whose = answer(), host.run("stat", "--format=%U", "/tmp/alice").strip()  # noqa: S108  its own
        rights = host.run("stat", "--format=%U:%G %a", "/run/gpuwatch-before-stop.sock").strip()
    finally:
        host.run("systemctl", "stop", "gpuwatch-before-stop.socket", check=False)
        host.run("rm", "--recursive", "--force", "/home/alice/.config", "/tmp/alice")  # noqa: S108  as above

    assert "The administrator's command before its stop said not now, with status 4" in refused
    assert "the work of root" in refused
    assert (whose, rights) == ("alice", f"root:{AGENT} 660")
    assert still_runs, "it was over before the agent had looked"
