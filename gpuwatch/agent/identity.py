"""Which machine this is, without asking anybody over the network."""

import re
import socket
from pathlib import Path

# EC2's Nitro hypervisor writes the instance id there; readable by everybody.
BOARD_ASSET_TAG = Path("/sys/devices/virtual/dmi/id/board_asset_tag")

_EC2_INSTANCE = re.compile(r"i-[0-9a-f]{8,17}")


def discover_node_id(board_asset_tag: Path = BOARD_ASSET_TAG) -> str:
    """The EC2 instance id where the board carries one, else the host name."""
    return board_node_id(board_asset_tag) or socket.gethostname()


def board_node_id(board_asset_tag: Path = BOARD_ASSET_TAG) -> str | None:
    """The EC2 instance id that the board carries; where it carries none, the metadata service may tell one later."""
    try:
        tag = board_asset_tag.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
    return tag if _EC2_INSTANCE.fullmatch(tag) else None
