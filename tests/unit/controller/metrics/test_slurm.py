"""What the controller tells Prometheus of a Slurm cluster."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from prometheus_client.parser import text_string_to_metric_families as parse

from gpuwatch.clouds import CloudUnavailableError
from gpuwatch.controller.metrics import ControllerMetrics
from gpuwatch.model.activity import State
from gpuwatch.model.health import Health
from gpuwatch.model.slurm import SlurmJob
from tests.support.builders.fleet import NOW, a_node
from tests.support.builders.money import a_price
from tests.support.builders.slurm import SlurmDesk, a_slurm_desk

Samples = Mapping[tuple[str, ...], float]
ANN = SlurmJob(id="7", user="ann", gpus=1, indexes=(0,), started_at=NOW - timedelta(hours=3))


def told(desk: SlurmDesk) -> Samples:
    """Every `gpuwatch_slurm_*` sample after a round: its name and its values by the labels' names."""
    metrics = ControllerMetrics("enforce", "ml", desk.clock)
    metrics.round(desk.round(), 0.1)
    return {
        (
            sample.name.removeprefix("gpuwatch_slurm_"),
            *(value for key, value in sample.labels.items() if key != "fleet"),
        ): (sample.value)
        for family in parse(metrics.page().body.decode())
        for sample in family.samples
        if sample.name.startswith("gpuwatch_slurm_")
    }


def test_jobs_that_hold_gpus_in_vain_are_told_with_user_machine_and_cost() -> None:
    """A busy one is only counted."""
    desk = a_slurm_desk(prices={"g6.xlarge": a_price("8")})
    desk.turn(1, Health.HEALTHY)
    desk.fleet.put(replace(a_node("i-2"), name="gpu-2"))
    desk.fleet.show("i-2", State.IDLE, 7200.0)
    desk.slurm.put("gpu-3", "MIXED", "DRAIN", reason="fan")
    desk.slurm.held = {"gpu-1": (replace(ANN, id="8", user="bob"),), "gpu-2": (ANN,)}
    samples = told(desk)
    assert samples["up",] == 1
    assert samples["allocated_gpus", "idle", "default", "ann"] == 1
    assert samples["allocated_gpus", "busy", "default", "bob"] == 1
    where = ("i-2", "default", "7", "ann")
    assert samples["unused_gpus", *where] == 1
    assert samples["unused_seconds", *where] == 7200
    assert samples["unused_usd_per_hour", *where] == 8
    assert samples["drained_nodes", "others", "default"] == 1
    assert samples["drained_nodes", "gpuwatch", "default"] == 0


def test_what_a_job_costs_on_a_machine_that_is_not_ours_has_no_series() -> None:
    """Its GPUs are seen; their money is in no sum (`cost.scope`)."""
    desk = a_slurm_desk(prices={"g6.xlarge": a_price("8")})
    desk.fleet.put(replace(a_node("i-2"), name="gpu-2", enrolled=False))
    desk.fleet.show("i-2", State.IDLE, 7200.0)
    desk.slurm.held = {"gpu-2": (ANN,)}
    samples = told(desk)

    assert samples["unused_gpus", "i-2", "default", "7", "ann"] == 1
    assert not [name for name, *_ in samples if "usd" in name]


def test_a_drain_of_our_own_is_counted_apart() -> None:
    """In the round after it."""
    desk = a_slurm_desk()
    desk.round()
    assert told(desk)["drained_nodes", "gpuwatch", "default"] == 1


def test_silence_is_told_and_nothing_else() -> None:
    """A number that nobody knows has no series; without Slurm in the settings there is none at all."""
    desk = a_slurm_desk()
    desk.slurm.fault = lambda _: CloudUnavailableError("no answer")
    assert told(desk) == {("up",): 0}
    desk.slurm.fault = lambda call: CloudUnavailableError("no answer") if call == "queue" else None
    assert told(desk)["up",] == 0
    assert told(a_slurm_desk(has_slurm=False)) == {}
