"""docs/threats.md says what a stolen controller could do in each cloud: its table is held to the policy documents.

The table is the one place where it is written down what each document is to allow. A limit that a cloud cannot express
stands there in bold.
"""

import re
from collections.abc import Iterable, Mapping

import pytest

from tests.support.clouds.stolen import CLOUDS
from tests.support.clouds.subjects import GROUPS, LAUNCH, LAUNCHES, MACHINES, VERBS
from tests.support.paths import ROOT

PAGE = (ROOT / "docs/threats.md").read_text(encoding="utf-8")
EVERYTHING = frozenset({*MACHINES, *GROUPS})
RESOURCE_GROUP = frozenset({"enrolled", "launched", "protected", "protected member", "foreign"})
# The words of a cell, and which machines, groups or launches they are.
WORDS: Mapping[str, frozenset[str]] = {
    "no": frozenset(),
    "the fleet's": frozenset({"enrolled", "launched"}),
    "those it launched": frozenset({"launched"}),
    "protected ones": frozenset({"protected"}),
    "protected members": frozenset({"protected member"}),
    "those that other fleets launched": frozenset({"another fleet's, launched"}),
    "all in its resource group": RESOURCE_GROUP,
    "all of the project": EVERYTHING - {"elsewhere"},
    "all of the subscription": EVERYTHING,
    "a template of the fleet": frozenset({"own template"}),
    "parts of the fleet": frozenset({"own parts"}),
    "anything": frozenset(LAUNCHES),
}
WITHIN = frozenset({"no", "the fleet's", "those it launched", "a template of the fleet"})
# What looks, and what is for other services.
LOOKS = ("observe", "scan", "keys", "quotas", "prices", "assume", "secrets")
# Changes of nothing that a fleet is made of, or parts of a launch: they have rows of their own pages, or none alone.
APART = {
    "sts:AssumeRole",  # enters an account, in which the other documents hold
    *("iam:PassRole", "ram:PassRole"),  # of one role, which the page on that cloud says to keep small
    *("kms:Decrypt", "secretsmanager:GetSecretValue"),
    "kms:CreateGrant",  # for EC2 itself
    "iam:SimulatePrincipalPolicy",  # changes nothing
    *(f"Microsoft.Network/{each}/join/action" for each in ("networkInterfaces", "networkSecurityGroups")),
    "Microsoft.Network/virtualNetworks/subnets/join/action",
    *("Microsoft.Network/networkInterfaces/write", "Microsoft.Compute/disks/write"),
    *("compute.instances.setTags", "compute.instances.resume", "compute.disks.create"),
    *("compute.subnetworks.use", "compute.subnetworks.useExternalIp", "compute.instanceTemplates.useReadOnly"),
}
READS = re.compile(r".*(:|\.|/)(Describe|List|Get|get|list|Query|read)\w*")
CHANGES = [verb for verb in VERBS if verb != "read user data"]


def rows() -> dict[str, dict[str, str]]:
    """The table's cells, by verb and cloud."""
    section = PAGE.partition("## What a stolen controller can do in a cloud")[2]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    head, _, *body = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines[: 2 + len(VERBS)])
    return {verb: dict(zip(head[1:], cells, strict=True)) for verb, *cells in body}


def meant(cell: str, among: Iterable[str]) -> frozenset[str]:
    """What a cell names of what there is."""
    named = [WORDS[word.strip("*")] for word in re.split(r",\s*", cell)]
    return frozenset().union(*named) & frozenset(among)


def test_the_table_has_every_verb_and_every_cloud() -> None:
    """No cell is missing."""
    assert list(rows()) == list(VERBS)
    assert {tuple(cells) for cells in rows().values()} == {tuple(CLOUDS)}


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("verb", VERBS)
def test_the_documents_allow_what_the_table_says(verb: str, cloud: str) -> None:
    """With all documents of a cloud at once, a verb reaches what its cell names, and nothing else."""
    assert CLOUDS[cloud]().reach(verb) == meant(rows()[verb][cloud], VERBS[verb])


@pytest.mark.parametrize("verb", VERBS)
def test_what_reaches_beyond_the_fleet_stands_out(verb: str) -> None:
    """Bold is whatever is protected, another's, or not of the fleet's template; a notice may be taken back anywhere."""
    harmless = WITHIN | ({"protected ones"} if verb in {"write a notice", "read user data"} else set())
    for cloud, cell in rows()[verb].items():
        for word in re.split(r",\s*", cell):
            assert word.startswith("**") is (word.strip("*") not in harmless), (cloud, word)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_every_change_that_a_document_allows_belongs_to_a_verb(cloud: str) -> None:
    """A right that is added to a document is a right of the table."""
    stolen = CLOUDS[cloud]()
    for verb in VERBS:
        stolen.reach(verb)

    changes = {action for action in stolen.actions() if READS.fullmatch(action) is None}
    assert changes - stolen.asked <= APART


@pytest.mark.parametrize("cloud", CLOUDS)
def test_what_only_looks_changes_nothing(cloud: str) -> None:
    """No document that is for looking, or for other services, has a change."""
    looking = CLOUDS[cloud](only=LOOKS)

    assert {verb: looking.reach(verb) for verb in CHANGES} == dict.fromkeys(CHANGES, frozenset())


@pytest.mark.parametrize("cloud", CLOUDS)
def test_nothing_is_launched_or_grown_by_what_reclaims(cloud: str) -> None:
    """Whoever wants idle machines stopped hands out no right to make any."""
    reclaiming = CLOUDS[cloud](only=("observe", "reclaim", "terminate"))

    grows = ("resize a group", "unprotect a member of a group", "change what a group launches", "change what it runs")
    assert {verb: reclaiming.reach(verb) for verb in (*grows, LAUNCH)} == dict.fromkeys((*grows, LAUNCH), frozenset())
    assert "enrolled" in reclaiming.reach("stop or end")
