"""The API against thousands of requests made from its own description, right and wrong ones."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from tests.support.builders.fleet import RULES, Desk
from tests.support.builders.served_page import a_site, populate, with_users
from tests.support.nightly import examples

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def test_no_request_makes_the_server_fail_or_answer_what_it_does_not_describe(tmp_path: Path) -> None:
    """Schemathesis, as an operator who may act: no 5xx, and every answer is as /api/v1/openapi.json says."""
    desk = Desk(rules=replace(RULES, approval=True))
    populate(desk, 40)
    with a_site(desk, with_users(tmp_path, "ann")) as site:
        for _ in range(3):
            site.round()
        done = subprocess.run(
            [
                Path(sys.executable).parent / "st",
                "run",
                f"{site.url}/api/v1/openapi.json",
                "--auth=ann:ann",
                "--phases=coverage,fuzzing",
                f"--max-examples={examples(20)}",
                f"--checks={CHECKS}",
                "--generation-database=none",
                "--no-color",
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        alive = site.ask("/metrics", Authorization="Basic YW5uOmFubg==")

    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert "passed" in done.stdout
    assert alive.status == 200
