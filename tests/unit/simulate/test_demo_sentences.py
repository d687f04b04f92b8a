"""What `gpuwatch demo --headless` tells people: every figure of its JSON in a sentence."""

from dataclasses import replace

from gpuwatch.simulate.demo import DemoDocument

FIGURES = DemoDocument(
    source="demo fleet",
    seed=7,
    hours=6.0,
    nodes=13,
    gpus=36,
    rounds=359,
    billed_gpu_hours=191.1794,
    useful_gpu_hours=124.1772,
    missed_gpu_hours=0.2,
    silent_gpu_hours=16.0289,
    waste_ratio=0.350468,
    baseline_waste_ratio=0.42418,
    stopped=9,
    wrongly_stopped=0,
    restarts=4,
    saved_usd=32.98,
)


def test_the_figures_are_sentences() -> None:
    """No key of the JSON, and no more digits than people read."""
    assert FIGURES.sentences().splitlines() == [
        "Played: 6 hours of 13 machines with 36 GPUs, 359 rounds (demo fleet, seed 7).",
        "Saved: $32.98. Of the GPU-hours that are billed, 35.0% were wasted; without gpuwatch, 42.4%.",
        "Stops: 9. None of these stops was wrong, by the simulation's own truth.",
        "Starts after a stop: 4. Meanwhile 0.2 GPU-hours of work were missed.",
        "GPU-hours: 191.2 billed, 124.2 useful, 16.0 while an agent was silent.",
    ]


def test_wrong_stops_are_counted() -> None:
    """Nobody overlooks them."""
    assert "Stops: 9. 2 were wrong, by" in replace(FIGURES, wrongly_stopped=2).sentences()
