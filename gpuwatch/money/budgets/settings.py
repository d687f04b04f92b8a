"""The settings of `budgets:` in the configuration."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, MinLen

from gpuwatch.model.budget import Scope, When
from gpuwatch.model.duration import Seconds
from gpuwatch.model.setting import STRICT, Contradiction, Setting

_PERCENT = re.compile(r"(\d{1,4}(?:\.\d{1,2})?) ?%")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a month of a cloud, pool, owner, account, tag or namespace, or of everything, may cost."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    usd_per_month: Annotated[
        Decimal, Gt(0), Setting("US dollars for a month, which begins by the clocks of cost.timezone.")
    ] = Decimal(5000)
    cloud: Annotated[
        Annotated[str, MinLen(1)] | None, Setting("Only this cloud's machines count, by its name in `clouds`.")
    ] = None
    pool: Annotated[
        Annotated[str, MinLen(1)] | None, Setting("Only this pool's machines count. None: of all pools.")
    ] = None
    owner: Annotated[Annotated[str, MinLen(1)] | None, Setting("Only this owner's. None: everybody's.")] = None
    account: Annotated[Annotated[str, MinLen(1)] | None, Setting("Only this cloud account's. None: of all.")] = None
    tag: Annotated[
        Annotated[str, MinLen(1)] | None,
        Setting(
            "Only machines with this tag, as KEY=VALUE; the key must be one of cost.tags. None: machines with any tags."
        ),
    ] = None
    namespace: Annotated[
        Annotated[str, MinLen(1)] | None,
        Setting(
            "Only what pods of this Kubernetes namespace request counts, used or not. None: whole machines. It neither "
            "blocks growth nor shortens a wait, which are of machines."
        ),
    ] = None
    thresholds: Annotated[
        tuple[Annotated[str, MinLen(1)], ...],
        Setting(
            "Shares of it that are reported, once a month each, when they are spent and when they are forecast to be."
        ),
    ] = ("50%", "80%", "100%")
    notify: Annotated[
        tuple[Annotated[str, MinLen(1)], ...],
        Setting(
            "Names of notify.receivers that get a message at each threshold, once a month each, in both modes. Without "
            "any, the log alone says it."
        ),
    ] = ()
    block_growth: Annotated[
        When, Setting("Add no machine to the scope: once all of it is spent (actual), or is forecast to be, or never.")
    ] = "never"
    shorten_idle_timeout: Annotated[
        When,
        Setting(
            "Idle machines of the scope get their notice sooner: once all is spent, or is forecast to be, or never."
        ),
    ] = "never"
    shortened_idle_timeout: Annotated[
        Seconds, Ge(60), Setting("How long they wait then, where they would wait longer; the grace after it stays.")
    ] = 600.0

    @property
    def scope(self) -> Scope:
        """The machines that count."""
        key, _, value = (self.tag or "").partition("=")
        tag = None if self.tag is None else (key, value)
        return Scope(
            cloud=self.cloud,
            pool=self.pool,
            owner=self.owner,
            account=self.account,
            tag=tag,
            namespace=self.namespace,
        )

    @property
    def ratios(self) -> tuple[Decimal, ...]:
        """The thresholds as parts of the whole, smallest first."""
        return tuple(sorted({ratio for each in self.thresholds if (ratio := _ratio(each)) is not None}))


def _ratio(text: str) -> Decimal | None:
    """0.8 of `80%`; None of what is no percentage above 0."""
    found = _PERCENT.fullmatch(text.strip())
    return Decimal(found[1]) / 100 if found is not None and Decimal(found[1]) > 0 else None


def contradictions(
    budgets: Mapping[str, Budget], tags: Collection[str], *, cluster: bool = True
) -> Iterator[Contradiction]:
    """What no single key's bounds can check; `tags` are those that are kept with what machines cost.

    `cluster` is whether the settings have a Kubernetes cluster.
    """
    for name, budget in budgets.items():
        yield from _of_namespace(name, budget, cluster=cluster)
        wrong = [each for each in budget.thresholds if _ratio(each) is None]
        if wrong:
            yield Contradiction(
                keys=(("budgets", name, "thresholds"),),
                wrong=f"{wrong[0]!r} is no percentage above 0",
                right="percentages such as [50%, 80%, 100%]",
            )
        key, sign, value = (budget.tag or "").partition("=")
        if budget.tag is None:
            continue
        if not (key and sign and value):
            yield Contradiction(
                keys=(("budgets", name, "tag"),),
                wrong=f"{budget.tag!r} is no KEY=VALUE",
                right="a tag such as team=vision",
            )
        elif key not in tags:
            yield Contradiction(
                keys=(("budgets", name, "tag"), ("cost", "tags")),
                wrong=f"the tag {key!r} of budgets.{name} is not among cost.tags: it is not kept with what is spent",
                right=f"{key} in cost.tags, or one of {', '.join(tags) or 'the tags that you list there'}",
            )


def _of_namespace(name: str, budget: Budget, *, cluster: bool) -> Iterator[Contradiction]:
    """A namespace is of a cluster, and no machine is of a namespace."""
    if budget.namespace is None:
        return
    if not cluster:
        yield Contradiction(
            keys=(("budgets", name, "namespace"), ("kubernetes",)),
            wrong=f"budgets.{name}.namespace is of a Kubernetes cluster, and no cluster is configured",
            right="the section kubernetes with in_cluster: true or a kubeconfig, or a budget without namespace",
        )
    for effect in ("block_growth", "shorten_idle_timeout"):
        if getattr(budget, effect) != "never":
            yield Contradiction(
                keys=(("budgets", name, effect), ("budgets", name, "namespace")),
                wrong=f"budgets.{name}.{effect} acts on machines, and budgets.{name}.namespace is of pods",
                right=f"{effect}: never, or a budget of a pool",
            )
