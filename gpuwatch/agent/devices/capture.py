"""Makes a capture of what a probe says, which may be shown to anybody: serial numbers and UUIDs are masked.

A masked name is the place at which its GPU was first seen, so the same recording gives the same names, and who was who
stays visible over time. Pids, bus addresses, versions and times stay as they are.
"""

import re
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.agent.devices.messages import Cycle, Event, Message, Step, Unavailable, decode, encode
from gpuwatch.agent.devices.replay import CAPTURE_ENDED

_SECRET_KEY = re.compile(r"uuid|guid|serial", re.IGNORECASE)
_UUID = re.compile(r"\b[A-Z]{2,4}-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_SHORTEST_LETTERS = 6  # of a name that is looked for in words: a serial number of 0 is in too many of them


class Mask:
    """The same mask for the same name, wherever it stands: under its own key or in the driver's words."""

    def __init__(self) -> None:
        """Begin without masked names."""
        self._masks: dict[str, str] = {}
        self._known: re.Pattern[str] | None = None

    def apply(self, message: Message) -> bytes:
        """One line of a capture, newline included."""
        plain = msgspec.json.decode(encode(message))
        self._learn(plain)
        return encode(decode(msgspec.json.encode(self._mask_value(plain))))  # in the form in which it will be played

    def _learn(self, value: Any, key: str = "") -> None:  # noqa: ANN401  whatever JSON may hold
        """Give a mask to each name under a key that holds names, and to what looks like a UUID anywhere."""
        if isinstance(value, dict):
            for below, held in value.items():
                self._learn(held, below)
        elif isinstance(value, list | tuple):
            for held in value:
                self._learn(held, key)
        elif isinstance(value, str):
            for name in [value] if value and _SECRET_KEY.search(key) else _UUID.findall(value):
                self._give(name)

    def _give(self, name: str) -> None:
        if name in self._masks:
            return
        kind, place = name.partition("-")[0], len(self._masks)
        uuid = f"{kind}-00000000-0000-4000-8000-{place:012d}"
        self._masks[name] = uuid if _UUID.fullmatch(name) else f"{place:0{len(name)}d}"
        names = sorted((each for each in self._masks if len(each) >= _SHORTEST_LETTERS), key=len, reverse=True)
        self._known = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, names))})(?!\w)") if names else None

    def _mask_value(self, value: Any, key: str = "") -> Any:  # noqa: ANN401  any JSON
        """The same with each known name masked."""
        if isinstance(value, dict):
            return {below: self._mask_value(held, below) for below, held in value.items()}
        if isinstance(value, list | tuple):
            return [self._mask_value(held, key) for held in value]
        if not isinstance(value, str):
            return value
        if _SECRET_KEY.search(key):
            return self._masks.get(value, value)
        return value if self._known is None else self._known.sub(lambda found: self._masks[found[0]], value)


class Recorder:
    """Writes a capture, cycle by cycle: one that is cut short loses its last cycle at most."""

    def __init__(self, path: Path) -> None:
        """Begin a file.

        Raises:
            OSError: it cannot be written, or is there already; a capture may be all that is left of a broken GPU.

        """
        self._mask = Mask()
        try:
            self._file = path.open("xb")
        except OSError as error:
            raise OSError(
                f"--record {path}: {error.strerror}; name a new file in a folder that can be written"
            ) from error

    def say(self, message: Message) -> None:
        """Write one message. Steps are no part of a capture, nor that another one, which was played, has ended."""
        if isinstance(message, Step) or (isinstance(message, Unavailable) and message.cause == CAPTURE_ENDED):
            return
        self._file.write(self._mask.apply(message))
        if not isinstance(message, Cycle | Event):
            self._file.flush()
