"""What people type by mistake after `gpuwatch recommend`, and in its files: each answer names key, value and remedy."""

from pathlib import Path

import pytest

from tests.support.mistakes import Mistake, a_folder, answer, in_folder, mistakes

FILES = {
    "comma.csv": 'time,value\n2026-01-01,"3,5"\n2026-01-02,4\n',
    "semicolons.csv": "time;value\n2026-01-01;3,5\n2026-01-02;4\n",
    "typo.csv": "time,valeu\n2026-01-01,3\n",
    "below.csv": "time,value\n2026-01-01,-3\n2026-01-02,4\n",
    "spot.csv": "time,offer,nodes\n2026-01-01T00:00Z,a,4\n2026-01-01T01:00Z,a,4\n",
    "spot-typo.csv": "time,ofer,nodes\n2026-01-01T00:00Z,a,4\n",
    "spot-semicolons.csv": "time;offer;nodes\n2026-01-01T00:00Z;a;4\n",
    "spot-comma.csv": 'time,offer,nodes,usd_per_hour\n2026-01-01T00:00Z,a,4,"1,20"\n',
}
SHEETS: dict[str, str | tuple[str, ...]] = {  # a table of vendors: words of the answer
    "": "is empty",
    "vendor;sla\nweight;1\naws;99,9\n": ("semicolons", "vendor,sla"),
    "vendro,sla\nweight,1\naws,99\n": ("'vendro,sla'", "vendor,sla"),
    "vendor,sla\nweigth,1\naws,99\n": ("no row is named weight", "'weigth'"),
    "vendor,sla\naws,99\n": ("no row is named weight", "weight,5,3"),
    "vendor,sla,price\nweight,25,-1\naws,99,2\n": ("the weight of price is -1", "0 or more"),
    "vendor,sla,price\nweight,25,\naws,99,2\n": ("the weight of price is empty", "0 or more"),
    "vendor,sla\nweight,0\naws,99\n": ("all weights are 0", "above 0"),
    'vendor,sla\nweight,1\naws,"99,95"\n': ("sheet.csv:3: sla", "'99,95'", "99.95"),
    "vendor,line\nweight,1\naws,ja\n": ("sheet.csv:3: line", "'ja'", "yes or no"),
    "vendor,sla,price\nweight,25,75\naws,99\n": ("sheet.csv:3", "aws has 1 values", "need 2"),
    "vendor,sla\nweight,1\naws,99\naws,98\n": ("sheet.csv:4", "'aws' stands twice"),
    "vendor,sla,price\nweight,1,1\naws,99,-3\n": ("price of aws is -3", "from 0 on"),
    "vendor,sla,prise\nweight,1,1\naws,99,\n": ("no vendor has a value of 'prise'", "The nearest is 'price'"),
}
MISTAKES = mistakes(
    {
        "recommend commitments --csv typo.csv --price 2": ("typo.csv", "line 1", "'time,valeu'", "write time,value"),
        "recommend commitments --csv semicolons.csv --price 2": ("line 1", "semicolons", "write time,value"),
        "recommend commitments --csv comma.csv --price 2": ("line 2", "'3,5'", "write 3.5"),
        "recommend commitments --csv below.csv --price 2": ("below.csv", "-3 units", "never below 0"),
        "recommend commitments --csv series.csv --price 1e28": ("'--price'", "'1e28'", "too large"),
        "recommend ownership --price 1e28 --rent 3": ("'--price'", "'1e28'", "too large"),
        "recommend ownership --price 9000 --rent 1E-99999999": ("'--rent'", "'1E-99999999'", "too small"),
        "recommend ownership --price 9000 --rent 3 --years 1E-99999999": ("'--years'", "too small"),
        "recommend ownership --price 9000 --rent 3 --staff 1E-99999999": ("'--staff'", "too small"),
        "recommend commitments --csv series.csv --price 2,50": ("'--price'", "'2,50'", "write 2.50"),
        "recommend commitments --csv series.csv --price 2 --one-year 30": (
            "'--one-year'",
            "'30'",
            "write 0.3 for 30 %",
        ),
        "recommend commitments --csv series.csv --price 2 --one-year 30%": ("'--one-year'", "'30%'", "write 0.3"),
        "recommend commitments --csv series.csv --price 2 --tolerant 1.5": ("'--tolerant'", "'1.5'", "0.015 for 1.5 %"),
        "recommend commitments --csv series.csv --price 2 --interruption-cost -1": ("'--interruption-cost'", "below 0"),
        "recommend commitments --csv series.csv --instance-type p5.48xlage": ("'p5.48xlage'", "'p5.48xlarge'"),
        "recommend ownership --price -5 --rent 3": ("'--price'", "'-5' is not above 0"),
        "recommend ownership --price 250,000 --rent 40": ("'--price'", "'250,000'", "write 250000"),
        "recommend ownership --price ¥250000 --rent 40": ("'--price'", "'¥250000'", "write 250000"),
        "recommend ownership --price 250000 --rent 40 --pue 0.5": ("'--pue'", "'0.5' is below 1", "1.4"),
        "recommend ownership --price 250000 --rent 40 --watts 10.2kW": ("'--watts'", "'10.2kW'", "10.2"),
        "recommend ownership --price 250000 --rent 40 --capital-cost 6": ("'--capital-cost'", "write 0.06 for 6 %"),
        "recommend ownership --price 9 --rent 4 --watts 10 --idle-watts 20": (
            "--idle-watts",
            "20 W",
            "10 W",
            "--watts",
        ),
        "recommend ownership --price 250000 --instance-type p5.48xlarg": ("'p5.48xlarg'", "'p5.48xlarge'", "--rent"),
        "recommend instance --params 7B --train --interruptions 3": ("--interruptions", "--tokens or --flops"),
        "recommend instance --params 7B --train --efficiency 0.3": ("--efficiency", "--tokens or --flops"),
        "recommend instance --params 7B --train --tokens 1T --efficiency 40": ("'--efficiency'", "write 0.4 for 40 %"),
        "recommend instance --params 7B --train --tokens 1T --interruptions -3": ("'--interruptions'", "below 0"),
        "recommend instance --params 7B --tokens 1T": ("--tokens", "--train or --lora"),
        "recommend instance --params 7B --train --tokens 1T --flops 1e21": "one of --tokens and --flops",
        "recommend instance --params 7B --train --lora": "give one of --train, --lora and --serve",
        "recommend instance --params 7B --weights price=0.7": ("'--weights'", "'price=0.7'", "cost=<number>"),
        "recommend spot --csv empty.csv": ("empty.csv: is empty", "time,offer,nodes"),
        "recommend spot --csv spot-typo.csv": ("line 1", "'time,ofer,nodes'", "lacks offer"),
        "recommend spot --csv spot-semicolons.csv": ("line 1", "semicolons", "time,offer,nodes"),
        "recommend spot --csv spot-comma.csv --price 3": ("line 2", "usd_per_hour '1,20'", "write 1.20"),
        "recommend spot --csv spot.csv --base 9": ("--base", "9 on demand", "the 4 of --nodes"),
        "recommend spot --csv spot.csv --spot-price-ratio 40": ("'--spot-price-ratio'", "write 0.4 for 40 %"),
        "recommend spot --csv spot.csv --work 12h --by 6h": ("6h", "12h14m"),
        "recommend vendors --scores long.csv": ("long.csv", "cannot be read as CSV"),
        "recommend vendors --scores empty.csv": ("empty.csv is empty", "vendor,sla"),
        "recommend vendors --scores series.csv": ("series.csv:1", "vendor,sla"),
        "recommend restarts --trace empty.csv": ("empty.csv: is empty", "time_s,node"),
        "recommend restarts --trace semicolon.csv": ("semicolon.csv:1", "semicolons"),
        "recommend restarts --trace load.csv --restart-cost 10m --boot 30m": ("30m", "10m", "parts"),
    }
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder, made once."""
    folder = a_folder(tmp_path_factory.mktemp("advised"))
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("mistake", MISTAKES, ids=[each.line for each in MISTAKES])
def test_a_mistake_is_answered(mistake: Mistake, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a few plain lines, with the option or the line, the value, and what would be right."""
    in_folder(made, monkeypatch)
    told = " ".join(answer(mistake, monkeypatch).split())
    assert [words for words in mistake.words if words not in told] == [], told


@pytest.mark.parametrize("sheet", SHEETS)
def test_a_mistake_in_a_table_of_vendors_is_answered(sheet: str, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the line or the criterion, the value, and what would be right; a mistyped title does not count 0 for all."""
    in_folder(made, monkeypatch)
    (made / "sheet.csv").write_text(sheet, encoding="utf-8")
    (mistake,) = mistakes({"recommend vendors --scores sheet.csv": SHEETS[sheet]})
    told = answer(mistake, monkeypatch)
    assert [words for words in mistake.words if words not in told] == [], told
