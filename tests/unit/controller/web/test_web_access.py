"""Who may see the page, who may act, and what no other site can make a browser do."""

import contextlib
import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gpuwatch.controller.web.settings import ControllerSettings
from gpuwatch.model.orders import Pause
from gpuwatch.runtime.http.request import Request
from tests.support.builders.fleet import Desk, a_node
from tests.support.builders.served_page import Answer, Site, a_site, known, with_users
from tests.support.real.certificates import Authority

ORDER = json.dumps({"pool": "default", "seconds": 3600, "reason": "upgrade"}).encode()


def a_desk() -> Desk:
    """One idle machine."""
    desk = Desk()
    desk.fleet.put(a_node("i-1"))
    return desk


def pause(site: Site, name: str = "ann", body: bytes = ORDER, **headers: str) -> Answer:
    """What the page sends for a user, but for these headers; an empty one is left out."""
    sent = {
        "Authorization": known(name),
        "X-Gpuwatch": "act",
        "Content-Type": "application/json",
        "Origin": site.url,
        "Sec-Fetch-Site": "same-origin",
        **{key.replace("_", "-"): value for key, value in headers.items()},
    }
    return site.ask("/api/v1/pauses", "POST", body, **{key: value for key, value in sent.items() if value})


def in_force(site: Site) -> tuple[Pause, ...]:
    """The pauses that the next round will see."""
    return site.desk.ledger.view(site.desk.clock.now()).pauses


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A page with the users ann, who is an operator, and bob, who is not."""
    with a_site(a_desk(), with_users(tmp_path, "ann")) as site:
        site.round()
        yield site


def test_on_this_machine_anybody_reads_and_nobody_acts() -> None:
    """Without users there is nobody who could be written down."""
    with a_site(a_desk(), ControllerSettings(operators=("ann",))) as site:
        site.round()
        read, session = site.ask("/api/v1/fleet"), site.ask("/api/v1/session").json
        acted = pause(site)

        assert read.status == 200
        assert (session["user"], session["may_act"]) == (None, False)
        assert (acted.status, in_force(site)) == (403, ())
        assert "controller.operators" in acted.json["error"]


def test_beyond_this_machine_nobody_reads_without_a_user(site: Site) -> None:
    """Also where controller.insecure opens the port: that is for Prometheus."""
    asked = Request(method="GET", target="/api/v1/fleet", client="10.0.0.7", headers={"host": "10.0.0.1:9461"})

    assert site.web.answer(asked).status == 403
    assert site.web.answer(replace(asked, target="/")).status == 403
    assert site.web.answer(replace(asked, user="bob")).status == 200
    assert site.web.answer(replace(asked, client="::ffff:127.0.0.1")).status == 200


def test_where_there_are_users_everything_takes_one(site: Site) -> None:
    """Page, API and metrics."""
    assert {site.ask(path).status for path in ("/", "/page.js", "/api/v1/fleet", "/metrics")} == {401}
    assert site.ask("/api/v1/fleet", Authorization=known("bob")).status == 200


def test_an_operator_pauses_and_resumes_and_the_ledger_knows_who(site: Site) -> None:
    """A pause is a record with name and address; the next round does nothing; it is taken back likewise."""
    made = pause(site)
    [order] = in_force(site)
    site.desk.fleet.put(a_node("i-2"))
    site.round()
    refused = {
        rule
        for row in site.ask("/api/v1/fleet", Authorization=known("ann")).json["nodes"]
        if row["id"] == "i-2"
        for rule in row["next"]["refused_by"]
    }
    taken = site.ask("/api/v1/pauses/default", "DELETE", Authorization=known("ann"), X_Gpuwatch="act")

    assert (made.status, made.json["who"]) == (201, "ann@127.0.0.1")
    assert (order.pool, order.who, order.reason) == ("default", "ann@127.0.0.1", "upgrade")
    assert "paused" in refused
    assert (taken.status, taken.json, in_force(site)) == (200, {"pauses": []}, ())
    assert site.desk.ledger.audit().broken is None


def test_all_pools_are_paused_and_resumed_at_once(site: Site) -> None:
    """Pool null, until somebody resumes it."""
    made = pause(site, body=b'{"pool": null}')
    [order] = in_force(site)
    site.ask("/api/v1/pauses", "DELETE", Authorization=known("ann"), X_Gpuwatch="act")

    assert made.status == 201
    assert (order.pool, order.until) == (None, None)
    assert in_force(site) == ()


def test_an_operator_acknowledges_a_mass_idleness(site: Site) -> None:
    """With the name on record, for a pool that there is; pauses stay."""
    pause(site)
    body = b'{"pool": "default", "reason": "the course is over"}'
    path, document = "/api/v1/acknowledgements", {"X-Gpuwatch": "act", "Content-Type": "application/json"}
    made = site.ask(path, "POST", body, Authorization=known("ann"), **document)
    read = site.ask(path, "POST", body, Authorization=known("bob"), **document)
    nowhere = site.ask(path, "POST", b'{"pool": "nowhere"}', Authorization=known("ann"), **document)
    view = site.desk.ledger.view(site.desk.clock.now())

    assert (made.status, made.json["who"], made.json["pool"]) == (201, "ann@127.0.0.1", "default")
    assert (read.status, nowhere.status) == (403, 404)
    assert [pool for pool, _ in view.acknowledged] == ["default"]
    assert len(in_force(site)) == 1


def test_an_operator_keeps_a_node_and_lets_it_go(site: Site) -> None:
    """It is snoozed from the next round on, and explained as such; taken back, it is as before."""
    order = json.dumps({"seconds": 7200, "reason": "a demo"}).encode()
    sent = {"Authorization": known("ann"), "X_Gpuwatch": "act", "Content_Type": "application/json"}
    made = site.ask("/api/v1/nodes/i-1/snooze", "POST", order, **sent)
    site.round()
    result = site.ask("/api/v1/nodes/i-1", Authorization=known("ann")).json
    refused = [answer["rule"] for answer in result["if_stopped_now"]["answers"] if answer["refused"]]
    site.ask("/api/v1/nodes/i-1/snooze", "DELETE", None, **sent)
    site.round()

    assert (made.status, made.json["until"], made.json["who"]) == (201, "2026-03-02T14:01:00Z", "ann@127.0.0.1")
    assert result["snooze"] == made.json
    assert "snoozed" in refused
    assert site.ask("/api/v1/nodes/i-1", Authorization=known("ann")).json["snooze"] is None


@pytest.mark.parametrize(
    ("node", "seconds", "user", "status"),
    [("i-1", 8 * 86400, "ann", 400), ("i-1", 3600, "bob", 403), ("i-2", 3600, "ann", 404), ("i-1", None, "ann", 400)],
)
def test_a_node_is_kept_within_the_pool_s_cap_and_by_operators(
    site: Site, node: str, seconds: float | None, user: str, status: int
) -> None:
    """Not for longer than max_snooze, not by others, and only a node that is there."""
    order = json.dumps({"seconds": seconds}).encode()
    sent = {"Authorization": known(user), "X_Gpuwatch": "act", "Content_Type": "application/json"}
    made = site.ask(f"/api/v1/nodes/{node}/snooze", "POST", order, **sent)

    assert made.status == status
    assert site.desk.ledger.view(site.desk.clock.now()).snoozes == ()


def test_who_is_no_operator_reads_only(site: Site) -> None:
    """The user is right, and not named in controller.operators."""
    acted = pause(site, "bob")

    assert (acted.status, acted.json["error"]) == (403, "bob is not one of controller.operators")
    assert in_force(site) == ()
    assert site.ask("/api/v1/session", Authorization=known("ann")).json == {
        "user": "ann",
        "may_act": True,
        "why_not": None,
    }


@pytest.mark.parametrize(
    "headers",
    [
        {"X_Gpuwatch": ""},
        {"X_Gpuwatch": "acting"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": "none"},
        {"Origin": "https://evil.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "null"},
        {"Origin": "http://["},
    ],
    ids=str,
)
def test_no_other_site_acts_with_a_browser_s_password(site: Site, headers: dict[str, str]) -> None:
    """A browser sends the password by itself; the header and the right origin it does not."""
    acted = pause(site, "ann", ORDER, **headers)

    assert (acted.status, in_force(site)) == (403, ())


def test_what_is_no_browser_needs_the_header_alone(site: Site) -> None:
    """It sends neither Origin nor Sec-Fetch-Site."""
    assert pause(site, Origin="", Sec_Fetch_Site="").status == 201


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (ORDER, "text/plain", 415),
        (ORDER, "application/x-www-form-urlencoded", 415),
        (b"", "application/json", 400),
        (b"{", "application/json", 400),
        (b"[]", "application/json", 400),
        (b'{"pool": "default", "user": "root"}', "application/json", 400),
        (b'{"pool": "nowhere"}', "application/json", 404),
        (b'{"seconds": 0}', "application/json", 400),
        (b'{"seconds": 1e300}', "application/json", 400),
        (b'{"reason": "a\\u0000b"}', "application/json", 400),
        (b'{"reason": "a line\\n"}', "application/json", 400),
        (b'{"reason": "a\\u0085b"}', "application/json", 400),
        (b'{"reason": "a\\u2028b"}', "application/json", 400),
        (b'{"reason": "a\\u202eb"}', "application/json", 400),
        (b'{"reason": "a\\ufeffb"}', "application/json", 400),
        (b'{"reason": "' + b"x" * 20000 + b'"}', "application/json", 413),
    ],
)
def test_an_order_that_is_not_right_does_nothing(site: Site, body: bytes, kind: str, status: int) -> None:
    """4xx with a sentence, nothing in the ledger, and the server lives on."""
    acted = pause(site, body=body, Content_Type=kind)

    assert (acted.status, in_force(site)) == (status, ())
    assert acted.json["error"]
    assert pause(site).status == 201


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:9461", 200),
        ("127.0.0.1", 200),
        ("[::1]:9461", 200),
        ("gpus.example.com", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("", 421),
        ("[", 421),
    ],
)
def test_no_made_up_name_leads_here(host: str, status: int) -> None:
    """A site whose name server answers with this address gets nothing (DNS rebinding); named ones do."""
    with a_site(a_desk(), ControllerSettings(allowed_hosts=("gpus.example.com",))) as site:
        site.round()

        assert site.ask("/api/v1/fleet", Host=host).status == status
        assert site.ask("/metrics", Host=host).status == status


@pytest.mark.parametrize("path", ["/", "/page.js", "/page.css", "/icon.svg", "/api/v1/fleet", "/none"])
def test_browsers_are_told_to_load_and_run_nothing_else(path: str) -> None:
    """Scripts and styles from here alone, none inline, framed by nobody; the API is kept in no cache."""
    with a_site(a_desk()) as site:
        site.round()
        by_name = site.ask(path).headers

    policy = dict(part.strip().partition(" ")[::2] for part in by_name["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "connect-src", "img-src")} == {"'self'"}
    assert (policy["frame-ancestors"], policy["base-uri"], policy["form-action"]) == ("'none'", "'none'", "'none'")
    assert (by_name["x-content-type-options"], by_name["referrer-policy"]) == ("nosniff", "no-referrer")
    assert by_name["cache-control"] == ("no-store" if path.startswith(("/api", "/none")) else "no-cache")


def test_the_page_can_be_left_out() -> None:
    """controller.page false: metrics alone."""
    with a_site(a_desk(), ControllerSettings(page=False)) as site:
        assert [site.ask(path).status for path in ("/metrics", "/", "/api/v1/fleet")] == [200, 404, 404]
        assert site.ask("/api/v1/pauses", "POST", b"{}").status == 405


def test_a_client_certificate_names_its_user(tmp_path: Path) -> None:
    """The common name is who acts; one that is no operator's reads only."""
    authority = Authority(tmp_path / "ca")
    server = authority.issue("server")
    settings = ControllerSettings(
        tls_certificate=str(server.certificate),
        tls_key=str(server.key),
        tls_client_ca=str(authority.ca),
        operators=("ann",),
    )
    found = {}
    with a_site(a_desk(), settings) as site:
        site.round()
        for name in ("ann", "bob"):
            context = ssl.create_default_context(cafile=str(authority.ca))
            authority._authority.issue_cert(f"{name}@example.com", common_name=name).configure_cert(context)
            connection = http.client.HTTPSConnection(urlsplit(site.url).netloc, context=context, timeout=20)
            headers = {"X-Gpuwatch": "act", "Content-Type": "application/json"}
            with contextlib.closing(connection):
                connection.request("POST", "/api/v1/pauses", ORDER, headers)
                found[name] = connection.getresponse().status
        orders = in_force(site)

    assert found == {"ann": 201, "bob": 403}
    assert [order.who for order in orders] == ["ann@127.0.0.1"]


def test_a_thousand_slow_clients_of_one_address_stop_no_scrape() -> None:
    """They get no more than their share of the connections; Prometheus and browsers elsewhere are answered."""
    with a_site(a_desk()) as site, contextlib.ExitStack() as held:
        site.round()
        place = urlsplit(site.url)
        for _ in range(1000):
            slow = held.enter_context(socket.socket())
            slow.bind(("127.0.0.9", 0))
            slow.settimeout(5)
            slow.connect((place.hostname, place.port))
            with contextlib.suppress(OSError):  # most are turned away at once
                slow.send(b"GET /api/v1/fleet HTTP/1.1\r\nHost: loc")

        assert site.ask("/metrics").status == 200
        assert site.ask("/api/v1/fleet").status == 200
