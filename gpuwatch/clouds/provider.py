"""What each cloud's package declares: its settings, and what can be had of it. Loading the settings loads no SDK."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar

from gpuwatch.clouds import Cloud
from gpuwatch.model.setting import Contradiction
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.secrets import NoStores, Stores

ALL = "all"  # in place of region names: every region that the account may use

# What gives the command that starts a stopped machine, by its cloud's name, its id and its region, quoted for a shell.
StartCommand = Callable[[str, str, str | None], str | None]


class ProviderSettings(ABC):
    """The base of a cloud's own settings, the section `cloud.<name>`. Only `connect` must be written.

    A cloud's extra in pyproject.toml has the cloud's name. `regions` and `endpoint_url` are those of the section
    `cloud`, which all clouds share.
    """

    __slots__ = ()

    # The characters that a tag's value has at most; the clouds that do not say otherwise take any.
    longest_tag: ClassVar[int] = 256
    # Whether a launch says in which region; Azure's bodies do.
    launches_name_regions: ClassVar[bool] = True

    @abstractmethod
    def connect(self, *, fleet: str, clock: Clock, regions: tuple[str, ...], endpoint_url: str | None) -> Cloud:
        """The cloud; nothing is sent yet. This method imports the SDK.

        Raises:
            CloudError: it cannot be set up.
            ImportError: the extra is not installed.

        """

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
