"""A file for each day."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from gpuwatch.model.setting import Contradiction, Setting
from gpuwatch.notify.transports.base import Content, Delivery, Transport, in_words

_MODE = 0o600  # owners and money are in it, as in the ledger
FORMATS: Mapping[str, Callable[[Content], str]] = {
    "html": lambda content: content.html(mail=False),
    "json": lambda content: json.dumps(content.document("")) + "\n",
    "txt": lambda content: content.text(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSettings(Transport):
    """A file for each day."""

    target: ClassVar[str] = "path"

    path: Annotated[
        str | None,
        Setting("The file, with %Y, %m and %d for the day, such as /srv/reports/%Y-%m-%d.html; .html, .json or .txt."),
    ] = None

    def contradictions(self, path: tuple[str, ...], *, owners: bool) -> Iterator[Contradiction]:
        """Yield a contradiction if the format is unknown."""
        del owners
        if self.path is not None and self.path.rpartition(".")[2] not in FORMATS:
            yield Contradiction(
                keys=((*path, "path"),),
                wrong=f"{'.'.join(path)}.path {self.path!r} does not end with a format of reports",
                right="a file that ends with .html, .json or .txt",
            )

    def send(self, delivery: Delivery) -> str:
        """Write the whole file, for its owner alone, or leave the earlier one as it was."""
        path = Path(delivery.day.strftime(self.path or ""))
        with in_words():
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = path.with_name(f".{path.name}.new")
            fresh.unlink(missing_ok=True)
            fresh.touch(_MODE, exist_ok=False)
            with fresh.open("w", encoding="utf-8") as file:
                file.write(FORMATS[path.suffix[1:]](delivery.content))
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
        return str(path)
