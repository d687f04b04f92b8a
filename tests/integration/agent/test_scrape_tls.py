"""The controller asks real agents over TLS: each proves to the other who it is, and what fails is unknown, with why."""

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import bcrypt
import pytest

from gpuwatch.controller.observe.credentials import Credentials
from gpuwatch.controller.observe.scrape import ScrapeSource
from gpuwatch.controller.observe.settings import ObserveSettings, contradictions
from gpuwatch.model.fleet import NodeReport
from gpuwatch.runtime.clock import SystemClock
from tests.support.builders.fleet import a_node
from tests.support.fakes.nvml import StubDriver
from tests.support.real.agents import RunningAgent, eventually
from tests.support.real.certificates import Authority

PASSWORD = "correct horse"  # noqa: S105  of a user of this test
NODE = "node-1"


class Site:
    """An authority, a user, and the files in which each side finds them."""

    def __init__(self, folder: Path) -> None:
        """Lay the files out."""
        self.authority = Authority(folder / "ours")
        self.agent, self.controller = self.authority.issue("agent"), self.authority.issue("controller")
        self.users, self.password = folder / "users", folder / "password"
        self.users.write_text(f"controller:{bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()}\n")
        self.password.write_text(f"{PASSWORD}\n")

    def agent_settings(self) -> dict[str, object]:
        """TLS, client certificates and users."""
        return {
            "tls_certificate": self.agent.certificate,
            "tls_key": self.agent.key,
            "tls_client_ca": self.authority.ca,
            "users_file": self.users,
        }

    def settings(self, url: str) -> ObserveSettings:
        """What a controller needs to ask the agent at that URL."""
        return ObserveSettings(
            targets={NODE: url},
            tls_ca=str(self.authority.ca),
            tls_certificate=str(self.controller.certificate),
            tls_key=str(self.controller.key),
            username="controller",
            password_file=str(self.password),
        )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """One site for all tests."""
    return Site(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def agent(site: Site, nvml_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningAgent]:
    """A real agent behind its door; bcrypt, ssl and all."""
    driver = StubDriver(tmp_path_factory.mktemp("driver"), nvml_library)
    with RunningAgent(driver.environment, **site.agent_settings()) as running:
        eventually(lambda: ask(site.settings(running.url)).verdict, lambda: running.log)
        yield running


def source(settings: ObserveSettings) -> ScrapeSource:
    """A controller's source."""
    return ScrapeSource(settings=settings, clock=SystemClock(), max_age_seconds=30.0)


def ask(settings: ObserveSettings) -> NodeReport:
    """What it hears of the agent."""
    return source(settings).confirm(a_node(NODE))


def test_a_controller_with_all_credentials_gets_the_verdict(agent: RunningAgent, site: Site) -> None:
    """TLS, a client certificate and a password at once."""
    verdict = ask(site.settings(agent.url)).verdict

    assert agent.url.startswith("https://")
    assert verdict is not None
    assert verdict.node_id == NODE


@pytest.mark.parametrize(
    ("without", "why"),
    [
        ({"tls_ca": None}, "its agent's certificate is not believed (self-signed certificate in certificate chain); "),
        ({"tls_server_name": "gpu-7.example"}, "not believed (Hostname mismatch, certificate is not valid for 'gpu-7."),
        ({"tls_certificate": None, "tls_key": None}, "wants a client certificate; set signals.tls_certificate"),
        ({"username": "nobody"}, "its agent refused us (HTTP 401); signals.username and signals.password_file"),
        ({"username": None, "password_file": None}, "its agent refused us (HTTP 401)"),
    ],
    ids=["CA", "name", "client certificate", "user", "password"],
)
def test_what_is_missing_or_wrong_is_told(
    agent: RunningAgent, site: Site, without: dict[str, str | None], why: str
) -> None:
    """The node is unknown, with the keys to look at, and never the password."""
    failure = ask(replace(site.settings(agent.url), **without)).failure  # type: ignore[arg-type]

    assert failure is not None
    assert why in failure
    assert PASSWORD not in failure


def test_a_certificate_of_another_ca_is_refused(agent: RunningAgent, site: Site, tmp_path: Path) -> None:
    """The agent does not know who that is, and the sentence says which key to compare with which."""
    foreign = Authority(tmp_path / "theirs").issue("controller")
    settings = replace(site.settings(agent.url), tls_certificate=str(foreign.certificate), tls_key=str(foreign.key))

    assert "its agent does not know the CA of our certificate" in (ask(settings).failure or "")


def test_http_and_https_taken_for_each_other_are_told(agent: RunningAgent, site: Site, driver: StubDriver) -> None:
    """Either way round the sentence names signals.scheme."""
    plain = replace(site.settings(agent.url.replace("https", "http")), username=None, password_file=None)
    with RunningAgent(driver.environment) as bare:
        to_bare = site.settings(bare.url.replace("http", "https"))
        answers = [ask(plain).failure, ask(to_bare).failure]

    assert answers[0] == "its agent answered HTTP 400: it may speak https only; see signals.scheme"
    assert (answers[1] or "").startswith("its agent does not speak TLS; set signals.scheme to http")


def test_a_name_that_all_agents_have(agent: RunningAgent, site: Site) -> None:
    """One certificate may serve a whole fleet: signals.tls_server_name is checked in place of each address."""
    settings = replace(site.settings(agent.url), tls_server_name="localhost")

    assert ask(settings).verdict is not None


def test_a_password_never_goes_out_in_the_clear(site: Site) -> None:
    """Asked over http at an address that is not this machine, nothing is sent at all."""
    settings = replace(site.settings("http://192.0.2.1:9460"), timeout=0.2)

    assert (ask(settings).failure or "").endswith(
        "the password of signals.password_file goes out over https only; set signals.scheme"
    )


def test_a_changed_password_is_read_again(agent: RunningAgent, site: Site, tmp_path: Path) -> None:
    """By the same source, from one round to the next."""
    password = tmp_path / "password"
    password.write_text("not yet right")
    asking = source(replace(site.settings(agent.url), password_file=str(password)))
    before = asking.confirm(a_node(NODE))
    password.write_text(f"{PASSWORD}\r\n")
    after = asking.confirm(a_node(NODE))

    assert "HTTP 401" in (before.failure or "")
    assert after.verdict is not None


@pytest.mark.parametrize(
    ("missing", "why"),
    [
        ({"password_file": "/nowhere/password"}, "signals.password_file: /nowhere/password cannot be read: No such"),
        ({"password_file": "/dev/null"}, "signals.password_file: /dev/null is empty; write the password into it"),
        ({"tls_ca": "/nowhere/ca.pem"}, "signals.tls_ca: /nowhere/ca.pem cannot be read: No such file"),
    ],
)
def test_files_that_cannot_be_used_make_every_node_unknown(site: Site, missing: dict[str, str], why: str) -> None:
    """Nobody is asked, the sentence names key and file, and the next round tries again."""
    fleet = source(replace(site.settings("https://127.0.0.1:1"), **missing)).observe([a_node(NODE), a_node("i-2")])  # type: ignore[arg-type]

    assert len(fleet.nodes) == 2
    assert all(f"no agent can be asked: {why}" in (node.activity.doubt or "") for node in fleet.nodes)


@pytest.mark.parametrize(
    ("settings", "keys", "wrong"),
    [
        ({"username": "x"}, "signals.username signals.password_file", "is set without signals.password_file"),
        ({"password_file": "x"}, "signals.password_file signals.username", "is set without signals.username"),
        ({"tls_key": "x"}, "signals.tls_key signals.tls_certificate", "is set without signals.tls_certificate"),
        ({"username": "a:b", "password_file": "x"}, "signals.username", "holds a colon"),
    ],
)
def test_half_a_setting_is_refused(settings: dict[str, str], keys: str, wrong: str) -> None:
    """By the configuration's reader, with both keys."""
    (fault,) = contradictions(ObserveSettings(**settings))  # type: ignore[arg-type]

    assert " ".join(".".join(key) for key in fault.keys) == keys
    assert wrong in fault.wrong


def test_credentials_do_not_show_their_password() -> None:
    """Neither in a log nor in a traceback."""
    assert PASSWORD not in repr(Credentials(context=True, authorization=f"Basic {PASSWORD}"))


def test_the_agents_log_and_pages_hold_no_secret(agent: RunningAgent, site: Site) -> None:
    """Whatever was asked above: no password and no hash."""
    page = subprocess.run(
        [
            *("curl", "--silent", "--fail", "--cacert", str(site.authority.ca)),
            *("--cert", str(site.controller.certificate), "--key", str(site.controller.key)),
            *("--user", f"controller:{PASSWORD}", f"{agent.url}/metrics"),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    ).stdout

    assert "gpuwatch_gpu_up" in page
    for text in (page, agent.log):
        assert PASSWORD not in text
        assert "$2b$" not in text
