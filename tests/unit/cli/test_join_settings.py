"""What `gpuwatch agent join` writes into a settings file that a person has written."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.cli.join_settings import SettingsFile, with_keys
from gpuwatch.config import ConfigError
from tests.support.paths import ROOT

KEYS: dict[str, object] = {
    "host": "0.0.0.0",  # noqa: S104  with TLS
    "tls_certificate": "/join/agent.pem",
    "tls_key": "/join/agent.key",
    "tls_client_ca": "/join/ca.pem",
    "tls_client_names": ["controller.gpuwatch"],
    "controller": "https://10.0.0.5:9462",
}
OWN = {"interval": "1s", "host": "127.0.0.3", "services": ["unit:a.service"], "activity": {"held_memory_bytes": 5}}


def test_the_shipped_file_keeps_its_comments_and_gets_a_section() -> None:
    """All lines of the package's file stand as before, in their order."""
    before = (ROOT / "packaging/gpuwatch.yaml").read_text(encoding="utf-8")
    after = with_keys(before, KEYS, "gpuwatch.yaml")
    assert after.startswith(before)
    assert yaml.safe_load(after)["agent"] == KEYS
    assert with_keys(after, KEYS, "gpuwatch.yaml") == after


@given(
    own=st.dictionaries(st.sampled_from(sorted(OWN)), st.none(), min_size=0),
    indent=st.integers(1, 8),
    head=st.sampled_from(["", "mode: observe\n", "# a comment\n\nfleet: lab  # ours\n"]),
    tail=st.sampled_from(["", "\n# the end", "ledger:\n  path: l.db\n"]),
)
def test_whatever_a_person_wrote_stays(own: dict[str, None], indent: int, head: str, tail: str) -> None:
    """Any section, indented in any way: each line is still there, and the file says what it said, and our keys."""
    section = {key: OWN[key] for key in own}
    dumped = yaml.safe_dump(section, indent=2, sort_keys=False) if section else ""
    body = "".join(f"{' ' * indent}{line}\n" for line in dumped.splitlines())
    before = f"{head}agent:\n{body}{tail}"
    after = with_keys(before, KEYS, "gpuwatch.yaml")
    assert [line for line in after.splitlines() if line in before.splitlines()] == before.splitlines()
    was, now = yaml.safe_load(before), yaml.safe_load(after)
    assert now["agent"] == KEYS | section
    assert {key: value for key, value in now.items() if key != "agent"} == {
        key: value for key, value in was.items() if key != "agent"
    }


def test_certificates_of_ones_own_are_not_replaced() -> None:
    """The words name line and key; a controller with another address is no reason to refuse."""
    with pytest.raises(ValueError, match=r"gpuwatch.yaml:3: agent.tls_key has a value of its own"):
        with_keys("agent:\n  interval: 1s\n  tls_key: mine.key\n", KEYS, "gpuwatch.yaml")
    joined = with_keys("", KEYS, "gpuwatch.yaml")
    moved = with_keys(joined, {**KEYS, "controller": "https://10.0.0.6:9462"}, "gpuwatch.yaml")
    assert moved == joined.replace("10.0.0.5", "10.0.0.6")


@pytest.mark.parametrize("text", ["{agent: {}}", "agent: {interval: 1s}", "[agent]"])
def test_braces_are_said_and_left_alone(text: str) -> None:
    """A section in one line is not taken apart."""
    with pytest.raises(ValueError, match="one key a line"):
        with_keys(text, KEYS, "gpuwatch.yaml")


def test_a_file_that_would_not_be_sound_is_not_put_in_place(tmp_path: Path) -> None:
    """What contradicts a person's keys is an error before anything is asked; no other file is left."""
    path = tmp_path / "gpuwatch.yaml"
    path.write_text("agent:\n  interval: 1s\n", encoding="utf-8")
    path.chmod(0o640)
    file = SettingsFile.read_file(path, {})
    with pytest.raises(ConfigError, match="tls_key"), file.prepare_file({"tls_certificate": "/join/agent.pem"}):
        pass
    with file.prepare_file(KEYS) as prepared:
        prepared.put_in_place()
    assert path.stat().st_mode & 0o777 == 0o640
    assert [each.name for each in tmp_path.iterdir()] == ["gpuwatch.yaml"]


def test_a_file_that_is_a_link_stays_one(tmp_path: Path) -> None:
    """Settings that lie elsewhere are changed there, with their mode; the link still leads to them."""
    elsewhere, link = tmp_path / "elsewhere.yaml", tmp_path / "gpuwatch.yaml"
    elsewhere.write_text("fleet: lab\n", encoding="ascii")
    elsewhere.chmod(0o640)
    link.symlink_to(elsewhere)
    with SettingsFile.read_file(link, {}).prepare_file({"node_id": "i-1"}) as prepared:
        prepared.put_in_place()
    assert (link.is_symlink(), elsewhere.stat().st_mode & 0o777) == (True, 0o640)
    assert yaml.safe_load(elsewhere.read_text(encoding="ascii")) == {"fleet": "lab", "agent": {"node_id": "i-1"}}
