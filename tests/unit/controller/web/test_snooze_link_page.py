"""A snooze link: no login, one node, one notice. Looking does nothing, a button puts off, all else is refused."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gpuwatch.clouds import CloudUnavailableError
from gpuwatch.controller.web.snooze_link import SNOOZE, read_claim, sign_claim
from gpuwatch.controller.web.state import State as PageState
from gpuwatch.model.activity import State
from gpuwatch.model.decision import LedgerView
from gpuwatch.model.fleet import NodeReport, NodeState
from tests.support.builders.served_page import Site, a_site, with_users
from tests.support.builders.snooze_link_page import FORM, HOUR, SECRET, a_desk, keep, keeps, link, records


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A page with users, and a machine that had its notice a minute ago."""
    with a_site(a_desk(), with_users(tmp_path, "ann"), secret=SECRET) as site:
        site.round()
        yield site


def test_a_link_tells_without_a_login_what_is_about_to_happen(site: Site) -> None:
    """The machine, its pool and owner, why, when, until when the link holds; text from machines is text."""
    answer = site.ask(link(site))
    page = answer.body.decode()

    assert answer.status == 200
    for part in (
        "gpu-&lt;1&gt; will be stopped",
        "At 12:10 UTC on Monday, 2 March at the earliest, in 9m,",
        "<dd>training</dd>",
        "<dd>ann</dd>",
        "It has been idle for 2h, longer than 30m.",
        "until 12:01 UTC on Wednesday, 4 March.",
    ):
        assert part in page


def test_a_grace_that_is_longer_by_now_is_told(site: Site) -> None:
    """The promised time is the earliest; the pool gives an hour by now."""
    idle = replace(site.desk.rules.idle, grace_period=HOUR, owner_grace_period=HOUR)
    site.desk.rules = replace(site.desk.rules, idle=idle)
    site.web.state.rules = site.desk.rulebook
    site.round()

    assert "At 13:00 UTC on Monday, 2 March at the earliest" in site.ask(link(site)).body.decode()


def test_a_browser_that_reads_chinese_gets_it(site: Site) -> None:
    """Every sentence and label; the machine's name, pool and owner stay."""
    page = site.ask(link(site), accept_language="zh-CN,zh;q=0.9,en;q=0.8").body.decode()
    shown = re.sub(r"<[^>]*>", "", page)

    assert '<html lang="zh-CN">' in page
    assert set(re.findall("[A-Za-z]{3,}", shown)) == {"gpuwatch", "gpu", "xlarge", "training", "ann", "UTC"}
    assert "最早在 3 月 2 日（星期一）12:10 UTC，还有 9 分钟" in shown


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE"])
def test_looking_keeps_nothing(site: Site, method: str) -> None:
    """Programs that scan mail open every link in it."""
    before = records(site)
    answer = site.ask(f"{link(site)}?seconds=14400", method)

    assert answer.status == (405 if method == "DELETE" else 200)
    assert records(site) == before


def test_a_button_keeps_the_machine_and_the_ledger_knows_for_whom(site: Site) -> None:
    """From now on, for as long as it says, with the reason; no stop when the grace is over."""
    address = link(site)
    answer = keep(site, address, reason="a paper's deadline")
    [kept] = keeps(site)
    for _ in range(30):
        site.round()

    assert answer.status == 200
    assert "Kept until 16:01 UTC on Monday, 2 March" in answer.body.decode()
    assert (kept.node_id, kept.who, kept.reason) == ("i-1", "link:mail:ann@example.com", "a paper's deadline")
    assert kept.until - kept.at == timedelta(hours=4)
    assert site.desk.fleet.stops() == []
    assert site.desk.ledger.view(site.desk.clock.now()).notice("i-1") is None
    assert "gpu-&lt;1&gt; is kept" in site.ask(address).body.decode()
    assert keep(site, address, seconds=86_400).status == 200
    assert keeps(site)[0].until - site.desk.clock.now() == timedelta(days=1)
    assert site.desk.ledger.audit().broken is None


def test_two_presses_of_a_button_are_one_wish(site: Site) -> None:
    """At the same time, or within a minute; another button, or the same one later, is another."""
    target, before = link(site), records(site)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: keep(site, target), range(4)))
    once = records(site)
    keep(site, target, 86_400)
    other = records(site)
    site.desk.clock.advance(61)
    keep(site, target, 86_400)

    assert {answer.status for answer in answers} == {200}
    assert [once - before, other - once, records(site) - other] == [1, 1, 1]


def test_a_link_keeps_for_as_long_as_the_pool_allows_and_no_longer() -> None:
    """The pool's cap counts from when the machine was last in use: what is past it would be an empty promise."""
    with a_site(a_desk(max_snooze=8 * HOUR), secret=SECRET) as site:
        site.round()
        offered = site.ask(link(site)).body.decode()
        answer = keep(site, link(site), 9 * HOUR)
        [kept] = keeps(site)

    assert 'value="14400"' in offered
    assert 'value="86400"' not in offered
    assert "5h59m, as long as its pool allows" in offered
    assert (answer.status, kept.until - kept.at) == (200, timedelta(hours=6, seconds=-60))


def test_a_link_never_shortens_what_somebody_has_said(site: Site) -> None:
    """An operator's three days stay three days, whatever button is pressed."""
    now = site.desk.clock.now()
    site.desk.ledger.snooze("i-1", "bob@host", "a demo", now, now + timedelta(days=3))
    before, answer = records(site), keep(site, link(site))

    assert (answer.status, records(site)) == (200, before)
    assert "It was kept for longer than you ask already" in answer.body.decode()
    assert [kept.who for kept in keeps(site)] == ["bob@host"]


def test_not_even_what_somebody_says_at_the_same_moment(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process writes between our look and our word: the longer of the two holds."""
    now, orders = site.desk.clock.now(), PageState.orders

    def slow(state: PageState) -> LedgerView:
        seen = orders(state)
        state.ledger.snooze("i-1", "bob@host", "a demo", now, now + timedelta(days=3))
        return seen

    monkeypatch.setattr(PageState, "orders", slow)
    answer = keep(site, link(site))

    assert "It was kept for longer than you ask already" in answer.body.decode()
    assert [kept.who for kept in keeps(site)] == ["bob@host"]


def test_a_machine_that_nobody_can_see_stays_and_its_cap_goes_on() -> None:
    """Its agent does not answer: that is no use of it, and what is promised is counted from its notice at least."""
    with a_site(a_desk(max_snooze=8 * HOUR), secret=SECRET) as site:
        site.round()
        site.desk.fleet.answer = lambda _: NodeReport(failure="no answer")
        site.round(3600.0)
        page = site.ask(link(site)).body.decode()

    assert "gpu-&lt;1&gt; is not about to go" in page
    assert "saw it as unknown" in page
    assert "6h59m, as long as its pool allows" in page


def test_past_the_cap_there_is_nothing_to_choose() -> None:
    """The page says why, and a forged form keeps nothing."""
    with a_site(a_desk(max_snooze=HOUR), secret=SECRET) as site:
        site.round()
        shown, answer = site.ask(link(site)).body.decode(), keep(site, link(site))

        assert "<form" not in shown
        assert "its pool allows 1h after the last use (max_snooze)" in shown
        assert (answer.status, keeps(site)) == (409, ())


def test_a_keep_beyond_the_cap_is_told_as_far_as_it_holds() -> None:
    """An operator may have written down more than the pool grants."""
    with a_site(a_desk(max_snooze=3 * HOUR), secret=SECRET) as site:
        site.round()
        now = site.desk.clock.now()
        site.desk.ledger.snooze("i-1", "bob@host", "", now, now + timedelta(days=3))

        assert "Until 13:00 UTC on Monday" in site.ask(link(site)).body.decode()


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"seconds=3600", "application/json", 415),
        (b"", FORM, 400),
        (b"seconds=", FORM, 400),
        (b"seconds=0", FORM, 400),
        (b"seconds=nan", FORM, 400),
        (b"seconds=1e300", FORM, 400),
        (b"seconds=1&seconds=2", FORM, 400),
        (b"seconds=1&who=bob", FORM, 400),
        (b"seconds=3600&reason=%00", FORM, 400),
        (b"seconds=3600&a=&b=&c=&d=&e=&f=", FORM, 400),
        ("seconds=3600&reason=ä".encode(), FORM, 400),
        (b"seconds=3600&reason=" + b"x" * 501, FORM, 400),
        (b"seconds=3600&reason=" + b"x" * 20_000, FORM, 413),
    ],
)
def test_a_form_that_is_not_right_keeps_nothing(site: Site, body: bytes, kind: str, status: int) -> None:
    """4xx with a sentence on a page."""
    answer = site.ask(link(site), "POST", body, Content_Type=kind)

    assert (answer.status, keeps(site)) == (status, ())
    assert b"<h2>That does not work</h2>" in answer.body


def test_what_is_no_link_any_more_keeps_nothing(site: Site) -> None:
    """Cut, ended, or signed by somebody else: 403 with what to do, looked at or pressed."""
    whole, ended = link(site), link(site, until=site.desk.clock.now())
    forged = SNOOZE + sign_claim(b"x" * 32, read_claim(SECRET, whole.removeprefix(SNOOZE), site.desk.clock.now()))
    for target, says in ((whole[:-1], "not whole"), (ended, "This link for i-1 ended at"), (forged, "was changed")):
        for answer in (site.ask(target), keep(site, target)):
            assert (answer.status, says in answer.body.decode()) == (403, True)
    assert keeps(site) == ()


# What has become of the machine, and what the page says.
MOOT = [
    ("busy", "is not about to go", "saw it as busy: so it stays"),
    ("withdrawn", "There is nothing to keep", "its notice has been withdrawn"),
    ("again", "There is nothing to keep", "another notice since. Take the link of the newer message"),
    ("stopped", "There is nothing to keep", "gpuwatch stopped it at 12:11 UTC"),
    ("stopping", "It is too late", "The cloud was asked to stop it at 12:10 UTC"),
    ("by hand", "There is nothing to keep", "It was not gpuwatch that stopped it. Start it"),
    ("gone", "i-1 is not there", "it has probably been terminated"),
]


def become(site: Site, what: str) -> None:
    """Let it become so."""
    fleet = site.desk.fleet
    if what == "busy":
        fleet.show("i-1", State.BUSY)
    elif what in {"withdrawn", "again"}:
        fleet.show("i-1", State.OCCUPIED)
        site.round()
        if what == "again":
            fleet.show("i-1", State.IDLE, 2 * HOUR)
    elif what in {"stopped", "stopping"}:
        fleet.lag = lambda: 0.0 if what == "stopped" else 600.0
        for _ in range(10):
            site.round()
    elif what == "by hand":
        fleet.put(replace(fleet.nodes_["i-1"], state=NodeState.STOPPED, signal=NodeReport()))
        site.round()
    elif what == "gone":
        del fleet.nodes_["i-1"]
    site.round()


@pytest.mark.parametrize(("what", "title", "says"), MOOT, ids=[each[0] for each in MOOT])
def test_where_there_is_nothing_to_put_off_it_is_said_kindly(site: Site, what: str, title: str, says: str) -> None:
    """With what can be done; nothing is kept, but where the notice still stands."""
    target = link(site)
    if what == "busy":  # seen so by the last round, which could not withdraw the notice
        site.desk.fleet.lose = lambda call, _: CloudUnavailableError("no answer") if call == "tag" else None
    become(site, what)
    shown, pressed = site.ask(target), keep(site, target)

    assert shown.status == 200
    assert title in shown.body.decode()
    assert says in shown.body.decode()
    assert pressed.status == (200 if what == "busy" else 409)
    assert len(keeps(site)) == (1 if what == "busy" else 0)


def test_a_stopped_machine_is_kept_from_its_termination() -> None:
    """A pool that ends what it stopped gives a notice of that, too, and its link puts that off."""
    with a_site(a_desk(terminate_after=HOUR), secret=SECRET) as site:
        for _ in range(62):
            site.round()
        target = link(site)
        shown, pressed = site.ask(target).body.decode(), keep(site, target)
        for _ in range(60):
            site.round()

    assert "gpu-&lt;1&gt; will be terminated" in shown
    assert "At 13:11 UTC on Monday, 2 March at the earliest" in shown
    assert pressed.status == 200
    assert [call for call, *_ in site.desk.fleet.calls if call == "terminate"] == []


def test_before_the_first_round_and_without_the_lead_the_page_says_so() -> None:
    """503, and to try again."""
    with a_site(a_desk(), secret=SECRET) as site:
        early = site.ask(link(site))
        site.round()
        target = link(site)
        site.web.state.update(None, leading=False)
        late = keep(site, target)

        assert (early.status, late.status, keeps(site)) == (503, 503, ())
        assert "no round has seen the fleet yet" in early.body.decode()
        assert "this controller waits" in late.body.decode()
