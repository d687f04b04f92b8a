"""What Python runs of an installed package: the controller's libraries lie in the folder next to this one."""

import sys

_HERE = sys.path[0]
sys.path.insert(1, _HERE.rpartition("/")[0] + "/controller")

from gpuwatch.__main__ import main  # noqa: E402  only now it can be found

if __name__ == "__main__":
    sys.exit(main())
