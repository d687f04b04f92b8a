"""What people have installed is never everything: each command says what it needs, and none ends in a traceback."""

from pathlib import Path

import pytest

from gpuwatch.cli.hints import install_hint, is_missing_part
from gpuwatch.runtime.installed import install_command
from tests.support.bare_install import Answer, answers, hidden, modules
from tests.support.command_tree import every_command

# What commands must be given; the others run without an argument.
ARGUMENTS = {
    "completion": ("bash",),
    "agent": ("--help",),  # it needs no extra, and would run on: tests/integration/packages starts it
    "config init": ("first.yaml",),
    "doctor": ("--record", "out/recorded"),
    "export alerts": ("out/alerts",),
    "export dashboards": ("out/dashboards",),
    "export helm": ("out/helm",),
    "export join": ("out/join", "10.0.0.5"),
    "join revoke": ("i-1",),
    "export iam": ("out/iam",),
    "export kustomize": ("out/kustomize",),
    "export units": ("out/units",),
    "cloud test": ("/bin/false",),
    "cost rates": ("--bill", "bill.csv"),
    "cost reconcile": ("--bill", "bill.csv"),
    "export focus": ("out/focus",),
    "explain": ("x",),
    "forecast": ("--csv", "series.csv"),
    "pause": ("--reason", "x"),
    "probe": ("--once", "--source", "simulated"),
    "recommend instance": ("--params", "7B"),
    "recommend ownership": ("--price", "250000", "--rent", "40"),
    "recommend spot": ("--csv", "spot.csv"),
    "recommend vendors": ("--scores", "vendors.csv"),
    "snooze": ("--list",),
}
# These work on a GPU host, or from files alone, and so on a bare install.
NEED_NO_EXTRA = {
    "agent",
    "cloud test",
    "completion",
    "config check",
    "config init",
    "config schema",
    "config show",
    "doctor agent",
    "export alerts",
    "export dashboards",
    "export helm",
    "export iam",
    "export join",
    "export kustomize",
    "export units",
    "forecast",
    "prices",
    "probe",
    "recommend instance",
    "recommend ownership",
    "recommend spot",
    "recommend vendors",
    "snooze",
    "top",
    "version",
}
CONFIGURATION = """
limits: {require_backtest: 30d}
pools: {training: {idle: {action: stop, timeout: 10m}}}
budgets: {team: {usd_per_month: 10}}
notify: {receivers: {chat: {slack: {url_file: /nonexistent}}}}
ledger: {path: FOLDER/ledger.db}
agent: {source: simulated, port: 1, evidence: {snooze: {directory: FOLDER/snoozes}}}
"""
MORE = (
    ("recommend", "restarts", "--trace", "load.csv"),
    ("backtest", "--trace", "load.csv"),
    ("backtest", "--trace", "load.csv", "--pool", "training", "--keep"),
    ("backtest", "--prometheus", "http://127.0.0.1:1"),
    ("backtest", "--ledger"),
    ("explain", "x", "--round", "3"),
    ("demo", "--headless", "--hours", "1"),
    ("doctor", "controller", "--alive"),
    ("forecast", "--csv", "series.csv", "--models"),
    ("recommend", "commitments", "--csv", "series.csv", "--price", "2"),
    ("status", "--json"),
    ("report", "--html"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that look right to somebody who has just installed gpuwatch."""
    folder = tmp_path_factory.mktemp("bare")
    (folder / "gpuwatch.yaml").write_text(CONFIGURATION.replace("FOLDER", str(folder)), encoding="utf-8")
    (folder / "load.csv").write_text("node,gpu,time,utilization\na,0,0,90\na,0,60,0\na,0,120,0\n", encoding="utf-8")
    (folder / "bill.csv").write_text("line_item_usage_account_id\n1\n", encoding="utf-8")
    (folder / "spot.csv").write_text("time,offer,nodes\n0,a,4\n7200,a,4\n", encoding="utf-8")
    (folder / "vendors.csv").write_text("vendor,sla,price\nweight,1,1\naws,99.9,\n", encoding="utf-8")
    (folder / "series.csv").write_text(
        "".join(f"2026-01-{day:02}T00:00Z,{day}\n" for day in range(1, 31)), encoding="utf-8"
    )
    return folder


@pytest.fixture(scope="module")
def bare(folder: Path) -> dict[str, Answer]:
    """What every command answers where only the base requirements are installed."""
    lines = [(*path, *ARGUMENTS.get(" ".join(path), ())) for path, _ in every_command()] + list(MORE)
    found = answers(lines, {"GPUWATCH_CONFIG": str(folder / "gpuwatch.yaml")}, without=hidden(), folder=folder)
    return dict(zip((" ".join(line) for line in lines), found, strict=True))


def test_no_command_ends_in_a_traceback_on_a_bare_install(bare: dict[str, Answer]) -> None:
    """Whatever is missing is a sentence."""
    assert {line: answer.crash for line, answer in bare.items() if answer.crash} == {}
    assert [line for line, answer in bare.items() if "Traceback" in answer.output] == []


def test_every_command_is_tried_with_arguments_that_it_takes(bare: dict[str, Answer]) -> None:
    """A command that only complains of its arguments was not tried: it needs a row in ARGUMENTS."""
    assert [line for line, answer in bare.items() if "Usage: " in answer.output and not line.startswith("agent")] == []


def test_every_command_works_or_says_what_to_install(bare: dict[str, Answer]) -> None:
    """Exit status 2 with the command that installs it; those that a GPU host needs work."""
    for path, _ in every_command():
        line = " ".join((*path, *ARGUMENTS.get(" ".join(path), ())))
        answer = bare[line]
        if " ".join(path) in NEED_NO_EXTRA:
            assert "This command needs" not in answer.output, line
            assert answer.status in {0, 1}, (line, answer.output)
        else:
            assert answer.status == 2, (line, answer.output)
            assert "pip install '" in answer.output, (line, answer.output)


def test_what_can_be_said_without_the_controller_is_said(bare: dict[str, Answer]) -> None:
    """`config check` judges the settings, and says why it knows of no backtest."""
    answer = bare["config check"]

    assert answer.output.startswith("OK: ")
    assert "limits.require_backtest is set, and the ledger cannot be read here" in answer.output
    assert "pip install '" in answer.output
    assert bare["recommend commitments --csv series.csv --price 2"].status == 0


@pytest.mark.parametrize(
    ("without", "lines", "settings", "extra"),
    [
        (("boto3", "botocore"), ("status", "controller", "doctor controller"), {}, "aws"),
        (
            ("psycopg",),
            ("rounds", "audit verify"),
            {"GPUWATCH_LEDGER__URL": "postgresql://x@127.0.0.1:1/x"},
            "postgres",
        ),
        (("statsmodels",), ("forecast --csv series.csv --models",), {}, "forecast"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_single_extra_that_is_missing_is_named(
    folder: Path, without: tuple[str, ...], lines: tuple[str, ...], settings: dict[str, str], extra: str
) -> None:
    """Every other part is there."""
    (folder / "no_settings.yaml").touch()
    found = answers(
        [line.split() for line in lines],
        {"GPUWATCH_CONFIG": str(folder / "no_settings.yaml"), "AWS_DEFAULT_REGION": "us-east-1", **settings},
        without=without,
        folder=folder,
    )

    for line, answer in zip(lines, found, strict=True):
        assert answer.crash == ""
        assert install_command(extra) in answer.output, (line, answer.output)
        assert answer.status == (1 if line.startswith("doctor") else 2), (line, answer.output)  # doctor finds problems


def test_the_base_requirements_are_what_the_project_says() -> None:
    """The stand-in hides what an extra brings, and nothing that the base needs."""
    base = modules()

    assert {"click", "rich", "msgspec", "pydantic_settings", "yaml", "pynvml", "prometheus_client"} <= base
    assert base.isdisjoint({"sqlalchemy", "aiohttp", "boto3", "jinja2", "apscheduler", "bcrypt", "pytest"})


def test_a_module_of_our_own_that_is_missing_is_a_bug() -> None:
    """To install an extra would not mend it."""
    assert not is_missing_part(ModuleNotFoundError("No module named 'gpuwatch.gone'", name="gpuwatch.gone"))
    assert not is_missing_part(ImportError("cannot import name 'x'", name="gpuwatch.model"))
    assert is_missing_part(ModuleNotFoundError("No module named 'boto3'", name="boto3"))
    assert "pip install '" in install_hint(ModuleNotFoundError("No module named 'boto3'", name="boto3"))
