"""What the API server lets us do, asked of itself: for `gpuwatch doctor`. Nothing is changed by asking."""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from gpuwatch.clouds.errors import NotFoundError
from gpuwatch.kubernetes import Access
from gpuwatch.kubernetes.calls import RIGHTS, Right, Use
from gpuwatch.kubernetes.client import Api
from gpuwatch.kubernetes.objects import AccessReview, ApiResources, Version

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def version(api: Api) -> str:
    """The API server's version; raises CloudError."""
    return api.get("/version", Version).git_version


def accesses(api: Api, uses: AbstractSet[Use]) -> Iterator[Access]:
    """Each right that these uses of the cluster need; raises CloudError."""
    for right in RIGHTS:
        if right.use not in uses or (right.foreign and not _knows_kind(api, right)):
            continue
        granted = {verb: _is_granted(api, right, verb) for verb in right.verbs}
        resource = f"{right.resource}/{right.subresource}" if right.subresource else right.resource
        yield Access(
            resource=resource + (f" of {right.group}" if right.group else ""),
            allowed=tuple(verb for verb in right.verbs if granted[verb]),
            refused=tuple(verb for verb in right.verbs if not granted[verb]),
            reason=right.why,
        )


def _knows_kind(api: Api, right: Right) -> bool:
    """Whether the cluster has such a kind: any version of its group."""
    try:
        api.get(f"/apis/{right.group}", ApiResources)
    except NotFoundError:
        return False
    return True


def _is_granted(api: Api, right: Right, verb: str) -> bool:
    attributes = {
        "group": right.group,
        "resource": right.resource,
        "subresource": right.subresource,
        "verb": verb,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    status = api.ask(_REVIEWS, body, AccessReview).status
    return status is not None and status.allowed
