"""What clients may ask of the agent by POST: to write a notice on terminals, and to run the commands before a stop.

Both are for the controller alone, and so the same is asked of every client.
"""

from collections.abc import Callable, Mapping
from http import HTTPStatus

import msgspec

from gpuwatch.runtime.http.request import TEXT, Request, Response
from gpuwatch.runtime.http.server import App

PAUSE_SECONDS = 60.0  # after which what cannot be done now may be asked for again
_LARGEST_BYTES = 4096

Answer = Callable[[bytes], object]  # what is sent as JSON; raises as `posted_app` says


class RetryLaterError(Exception):
    """It cannot be done now; the message says why. `status` is the HTTP status to answer with."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


def posted_app(answers: Mapping[str, Answer | None], others: tuple[str, ...], users: tuple[str, ...] = ()) -> App:
    """Answer POST requests by path, None: it is switched off; `others` are the agent's other paths, named in a 404.

    With `users`, only they may ask. Browsers are refused: a site could pretend to be this host (DNS rebinding). An
    answer may raise RetryLaterError, and msgspec's or overflow errors for a body that it does not understand.
    """

    def answer(request: Request) -> Response:
        path = request.target.split("?", 1)[0]
        if path not in answers:
            return _error(HTTPStatus.NOT_FOUND, f"try {', '.join((*others, *answers))}")
        found = answers[path]
        if found is None:
            return _error(HTTPStatus.METHOD_NOT_ALLOWED, "it is switched off", ("Allow", ""))
        if request.method != "POST":
            return _error(HTTPStatus.METHOD_NOT_ALLOWED, "only POST", ("Allow", "POST"))
        if "origin" in request.headers or "sec-fetch-site" in request.headers:
            return _error(HTTPStatus.FORBIDDEN, "this is not for browsers")
        if users and request.user not in users:
            return _error(HTTPStatus.FORBIDDEN, "this user is not in agent.notice_users")
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return _error(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "only application/json")
        if request.body is None or len(request.body) > _LARGEST_BYTES:
            return _error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {_LARGEST_BYTES} bytes")
        try:
            result = found(request.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, OverflowError, RecursionError) as error:
            return _error(HTTPStatus.BAD_REQUEST, str(error))
        except RetryLaterError as error:
            return _error(error.status, str(error), ("Retry-After", f"{PAUSE_SECONDS:.0f}"))
        return Response(body=msgspec.json.encode(result), content_type="application/json")

    return answer


def _error(status: HTTPStatus, why: str, *headers: tuple[str, str]) -> Response:
    return Response(status=status, body=f"{status.value} {why}\n".encode(), content_type=TEXT, headers=headers)
