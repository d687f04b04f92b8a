"""What each cloud's package declares: its settings and what it offers. Loading the settings loads no SDK."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Annotated, Any, ClassVar

from annotated_types import MinLen

from gpuwatch.clouds import Cloud
from gpuwatch.model.setting import STRICT, Contradiction, Setting
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.secrets import NoStores, Stores

ALL = "all"  # in place of region names: every region that the account may use

_Text = Annotated[str, MinLen(1)]

# What gives the command that starts a stopped machine, by its cloud's name, its id and its region, quoted for a shell.
StartCommand = Callable[[str, str, str | None], str | None]


class ProviderSettings:
    """The base of a cloud's own settings, the section `cloud.<name>`. Only `adapter` must be written.

    A cloud's extra in pyproject.toml has the cloud's name. `regions` and `endpoint_url` are those of the section
    `cloud`, which all clouds share.
    """

    __slots__ = ()

    # The characters that a tag's value has at most; the clouds that do not say otherwise take any.
    longest_tag: ClassVar[int] = 256
    # Whether a launch says in which region; Azure's bodies do.
    launches_name_regions: ClassVar[bool] = True

    # The module of its adapter, which imports the SDK, and the adapter's name there.
    adapter: ClassVar[str]

    def connect(self, *, fleet: str, clock: Clock, regions: tuple[str, ...], endpoint_url: str | None) -> Cloud:
        """The cloud; nothing is sent yet.

        Raises:
            CloudError: it cannot be set up.
            ImportError: the extra is not installed.

        """
        cloud: Cloud = resolve_name(self.adapter)(
            fleet=fleet, clock=clock, regions=regions, endpoint_url=endpoint_url, **self._options()
        )
        return cloud

    def _options(self) -> Mapping[str, Any]:
        """What the adapter takes of this section, by its own names."""
        return {}

    def contradictions(self) -> Iterator[Contradiction]:
        """Mistakes in this section that no single key's bounds show."""
        yield from ()

    def regions_named(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Every region that this section names, and the key that names it."""
        yield from ()

    def region_names(self) -> frozenset[str] | None:
        """All regions of the cloud; None where they are not known without asking it, or the SDK is not installed."""
        return None

    def secret_stores(self, *, regions: tuple[str, ...], endpoint_url: str | None) -> Stores:
        """The stores that references to secrets may lead to."""
        del regions, endpoint_url
        return NoStores()

    def unfit_tag(self, tag: str, text: str) -> str | None:
        """Why a machine's tag cannot have that value, for people; None: it can."""
        del tag
        if len(text) <= self.longest_tag:
            return None
        return f"it has {len(text)} characters, and a tag's value takes {self.longest_tag}"

    @staticmethod
    def policies(*, fleet: str, regions: Sequence[str], partition: str, scopes: Sequence[str]) -> Mapping[str, str]:
        """The policies that allow what the code does and no more: files by their names. {}: none can be written.

        `regions` () is everywhere; `partition` is of AWS's ARNs, `scopes` is where Azure's roles may be given.
        """
        del fleet, regions, partition, scopes
        return {}

    @staticmethod
    def start_command(node_id: str, region: str | None) -> str | None:
        """The command that starts a stopped machine, for people; the arguments are quoted for a shell already."""
        del node_id, region
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountSettings:
    """One account of the cloud by a name for messages, and how it is entered."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    role_arn: Annotated[
        _Text | None,
        Setting(
            "The role to assume: its ARN, or qcs::cam::uin/ACCOUNT:roleName/NAME. None: the credentials' own account."
        ),
    ] = None
    external_id: Annotated[
        _Text | None, Setting("What the role's trust policy asks for as its external id (sts:ExternalId).")
    ] = None
    regions: Annotated[tuple[_Text, ...], Setting("Its regions; none given: those of cloud.regions.")] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsOfAccounts(ProviderSettings, ABC):
    """The base of the settings of a cloud of accounts and regions."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    section: ClassVar[str]
    role: ClassVar[tuple[str, str]]  # what is said of a text that names no role, and an example of one

    accounts: Annotated[
        dict[str, AccountSettings],
        Setting("Accounts to look at, by a name; none: the one that the credentials belong to."),
    ] = field(default_factory=dict)

    @staticmethod
    @abstractmethod
    def account_of(arn: str) -> str:
        """The account's number in the name of a role; "" if the text is no such name."""

    @classmethod
    def policies(
        cls, *, fleet: str, regions: Sequence[str], partition: str, scopes: Sequence[str]
    ) -> Mapping[str, str]:
        """By the cloud's module `iam`."""
        del partition, scopes
        found: Mapping[str, str] = resolve_name(f"gpuwatch.clouds.{cls.section}.iam:write_policies")(
            fleet=fleet, regions=regions
        )
        return found

    def contradictions(self) -> Iterator[Contradiction]:
        """Each account once, by a role that can exist."""
        named: dict[str | None, str] = {}  # by the account's number
        for name, account in self.accounts.items():
            number = None if account.role_arn is None else self.account_of(account.role_arn)
            wrong, right = "", "one entry for each account, with all its regions"
            if number == "":
                wrong, right = f"{account.role_arn!r} is {self.role[0]}", self.role[1]
            elif number in named:
                key = f"cloud.{self.section}.accounts"
                wrong = f"{key}.{name} is the same account as {key}.{named[number]}"
            if wrong:
                path = ("cloud", self.section, "accounts", name, "role_arn")
                yield Contradiction(keys=(path,), wrong=wrong, right=right)
            named.setdefault(number, name)

    def regions_named(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """The regions of each account."""
        for name, account in self.accounts.items():
            path = ("cloud", self.section, "accounts", name, "regions")
            yield from ((path, region) for region in account.regions)
