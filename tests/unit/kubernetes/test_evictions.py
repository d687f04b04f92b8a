"""An eviction that the API server refuses: one pod stays for now, or nobody may evict at all."""

from typing import Any, cast

import msgspec
import pytest

from gpuwatch.clouds.errors import CloudError
from gpuwatch.kubernetes.changes import evict
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
