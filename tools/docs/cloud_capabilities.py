"""What an adapter can do, and on what evidence it does that in each cloud: the table of docs/clouds/README.md.

`tests/docs/test_cloud_evidence.py` holds the table to the protocols of `gpuwatch/clouds` and to the paths by which
`tests/contracts/test_recorded_CLOUD.py` plays recorded answers.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What shows that a capability works in one cloud; `paths` are those that play recorded answers."""

    kind: str
    paths: tuple[str, ...] = ()
    but: str = ""


def recorded(*paths: str, but: str = "") -> Evidence:
    """Answers that somebody recorded of the real cloud, played by these paths."""
    return Evidence(kind="recorded", paths=paths, but=but)


MODEL, FAKE, NOT_THERE = Evidence(kind="model"), Evidence(kind="fake"), Evidence(kind="-")
XML = "an older form"  # Alibaba Cloud's answers in XML, with the members of today's JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """One thing that adapters do: in words, which methods and facts it is, and the evidence in each cloud."""

    does: str
    covers: tuple[str, ...]
    aws: Evidence
    azure: Evidence
    gcp: Evidence
    alibaba: Evidence
    tencent: Evidence
    hosts: Evidence = NOT_THERE
    driver: Evidence = NOT_THERE

    def in_cloud(self, cloud: str) -> Evidence:
        """The evidence in one cloud."""
        found: Evidence = getattr(self, cloud)
        return found


CLOUDS = {
    "aws": "AWS",
    "azure": "Azure",
    "gcp": "Google Cloud",
    "alibaba": "Alibaba Cloud",
    "tencent": "Tencent Cloud",
    "hosts": "hosts of your own",
    "driver": "a driver",
}

TABLE: tuple[Capability, ...] = (
    Capability(
        does="machines and their states",
        covers=("Cloud.nodes", "Cloud.node", "Node.state"),
        aws=recorded("machines"),
        azure=recorded("machines", "states", "interfaces"),
        gcp=recorded("machines"),
        alibaba=recorded("machines", but=XML),
        tencent=recorded("machines"),
        hosts=FAKE,
        driver=FAKE,
    ),
    Capability(
        does="GPUs of a machine",
        covers=("Node.gpu_count",),
        aws=MODEL,
        azure=MODEL,
        gcp=recorded("types"),
        alibaba=MODEL,
        tencent=MODEL,
        hosts=FAKE,
        driver=FAKE,
    ),
    Capability(
        does="other systems that own a machine",
        covers=("Node.managed_by",),
        aws=recorded("machines"),
        azure=MODEL,
        gcp=MODEL,
        alibaba=MODEL,
        tencent=recorded("machines"),
        driver=FAKE,
    ),
    Capability(
        does="how it is paid, and whether a stop ends the bill",
        covers=("Node.capacity_type", "Node.still_billed"),
        aws=MODEL,
        azure=MODEL,
        gcp=MODEL,
        alibaba=recorded("machines", but=XML),
        tencent=recorded("machines"),
        driver=FAKE,
    ),
    Capability(
        does="what protects it in its cloud",
        covers=("Node.cannot_stop", "Node.cannot_terminate"),
        aws=recorded("protections"),
        azure=recorded("locks"),
        gcp=MODEL,
        alibaba=MODEL,
        tencent=MODEL,
        hosts=FAKE,
        driver=FAKE,
    ),
    Capability(
        does="whether it would start again",
        covers=("Node.may_not_start", "Node.failed_start"),
        aws=MODEL,
        azure=NOT_THERE,
        gcp=NOT_THERE,
        alibaba=NOT_THERE,
        tencent=NOT_THERE,
        hosts=MODEL,
        driver=FAKE,
    ),
    Capability(
        does="notices before an end, in lists",
        covers=("Node.announced",),
        aws=MODEL,
        azure=NOT_THERE,
        gcp=MODEL,
        alibaba=MODEL,
        tencent=NOT_THERE,
    ),
    Capability(
        does="stop",
        covers=("Cloud.stop",),
        aws=recorded("changes"),
        azure=MODEL,
        gcp=recorded("changes"),
        alibaba=MODEL,
        tencent=MODEL,
        hosts=MODEL,
        driver=FAKE,
    ),
    Capability(
        does="start",
        covers=("Cloud.start",),
        aws=recorded("changes"),
        azure=MODEL,
        gcp=MODEL,
        alibaba=MODEL,
        tencent=recorded("changes"),
        hosts=MODEL,
        driver=FAKE,
    ),
    Capability(
        does="end of a machine",
        covers=("Cloud.terminate",),
        aws=recorded("changes"),
        azure=MODEL,
        gcp=recorded("proof"),
        alibaba=MODEL,
        tencent=recorded("changes"),
        driver=FAKE,
    ),
    Capability(
        does="end of a group's member with its place",
        covers=("Cloud.terminate",),
        aws=recorded("protections"),
        azure=MODEL,
        gcp=MODEL,
        alibaba=MODEL,
        tencent=MODEL,
    ),
    Capability(
        does="launch, and the search for what was launched",
        covers=("Cloud.launch", "Cloud.find"),
        aws=recorded("launches"),
        azure=MODEL,
        gcp=MODEL,
        alibaba=MODEL,
        tencent=MODEL,
        driver=FAKE,
    ),
    Capability(
        does="tags on a machine",
        covers=("Cloud.tag",),
        aws=MODEL,
        azure=recorded("tags", but="no member of a Uniform scale set"),
        gcp=MODEL,
        alibaba=MODEL,
        tencent=recorded("changes"),
        hosts=FAKE,
        driver=FAKE,
    ),
    Capability(
        does="groups",
        covers=("Cloud.groups", "Cloud.group"),
        aws=recorded("groups"),
        azure=recorded("scale sets"),
        gcp=recorded("groups", "autoscalers"),
        alibaba=MODEL,
        tencent=MODEL,
    ),
    Capability(
        does="a group's size",
        covers=("Cloud.grow", "Cloud.shrink"),
        aws=MODEL,
        azure=MODEL,
        gcp=MODEL,
        alibaba=MODEL,
        tencent=MODEL,
    ),
    Capability(
        does="protection of a member from its group's scale-in",
        covers=("Cloud.protect",),
        aws=MODEL,
        azure=MODEL,
        gcp=NOT_THERE,
        alibaba=MODEL,
        tencent=MODEL,
    ),
    Capability(
        does="unused disks, addresses, snapshots and images",
        covers=("Cloud.leftovers",),
        aws=recorded("volumes", "addresses", "lists"),
        azure=recorded("disks", "snapshots", "addresses"),
        gcp=recorded("disks", "addresses", "snapshots", "images"),
        alibaba=MODEL,
        tencent=recorded("disks", "addresses", "lists"),
    ),
    Capability(
        does="disks of machines in use",
        covers=("HasDisks.disks",),
        aws=MODEL,
        azure=recorded("disks"),
        gcp=recorded("disks"),
        alibaba=MODEL,
        tencent=recorded("disks"),
    ),
    Capability(
        does="disks without encryption",
        covers=("Diagnosable.unencrypted_disks",),
        aws=MODEL,
        azure=MODEL,
        gcp=MODEL,
        alibaba=MODEL,
        tencent=MODEL,
    ),
    Capability(
        does="rotation of disks' keys",
        covers=("HasDiskKeys.disk_keys",),
        aws=MODEL,
        azure=NOT_THERE,
        gcp=NOT_THERE,
        alibaba=NOT_THERE,
        tencent=NOT_THERE,
    ),
    Capability(
        does="refusals by their codes",
        covers=(),
        aws=recorded("refusals"),
        azure=MODEL,
        gcp=recorded("refusals"),
        alibaba=MODEL,
        tencent=MODEL,
        hosts=FAKE,
        driver=FAKE,
    ),
    Capability(
        does="limits of the account",
        covers=("Quotas.quotas",),
        aws=MODEL,
        azure=MODEL,
        gcp=recorded("regions", "projects"),
        alibaba=MODEL,
        tencent=MODEL,
    ),
    Capability(
        does="who gpuwatch is there, and the cloud's clock",
        covers=("Diagnosable.identity",),
        aws=MODEL,
        azure=FAKE,
        gcp=recorded("projects"),
        alibaba=MODEL,
        tencent=MODEL,
    ),
    Capability(
        does="age of its keys",
        covers=("HasCredentials.credentials",),
        aws=MODEL,
        azure=FAKE,
        gcp=MODEL,
        alibaba=MODEL,
        tencent=MODEL,
    ),
    Capability(
        does="its rights, tried without effect",
        covers=("Diagnosable.may", "Diagnosable.may_beyond"),
        aws=MODEL,
        azure=FAKE,
        gcp=MODEL,
        alibaba=MODEL,
        tencent=MODEL,
    ),
    Capability(
        does="templates that make machines without GPUs",
        covers=("Diagnosable.unfit",),
        aws=recorded("templates"),
        azure=MODEL,
        gcp=MODEL,
        alibaba=MODEL,
        tencent=MODEL,
    ),
    Capability(
        does="every region of the account",
        covers=("Surveyable.survey", "Searchable.elsewhere"),
        aws=recorded("regions"),
        azure=recorded("machines"),
        gcp=recorded("machines"),
        alibaba=MODEL,
        tencent=MODEL,
    ),
    Capability(
        does="use by the cloud's own monitor",
        covers=("Monitored.use_of", "Monitored.monitor"),
        aws=MODEL,
        azure=recorded("metrics"),
        gcp=MODEL,
        alibaba=MODEL,
        tencent=recorded("metrics"),
    ),
    Capability(
        does="a place without an answer, and a machine that no list has",
        covers=("Recalling.recall", "Recalling.outlook", "Listed.lacks"),
        aws=FAKE,
        azure=FAKE,
        gcp=FAKE,
        alibaba=FAKE,
        tencent=FAKE,
        hosts=FAKE,
        driver=FAKE,
    ),
)
