"""Where machines are looked for and acted on."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from annotated_types import MinLen

from gpuwatch.model.setting import STRICT, Contradiction, Setting

_Text = Annotated[str, MinLen(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountSettings:
    """One account of the cloud by a name for messages, and how it is entered."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    role_arn: Annotated[_Text | None, Setting("The role to assume. None: the credentials' own account.")] = None
    external_id: Annotated[_Text | None, Setting("What the role's trust policy asks for as sts:ExternalId.")] = None
    regions: Annotated[tuple[_Text, ...], Setting("Its regions; none given: those of cloud.regions.")] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudSettings:
    """Where machines are listed and stopped. Credentials come from the SDK's own chain, never from this file."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    provider: Annotated[Literal["aws"], Setting("The cloud.")] = "aws"
    regions: Annotated[tuple[_Text, ...], Setting("Regions to look at; none given: the SDK's default region.")] = ()
    accounts: Annotated[
        dict[str, AccountSettings],
        Setting("Accounts to look at, by a name; none: the one that the credentials belong to."),
    ] = field(default_factory=dict)
    profile: Annotated[_Text | None, Setting("The SDK's named profile; without it, the SDK's default credentials.")] = (
        None
    )
    endpoint_url: Annotated[_Text | None, Setting("Base URL of the cloud's API, for private endpoints and tests.")] = (
        None
    )


def contradictions(cloud: CloudSettings) -> Iterator[Contradiction]:
    """What no single key's bounds can tell."""
    named: dict[str | None, str] = {}  # by the account's number
    for name, account in cloud.accounts.items():
        path = ("cloud", "accounts", name, "role_arn")
        number = None if account.role_arn is None else account_of(account.role_arn)
        if number == "":
            yield Contradiction(
                keys=(path,),
                wrong=f"{account.role_arn!r} is no role's ARN",
                right="an ARN such as arn:aws:iam::123456789012:role/gpuwatch",
            )
        elif number in named:
            yield Contradiction(
                keys=(path,),
                wrong=f"cloud.accounts.{name} is the same account as cloud.accounts.{named[number]}",
                right="one entry for each account, with all its regions",
            )
        named.setdefault(number, name)


def account_of(arn: str) -> str:
    """The account's number in an ARN; "" where the text is none."""
    parts = arn.split(":", 5)
    return parts[4] if len(parts) > 5 and parts[0] == "arn" and parts[4].isdigit() else ""  # noqa: PLR2004  an ARN has six parts
