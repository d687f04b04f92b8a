"""A page with a machine that has had its notice, and the snooze link to it."""

from dataclasses import replace
from datetime import timedelta
from urllib.parse import urlencode

from gpuwatch.controller.web.snooze_link import SNOOZE, Claim, sign_claim
from gpuwatch.model.orders import Snooze
from tests.support.builders.fleet import RULES, Desk, a_node
from tests.support.builders.served_page import Answer, Site

SECRET = b"0123456789abcdef0123456789abcdef"
FORM = "application/x-www-form-urlencoded"
HOUR = 3600


def a_desk(**idle: object) -> Desk:
    """One machine that has been idle for two hours; its pool's idle rules with these changes."""
    desk = Desk(rules=replace(RULES, idle=replace(RULES.idle, **idle)))  # type: ignore[arg-type]
    desk.fleet.put(a_node("i-1", name="gpu-<1>", owner="ann", pool="training"))
    return desk


def link(site: Site, **changes: object) -> str:
    """The link to the newest notice of i-1, or with these changes."""
    view = site.desk.ledger.view(site.desk.clock.now())
    notice = view.notice("i-1")
    claim = Claim(
        node_id="i-1",
        key="none" if notice is None else notice.key,
        whom="mail:ann@example.com",
        until=site.desk.clock.now() + timedelta(days=2),
    )
    return SNOOZE + sign_claim(SECRET, replace(claim, **changes))  # type: ignore[arg-type]


def keep(site: Site, target: str, seconds: object = 4 * HOUR, **more: str) -> Answer:
    """A button pressed."""
    body = urlencode({"seconds": seconds, **more}).encode()
    return site.ask(target, "POST", body, Content_Type=FORM)


def keeps(site: Site) -> tuple[Snooze, ...]:
    """What the next round will see."""
    return site.desk.ledger.view(site.desk.clock.now()).snoozes


def records(site: Site) -> int:
    """How long the ledger's chain is."""
    return site.desk.ledger.audit().links
