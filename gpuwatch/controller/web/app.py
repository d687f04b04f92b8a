"""Who may see the page and ask its API, and who may act; the page's files; requests made into calls and answers.

1. Without a user only this machine is answered, and it may only read. Signed links are answered besides: `SnoozeLinks`.
2. Only users named in the settings may act, from the page itself or without a browser: another site can
   make a browser send its user's password or certificate, but neither a header of its own nor another origin.
3. Over plain http the Host is an address or a name that the settings know: no other site's name may lead here.
4. Nothing from outside is loaded, framed or run: the policy in the headers says so, and the browser holds to it.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from importlib.resources import files
from urllib.parse import parse_qsl, unquote

import msgspec

from gpuwatch.controller.web.api import ENDPOINTS, PREFIX, Endpoint, answer_call
from gpuwatch.controller.web.call import Call, RefusedError
from gpuwatch.controller.web.headers import SAFE
from gpuwatch.controller.web.language import encode_answer, language_of, translate_asset
from gpuwatch.controller.web.openapi import describe_api
from gpuwatch.controller.web.schemas import Problem
from gpuwatch.controller.web.snooze_link import SNOOZE
from gpuwatch.controller.web.snooze_page import SnoozeLinks
from gpuwatch.controller.web.state import Rendered, State, UnseenError
from gpuwatch.runtime.http.access import is_known, is_loopback
from gpuwatch.runtime.http.request import Request, Response

log = logging.getLogger(__name__)

_JSON = "application/json"
_SCRIPTS = ("words", "map", "node", "money", "aside", "timeline", "blocked", "kubernetes", "page")
_ASSETS = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    **{f"/{name}.js": (f"{name}.js", "text/javascript; charset=utf-8") for name in _SCRIPTS},
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
# Beside the signed links, whose holders may have no password to get the page's own.
_ASSETS |= {f"{SNOOZE}{name}": _ASSETS[f"/{name}"] for name in ("page.css", "icon.svg")}
_READS = frozenset({"GET", "HEAD"})
_NO_USER = (
    "acting takes a user: set controller.users_file or controller.tls_client_ca, and name the user in "
    "controller.operators"
)


@dataclass(slots=True, kw_only=True)
class Web:
    """The app of the controller's server. `names` are hosts' names by which browsers may ask over plain http.

    `links` answers signed links; None: no link is answered.
    """

    state: State
    operators: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    links: SnoozeLinks | None = None
    _files: dict[tuple[str, str | None], Rendered] = field(default_factory=dict)

    def answer(self, request: Request) -> Response:
        """Every request that is for no route of the server's own."""
        language = language_of(request.headers.get("accept-language", ""))
        try:
            path = request.target.partition("?")[0]
            links = self.links if path.startswith(SNOOZE) else None
            self._let_in(request, signed=links is not None)
            if path in _ASSETS:
                return self._asset(path, request, language)
            return self._api(path, request, language) if links is None else links.answer(request)
        except RefusedError as error:
            return _problem(error, language)
        except UnseenError as error:
            return _problem(RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, str(error)), language)

    def _let_in(self, request: Request, *, signed: bool) -> None:
        """Rules 1 and 3."""
        if not signed and request.user is None and not is_loopback(request.client.removeprefix("::ffff:")):
            sentence = "beyond this machine it takes a user: set controller.users_file or controller.tls_client_ca"
            raise RefusedError(HTTPStatus.FORBIDDEN, sentence)
        if not request.secure and not is_known(request.headers.get("host", ""), self.names):
            sentence = (
                "this host name is not known here: use an address, localhost, or add it to controller.allowed_hosts"
            )
            raise RefusedError(HTTPStatus.MISDIRECTED_REQUEST, sentence)

    def _asset(self, path: str, request: Request, language: str | None) -> Response:
        """A file of the page."""
        if request.method not in _READS:
            raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, "only GET, HEAD", allow="GET, HEAD")
        name, kind = _ASSETS[path]
        if (name, language) not in self._files:
            content = files("gpuwatch.controller.web").joinpath(name).read_bytes()
            self._files[name, language] = Rendered(translate_asset(name, content, language))
        return _tagged_response(self._files[name, language], request, kind, "no-cache")

    def _api(self, path: str, request: Request, language: str | None) -> Response:
        """Return the answer of an endpoint."""
        if path == f"{PREFIX}/openapi.json":
            if request.method not in _READS:
                raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, "only GET, HEAD", allow="GET, HEAD")
            return _answer(HTTPStatus.OK, msgspec.json.encode(describe_api()))
        endpoint, named = _find_endpoint(path, request.method)
        why_not = self._why_not(request)
        if endpoint.acts:
            _from_the_page(request)
            if why_not is not None:
                raise RefusedError(HTTPStatus.FORBIDDEN, why_not)
        call = Call(
            state=self.state,
            query=_query(request, endpoint),
            named=named,
            body=_body(request, endpoint),
            who=f"{request.user}@{request.client}",
            user=request.user,
            why_not=why_not,
        )
        if endpoint.cached:
            name = f"{endpoint.path} {msgspec.json.encode(call.query).decode()} {language}"
            kept = self.state.keep_rendered(name, lambda: encode_answer(answer_call(endpoint, call), language))
            return _tagged_response(kept, request, _JSON, "no-store")
        answer = answer_call(endpoint, call)
        if endpoint.acts:
            log.warning("%s %s by %s", request.method, path, call.who)
        return _answer(endpoint.status, encode_answer(answer, language))

    def _why_not(self, request: Request) -> str | None:
        """Why this request may not act; None: it may."""
        if request.user is None:
            return _NO_USER
        if request.user not in self.operators:
            return f"{request.user} is not one of controller.operators"
        return None


def _find_endpoint(path: str, method: str) -> tuple[Endpoint, Mapping[str, str]]:
    """The endpoint of a path, and the named parts."""
    allowed = []
    for endpoint in ENDPOINTS:
        named = _named_parts(endpoint.path, path)
        if named is None:
            continue
        if method == endpoint.method or (method == "HEAD" and endpoint.method == "GET"):
            return endpoint, named
        allowed.append(endpoint.method)
    if allowed:
        allow = ", ".join(allowed).replace("GET", "GET, HEAD")
        raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, f"only {allow}", allow=allow)
    raise RefusedError(HTTPStatus.NOT_FOUND, f"there is no such path; {PREFIX}/openapi.json has them all")


def _named_parts(pattern: str, path: str) -> Mapping[str, str] | None:
    """The parts of a path that a pattern names; None where it does not match."""
    wanted, given = (PREFIX + pattern).split("/"), path.split("/")
    if len(wanted) != len(given):
        return None
    named = {}
    for want, got in zip(wanted, given, strict=True):
        if want.startswith("{") and got:
            named[want[1:-1]] = unquote(got)
        elif want != got:
            return None
    return named


def _from_the_page(request: Request) -> None:
    """Rule 2: what another site could make a browser send is not enough."""
    headers = request.headers
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    foreign = origin is not None and origin.partition("://")[2] != headers.get("host", "")
    if site not in {None, "same-origin"} or foreign or headers.get("x-gpuwatch") != "act":
        sentence = "acting takes the header `X-Gpuwatch: act`, and from a browser this page itself"
        raise RefusedError(HTTPStatus.FORBIDDEN, sentence)


def _query(request: Request, endpoint: Endpoint) -> object:
    """Return the checked parameters of a request."""
    try:
        pairs = parse_qsl(
            request.target.partition("?")[2], keep_blank_values=True, strict_parsing=False, max_num_fields=20
        )
        if len(dict(pairs)) != len(pairs):
            raise RefusedError(HTTPStatus.BAD_REQUEST, "a parameter is there twice")
        return msgspec.convert(dict(pairs), endpoint.query, strict=False)
    except ValueError as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, f"in the query: {error}") from error


def _body(request: Request, endpoint: Endpoint) -> object:
    """What it is asked to do, checked."""
    if endpoint.body is None:
        return None
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
        raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the body's Content-Type must be {_JSON}")
    if request.body is None:
        raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "a body of 16 KiB at most, with its Content-Length")
    try:
        return msgspec.json.decode(request.body, type=endpoint.body)
    except ValueError as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, f"in the body: {error}") from error


def _tagged_response(kept: Rendered, request: Request, kind: str, cache: str) -> Response:
    """A body, or that it is what the client has."""
    headers = (*SAFE, ("Cache-Control", cache), ("Vary", "Accept-Language"), ("ETag", kept.tag))
    if kept.tag in request.headers.get("if-none-match", ""):
        return Response(status=HTTPStatus.NOT_MODIFIED, body=b"", content_type=kind, headers=headers)
    return Response(body=kept.body, content_type=kind, packed=kept.packed, headers=headers)


def _answer(status: HTTPStatus, body: bytes, *more: tuple[str, str]) -> Response:
    made = Rendered(body)
    headers = (*SAFE, ("Cache-Control", "no-store"), *more)
    return Response(status=status, body=made.body, content_type=_JSON, packed=made.packed, headers=headers)


def _problem(error: RefusedError, language: str | None) -> Response:
    allow = () if error.allow is None else (("Allow", error.allow),)
    return _answer(error.status, encode_answer(Problem(error=str(error)), language), *allow)
