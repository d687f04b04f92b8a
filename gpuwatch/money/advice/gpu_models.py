"""PURE: what GPU models can do, as NVIDIA's datasheets say it: dense figures, never with sparsity.

Throughput is in floating-point operations per second of the tensor cores, bandwidth in bytes per second. A precision
that a model has no units for is missing. Memory is the machine's to say: one model comes in several sizes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

SOURCE = "NVIDIA's datasheets and architecture white papers; dense figures of the form factor that clouds rent out"

_TERA = 10**12
_GIGA = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One GPU model. `link_bytes_per_second` is NVLink of one GPU, both ways together; None: PCIe alone."""

    model: str
    capability: tuple[int, int]
    flops: Mapping[str, int]
    memory_bytes_per_second: Mapping[int, int]  # by memory in GB; 0 stands for every size
    link_bytes_per_second: int | None
    mig: bool = False

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
) -> Card:
    sizes = bandwidth if isinstance(bandwidth, Mapping) else {0: bandwidth}
    return Card(
        model=model,
        capability=capability,
        flops=MappingProxyType({name: int(tera * _TERA) for name, tera in flops.items()}),
        memory_bytes_per_second=MappingProxyType({size: giga * _GIGA for size, giga in sizes.items()}),
        link_bytes_per_second=None if link is None else link * _GIGA,
        mig=mig,
    )


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
            "B200",
            (10, 0),
            {"fp32": 75, "tf32": 1125, "fp16": 2250, "bf16": 2250, "fp8": 4500, "int8": 4500},
            8000,
            1800,
            mig=True,
        ),
    )
}
