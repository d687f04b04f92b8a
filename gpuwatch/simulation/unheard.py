"""What a simulated controller logs is no news: what goes wrong there is shown, or counted, another way."""

import contextlib
import logging
from collections.abc import Iterator


@contextlib.contextmanager
def log_unheard() -> Iterator[None]:
    """Keep gpuwatch's log lines off the terminal meanwhile."""
    logger, unheard = logging.getLogger("gpuwatch"), logging.NullHandler()
    propagated = logger.propagate
    logger.addHandler(unheard)
    logger.propagate = False
    try:
        yield
    finally:
        logger.propagate = propagated
        logger.removeHandler(unheard)
