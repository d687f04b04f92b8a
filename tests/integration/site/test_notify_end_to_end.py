"""Owners are told by the real controller: a mail with a snooze link, and what came of it, from driver to mailbox."""

import re
import socket
import urllib.request
from pathlib import Path
from urllib.parse import urlencode

from tests.support.builders.notices import post
from tests.support.real.agents import eventually
from tests.support.real.alerting import text_of
from tests.support.real.local_site import a_site


def test_a_mail_before_the_stop_a_link_that_keeps_and_a_mail_after_it(tmp_path: Path, nvml_library: Path) -> None:
    """Two idle machines: ann keeps hers by the link in her mail, which takes her notice back; bob's is stopped."""
    key = tmp_path / "link-key"
    key.write_text("0123456789abcdef0123456789abcdef\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with post() as (mail, mails), a_site(tmp_path, nvml_library) as site:
        kept = site.launch("trainer", 0.0, gpuwatch__owner="ann")
        forgotten = site.launch("forgotten", 0.0, gpuwatch__owner="bob")
        server = {"host": mail.host, "port": mail.port, "security": "none", "sender": mail.sender}
        notify = {
            "url": f"http://127.0.0.1:{port}",
            "link_key_file": str(key),
            "owner_mail": "{owner}@example.com",
            "receivers": {"owners": {"mail": server, "owners": True}},
        }
        limits = {"max_stops_per_hour_ratio": 1.0, "require_notification": True, "allow_short_waits": True}
        more = {"notify": notify, "limits": limits, "controller": {"port": port}}
        site.controller(site.configure("enforce", "8s", more))
        eventually(lambda: mails.to("ann@example.com") and mails.to("bob@example.com"), site.log)
        notice = text_of(mails.to("ann@example.com")[0])
        link = re.search(r"Keep it: (\S+)", notice)
        assert link is not None, notice
        with urllib.request.urlopen(link[1], timeout=10) as page:  # noqa: S310  our own controller
            shown = page.read().decode()
        form = urlencode({"seconds": 4 * 3600, "reason": "an evaluation"}).encode()
        with urllib.request.urlopen(link[1], form, timeout=10) as page:  # noqa: S310  likewise
            done = page.read().decode()

        eventually(lambda: site.state(forgotten) == "stopped", site.log)
        eventually(lambda: len(mails.to("bob@example.com")) == 2, site.log)
        eventually(lambda: "link:ann" in site.run("explain", kept).stdout, lambda: site.run("explain", kept).stdout)
        after = site.state(kept)
        eventually(lambda: len(mails.to("ann@example.com")) == 2, site.log)
        (_, stopped), (_, withdrawn) = mails.to("bob@example.com"), mails.to("ann@example.com")

    assert f"gpuwatch will stop trainer ({kept}) at " in notice
    assert "trainer" in shown
    assert "can be put off until" in shown
    assert "on record as by link:ann" in done
    assert after == "running"
    assert stopped["Subject"] == "gpuwatch stopped forgotten"
    assert f"aws ec2 start-instances --instance-ids {forgotten} --region us-east-1" in text_of(stopped)
    assert withdrawn["Subject"] == "gpuwatch: the notice of trainer is withdrawn"
    assert re.search(r"It has been idle for .*, and it is snoozed until .* by link:ann", text_of(withdrawn)), withdrawn
