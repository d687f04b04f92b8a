"""The names of pods by their uids, as the kubelet calls the folders of their logs: NAMESPACE_NAME_UID.

Source: BuildPodLogsDirectory in kubernetes/pkg/kubelet/kuberuntime; log collectors rest on the same. Only root can
write there, and nothing in the folders is read.
"""

from collections.abc import Mapping
from pathlib import Path

from gpuwatch.agent.attribution.pod_resources import is_name
from gpuwatch.agent.attribution.pods import PodName

_PARTS = 3  # no name and no uid may have a _ in it


class PodFolders:
    """Listed only when an uid appears that was not there at the last time."""

    def __init__(self, path: Path) -> None:
        """Nothing is read yet."""
        self._path = path
        self._known: dict[str, PodName] = {}

    def names(self, uids: frozenset[str]) -> Mapping[str, PodName]:
        """The names of these uids, as far as they can be told."""
        self._known = {uid: name for uid, name in self._known.items() if uid in uids}
        if uids - self._known.keys():
            self._known |= self._listed(uids)
        return self._known

    def _listed(self, uids: frozenset[str]) -> dict[str, PodName]:
        found: dict[str, PodName] = {}
        doubtful: set[str] = set()
        try:
            entries = [folder.name for folder in self._path.iterdir()]
        except OSError:
            return {}
        for entry in entries:
            parts = entry.split("_")
            if len(parts) == _PARTS and parts[2] in uids and is_name(parts[0]) and is_name(parts[1]):
                name = PodName(parts[0], parts[1])
                if found.setdefault(parts[2], name) != name:
                    doubtful.add(parts[2])
        return {uid: name for uid, name in found.items() if uid not in doubtful}
