"""The section `cloud.gcp`. google-auth and urllib3 are loaded only by the calls that need them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from annotated_types import MinLen

from gpuwatch.clouds import FLEET_TAG, CloudError
from gpuwatch.clouds.gcp.owners import value_of
from gpuwatch.clouds.provider import ProviderSettings
from gpuwatch.model.setting import STRICT, Contradiction, Setting

_PROJECT = re.compile(r"(?:[a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")


@dataclass(frozen=True, slots=True, kw_only=True)
class GcpSettings(ProviderSettings):
    """What only Google Cloud needs."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT
    adapter: ClassVar[str] = "gpuwatch.clouds.gcp.cloud:GcpCloud"

    projects: Annotated[
        tuple[Annotated[str, MinLen(1)], ...],
        Setting("Projects to look at, by their ids; none given: the one that the credentials name."),
    ] = ()
    credentials_file: Annotated[
        Annotated[str, MinLen(1)] | None,
        Setting("The file with a service account's key. None: as every program of Google finds its credentials."),
    ] = None

    def _options(self) -> Mapping[str, Any]:
        file = None if self.credentials_file is None else Path(self.credentials_file)
        return {"projects": self.projects, "credentials_file": file}

    def contradictions(self) -> Iterator[Contradiction]:
        """Each project once, by an id that can exist."""
        for project in self.projects:
            if _PROJECT.fullmatch(project) is None:
                yield Contradiction(
                    keys=(("cloud", "gcp", "projects"),),
                    wrong=f"{project!r} is no project's id",
                    right="the id, such as my-project-123456, not the name or the number",
                )
        twice = sorted({project for project in self.projects if self.projects.count(project) > 1})
        for project in twice:
            yield Contradiction(
                keys=(("cloud", "gcp", "projects"),), wrong=f"{project} stands there twice", right="each project once"
            )

    def unfit_tag(self, tag: str, text: str) -> str | None:
        """By the form that it has as a label."""
        try:
            value_of(tag, text)
        except CloudError as error:
            return str(error)
        return None

    @staticmethod
    def policies(*, fleet: str, regions: Sequence[str], partition: str, scopes: Sequence[str]) -> Mapping[str, str]:
        """Custom roles, the conditions to bind them with, and a deny policy. `scopes` is the project with the tags."""
        from gpuwatch.clouds.gcp.iam import NOBODYS, documents, render  # noqa: PLC0415  needed by one command only

        del regions, partition
        made = documents(fleet=value_of(FLEET_TAG, fleet), scope=next(iter(scopes), NOBODYS))
        return {name: render(document) for name, document in made.items()}

    @staticmethod
    def start_command(node_id: str, region: str | None) -> str:
        """By Google's command line, which takes a machine's link and not its number."""
        del region  # the number says it all
        return f"gcloud compute instances start $(gcloud compute instances list --filter=id={node_id} --uri)"
