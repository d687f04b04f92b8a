"""PURE: what GPU models can do, as NVIDIA's datasheets say it: dense figures, never with sparsity.

Throughput is in floating-point operations per second of the tensor cores, bandwidth in bytes per second. A precision
that a model has no units for is missing. Memory is the machine's to say: one model comes in several sizes. `known_by`
says of a model where its figures are from, if they were not read in a datasheet. Models of other makers than NVIDIA are
left out: what is weighed besides these figures (CUDA, FlashAttention, MIG) is NVIDIA's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

SOURCE = "NVIDIA's datasheets and architecture white papers; dense figures of the form factor that clouds rent out"

_TERA = 10**12
_GIGA = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One GPU model. `link_bytes_per_second` is NVLink of one GPU, both ways together; None: PCIe alone.

    `known_by` is where the figures are from, where they were not read in a datasheet; None: in NVIDIA's.
    """

    model: str
    capability: tuple[int, int]
    flops: Mapping[str, int]
    memory_bytes_per_second: Mapping[int, int]  # by memory in GB; 0 stands for every size
    link_bytes_per_second: int | None
    mig: bool = False
    known_by: str | None = None

    def bandwidth(self, memory_bytes: int) -> int:
        """Of the size that comes next to this one."""
        size = min(self.memory_bytes_per_second, key=lambda gigabytes: abs(gigabytes * 2**30 - memory_bytes))
        return self.memory_bytes_per_second[size]


def _card(
    model: str,
    capability: tuple[int, int],
    flops: Mapping[str, float],
    bandwidth: int | Mapping[int, int],
    link: int | None = None,
    *,
    mig: bool = False,
    known_by: str | None = None,
) -> Card:
    sizes = bandwidth if isinstance(bandwidth, Mapping) else {0: bandwidth}
    return Card(
        model=model,
        capability=capability,
        flops=MappingProxyType({name: int(tera * _TERA) for name, tera in flops.items()}),
        memory_bytes_per_second=MappingProxyType({size: giga * _GIGA for size, giga in sizes.items()}),
        link_bytes_per_second=None if link is None else link * _GIGA,
        mig=mig,
        known_by=known_by,
    )


# Where figures are from that were not read in a datasheet.
_MEMORY = "from memory"
_VERDA = "by verda.com/blog/gb300-nvl72-architecture"
_HMC = "by hmc-tech.com"
_DERIVED = "by hmc-tech.com's figures of the RTX PRO 6000, in the ratio of FP32"

_BLACKWELL = {"fp32": 75, "tf32": 1125, "fp16": 2250, "bf16": 2250, "fp8": 4500}
_HOPPER = {"fp32": 67, "tf32": 494.5, "fp16": 989.5, "bf16": 989.5, "fp8": 1979, "int8": 1979}
_AMPERE = {"fp32": 19.5, "tf32": 156, "fp16": 312, "bf16": 312, "int8": 624}
CARDS = {
    card.model: card
    for card in (
        _card("P100", (6, 0), {"fp32": 10.6, "fp16": 21.2}, 732, 160),
        _card("P4", (6, 1), {"fp32": 5.5, "int8": 22}, 192),
        _card("V100", (7, 0), {"fp32": 15.7, "fp16": 125}, 900, 300),
        _card("T4", (7, 5), {"fp32": 8.1, "fp16": 65, "int8": 130}, 320),
        _card("A10", (8, 6), {"fp32": 31.2, "tf32": 62.5, "fp16": 125, "bf16": 125, "int8": 250}, 600),
        _card("A10G", (8, 6), {"fp32": 35, "tf32": 35, "fp16": 70, "bf16": 70, "int8": 140}, 600),
        _card("A30", (8, 0), {"fp32": 10.3, "tf32": 82, "fp16": 165, "bf16": 165, "int8": 330}, 933, mig=True),
        _card("A100", (8, 0), _AMPERE, {40: 1555, 80: 2039}, 600, mig=True),
        _card("A800", (8, 0), _AMPERE, {40: 1555, 80: 2039}, 400, mig=True),
        _card("L4", (8, 9), {"fp32": 30.3, "tf32": 60, "fp16": 121, "bf16": 121, "fp8": 242, "int8": 242}, 300),
        _card("L20", (8, 9), {"fp32": 59.8, "tf32": 59.8, "fp16": 119.5, "bf16": 119.5, "fp8": 239, "int8": 239}, 864),
        _card("L40S", (8, 9), {"fp32": 91.6, "tf32": 183, "fp16": 362, "bf16": 362, "fp8": 733, "int8": 733}, 864),
        _card("H100", (9, 0), _HOPPER, {80: 3350}, 900, mig=True),
        _card("H800", (9, 0), _HOPPER, {80: 3350}, 400, mig=True),
        _card("H20", (9, 0), {"fp32": 44, "tf32": 74, "fp16": 148, "bf16": 148, "fp8": 296, "int8": 296}, 4000, 900),
        _card("H200", (9, 0), _HOPPER, {141: 4800}, 900, mig=True),
        _card(
            "H100 NVL",
            (9, 0),
            {"fp32": 60, "tf32": 417.5, "fp16": 835.5, "bf16": 835.5, "fp8": 1670.5, "int8": 1670.5},
            3938,
            600,
            mig=True,
            known_by=_MEMORY,
        ),
        _card("B200", (10, 0), _BLACKWELL | {"int8": 4500}, 8000, 1800, mig=True),
        _card("GB200", (10, 0), _BLACKWELL | {"int8": 4500}, 7700, 1800, mig=True, known_by=_VERDA),
        _card("B300", (10, 3), _BLACKWELL | {"int8": 150}, 7700, 1800, mig=True, known_by=_VERDA),
        _card(
            "GB300",
            (10, 3),
            {"fp32": 80, "tf32": 1250, "fp16": 2500, "bf16": 2500, "fp8": 5000, "int8": 165},
            8000,
            1800,
            mig=True,
            known_by=_VERDA,
        ),
        # The bandwidth is the Server Edition's (from memory), which clouds rent out; the Workstation Edition has 1792.
        _card(
            "RTX PRO 6000",
            (12, 0),
            {"fp32": 125.95, "tf32": 251.9, "fp16": 503.8, "bf16": 503.8, "fp8": 1007.6, "int8": 1007.6},
            1597,
            mig=True,
            known_by=_HMC,
        ),
        _card(
            "RTX PRO 5000",
            (12, 0),
            {"fp32": 66.94, "tf32": 133.9, "fp16": 267.8, "bf16": 267.8, "fp8": 535.5, "int8": 535.5},
            1340,
            known_by=_DERIVED,
        ),
        # Half of the ratio of its larger sister: that list says so, and nobody has a datasheet that says more.
        _card(
            "RTX PRO 4500",
            (12, 0),
            {"fp32": 54.94, "tf32": 54.94, "fp16": 109.9, "bf16": 109.9, "fp8": 219.7, "int8": 439.5},
            800,
            known_by=_HMC,
        ),
        # Cards of several GPUs: the figures of one of them.
        _card(
            "A16",
            (8, 6),
            {"fp32": 4.34, "tf32": 8.68, "fp16": 17.36, "bf16": 17.36, "int8": 34.7},
            200,
            known_by=_HMC,
        ),
        _card("K80", (3, 7), {"fp32": 4.11}, 240, known_by="by cputronic.com"),
        _card("M60", (5, 2), {"fp32": 4.8}, 160, known_by="by alldbin.com and fpsbench.com"),
        _card("P40", (6, 1), {"fp32": 11.76, "int8": 47}, 347, known_by="by compucon.co.nz and alldbin.com"),
        _card("T4G", (7, 5), {"fp32": 8.1, "fp16": 65, "int8": 130}, 320, known_by="those of the T4, its twin"),
    )
}
