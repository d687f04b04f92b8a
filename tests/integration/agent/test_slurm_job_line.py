"""agent/slurm_jobs: a running agent logs what a Slurm job used, from the driver and a real process."""

import re
import subprocess
from pathlib import Path

from tests.support.fakes.nvml import StubDriver
from tests.support.real.agents import RunningAgent, eventually


def test_a_running_agent_logs_a_job_that_is_over(tmp_path: Path, driver: StubDriver) -> None:
    """Once, with no more of its environment than the job's number."""
    proc = tmp_path / "proc"
    (proc / "self/ns").mkdir(parents=True)
    (proc / "self/ns/pid").symlink_to("pid:[4026531836]")
    (proc / "1").symlink_to("/proc/1")
    (proc / "uptime").write_text(Path("/proc/uptime").read_text(encoding="ascii"), encoding="ascii")
    driver.gpu(0).set(utilization=40)
    secret = {"SLURM_JOB_ID": "777", "TOKEN": "hunter2"}
    with RunningAgent(driver.environment, attribution__proc=proc) as agent:
        with subprocess.Popen(["sleep", "300"], env={**driver.environment, **secret}) as job:
            (proc / str(job.pid)).symlink_to(f"/proc/{job.pid}")
            driver.gpu(0).processes({job.pid: 1 << 30})
            eventually(lambda: 'slurm_job="777"' in agent.get("/metrics"), lambda: agent.get("/metrics"))
            job.kill()
        driver.gpu(0).processes({})
        eventually(lambda: "Slurm job" in agent.log, lambda: agent.log)
        log = agent.log

    (line,) = [line for line in log.splitlines() if "Slurm job" in line]
    assert re.search(
        r"INFO Slurm job 777 of \S+ on this host: [0-9.]+s, 1 GPU used 40 %, GPU memory 1 GiB of \d+ GiB at most\.$",
        line,
    )
    for hidden in ("hunter2", "TOKEN", "sleep"):
        assert hidden not in log
