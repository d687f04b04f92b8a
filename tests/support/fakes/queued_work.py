"""Work that people queue on a host of folders: the files that at, crontab and systemd-run leave."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpuwatch.agent.evidence.scheduled.signal import Scheduled
from gpuwatch.agent.evidence.settings import ScheduledSettings
from gpuwatch.model.activity import Evidence
from tests.support.fakes.host import FolderHost

ACCOUNTS = """root:x:0:0:root:/root:/bin/bash
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
alice:x:1000:1000::/home/alice:/bin/bash
"""
ALICE_UID = 1000


class QueueHost(FolderHost):
    """A host on which it is a Monday evening in UTC: 2026-01-05 18:10."""

    def __init__(self, root: Path) -> None:
        """Nothing is queued."""
        super().__init__(root)
        self.write("etc/passwd", ACCOUNTS)
        self.set_clock("2026-01-05 18:10")

    def set_clock(self, text: str) -> None:
        """The wall clock, in UTC; the monotonic one stays as it is."""
        at = datetime.strptime(text, "%Y-%m-%d %H:%M").replace(tzinfo=UTC)
        self.clock.jump((at - self.clock.now()).total_seconds())

    def at_job(self, due: str, *, queue: str = "a", number: int = 1, spool: str = "cron/atjobs") -> Path:
        """A job of at(1), alice's where the tester may give files away."""
        at = datetime.strptime(due, "%Y-%m-%d %H:%M").replace(tzinfo=UTC)
        path = self.write(f"var/spool/{spool}/{queue}{number:05x}{int(at.timestamp()) // 60:08x}", "#!/bin/sh\n")
        path.chmod(0o700)
        if os.geteuid() == 0:
            os.chown(path, ALICE_UID, ALICE_UID)
        return path

    def crontab(self, text: str, user: str = "alice") -> Path:
        """A user's crontab, as Debian keeps it."""
        return self.write(f"var/spool/cron/crontabs/{user}", text)

    def timer(self, lines: str, name: str = "nightly.timer", folder: str = "etc/systemd/system") -> Path:
        """A timer that its target starts."""
        path = self.write(f"{folder}/{name}", f"[Unit]\nDescription=x\n[Timer]\n{lines}\n")
        if "transient" not in folder:
            wants = self.root / folder / "timers.target.wants"
            wants.mkdir(parents=True, exist_ok=True)
            (wants / name).symlink_to(f"/{folder}/{name}")
        else:
            stamp = self.clock.now().timestamp()
            os.utime(path, (stamp, stamp))
        return path

    def logged_in(self, uid: int = ALICE_UID, home: str = "home/alice") -> None:
        """A user whose own manager runs."""
        (self.root / f"run/user/{uid}/systemd").mkdir(parents=True)
        (self.root / home).mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:
            os.chown(self.root / home, uid, uid)

    def scheduled(self, **settings: object) -> Evidence:
        """What a fresh signal says, with a horizon of 12 h, which both sides of a day show."""
        chosen: dict[str, Any] = {"horizon": 43200.0, **settings}
        return self.tells(Scheduled(ScheduledSettings(**chosen), self.roots, 5.0))
