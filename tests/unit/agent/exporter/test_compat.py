"""agent/compat: what is absent, the page in its formats, the manual, the setting."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace

from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

from gpuwatch.agent.exporter.compat import DIALECTS
from gpuwatch.agent.state import Interruption
from gpuwatch.config import load_agent
from tests.support.builders.compat_pages import FULL, INFO, INSTANCE, LABELS, OPENMETRICS, SMI_UUID, Page
from tests.support.builders.gpu import a_down, a_reading
from tests.support.paths import ROOT
from tools.docs.compatibility import render

parse_openmetrics: Callable[[str], Iterable[Metric]] = openmetrics.text_string_to_metric_families


# Collection.


def test_collection_alerts_fire_on_a_failure() -> None:
    """last_collect_success is 1 after a whole cycle of all GPUs, 0 before the first, with one lost, without a probe."""

    def success(page: Page) -> float:
        return page.samples("nvidia_smi_last_collect_success")[0][1]

    page = Page("nvidia_smi")
    assert success(page) == 0.0
    assert success(page.cycle(FULL)) == 1.0
    [(labels, ended)] = page.samples("nvidia_smi_last_collect_success_timestamp_seconds")
    assert (labels, ended) == ({}, page.clock.now().timestamp())
    assert page.samples("nvidia_smi_last_collect_duration_seconds") == [({}, 0.01)]
    assert success(page.cycle(FULL, a_down(1))) == 0.0
    page.cycle(FULL, a_reading(1)).core.interrupt(Interruption.EXIT, "it ended")
    page.clock.advance(1.0)
    assert success(page) == 0.0


# XIDs.


def test_xids_are_shown_also_of_a_lost_gpu() -> None:
    """The last one is a code with its words for dcgm, nvidia_smi counts each; without one there is no series."""
    page = Page("dcgm", "nvidia_smi").cycle(FULL)
    assert page.samples("DCGM_FI_DEV_XID_ERRORS") == page.samples("nvidia_smi_xid_errors_total") == []

    for xid in (79, 31, 250):
        page.clock.advance(60.0)
        page.cycle(FULL, xid=xid)
        value = page.clock.now().timestamp()
    page.cycle(replace(a_down(0), info=INFO))

    unknown = {"err_code": "250", "err_msg": "Unknown Error"}
    assert page.samples("DCGM_FI_DEV_XID_ERRORS") == [({**LABELS["dcgm"], **unknown}, 250.0)]
    assert page.samples("nvidia_smi_xid_errors_total") == [
        ({"uuid": SMI_UUID, "xid": str(xid)}, 1.0) for xid in (79, 31, 250)
    ]
    assert page.samples("nvidia_smi_xid_last_timestamp_seconds")[-1] == ({"uuid": SMI_UUID, "xid": "250"}, value)


# The page.


def test_without_a_dialect_nothing_is_added() -> None:
    """The page is what it is for an agent that knows of none."""
    page = Page().cycle(FULL).text()

    assert set(re.findall(r"^([a-zA-Z_]+?)_", page, re.MULTILINE)) == {"gpuwatch"}


def test_both_formats_say_the_same_in_all_dialects_at_once() -> None:
    """Parsers take both, with the same samples; in the plain one types are those of the originals."""
    plain, open_ = (
        Page(*DIALECTS).cycle(replace(FULL, mig_instances=(INSTANCE,)), a_reading(1)).text(accept)
        for accept in ("text/plain", OPENMETRICS)
    )
    types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", plain, re.MULTILINE))

    assert _samples_of(plain) == _samples_of(open_)
    assert len(list(parse_openmetrics(open_))) == len(list(parse_prometheus(plain)))
    assert types["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"] == "counter"
    assert types["DCGM_FI_DEV_GPU_UTIL"] == "gauge"
    assert types["nvidia_smi_energy_joules_total"] == "counter"
    assert types["nvidia_smi_ecc_errors_corrected_volatile_total"] == "gauge"


def _samples_of(page: str) -> set[str]:
    return {line for line in page.splitlines() if not line.startswith("#")}


def test_the_documentation_is_the_tables() -> None:
    """docs/compatibility.md is what the generator writes: `make docs`."""
    written = ROOT / "docs" / "compatibility.md"

    assert written.read_text(encoding="utf-8") == render()


# The setting.


def test_dialects_are_a_setting() -> None:
    """Any combination, by file or environment; every dialect can be chosen."""
    assert load_agent(None, {"GPUWATCH_AGENT__COMPAT": "dcgm,nvitop"}).compat == ("dcgm", "nvitop")
    assert load_agent(None, {"GPUWATCH_AGENT__COMPAT": ",".join(DIALECTS)}).compat == DIALECTS


def test_flags_add_up_and_a_wrong_one_is_named() -> None:
    """--compat may be given several times or with commas."""
    command = [sys.executable, "-m", "gpuwatch", "agent", "--compat", "dcgm,nvitop", "--compat", "dcgn"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)

    assert (ended.returncode, ended.stdout) == (2, "")
    assert 'agent.compat.2: "dcgn" is not one of the choices' in ended.stderr
