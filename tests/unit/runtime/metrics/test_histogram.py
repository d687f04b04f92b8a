"""runtime/metrics/family.py: every value is counted once, in the buckets whose bound it does not exceed."""

import threading
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client import Histogram as TheirHistogram
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser as openmetrics

from gpuwatch.runtime.clock import ManualClock
from gpuwatch.runtime.metrics.exposition import Exposition
from gpuwatch.runtime.metrics.family import HISTOGRAM, Family, Histogram

BOUNDS = (0.005, 0.1, 1, 2.5)
FAMILY = Family(name="x_seconds", kind=HISTOGRAM, help="X.", source="a test")
parse_openmetrics: Callable[[str], Iterable[Metric]] = openmetrics.text_string_to_metric_families

seconds = st.sampled_from(BOUNDS) | st.floats(0, 1e9)


def page(histogram: Histogram, *, openmetrics: bool = True) -> str:
    """What a scrape shows of it alone."""
    made = Exposition({FAMILY.name: FAMILY}).page(histogram.samples(FAMILY.name), openmetrics=openmetrics)
    return made.decode()


@given(st.lists(seconds, max_size=30))
def test_it_counts_as_prometheus_clients_own_histogram(values: list[float]) -> None:
    """Whatever is observed, buckets, count and sum are those of the client library."""
    ours, registry = Histogram(BOUNDS), CollectorRegistry()
    theirs = TheirHistogram("x_seconds", "X.", buckets=BOUNDS, registry=registry)
    for value in values:
        ours.observe(value)
        theirs.observe(value)
    expected = {
        (sample.name, sample.labels.get("le")): sample.value
        for family in registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    }

    found = {(name, labels[0] if labels else None): value for name, labels, value in ours.samples("x_seconds")}
    assert found == pytest.approx(expected)


@given(st.lists(seconds, max_size=30))
def test_strict_parsers_of_openmetrics_take_it(values: list[float]) -> None:
    """Buckets rise, the last one is +Inf, and it equals the count."""
    histogram = Histogram(BOUNDS)
    for value in values:
        histogram.observe(value)

    (family,) = parse_openmetrics(page(histogram))
    assert (family.type, family.unit, len(family.samples)) == ("histogram", "seconds", len(BOUNDS) + 3)


def test_it_is_there_before_the_first_value() -> None:
    """At zero, so that rate() and increase() see the first one."""
    assert page(Histogram((0.5, 1)), openmetrics=False) == (
        "# HELP x_seconds X.\n"
        "# TYPE x_seconds histogram\n"
        'x_seconds_bucket{le="0.5"} 0.0\n'
        'x_seconds_bucket{le="1.0"} 0.0\n'
        'x_seconds_bucket{le="+Inf"} 0.0\n'
        "x_seconds_count 0.0\n"
        "x_seconds_sum 0.0\n"
    )


def test_what_has_labels_is_there_once_it_was_observed() -> None:
    """But for those that are named at the beginning."""
    histogram = Histogram((1,), [("stop",)])
    histogram.observe(2.0, ("nodes",))

    assert [each for each in histogram.samples("x") if each[0] == "x_count"] == [
        ("x_count", ("stop",), 0),
        ("x_count", ("nodes",), 1),
    ]


def test_what_is_timed_counts_also_if_it_fails() -> None:
    """The slowest calls are those that end in an error."""
    clock, histogram = ManualClock(), Histogram((1, 10))

    @histogram.time_body(clock)
    def fails() -> None:
        clock.advance(5.0)
        raise TimeoutError

    with pytest.raises(TimeoutError):
        fails()

    assert [value for *_, value in histogram.samples("x")] == [0, 1, 1, 1, 5.0]


def test_threads_lose_no_value() -> None:
    """Requests to a cloud leave from several threads."""
    histogram = Histogram((1,))

    def observe() -> None:
        for _ in range(2000):
            histogram.observe(0.5)

    threads = [threading.Thread(target=observe) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert ("x_count", (), 8000) in list(histogram.samples("x"))


@pytest.mark.parametrize("bounds", [(), (1, 1), (2, 1)])
def test_bounds_that_do_not_rise_are_refused(bounds: tuple[float, ...]) -> None:
    """They are a mistake in the code."""
    with pytest.raises(ValueError, match="must rise"):
        Histogram(bounds)
