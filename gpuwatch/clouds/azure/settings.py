"""The section `cloud.azure`, and what can be had of Azure. azure-identity is loaded only by the calls that need it."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import MinLen

from gpuwatch.clouds.azure.iam import NOBODYS_GROUP, ROLES, render, role
from gpuwatch.clouds.provider import ProviderSettings
from gpuwatch.model.setting import STRICT, Contradiction, Setting

_Text = Annotated[str, MinLen(1)]
_GUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_EXAMPLE = "the subscription's id, such as 00000000-0000-0000-0000-000000000000, as `az account list` shows it"

# Resource Manager of each national cloud. Where its tokens come from, azure-identity reads of AZURE_AUTHORITY_HOST.
MANAGERS = {
    "public": "https://management.azure.com",
    "china": "https://management.chinacloudapi.cn",
    "government": "https://management.usgovcloudapi.net",
}
# Microsoft Graph of each, which has the applications.
GRAPHS = {
    "public": "https://graph.microsoft.com",
    "china": "https://microsoftgraph.chinacloudapi.cn",
    "government": "https://graph.microsoft.us",
}
AUTHORITIES = {
    "public": "login.microsoftonline.com",
    "china": "login.chinacloudapi.cn",
    "government": "login.microsoftonline.us",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionSettings:
    """One subscription by a name for messages."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    id: Annotated[_Text | None, Setting("The subscription's id, a GUID. None: that of AZURE_SUBSCRIPTION_ID.")] = None
    regions: Annotated[tuple[_Text, ...], Setting("Its regions; none given: those of cloud.regions.")] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateSettings:
    """One template of launches: pools name it as `scale.launch.template`."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    body: Annotated[
        _Text | None, Setting("JSON file with the body of the machine, as Resource Manager takes it in a PUT.")
    ] = None
    resource_group: Annotated[_Text | None, Setting("The resource group in which machines are made.")] = None
    subscription: Annotated[_Text | None, Setting("The subscription's name in these settings. None: the first.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureSettings(ProviderSettings):
    """What only Azure needs."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT
    launches_name_regions: ClassVar[bool] = False
    adapter: ClassVar[str] = "gpuwatch.clouds.azure.cloud:AzureCloud"

    subscriptions: Annotated[
        dict[str, SubscriptionSettings],
        Setting("Subscriptions to look at, by a name; none: that of AZURE_SUBSCRIPTION_ID."),
    ] = field(default_factory=dict)
    templates: Annotated[dict[str, TemplateSettings], Setting("Templates for launches, by a name.")] = field(
        default_factory=dict
    )
    national_cloud: Annotated[
        Literal["public", "china", "government"],
        Setting("Which of Azure's clouds; china is the one that 21Vianet operates."),
    ] = "public"

    def _options(self) -> Mapping[str, Any]:
        return {
            "subscriptions": with_ids(self.subscriptions),
            "templates": self.templates,
            "national_cloud": self.national_cloud,
        }

    def contradictions(self) -> Iterator[Contradiction]:
        """Each subscription once, by an id that can exist; each template whole, in a subscription that is there."""
        named: dict[str | None, str] = {}
        for name, subscription in self.subscriptions.items():
            path = ("cloud", "azure", "subscriptions", name, "id")
            number = None if subscription.id is None else subscription.id.lower()
            if number is not None and not _GUID.fullmatch(number):
                yield Contradiction(keys=(path,), wrong=f"{subscription.id!r} is no subscription's id", right=_EXAMPLE)
            elif number in named:
                yield Contradiction(
                    keys=(path,),
                    wrong=f"cloud.azure.subscriptions.{name} is the same subscription as "
                    f"cloud.azure.subscriptions.{named[number]}",
                    right="one entry for each subscription, with all its regions",
                )
            named.setdefault(number, name)
        for name, template in self.templates.items():
            yield from self._contradictions_of(name, template)

    def _contradictions_of(self, name: str, template: TemplateSettings) -> Iterator[Contradiction]:
        path = ("cloud", "azure", "templates", name)
        if template.subscription is not None and template.subscription not in self.subscriptions:
            yield Contradiction(
                keys=((*path, "subscription"),),
                wrong=f"{template.subscription!r} is not among cloud.azure.subscriptions",
                right=f"one of {', '.join(self.subscriptions) or 'the names that you give there'}",
            )
        for key, value in (("body", template.body), ("resource_group", template.resource_group)):
            if value is None:
                yield Contradiction(
                    keys=((*path, key),),
                    wrong=f"cloud.azure.templates.{name} has no {key}",
                    right="a file and a resource group, such as {body: /etc/gpuwatch/gpu.json, resource_group: gpus}",
                )

    def regions_named(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """The regions of each subscription."""
        for name, subscription in self.subscriptions.items():
            path = ("cloud", "azure", "subscriptions", name, "regions")
            yield from ((path, region) for region in subscription.regions)

    @staticmethod
    def policies(*, fleet: str, regions: Sequence[str], partition: str, scopes: Sequence[str]) -> Mapping[str, str]:
        """Custom roles; they have no conditions by tags or regions: they are given at scopes."""
        del fleet, regions, partition
        return {f"{name}.json": render(role(name, scopes=scopes or (NOBODYS_GROUP,))) for name in ROLES}

    @staticmethod
    def start_command(node_id: str, region: str | None) -> str:
        """By Azure's command line, which wants the machine's path and finds it by its id."""
        del region
        found = f"[?vmId=='{node_id}'].id"
        query = f'"{found}"' if _GUID.fullmatch(node_id) else quote(found)
        return f"az vm start --ids $(az vm list --query {query} -o tsv)"


def with_ids(subscriptions: Mapping[str, SubscriptionSettings]) -> dict[str, SubscriptionSettings]:
    """The subscriptions with their ids; one without an id, or none at all, is that of the environment.

    Azure's own tools read the same variable. Without it, those without an id are left out.
    """
    own = os.environ.get("AZURE_SUBSCRIPTION_ID")
    named = dict(subscriptions) or {"default": SubscriptionSettings()}
    found = {name: replace(each, id=each.id or own) for name, each in named.items()}
    return {name: each for name, each in found.items() if each.id}
