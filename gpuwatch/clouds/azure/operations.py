"""What becomes of a change after Azure has accepted it.

Azure accepts a start and a new machine before it has found a place for them. Most of what fails, fails within seconds:
so the operation is followed for that long.
"""

from urllib.parse import urlsplit

from gpuwatch.clouds.azure.client import Answer
from gpuwatch.clouds.azure.errors import said, typed
from gpuwatch.clouds.azure.places import Subscription
from gpuwatch.clouds.errors import CloudError
from gpuwatch.runtime.clock import Clock

_FOLLOW_SECONDS, _LOOK_SECONDS = 20.0, 5.0
_OVER = frozenset({"Succeeded", "Canceled"})


def follow(place: Subscription, accepted: Answer, what: str, clock: Clock) -> None:
    """Look after a change for some seconds. Source: the operation that Azure-AsyncOperation names.

    Raises:
        CloudError: it has failed, with Azure's reason.

    """
    path = urlsplit(accepted.headers.get("azure-asyncoperation", "")).path
    waited = 0.0
    while path and waited < _FOLLOW_SECONDS:
        clock.sleep(_LOOK_SECONDS)
        waited += _LOOK_SECONDS
        try:
            status = place.get(path, urgent=True).body
        except CloudError:
            return  # the change is accepted: the next list shows what became of it
        if status.get("status") == "Failed":
            code, message = said(status.get("error") or {})
            raise typed(what, code or "OperationFailed", message)
        if status.get("status") in _OVER:
            return
