"""The section `slurm`: where scontrol is, and which pools' machines are nodes of its cluster."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Gt, Le, MinLen

from gpuwatch.model.duration import Seconds
from gpuwatch.model.setting import STRICT, Contradiction, Setting

_Text = Annotated[str, MinLen(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSettings:
    """The Slurm cluster with sick nodes to drain (`pools.<name>.health.action`). Without `scontrol` none is drained."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    scontrol: Annotated[
        _Text | None,
        Setting(
            "The program scontrol, by its whole path (/usr/bin/scontrol). The controller's user must be an operator "
            "of Slurm to drain nodes."
        ),
    ] = None
    squeue: Annotated[
        _Text | None,
        Setting(
            "The program squeue, by its whole path: with it, each round asks which GPUs running jobs hold (--json, "
            "Slurm 21.08 and later). None: only the jobs that wait are asked for, by the squeue next to scontrol."
        ),
    ] = None
    pools: Annotated[tuple[_Text, ...], Setting("The pools of machines that are nodes of this Slurm cluster.")] = ()
    timeout: Annotated[Seconds, Gt(0), Le(120), Setting("scontrol ends within this, or its answer is not known.")] = (
        10.0
    )
    conf: Annotated[
        _Text | None, Setting("The file slurm.conf that scontrol uses (SLURM_CONF); None: the one it was built for.")
    ] = None

    @property
    def configured(self) -> bool:
        """Whether Slurm is asked at all."""
        return self.scontrol is not None


def contradictions(settings: SlurmSettings) -> Iterator[Contradiction]:
    """Mistakes that no single key's bounds show."""
    for name, path in (("scontrol", settings.scontrol), ("squeue", settings.squeue)):
        if path is not None and not path.startswith("/"):
            yield Contradiction(
                keys=(("slurm", name),),
                wrong=f"slurm.{name} is {path!r}",
                right=f"a whole path, such as /usr/bin/{name}",
            )
    if settings.configured and not settings.pools:
        yield Contradiction(
            keys=(("slurm", "pools"), ("slurm", "scontrol")),
            wrong="slurm.scontrol is set, and slurm.pools names no pool",
            right="the pools of machines that are nodes of that cluster",
        )
    if not settings.configured and settings != SlurmSettings():
        yield Contradiction(
            keys=(("slurm",),),
            wrong="the section slurm does not say where scontrol is",
            right="scontrol: /usr/bin/scontrol",
        )
