"""A program: an account at the fake of Alibaba Cloud on a port of this machine, until it is killed."""

import signal
import sys
from pathlib import Path

if __name__ == "__main__":  # started as a file, by a reader whose Python does not know the tests
    sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

from gpuwatch.clouds import FLEET_TAG
from gpuwatch.runtime.clock import SystemClock
from tests.support.clouds.alibaba.fake import KEY_ID, SECRET, FakeAlibaba
from tests.support.clouds.alibaba.world import GPU_TYPE, OTHER_REGION, REGION
from tests.support.clouds.server import serving

VARIABLES = {
    "ALIBABA_CLOUD_ACCESS_KEY_ID": KEY_ID,
    "ALIBABA_CLOUD_ACCESS_KEY_SECRET": SECRET,
    "ALIBABA_CLOUD_ECS_METADATA_DISABLED": "true",
}


def main(port: int) -> None:
    """A machine of the fleet research, and a forgotten one in another region."""
    fake = FakeAlibaba()
    for region, name, tags in ((REGION, "trainer", {FLEET_TAG: "research"}), (OTHER_REGION, "forgotten", {})):
        machine = fake.state.add_machine(region, GPU_TYPE, {"Name": name, **tags}, SystemClock().now(), name=name)
        machine.status, machine.next = "Running", None
    with serving(fake, port=port):
        signal.pause()


if __name__ == "__main__":
    main(int(sys.argv[1]))
