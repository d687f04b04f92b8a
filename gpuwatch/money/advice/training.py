"""PURE: how long a training takes on so many GPUs and what it costs, with what interruptions take.

A dense transformer takes 6 floating-point operations for each parameter and token (2 forwards, 4 backwards; Kaplan et
al., 2020; Hoffmann et al., 2022), 8 where whole layers are computed again, 4 to train adapters alone (the weights' own
gradients are not needed). GPUs reach a part of their peak, the efficiency (MFU): 46 % in PaLM (Chowdhery et al., 2022),
38 to 43 % in Llama 3 (Grattafiori et al., 2024).

Every machine of a training stops when one is interrupted. Each interruption costs a restart and the work since the last
checkpoint.
"""

from dataclasses import dataclass
from decimal import Decimal

from gpuwatch.money.advice.gpu_models import CARDS
from gpuwatch.money.advice.instances import Candidate, computes_in
from gpuwatch.money.advice.model_memory import Recompute, Workload

DEFAULT_EFFICIENCY = 0.4
SOURCE = (
    "6 operations a parameter and token: Kaplan et al. (2020), Hoffmann et al. (2022); efficiency: Chowdhery et al. "
    "(2022) 46 %, Grattafiori et al. (2024) 38 to 43 %"
)
_PER_TOKEN = {"train": 6, "lora": 4}
_RECOMPUTED = 2
_HOURS_A_DAY = 24.0
_SECONDS_AN_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What is to be computed: `tokens`, or `flops` in all where these are known.

    `efficiency` is the part of the GPUs' peak that is reached. `interruptions_per_day` are of one machine. Each costs
    `lost_hours`: the restart, and half of the time between checkpoints.
    """

    tokens: float | None = None
    flops: float | None = None
    efficiency: float = DEFAULT_EFFICIENCY
    interruptions_per_day: float = 0.0
    lost_hours: float = 0.0

    def operations(self, load: Workload, recompute: Recompute) -> float:
        """How many floating-point operations it takes."""
        if self.flops is not None:
            return self.flops
        each = _PER_TOKEN[load.task] + (_RECOMPUTED if recompute == "full" else 0)
        return float(each) * load.shape.params * (self.tokens or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A training on one candidate: hours from its start to its end, and what they cost; None: not known.

    `useful_ratio` is the part of these hours that is not lost to interruptions; 0: it would never end.
    """

    hours: float | None
    usd: Decimal | None
    useful_ratio: float


def estimate(load: Workload, found: Candidate, run: Run) -> Estimate:
    """How long a training takes there, and what it costs."""
    card = CARDS.get(found.offer.gpu_model)
    lost = run.interruptions_per_day * found.machines * run.lost_hours / _HOURS_A_DAY
    useful = max(0.0, 1.0 - lost)
    if card is None or useful <= 0:
        return Estimate(hours=None, usd=None, useful_ratio=useful)
    per_second = card.flops[computes_in(load, card)] * found.gpus * run.efficiency
    hours = run.operations(load, found.recompute) / per_second / _SECONDS_AN_HOUR / useful
    usd = None if found.usd_per_hour is None else (found.usd_per_hour * Decimal(hours)).quantize(Decimal("0.01"))
    return Estimate(hours=hours, usd=usd, useful_ratio=useful)
