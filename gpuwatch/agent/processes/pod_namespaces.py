"""The namespaces of this host's pods, by the folders of their logs."""

import os
from pathlib import Path

_MOST_KNOWN = 4096


class PodNamespaces:
    """Lists the folder only when a new uid appears; a pod never moves."""

    def __init__(self, folder: Path) -> None:
        """Nothing is listed yet."""
        self._folder = folder
        self._known: dict[str, str] = {}

    def namespace_of(self, uid: str | None) -> str | None:
        """The namespace of the pod with this uid; None: not a pod, or not known."""
        if uid is None:
            return None
        if uid not in self._known:
            self._known = self._list_namespaces()
        return self._known.get(uid)

    def _list_namespaces(self) -> dict[str, str]:
        try:
            names = os.listdir(self._folder)  # noqa: PTH208  names alone
        except OSError:
            return {}
        parts = (name.split("_") for name in names[:_MOST_KNOWN])
        return {words[2]: words[0] for words in parts if len(words) == 3}  # noqa: PLR2004  the three of a name
