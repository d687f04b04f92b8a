"""An API server's REST: whole lists page by page, streams of changes, single changes; typed answers and errors."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlencode

import msgspec

from gpuwatch.clouds.errors import AuthFailedError, CloudError, CloudUnavailableError
from gpuwatch.clouds.permit import Permit
from gpuwatch.clouds.sending import sending
from gpuwatch.kubernetes.credentials import own_pod
from gpuwatch.kubernetes.errors import UNAUTHORIZED, refusal, status_of
from gpuwatch.kubernetes.kubeconfig import Login, expand_home, from_kubeconfig, in_cluster
from gpuwatch.kubernetes.objects import Page
from gpuwatch.kubernetes.settings import KubernetesSettings
from gpuwatch.kubernetes.unreadable import decode_whole
from gpuwatch.kubernetes.wire import Stream, Wire
from gpuwatch.runtime.certificates import Validity, Watched
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.reloading_file import ReloadingFile
from gpuwatch.runtime.x509 import validities_in

T = TypeVar("T")

PAGE_SIZE = 500  # as client-go asks for
_MOST_PAGES = 10_000
_TRIES = 2  # of a read: the second with another connection, or another token
_GOOD = range(200, 300)
PLAIN = "application/json"
MERGE = "application/merge-patch+json"
# Metadata alone of any kind: a tenth of the bytes, and no secret of a specification.
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class Api:
    """One API server. Paths are with their leading slash; any thread may ask."""

    def __init__(self, make: "ReloadingFile[Wire]") -> None:
        """`make` holds the connections of the login as it is now."""
        self._wire = make

    @classmethod
    def from_settings(cls, settings: KubernetesSettings, clock: Clock) -> "Api":
        """The API server of the settings.

        Raises:
            AuthFailedError: there are no usable credentials.

        """
        first = _login(settings)

        def make() -> Wire:
            try:
                return Wire(_login(settings), clock, settings.timeout)
            except Exception as error:  # an AuthFailedError; the files before stay in use
                raise ValueError(str(error)) from error

        Wire(first, clock, settings.timeout)  # a mistake in it is told as it is
        return cls(ReloadingFile(first.files, make))

    @property
    def server(self) -> str:
        """Return the URL of the API server."""
        return self._wire.value.server

    @property
    def behind_seconds(self) -> float:
        """How far its clock was behind ours in its newest answer; negative: ahead."""
        return self._wire.value.behind_seconds

    @property
    def own_uids(self) -> tuple[str, ...]:
        """The uid of the pod that this process runs in, as its token names it; none where it names none."""
        try:
            shown = self._wire.value.credentials.show()
        except CloudError:
            return ()  # what is asked with them fails, too, and says why
        own = own_pod(shown.headers.get("Authorization", "").removeprefix("Bearer "))
        return () if own is None else (own,)

    def get(self, path: str, kind: type[T], query: Mapping[str, str] | None = None, accept: str = PLAIN) -> T:
        """One object, as the API server has it now.

        Raises:
            NotFoundError: no such object exists.
            CloudError: no answer.

        """
        body = self._read(path, query or {}, accept)
        return _decode_answer(f"GET {path}", body, kind)

    def pages(
        self, path: str, query: Mapping[str, str] | None = None, accept: str = PLAIN, size: int = PAGE_SIZE
    ) -> Iterator[Page]:
        """Every page of a list, to the last; each page's items are still raw JSON.

        Raises:
            GoneError: the list grew too old before it was whole; begin again.
            CloudError: no answer.

        """
        asked = {**(query or {}), "limit": str(size)}
        for _ in range(_MOST_PAGES):
            page = self.get(path, Page, asked, accept)
            if not page.whole:
                raise CloudUnavailableError(f"GET {path}: the answer is no list", code="Nonsense")
            yield page
            if not page.metadata.next_page:
                return
            asked["continue"] = page.metadata.next_page
        raise CloudUnavailableError(f"GET {path}: more than {_MOST_PAGES} pages", code="TooManyPages")

    @contextmanager
    def watch(self, path: str, query: Mapping[str, str], accept: str, silence_seconds: float) -> Iterator[Stream]:
        """The changes since a version, until the server ends them; raises as `pages`."""
        wire = self._wire.value
        shown = wire.credentials.show()
        target = f"{path}?{urlencode({**query, 'watch': 'true'})}"
        with wire.stream(target, {"Accept": accept}, shown, silence_seconds) as stream:
            if stream.status not in _GOOD:
                body = stream.body()
                if stream.status == UNAUTHORIZED:
                    wire.credentials.drop_refused(shown)
                raise refusal(f"watch of {path}", status_of(stream.status, body))
            yield stream

    def change(
        self,
        method: str,
        path: str,
        body: object,
        *,
        permit: Permit | None,
        content_type: str = PLAIN,
        query: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """Send one change, once: status and body of its answer, whatever they say.

        Raises:
            PermitExpiredError: the permit did not hold when it was about to leave; nothing was sent.
            CloudUnavailableError: nobody knows whether it was accepted.
            AuthFailedError: there are no credentials.

        """
        asked = f"{method} {path}"
        wire = self._wire.value
        shown = wire.credentials.show()
        headers = {"Accept": PLAIN, "Content-Type": content_type}
        raw = json.dumps(body).encode()
        with sending(asked, permit):
            status, answer = wire.ask(method, _target(path, query or {}), headers, raw, shown)
        if status == UNAUTHORIZED:
            wire.credentials.drop_refused(shown)
        return status, answer

    def ask(self, path: str, body: object, kind: type[T]) -> T:
        """A question that is sent as a POST and changes nothing, such as a SelfSubjectAccessReview; raises as `get`."""
        status, answer = self.change("POST", path, body, permit=None)
        if status not in _GOOD:
            raise refusal(f"POST {path}", status_of(status, answer))
        return _decode_answer(f"POST {path}", answer, kind)

    def _read(self, path: str, query: Mapping[str, str], accept: str) -> bytes:
        """The body of a good answer; a second try where the first found a dead connection or an old token."""
        wire = self._wire.value
        headers = {"Accept": accept, "Accept-Encoding": "gzip"}
        for tries_left in reversed(range(_TRIES)):
            shown = wire.credentials.show()
            try:
                status, body = wire.ask("GET", _target(path, query), headers, None, shown)
            except CloudUnavailableError as error:
                if tries_left:
                    continue
                raise CloudUnavailableError(f"GET {path}: {error}", code=error.code) from None
            if status in _GOOD:
                return body
            if status == UNAUTHORIZED:
                wire.credentials.drop_refused(shown)
                if tries_left and wire.credentials.renewable:
                    continue
            raise refusal(f"GET {path}", status_of(status, body))
        raise AssertionError  # the last try returns or raises


def _login(settings: KubernetesSettings) -> Login:
    if settings.kubeconfig is not None:
        return from_kubeconfig(Path(settings.kubeconfig), settings.context)
    return in_cluster()


def certificates_of(settings: KubernetesSettings, section: str) -> Watched:
    """The cluster's authority and our certificate there, by the words of a kubeconfig."""
    key = f"{section}.in_cluster" if settings.kubeconfig is None else f"{section}.kubeconfig"

    def read() -> dict[str, list[Validity]]:
        try:
            login = _login(settings)
        except AuthFailedError as error:
            raise ValueError(str(error)) from error
        parts = (("certificate-authority", login.ca, None), ("client-certificate", login.certificate, 1))
        return {f"{key} ({name})": validities_in(pem)[:most] for name, pem, most in parts if pem is not None}

    try:
        paths = _login(settings).files
    except AuthFailedError:
        found = None if settings.kubeconfig is None else expand_home(Path(settings.kubeconfig))
        paths = () if found is None else (found,)
    return Watched(paths, read)


def _target(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _decode_answer(asked: str, body: bytes, kind: type[T]) -> T:
    try:
        return decode_whole(body, msgspec.json.Decoder(kind))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CloudUnavailableError(
            f"{asked}: the answer is not what was asked for ({error})", code="Nonsense"
        ) from None
