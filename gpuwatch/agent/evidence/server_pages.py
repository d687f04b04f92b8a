"""PURE: what a model server's own page says of its requests. Which server it is shows in the names on the page.

Names of vLLM (docs.vllm.ai, usage/metrics), SGLang (docs.sglang.io, references/production_metrics), Text Generation
Inference (huggingface.co/docs/text-generation-inference, reference/metrics) and Text Embeddings Inference, Triton
(docs.nvidia.com, user_guide/metrics), llama.cpp (tools/server/README.md), Ollama (docs.ollama.com, api/ps).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

import msgspec

from gpuwatch.agent.evidence.base import UnseenError

# By server: what grows with every request, and how many requests run or wait. `:` may have become `_` on the way.
_SERVERS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "vLLM": (
        ("vllm:request_success_total", "vllm:prompt_tokens_total", "vllm:generation_tokens_total"),
        ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:num_requests_swapped"),
    ),
    "SGLang": (
        ("sglang:num_requests_total", "sglang:prompt_tokens_total", "sglang:generation_tokens_total"),
        ("sglang:num_running_reqs", "sglang:num_queue_reqs"),
    ),
    "TGI": (
        ("tgi_request_count", "tgi_request_success", "tgi_request_failure"),
        ("tgi_queue_size", "tgi_batch_current_size"),
    ),
    "TEI": (("te_request_count", "te_request_success", "te_request_failure"), ("te_queue_size",)),
    "Triton": (
        ("nv_inference_request_success", "nv_inference_request_failure", "nv_inference_count"),
        ("nv_inference_pending_request_count",),
    ),
    "llama.cpp": (
        ("llamacpp:prompt_tokens_total", "llamacpp:tokens_predicted_total", "llamacpp:n_decode_total"),
        ("llamacpp:requests_processing", "llamacpp:requests_deferred"),
    ),
}
_COUNTERS = {name.replace(":", "_"): server for server, (names, _) in _SERVERS.items() for name in names}
_GAUGES = {name.replace(":", "_"): server for server, (_, names) in _SERVERS.items() for name in names}
_ANY = "|".join(name.replace("_", "[:_]", 1) for name in (*_COUNTERS, *_GAUGES)).encode()
# A sample: name, labels (their values may hold anything but a line's end), value. A counter that no request has
# touched yet has no sample, but its type is on the page.
_SAMPLE = re.compile(rb"^(" + _ANY + rb")(?:\{[^\n]*\})?[ \t]+(\S+)", re.MULTILINE)
_TYPE = re.compile(rb"^# TYPE (" + _ANY + rb") counter\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """What a page says: the server's kind, requests that run or wait, and a stamp by counter or model.

    A counter's stamp is its value: each change means that the server was asked. A model's stamp is the time at which
    Ollama will unload it: asking moves it, and loads the model where it is not loaded.
    """

    server: str
    running: float = 0.0
    stamps: Mapping[str, float | str] = field(default_factory=dict)

    def asked_since(self, before: "Requests") -> bool:
        """Whether there was a request since that page was read; a server that counts from zero was started since."""
        if self.server != before.server:
            return True
        missing = 0.0 if self.server != _OLLAMA else None
        return any(stamp != before.stamps.get(name, missing) for name, stamp in self.stamps.items())


class _Model(msgspec.Struct):
    name: str = ""
    expires_at: str = ""


class _Models(msgspec.Struct):
    models: list[_Model] | None


_OLLAMA = "Ollama"
_MODELS = msgspec.json.Decoder(_Models)
_QUOTED = msgspec.json.Decoder(str)


def requests_on(page: bytes) -> Requests:
    """Read a page.

    Raises:
        UnseenError: it shows no request counter of a known server, or a number below zero or without an end.

    """
    begin = page[:64].lstrip()[:1]
    if begin == b"{":
        return _of_ollama(page)
    if begin == b'"':  # llama.cpp in some versions: the page as one string of JSON (ggml-org/llama.cpp#17384)
        try:
            page = _QUOTED.decode(page).encode()
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            raise UnseenError("its page is no metrics page") from None
    return _of_metrics(page)


def _of_metrics(page: bytes) -> Requests:
    stamps = {_plain(found[1]): 0.0 for found in _TYPE.finditer(page) if _plain(found[1]) in _COUNTERS}
    running = 0.0
    for found in _SAMPLE.finditer(page):
        name, value = _plain(found[1]), _number(found[2])
        if name in _COUNTERS:
            stamps[name] = stamps.get(name, 0.0) + value
        else:
            running += value
    if not stamps:
        raise UnseenError("its page shows no request counter of a server that gpuwatch knows")
    servers = sorted({_COUNTERS[name] for name in stamps})
    return Requests(server=" and ".join(servers), running=running, stamps=stamps)


def _plain(name: bytes) -> str:
    return name.decode("ascii").replace(":", "_")


def _number(word: bytes) -> float:
    try:
        value = float(word)
    except ValueError:
        value = -1.0
    if not isfinite(value) or value < 0:
        raise UnseenError("its page has an impossible number of requests")
    return value


def _of_ollama(page: bytes) -> Requests:
    try:
        models = _MODELS.decode(page).models or []
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise UnseenError("its page is neither a metrics page nor Ollama's /api/ps") from None
    if not all(each.name and each.expires_at for each in models):
        raise UnseenError("its page names a model without a time at which it expires")
    return Requests(server=_OLLAMA, stamps={each.name: each.expires_at for each in models})
