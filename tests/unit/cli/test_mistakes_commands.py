"""Mistakes in commands, options and their values, as they are typed: each is answered by what would be right."""

from pathlib import Path

import pytest

from tests.support.mistakes import Mistake, a_folder, answer, in_folder, mistakes

COMMANDS = mistakes(
    {
        "statsu": ("No such command 'statsu'", "'status'"),
        "Status": "'status'",
        "keep node-1 4h": ("'keep'", "`gpuwatch snooze`"),
        "ls": "`gpuwatch status`",
        "check": ("'check'", "`gpuwatch config check`"),
        "reconcile": "`gpuwatch cost reconcile`",
        "nvidia": "No such command 'nvidia'",
        "config chekc": "'check'",
        "export grafana out": "`gpuwatch export dashboards`",
        "audit logs": "'log'",
        "doctor fleet": "No such command 'fleet'",
        "--verison": "'--version'",
        "--config": ("--config needs a value", "gpuwatch --config FILE status"),
        "--config gpuwatch.yaml version": "`gpuwatch version` takes no --config",
    }
)
OPTIONS = mistakes(
    {
        "status --jsn": "'--json'",
        "snooze -4h --reason x": ("'-4h' is below zero", "such as 4h"),
        "pause -3 --reason x": "'-3' is below zero",
        "top --once --url http://127.0.0.1:9": ("'--url'", "--agent"),
        "status -o": ("'-o'", "--json"),
        "status extra": "(extra)",
        "status --pool": "'--pool' requires an argument",
        "status --state sleeping": ("'--state'", "'sleeping'", "idle"),
        "status --sort money": ("'--sort'", "'money'", "'cost'"),
        "status --watch 30s --json": ("--watch", "terminal"),
        "status --watch 30": ("'--watch'", "'30' has no unit", "30s"),
        "rounds --last 5": "'--limit'",
        "rounds --limit 0": ("'--limit'", "0", "1<=x<=100000"),
        "rounds --limit many": ("'--limit'", "'many' is not a valid integer"),
        "config check extra": "(extra)",
        "config show --pool nope": ("--pool 'nope'", "default, training"),
        "config init gpuwatch.yaml": ("gpuwatch.yaml exists", "was not changed"),
        "explain": "Missing argument 'NODE'",
        "explain x --round 0": ("'--round'", "0"),
        "explain x --round last": ("'--round'", "'last' is not a valid integer"),
        "explain x --round 99": ("round 99", "`gpuwatch rounds`"),
        "explain x --at yesterday": ("--at 'yesterday'", "2026-01-31T18:00Z"),
        "explain x --at 2026-13-01": ("--at '2026-13-01'", "2026-01-31T18:00Z"),
        "explain x --at 2999-01-01": ("--at '2999-01-01'", "future"),
        "explain x --at 2026-01-01 --round 4": "give --round or --at, not both",
        "pause": "'--reason'",
        "pause --reason x --for 4": ("'--for'", "'4' has no unit", "4m"),
        "pause --reason x --for soon": ("'--for'", "'soon' is not a duration", "1h30m"),
        "pause --reason x --for -2h": ("'--for'", "'-2h'"),
        "pause --reason x --for 0s": ("'--for'", "'0s' is not above 0"),
        "pause --reason x --for 40000d": ("'--for'", "century"),
        "pause --reason x --pool trainig": ("--pool 'trainig'", "'training'"),
        "resume --pool nope": ("--pool 'nope'", "default, training"),
        "acknowledge --pool nope": ("--pool 'nope'", "default, training"),
        "approve i-nope": "'i-nope'",
        "audit log --since 2030-01-01": ("--since", "'2030-01-01' lies in the future"),
        "audit log --since 2030": ("--since", "'2030' is not a time", "30d"),
        "snooze": ("DURATION, --list, --end", "gpuwatch snooze 4h"),
        "demo --headless --hours nan": ("'--hours'", "nan is not a number"),
        "backtest --hours nan": ("'--hours'", "nan is not a number"),
        "snooze 4": ("'4' has no unit", "4m"),
        "snooze 4h": "--reason",
        "snooze 4h --end": "give one of DURATION, --list, --end",
        "snooze a/notebook/b": "with WORKLOAD, give DURATION or --end",
        "snooze a/notebook/b 4h": "--reason",
        "snooze a/notebook/b 4h --end": "with WORKLOAD, give DURATION or --end",
        "snooze a/notebook/b --list": "gpuwatch explain WORKLOAD",
        "snooze a/notebook/b 4": ("'4' has no unit", "4h"),
        "snooze Notebook a/b 4h": "quote a name",
        "notify test nobody": ("'nobody'", "chat"),
        "completion tcsh": ("'tcsh'", "'bash', 'zsh', 'fish'"),
        "top --interval 0": ("'--interval'", "'0' is not above 0"),
        "top --interval 2": ("'--interval'", "'2' has no unit", "2s"),
        "top --password-file x": ("--password-file", "--user"),
        "demo --hours 1": ("--hours", "--headless"),
        "demo --json": ("--json", "--headless"),
        "demo --headless --hours day": ("'--hours'", "'day' is not a valid number"),
        "demo --headless --timeout 10": ("'--timeout'", "'10' has no unit"),
        "demo --headless --seed x": ("'--seed'", "'x' is not a valid integer"),
        "demo --headless --speed 10": ("--speed", "--headless"),
        "probe --once --source nvlm": ("--source", "'nvlm'", "nvml"),
        "probe --once --source replay": "--capture FILE",
        "agent --listen 127.0.0.1": ("--listen", "127.0.0.1:9460"),
        "agent --prot 1": "--prot",
    }
)
MONEY = mistakes(
    {
        "cost --month march": ("--month 'march'", "2026-03"),
        "cost --month 2026-13": ("--month '2026-13'", "2026-03"),
        "cost --day 31/12/2026": ("--day '31/12/2026'", "2026-03-01"),
        "cost --day 12/31/2026": ("--day '12/31/2026'", "2026-03-01"),
        "cost --day 2026-02-30": "--day '2026-02-30'",
        "cost --day 2999-01-01": ("--day '2999-01-01' lies in the future", "today is"),
        "cost --from 2026-03-10 --to 2026-03-01": ("--to 2026-03-01", "before --from 2026-03-10"),
        "cost --day 2026-03-01 --month 2026-03": "exclude each other",
        "cost --by teem": ("'teem'", "owner"),
        "cost --by tag:": ("'tag:'", "tag:KEY"),
        "report --day yesterday": ("--day 'yesterday'", "2026-03-01"),
        "report --month 2999-01": ("--month '2999-01' lies in the future", "2026-03"),
        "report --year 26": ("--year '26'", "2026"),
        "report --send nobody": ("--send", "'nobody'", "report.receivers"),
        "report --html --json": "--json excludes --html",
        "forecast": "give one of --csv FILE",
        "forecast --csv series.csv --horizon 5": ("'--horizon'", "'5' has no unit"),
        "forecast --csv series.csv --horizon -1d": ("'--horizon'", "'-1d'"),
        "forecast --csv series.csv --step 1": ("'--step'", "'1' has no unit"),
        "forecast --csv series.csv --step 1s": ("604800 steps", "--step"),
        "prices --gpu H9000": ("--gpu", "'H9000'", "H100"),
        "prices --region us-east-9": ("--region", "'us-east-9'", "'us-east-1'"),
        "prices --provider amazon": ("--provider", "'amazon'", "aws"),
        "prices --provider gcp --region us-east-1": ("--region", "'us-east-1'", "'us-east1'"),
        "prices --refresh": ("--refresh", "--provider", "--region"),
        "recommend instance": "'--params'",
        "recommend instance --params 7": ("'--params'", "'7' is too small", "7B"),
        "recommend instance --params 1e30": ("'--params'", "'1e30' is too large", "7B"),
        "recommend instance --params seven": ("'--params'", "'seven'", "7B"),
        "recommend instance --params 7B --precision int3": ("'--precision'", "'int3'", "'int4'"),
        "recommend instance --params 7B --region us-east-9": ("--region", "'us-east-9'", "'us-east-1'"),
        "recommend commitments --csv series.csv": "--price and --instance-type",
        "recommend commitments --csv series.csv --price free": ("'--price'", "'free'", "0.35"),
        "recommend commitments --csv series.csv --price -2": ("'--price'", "'-2' is not above 0", "0.35"),
        "recommend rightsize --over 7": ("'--over'", "'7' has no unit"),
    }
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder, made once."""
    return a_folder(tmp_path_factory.mktemp("begun"))


@pytest.mark.parametrize("mistake", COMMANDS + OPTIONS + MONEY, ids=lambda mistake: mistake.line)
def test_a_mistake_is_answered_by_what_would_be_right(
    mistake: Mistake, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer names the option and the value, and ends with the exit status that people's scripts expect."""
    in_folder(made, monkeypatch)
    told = answer(mistake, monkeypatch)

    assert [words for words in mistake.words if words not in " ".join(told.split())] == [], told
