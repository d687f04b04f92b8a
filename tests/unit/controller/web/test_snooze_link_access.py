"""The way to a snooze link: what it opens without a login; where its secret is, and where it is not."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpuwatch.cli.controller import observers_of
from gpuwatch.config.settings import Settings
from gpuwatch.controller.round import step
from gpuwatch.controller.web.settings import ControllerSettings
from gpuwatch.controller.web.snooze_link import SNOOZE
from gpuwatch.controller.web.snooze_page import SnoozeLinks
from gpuwatch.notify.settings import NotifySettings
from gpuwatch.runtime.http.request import Request, Response
from tests.support.builders.served_page import Site, a_site, with_users
from tests.support.builders.snooze_link_page import SECRET, a_desk, keep, link


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A page with users, and a machine that had its notice a minute ago."""
    with a_site(a_desk(), with_users(tmp_path, "ann"), secret=SECRET) as site:
        site.round()
        yield site


def asked(site: Site, target: str, **changes: object) -> Response:
    """An answer to somebody far away, who has said nothing of himself."""
    request = Request(method="GET", target=target, client="203.0.113.7", secure=True)
    return site.web.answer(replace(request, **changes))  # type: ignore[arg-type]


def test_far_away_a_link_takes_https_or_an_explicit_insecure() -> None:
    """Whoever reads the address on its way may use it."""
    named = {"host": "10.0.0.1:9461"}
    for insecure in (False, True):
        with a_site(a_desk(), ControllerSettings(insecure=insecure), secret=SECRET) as site:
            site.round()
            target = link(site)

            assert asked(site, target).status == 200
            assert asked(site, target, secure=False, headers=named).status == (200 if insecure else 403)
            assert asked(site, target, secure=False, headers={"host": "evil.example"}).status == 421
            assert asked(site, f"{SNOOZE}page.css").status == 200


def test_a_link_opens_nothing_else(site: Site) -> None:
    """Not the page, not its API, not by any way of writing the path; with a password that is wrong nor without."""
    target = link(site)
    for path in ("/", "/page.css", "/api/v1/fleet", "/metrics", "/snooze", f"/x/..{target}", f"http://x{target}"):
        assert site.ask(path).status == 401, path
    for path in (f"{target}/../../api/v1/fleet", f"{target}/", SNOOZE, f"/{SNOOZE}", f"{SNOOZE}/api/v1/fleet"):
        assert site.ask(path).status == 403, path
    assert asked(site, "/api/v1/fleet").status == 403
    assert site.ask(target, Authorization="Basic YW5uOndyb25n").status == 200


def test_without_a_secret_there_are_no_links(tmp_path: Path) -> None:
    """The gate stands before that path as before any other, and behind it there is nothing."""
    with a_site(a_desk(), with_users(tmp_path)) as site:
        site.round()

        assert site.ask(link(site)).status == 401
        assert site.ask(link(site), Authorization="Basic YW5uOmFubg==").status == 404


def test_browsers_are_told_to_run_nothing_and_to_tell_nobody_the_address(site: Site) -> None:
    """No script at all, a form to here alone, no referrer, no cache, no frame."""
    for answer in (site.ask(link(site)), keep(site, link(site)), site.ask(f"{SNOOZE}x")):
        by_name = answer.headers
        policy = dict(part.strip().partition(" ")[::2] for part in by_name["content-security-policy"].split(";"))

        assert policy == {
            "default-src": "'none'",
            "style-src": "'self'",
            "img-src": "'self'",
            "base-uri": "'none'",
            "form-action": "'self'",
            "frame-ancestors": "'none'",
        }
        assert (by_name["referrer-policy"], by_name["cache-control"]) == ("no-referrer", "no-store")
        assert by_name["x-frame-options"] == "DENY"


def test_no_link_is_in_any_log(site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in requests' lines nor in what is said of a failure, at any level; nor in the ledger."""
    caplog.set_level(logging.DEBUG)
    target = link(site)
    site.ask(target)
    keep(site, target)
    monkeypatch.setattr(type(site.web.state), "orders", lambda _: 1 // 0)
    failed = site.ask(target)

    said = caplog.text
    assert failed.status == 500
    assert "/snooze/… failed" in said
    assert "GET /snooze/… HTTP/1.1" in said
    assert "i-1 is kept until 2026-03-02 16:01 UTC by link:mail:ann@example.com" in said
    assert not any(part in said for part in target.removeprefix(SNOOZE).split(".")[1:])


def test_the_controller_takes_the_secret_from_its_file_and_a_renewed_one_without_a_restart(tmp_path: Path) -> None:
    """As the settings name it; links of the old secret end with it, and the host of notify.url is known."""
    key, desk = tmp_path / "key", a_desk()
    key.write_bytes(SECRET + b"\n")
    settings = Settings(notify=NotifySettings(url="http://gpus.example.com:9461", link_key_file=str(key)))
    web = observers_of(settings, desk.parts).web
    assert web is not None
    web.state.update(step(desk.parts), leading=True)
    site = Site(desk=desk, web=web, url="")
    named = {"host": "gpus.example.com:9461"}
    rows = [asked(site, link(site), client="127.0.0.1", secure=False, headers=named).status]
    key.write_bytes(b"another secret, also of 32 bytes or more")
    rows += [asked(site, link(site)).status]

    assert rows == [200, 403]


def test_a_secret_that_cannot_be_used_leaves_links_out_and_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The rounds and the page go on."""
    (tmp_path / "short").write_bytes(b"hush hush")
    for name in ("short", "none"):
        settings = Settings(notify=NotifySettings(url="https://x.example", link_key_file=str(tmp_path / name)))

        web = observers_of(settings, a_desk().parts).web
        assert web is not None
        assert web.links is None
    assert "9 bytes are no secret, 32 are the least; make one with `openssl rand -base64 32`" in caplog.text
    assert "none cannot be read: No such file or directory" in caplog.text
    assert "hush" not in caplog.text


def test_a_password_that_nobody_has_checked_names_no_user(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Browsers send what they know by themselves; where no gate stands, it proves nothing."""
    seen: list[str | None] = []

    def noted(_links: object, request: Request) -> Response:
        seen.append(request.user)
        return Response(body=b"", content_type="text/plain")

    monkeypatch.setattr(SnoozeLinks, "answer", noted)
    site.ask(link(site), Authorization="Basic YW5uOmFubg==")

    assert seen == [None]
