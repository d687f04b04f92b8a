"""What may be done in a cloud, and to what: the verbs and the subjects of the table in docs/threats.md."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpuwatch.clouds import FLEET_TAG, PROTECT_TAG


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A machine, or a group: whose it is, and where. Each fleet has a resource group of its own."""

    fleet: str | None = None
    protected: bool = False
    launched: bool = False
    elsewhere: bool = False  # another account, project or resource group

    @property
    def tags(self) -> dict[str, str]:
        """The tags of gpuwatch."""
        fleet = {} if self.fleet is None else {FLEET_TAG: self.fleet}
        return {**fleet, **({PROTECT_TAG: "true"} if self.protected else {})}


# "enrolled" has the fleet's tag, "launched" was launched by the controller, "foreign" has no tag and is in the same
# account, project or resource group.
MACHINES: Mapping[str, Subject] = {
    "enrolled": Subject(fleet="default"),
    "launched": Subject(fleet="default", launched=True),
    "protected": Subject(fleet="default", protected=True),
    "another fleet's": Subject(fleet="other"),
    "another fleet's, launched": Subject(fleet="other", launched=True),
    "foreign": Subject(),
    "elsewhere": Subject(elsewhere=True),
}
GROUPS: Mapping[str, Subject] = {
    "enrolled": Subject(fleet="default"),
    "protected member": Subject(fleet="default"),  # no cloud asks about the member's own tags
    "protected": Subject(fleet="default", protected=True),
    "another fleet's": Subject(fleet="other"),
    "foreign": Subject(),
    "elsewhere": Subject(elsewhere=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What a launch names: a template or none, its parts (image, key, security group), and the fleet of its tag."""

    template: str | None = "default"
    parts: str | None = None
    fleet: str | None = "default"

    @property
    def anew(self) -> bool:
        """Whether the launch names parts itself."""
        return self.parts is not None


LAUNCHES: Mapping[str, Launch] = {
    "own template": Launch(),
    "own parts": Launch(template=None, parts="default"),
    "foreign template": Launch(template="other"),
    "foreign parts": Launch(template=None, parts="other"),
    "own template, foreign parts": Launch(parts="other"),
    "foreign tag": Launch(fleet="other"),
}
LAUNCH = "launch a machine"
GROUP_VERBS = (
    "resize a group",
    "end a member of a group",
    "unprotect a member of a group",
    "change what a group launches",
)
# What each verb may be done to; names of a launch are what it is made of.
VERBS: Mapping[str, Mapping[str, Subject] | Mapping[str, Launch]] = {
    **dict.fromkeys(
        ("stop or end", "start", "write a notice", "enrol or unprotect", "change what it runs", "read user data"),
        MACHINES,
    ),
    **dict.fromkeys(GROUP_VERBS, GROUPS),
    LAUNCH: LAUNCHES,
}
