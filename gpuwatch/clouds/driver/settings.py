"""The section `cloud.driver`: which executable speaks for the cloud, and what it is given."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Le, MinLen

from gpuwatch.clouds.provider import ProviderSettings
from gpuwatch.model.duration import Seconds
from gpuwatch.model.setting import STRICT, Contradiction, Setting

_Text = Annotated[str, MinLen(1)]
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = "GPUWATCH_"  # they may hold secrets of gpuwatch


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSettings(ProviderSettings):
    """What only a driver needs (docs/clouds/driver.md)."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT
    adapter: ClassVar[str] = "gpuwatch.clouds.driver.cloud:DriverCloud"
    launches_name_regions: ClassVar[bool] = False

    executable: Annotated[
        _Text | None,
        Setting(
            "The absolute path of the driver: an executable of root or of gpuwatch's user that no other can write."
        ),
    ] = None
    secrets: Annotated[
        dict[str, _Text],
        Setting("What the driver gets in `secrets` of each request, by name: a file or credential:NAME with the text."),
    ] = field(default_factory=dict)
    options: Annotated[
        dict[str, str], Setting("What the driver gets in `options` of each request; never a secret.")
    ] = field(default_factory=dict)
    environment: Annotated[
        tuple[_Text, ...],
        Setting(
            "Variables of gpuwatch's environment that the driver gets, besides PATH, LC_ALL and TZ; it gets no other."
        ),
    ] = ("HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE")
    call_timeout: Annotated[
        Seconds,
        Ge(1),
        Le(600),
        Setting("The driver is killed after this time; in a change at the end of the permit, where that is earlier."),
    ] = 60.0

    def _options(self) -> Mapping[str, Any]:
        return {"driver": self}

    def contradictions(self) -> Iterator[Contradiction]:
        """A driver that is not named, or not by its whole path; variables that no driver gets."""
        key = ("cloud", "driver", "executable")
        right = "the absolute path of the driver, such as /usr/local/lib/gpuwatch/my-cloud"
        if self.executable is None:
            yield Contradiction(keys=(key,), wrong="cloud.driver.executable is not set", right=right)
        elif not PurePosixPath(self.executable).is_absolute():
            yield Contradiction(keys=(key,), wrong=f"{self.executable!r} is not an absolute path", right=right)
        for name in self.environment:
            if not _VARIABLE.fullmatch(name) or name.startswith(_OURS):
                yield Contradiction(
                    keys=(("cloud", "driver", "environment"),),
                    wrong=f"{name!r} is not a variable that a driver gets",
                    right=f"names of letters, digits and _ that do not begin with {_OURS}",
                )
