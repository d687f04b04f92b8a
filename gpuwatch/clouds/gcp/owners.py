"""gpuwatch's tags as labels of Google Cloud, and which other system owns a machine by its labels and metadata."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from gpuwatch.clouds import PROTECT_TAG, SNOOZE_TAG, STOP_AT, CloudError
from gpuwatch.clouds.tags import KNOWN, Owners, owner_by
from gpuwatch.model.decision import NOTIFIED_TAG

# Gpuwatch's tags as Google Cloud's labels, and back.
#
# A label's key and value are up to 63 characters of small letters, digits, "-" and "_": no colon, no capital. So
# `gpuwatch:fleet` is `gpuwatch-fleet`, a time is written as seconds since 1970, and a value that does not fit is
# written as "x--" and its characters, those that do not fit as "_" and two hexadecimal digits for each byte of UTF-8.
# What gpuwatch writes is read back as it was. Source: Compute Engine's "Organize resources using labels".

MOST_CHARACTERS = 63  # of a key, and of a value
_TIMES = frozenset({PROTECT_TAG, SNOOZE_TAG, STOP_AT, NOTIFIED_TAG})  # tags with values that are times, mostly
_FORM = "%Y-%m-%dT%H:%M:%SZ"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLAIN = re.compile(r"[a-z0-9_-]*")
_ESCAPED = "x--"
_ESCAPES = re.compile(r"_([0-9a-f]{2})|([a-z0-9-])")
# Ten digits: 2001 to 2286. Shorter numbers are not times: `gpuwatch-protect: 20270131` is a slip, and protects.
_SECONDS = re.compile(r"(?:(?P<word>[a-z]+)-)?(?P<seconds>\d{10})")
_WITH_TIME = re.compile(r"(?:(?P<word>[a-z]+) )?(?P<time>\d{4}-\S+)")

_KEYS = {tag: tag.replace(":", "-") for tag in KNOWN}
_TAGS = {key: tag for tag, key in _KEYS.items()}


def key_of(tag: str) -> str:
    """The label's key for a tag's: `gpuwatch:stop-at` is `gpuwatch-stop-at`; other keys are the same."""
    return _KEYS.get(tag, tag)


def labels_of(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags as labels.

    Raises:
        CloudError: a value has no form that fits into a label; with the code LabelTooLong.

    """
    return {key_of(tag): value_of(tag, text) for tag, text in tags.items()}


def tags_of(labels: Mapping[str, str]) -> dict[str, str]:
    """Labels as tags. Keys that are not gpuwatch's stay as they are, so that slips in them are seen as slips."""
    return {_TAGS.get(key, key): text_of(_TAGS.get(key, key), value) for key, value in labels.items()}


def value_of(tag: str, text: str) -> str:
    """A tag's value as a label's.

    Raises:
        CloudError: it has no form that fits.

    """
    value = (_seconds_of(text) if tag in _TIMES else None) or _escape_text(tag, text)
    if len(value) > MOST_CHARACTERS:
        raise CloudError(
            f"the value {text!r} of {tag} needs {len(value)} characters as a label of Google Cloud, which takes "
            f"{MOST_CHARACTERS}: shorten it, or write it in small letters, digits, '-' and '_'",
            code="LabelTooLong",
        )
    return value


def text_of(tag: str, value: str) -> str:
    """A label's value as the tag's."""
    if value.startswith(_ESCAPED):
        return _unescape_text(value)
    match = _SECONDS.fullmatch(value) if tag in _TIMES else None
    if match is None:
        return value
    time = f"{_EPOCH + timedelta(seconds=int(match['seconds'])):{_FORM}}"
    return f"{match['word']} {time}" if match["word"] else time


def _seconds_of(text: str) -> str | None:
    """A time, perhaps behind a word, in seconds, rounded up; None: it is not a time."""
    match = _WITH_TIME.fullmatch(text.strip())
    if match is None:
        return None
    try:
        time = datetime.fromisoformat(match["time"])
    except ValueError:
        return None
    if time.tzinfo is None:
        return None
    seconds = f"{-(-(time - _EPOCH) // timedelta(seconds=1))}"
    value = f"{match['word']}-{seconds}" if match["word"] else seconds
    return value if _SECONDS.fullmatch(value) else None


def _escape_text(tag: str, text: str) -> str:
    """Any text in the characters of a label, and as it is where it cannot be taken for something else."""
    mistakable = text.startswith(_ESCAPED) or (tag in _TIMES and _SECONDS.fullmatch(text))
    if _PLAIN.fullmatch(text) and not mistakable:
        return text
    return _ESCAPED + "".join(_character(each) for each in text)


def _character(each: str) -> str:
    if re.fullmatch(r"[a-z0-9-]", each):
        return each
    return "".join(f"_{byte:02x}" for byte in each.encode(errors="replace"))


def _unescape_text(value: str) -> str:
    """The text behind "x--"; a value that only looks escaped is somebody's own, and stays as it is."""
    rest = value.removeprefix(_ESCAPED)
    found = list(_ESCAPES.finditer(rest))
    if sum(len(match[0]) for match in found) != len(rest):
        return value
    octets = b"".join(bytes.fromhex(match[1]) if match[1] else match[2].encode() for match in found)
    try:
        text = octets.decode()
    except UnicodeDecodeError:
        return value
    return text


# Labels and keys of metadata by which other systems own a machine: pattern, what owns it. The first match wins.
_OWNERS: Owners = (
    ("goog-k8s-cluster-name", "GKE cluster"),
    ("goog-gke-*", "GKE"),
    ("goog-fleet-project", "GKE"),
    ("kubernetes-io-cluster-*", "Kubernetes cluster"),
    ("k8s-io-*", "Kubernetes cluster"),
    ("karpenter*", "Karpenter"),
    ("goog-dataproc-cluster-name", "Dataproc cluster"),
    ("goog-dataproc-*", "Dataproc"),
    ("goog-dataflow-*", "Dataflow"),
    ("dataflow_job_name", "Dataflow"),
    ("goog-composer-*", "Cloud Composer"),
    ("batch-job-id", "Batch job"),
    ("goog-batch-*", "Batch"),
    ("goog-vertex-*", "Vertex AI"),
    ("goog-caip-*", "Vertex AI"),
    ("goog-managed-lustre", "Managed Lustre"),
    ("slurm_cluster_name", "Slurm cluster"),
    ("ray-cluster-name", "Ray cluster"),
    ("skypilot-cluster-name", "SkyPilot cluster"),
)
# Keys of the instance's metadata; the values may hold secrets, and are not looked at.
_METADATA = (("cluster-name", "GKE cluster"), ("kube-env", "GKE cluster"), ("notebooks-api-version", "Vertex AI"))


def managed_by(labels: Mapping[str, str], metadata: Mapping[str, str]) -> str | None:
    """Which other system owns a machine; None if none does. A managed instance group is not looked at here."""
    return owner_by(_OWNERS, labels) or next((owner for key, owner in _METADATA if key in metadata), None)
