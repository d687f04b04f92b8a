"""An eviction that the API server refuses: one pod stays for now, or nobody may evict at all."""

from typing import Any, cast

import msgspec
import pytest

from gpuwatch.clouds.errors import CloudError, PermitExpiredError
from gpuwatch.kubernetes.changes import Evictions, evict
from gpuwatch.kubernetes.client import Api
from tests.support.builders.clusters import a_pod
from tests.support.builders.fleet import a_permit


class Refusing:
    """An API server that answers each change so."""

    def __init__(self, code: int, message: str) -> None:
        """Keep the answer."""
        self._answer = (
            code,
            msgspec.json.encode({"kind": "Status", "status": "Failure", "message": message, "code": code}),
        )

    def change(self, *_: object, **__: object) -> tuple[int, bytes]:
        """Refuse it."""
        return self._answer


def ask(code: int, message: str) -> tuple[str | None, bool]:
    """Whether a pod goes, where this is the answer."""
    return evict(cast("Api", cast("Any", Refusing(code, message))), a_pod(), a_permit())


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (429, "Cannot evict pod as it would violate the pod's disruption budget."),
        (500, "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."),
        (403, 'admission webhook "pods.drain.example.com" denied the request: the database has no replica'),
        (400, 'admission webhook "validate.example.com" denied the request: not on a Friday'),
        (
            422,
            "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: not on a Friday",
        ),
        (403, 'pods "web-1" is forbidden: unable to create new content in namespace a because it is being terminated'),
        (500, 'Internal error occurred: failed calling webhook "pods.example.com": context deadline exceeded'),
    ],
)
def test_a_refusal_of_one_pod_keeps_that_pod_alone(code: int, message: str) -> None:
    """With the API server's words; the drain goes on with the others."""
    assert ask(code, message) == (message, False)


@pytest.mark.parametrize(
    ("code", "message"),
    [(403, 'pods "web-1" is forbidden: User "x" cannot create resource "pods/eviction"'), (503, "etcd is unavailable")],
)
def test_a_refusal_of_all_ends_the_drain(code: int, message: str) -> None:
    """It is an error of the cluster, and no pod is said to have gone."""
    with pytest.raises(CloudError):
        ask(code, message)


@pytest.mark.parametrize(
    ("code", "message"), [(404, 'pods "web-1" not found'), (409, "the UID in the precondition does not match the UID")]
)
def test_a_pod_that_is_gone_is_not_refused(code: int, message: str) -> None:
    """Also where another one has its name by now."""
    assert ask(code, message) == (None, True)


class Late(Refusing):
    """An API server that agrees to the first so many evictions; for the next the permit has run out."""

    def __init__(self, agrees: int) -> None:
        """Nothing was asked yet."""
        super().__init__(201, "")
        self._left = agrees

    def change(self, *_: object, **__: object) -> tuple[int, bytes]:
        """Agree, or be too late."""
        self._left -= 1
        if self._left < 0:
            raise PermitExpiredError("the permit has run out")
        return self._answer


def evictions(agrees: int) -> Evictions:
    """Evictions of which the permit lets so many through."""
    return Evictions(cast("Api", cast("Any", Late(agrees))), a_permit())


def test_a_permit_that_runs_out_keeps_the_pods_that_were_not_asked_and_says_so() -> None:
    """What was asked before stands, and the attempt is no error."""
    asked = evictions(1)
    for name in ("a", "b", "c"):
        asked.ask(a_pod(name=name), lost=None)

    drain = asked.outcome(3)

    assert drain.evicted == (str(a_pod(name="a")),)
    assert drain.refused == {str(a_pod(name=name)): "not asked: the permit has run out" for name in ("b", "c")}
    assert drain.left == 3


def test_a_permit_that_runs_out_before_the_first_pod_is_an_error() -> None:
    """Nothing was asked, so that the attempt may be made again."""
    with pytest.raises(PermitExpiredError):
        evictions(0).ask(a_pod(), lost=None)


def test_a_pod_whose_volume_would_be_lost_is_not_asked() -> None:
    """It is kept, and named with that volume."""
    asked = evictions(0)

    asked.ask(a_pod(), lost="scratch")

    assert asked.outcome(1).refused == {str(a_pod()): "its volume scratch would be lost"}
