"""The command `gpuwatch notify test`: where a test message went, or why it did not."""

from collections.abc import Mapping
from pathlib import Path

import yaml
from click.testing import CliRunner, Result

from gpuwatch.cli.main import commands
from tests.support.fakes.http_sink import Answer, serving


def asked(folder: Path, notify: Mapping[str, object], *words: str) -> Result:
    """What the command says with such settings."""
    path = folder / "gpuwatch.yaml"
    path.write_text(yaml.safe_dump({"fleet": "lab", "notify": notify}))
    return CliRunner().invoke(commands, ["notify", "test", *words, "--config", str(path)])


def test_all_destinations_or_one_are_tried(tmp_path: Path) -> None:
    """Each has a line; one that fails makes the exit status 1 and keeps no other from being tried."""
    with serving(lambda asked: Answer(body="", status=200 if asked.path == "/good" else 500)) as server:
        to = {name: {"webhook": {"url": f"{server.url}/{name}"}} for name in ("bad", "good")}
        both = asked(tmp_path, {"receivers": to})
        one = asked(tmp_path, {"receivers": to}, "good")
        bodies = [each.body for each in server.asked]

    assert (both.exit_code, one.exit_code) == (1, 0)
    assert both.output == "bad: it did not arrive: the server answered HTTP 500\ngood: sent (127.0.0.1)\n"
    assert one.output == "good: sent (127.0.0.1)\n"
    assert all('"event": "test"' in body for body in bodies)


def test_mail_to_owners_needs_an_owner(tmp_path: Path) -> None:
    """Without one, or with one whose address nobody knows, nothing is sent."""
    mail = {"host": "127.0.0.1", "port": 9, "security": "none"}
    notify = {"owner_mail": "{owner}@example.com", "receivers": {"owners": {"mail": mail, "owners": True}}}
    nobody = asked(tmp_path, notify)
    odd = asked(tmp_path, notify, "--owner", "Team Vision")
    ann = asked(tmp_path, notify, "--owner", "ann")

    assert nobody.output == "owners: there is no address without --owner\n"
    assert odd.output == "owners: there is no address for the owner 'Team Vision'\n"
    assert (
        ann.output
        == "owners: it did not arrive: 127.0.0.1:9 refuses connections; check the port, and that the service runs\n"
    )
    assert (nobody.exit_code, odd.exit_code, ann.exit_code) == (1, 1, 1)


def test_mistakes_are_told(tmp_path: Path) -> None:
    """No such destination, and none at all."""
    wrong = asked(tmp_path, {"receivers": {"ops": {"webhook": {"url": "http://127.0.0.1:9"}}}}, "opps")
    none = asked(tmp_path, {})

    assert "'opps' is not a receiver; notify.receivers has ops" in wrong.output
    assert "notify.receivers has no receiver, so nothing is sent; add one" in none.output
    assert (wrong.exit_code, none.exit_code) == (2, 2)
