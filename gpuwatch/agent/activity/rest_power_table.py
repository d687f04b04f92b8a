"""The power of GPUs at rest that hold a CUDA context, by model: measured figures.

With a context the driver keeps the clocks up (performance states P0 to P2), and a GPU without work then draws far more
than an empty one: nearly half of its limit on the small cards. In P8 and below nothing comes near a third of the limit.

The highest figure seen is used, because it rises with the temperature (a T4 draws 26 W at 35 °C and 33 W at 75 °C).
A model is left out where `busy_power_ratio` suffices and no figure was found; its GPUs learn their own (rest_power.py).

Sources:

- [P] arXiv:2605.23918, bare and context idle power. The memory held adds less than 0.02 W/GB.
- [D] NVIDIA/open-gpu-kernel-modules issue 874: an A40 with a loaded, idle process.
- [S] nvidia-smi tables in public repositories, at 0 % utilization (5 % at most).
- [G] measured for gpuwatch with driver 580.159: tests/captures/nvidia_h200_context.jsonl.
- [I] issues of llama.cpp (3717), text-generation-inference (946) and ollama (8591).
"""

from functools import lru_cache

# Consecutive words of the product name, hyphens counting as blanks; the first row that fits counts.
REST_WATTS: tuple[tuple[tuple[str, ...], float], ...] = (
    (("T4",), 33.0),  # [S] of 70 W: 26 to 28 W up to 60 °C, 31 to 33 W at 70 to 77 °C
    (("L4",), 36.0),  # [S] of 72 W: 27 to 28 W empty, 36 W with 20 GB loaded at 54 and 60 °C
    (("P4",), 24.0),  # [S] of 75 W: 22 and 23 W
    (("A2",), 20.0),  # [S] of 60 W
    (("A10",), 57.0),  # [S] of 150 W: 54 to 57 W, empty
    (("A10G",), 70.0),  # [S] of 300 W: 59 and 60 W empty, 70 W with 10 GB loaded
    (("A30",), 43.0),  # [S] of 165 W: 27 to 35 W, 43 W at 49 °C
    (("A40",), 110.0),  # [D] of 300 W: 30 W empty
    (("RTX", "A4000"), 38.0),  # [I] of 140 W
    (("RTX", "A6000"), 83.0),  # [S] of 300 W: 71 W with 21 GB loaded, 83 W
    (("A100",), 80.0),  # [P] 54 W empty; [S] of 250 to 400 W: 45 to 70 W
    (("L20",), 114.0),  # [S] of 350 W, with 34 GB loaded
    (("L40S",), 103.0),  # [P] of 350 W: 36 W empty, 102 W
    (("H100", "80GB", "HBM3"), 122.0),  # [P] 72 W empty; [S] of 700 W: 67 to 73 W empty, 110 W with 6 GB loaded
    (("H200",), 124.0),  # [G] of 700 W: 81 W empty, 123 and 124 W with a context and 0.5 to 1.6 GB at 39 °C
    (("V100",), 55.0),  # [S] of 300 W: 41 to 47 W empty, 53 and 55 W with 15 and 20 GB loaded; [I]
    (("P40",), 52.0),  # [I] of 250 W
    (("P100",), 32.0),  # [S] of 250 W: 27 to 32 W
    (("T10",), 40.0),  # [S] of 150 W, with 5 GB loaded
    (("RTX", "3090"), 106.0),  # [S] of 350 W: 105 W with 21 GB loaded in P2, 106 W in P0
    (("RTX", "4090"), 54.0),  # [S] of 450 W, with 18 GB loaded in P2
)


@lru_cache(maxsize=64)
def rest_watts(name: str | None) -> float | None:
    """What a GPU of this product name draws at rest with its clocks up; None where that is not known."""
    words = (name or "").replace("-", " ").split()
    if "Laptop" in words:
        return None
    for model, watts in REST_WATTS:
        if any(tuple(words[start : start + len(model)]) == model for start in range(len(words))):
            return watts
    return None
