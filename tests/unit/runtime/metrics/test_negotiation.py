"""runtime/metrics/exposition.py: each client gets the format that prometheus-client would choose for it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.exposition import choose_encoder

from gpuwatch.runtime.metrics.exposition import content_type_for

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8,application/signed-exchange;v=b3"
PARTS = st.sampled_from(
    (
        *("version=0.0.1", "version=0.0.4", "version=1.0.0", "version=2.0.0", " version=1.0.0", "version=", "q=0.5"),
        *("escaping=allow-utf-8", "escaping=underscores", "escaping=dots", "escaping=values", "escaping=x", "v=b3"),
        "charset=utf-8",
    )
)
KINDS = st.sampled_from(["application/openmetrics-text", "text/plain", "*/*", "text/html", " text/plain ", "", "a=b"])
ENTRIES = st.builds(lambda kind, parts: ";".join((kind, *parts)), KINDS, st.lists(PARTS, max_size=3))


@given(st.lists(ENTRIES, max_size=4).map(",".join))
def test_the_choice_is_prometheus_clients(accept: str) -> None:
    """Whatever is asked for, in whatever order, however often."""
    assert content_type_for(accept) == choose_encoder(accept)[1]


@pytest.mark.parametrize("accept", [PROMETHEUS, BROWSER, "", "*/*", "text/plain", "application/openmetrics-text"])
def test_usual_clients_do_not_need_prometheus_client(accept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prometheus 3, a browser, curl, and whoever names a format alone."""
    expected = choose_encoder(accept)[1]
    monkeypatch.setattr("gpuwatch.runtime.metrics.exposition._by_client", lambda _: pytest.fail("it was asked"))

    assert content_type_for(accept) == expected
