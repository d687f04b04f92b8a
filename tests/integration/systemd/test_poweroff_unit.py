"""The unit that powers a host off, as it is shipped, on a booted systemd; only its systemctl is the test's own."""

import base64
import json
import shutil

import bcrypt
import pytest

from tests.support.real.agents import eventually
from tests.support.real.gpu_host import AGENT, SETTINGS, URL, booted_host
from tests.support.real.systemd_container import PYTHON, UNITS

pytestmark = [pytest.mark.component("systemd-nspawn"), pytest.mark.nightly]

SOCKET, SERVICE = "gpuwatch-poweroff.socket", "gpuwatch-poweroff@.service"
USER, PASSWORD = "gpuwatch-controller", "let me in"
# It says what it was asked for, and what logind would allow whoever asks from there. It powers nothing off.
SYSTEMCTL = """#!/bin/sh
echo "asked: $*" >&2
busctl call org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager CanPowerOff >&2
"""
POST = """
import sys, urllib.error, urllib.request as u
headers = {"Content-Type": "application/json", "Authorization": "Basic " + sys.argv[3]}
try:
    print(u.urlopen(u.Request(sys.argv[1], sys.argv[2].encode(), headers), timeout=10).read().decode())
except OSError as error:
    print(error)
"""
ASK = "from gpuwatch.agent.power import ask_root\nprint(ask_root())"


def test_an_idle_host_is_powered_off_at_its_agents_word_and_at_nobody_elses(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """From the agent's sandbox, through the socket, to what root's unit may ask; without the unit it is refused."""
    with booted_host(tmp_path_factory.mktemp("booted")) as host:
        units, tools = host.root / "etc/systemd/system", host.root / "opt/tested"
        tools.mkdir()
        (tools / "systemctl").write_text(SYSTEMCTL, encoding="utf-8")
        (tools / "systemctl").chmod(0o755)
        (units / f"{SERVICE}.d").mkdir()
        only = "[Service]\nEnvironment=PATH=/opt/tested:/usr/bin:/bin\n"
        (units / f"{SERVICE}.d/test.conf").write_text(only, encoding="utf-8")
        for name in (SOCKET, SERVICE):
            shutil.copy(UNITS / name, units / name)
        secret = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
        own = f"agent:\n  poweroff: true\n  notice_users: [{USER}]\n  basic_auth_users: {{{USER}: '{secret}'}}\n"
        host.settings(SETTINGS.replace("agent:\n", own))
        host.restart_fresh(AGENT)
        assert "PATH=/opt/tested" in host.show("gpuwatch-poweroff@test.service", "Environment")
        login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

        def journal() -> str:
            return host.run("journalctl", "--no-pager", "--quiet", "--output=cat", "--identifier=gpuwatch-poweroff")

        def asked(*, off: bool) -> str:
            question = json.dumps({"node": "gpu-host", "off": off})
            return host.run(PYTHON, "-c", POST, f"{URL}/v1/power", question, login)

        eventually(
            lambda: "gpuwatch-poweroff.socket is not enabled there" in asked(off=False), lambda: asked(off=False)
        )
        host.run("systemctl", "enable", "--now", SOCKET)
        eventually(lambda: json.loads(asked(off=False))["refused"] is None, lambda: asked(off=False))
        assert "asked" not in journal()
        eventually(lambda: json.loads(asked(off=True))["refused"] is None, lambda: asked(off=True))

        said = journal()
        assert "asked: poweroff" in said, said
        assert 's "yes"' in said, said
        assert "PermissionError" in host.run("sh", "-c", f"{PYTHON} -c '{ASK}' 2>&1", check=False, user="alice")
        assert journal().count("asked: poweroff") == said.count("asked: poweroff")
        host.restart_fresh(AGENT)
        eventually(lambda: json.loads(asked(off=False))["refused"] is None, lambda: asked(off=False))
