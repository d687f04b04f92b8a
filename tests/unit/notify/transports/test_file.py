"""Report files: whole, and their owner's alone."""

import os
import stat
from pathlib import Path

from gpuwatch.notify.formats import Notification
from gpuwatch.notify.message import compose_message
from gpuwatch.notify.transports.base import Delivery
from gpuwatch.notify.transports.file import FileSettings
from tests.support.builders.fleet import NOW
from tests.support.builders.notices import a_machine, about, an_event


def test_a_report_is_its_owners_alone(tmp_path: Path) -> None:
    """Owners and money are in it: whatever the umask is, and whatever an earlier try or a stranger left there."""
    node = a_machine()
    content = Notification(compose_message([an_event(node_id=node.id, key=node.id)], about(node)))
    aim = tmp_path / "elsewhere"
    aim.write_text("kept")
    (tmp_path / f".{NOW:%Y}.txt.new").symlink_to(aim)
    before = os.umask(0)
    try:
        FileSettings(path=str(tmp_path / "%Y.txt")).send(Delivery(key="k", at=NOW, day=NOW.date(), content=content))
    finally:
        os.umask(before)
    written = tmp_path / f"{NOW:%Y}.txt"

    assert stat.S_IMODE(written.lstat().st_mode) == 0o600
    assert node.id in written.read_text()
    assert aim.read_text() == "kept"
