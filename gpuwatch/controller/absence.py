"""Whether a machine is gone of which its cloud shows nothing any more.

Some clouds show a machine that has ended for an hour, others not for a second. A controller that has watched the end
knows it; one that began after it does not, and an id that a cloud does not know proves nothing: answers may be late, or
be given to another account. The proof is made of answers of the cloud alone, all of them:

1. Asked for the id, the cloud does not know it.
2. A whole list of the region and the account in which the ledger saw the machine is without it.
3. The same again, `APART` later, in the same process. If a list shows it, the proof begins again.

A list that cannot be had whole proves nothing and keeps the intent open.
"""

from datetime import timedelta

from gpuwatch.clouds import Cloud, CloudError, NotFoundError
from gpuwatch.clouds.silence import Listed
from gpuwatch.controller.context import ControllerContext
from gpuwatch.model.decision import SETTLE_TIMEOUT, Intent
from gpuwatch.model.fleet import Node

APART = timedelta(minutes=5)  # much longer than any list was seen to be late
PROOF_TIMEOUT = timedelta(hours=1)


def is_gone(parts: ControllerContext, intent: Intent) -> str | None:
    """How it is proved that the machine of an intent, which its cloud does not know, is gone; None: it is not, yet.

    Raises:
        NotFoundError: there is nothing to prove it by, or it took too long.
        CloudError: the list could not be had whole.

    """
    first_looks, now = parts.memory.absent, parts.clock.monotonic()
    waited = parts.clock.now() - intent.at
    node = parts.ledger.node_of(intent.key)
    try:
        lacks = _lacks(parts.cloud, node)
    except NotFoundError:
        first_looks.pop(intent.key, None)
        if waited > SETTLE_TIMEOUT:
            raise
        return None
    except CloudError:
        first_looks.pop(intent.key, None)
        raise
    if not lacks:
        first_looks.pop(intent.key, None)
        if waited > PROOF_TIMEOUT:
            raise NotFoundError(f"lists show {intent.node_id}, and asked for it the cloud does not know it")
        return None
    since = first_looks.setdefault(intent.key, now)
    if now - since < APART.total_seconds():
        return None
    del first_looks[intent.key]
    minutes = round((now - since) / 60)
    return f"the cloud does not know it, and two whole lists of its region, {minutes} minutes apart, are without it"


def _lacks(cloud: Cloud, node: Node | None) -> bool:
    """Whether a whole list of its place is without it; raises as `lacks`."""
    if node is None or not isinstance(cloud, Listed):
        raise NotFoundError("nobody knows where it was")
    return cloud.lacks(node)
