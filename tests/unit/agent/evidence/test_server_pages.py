"""agent/evidence/server_pages.py: what model servers' own pages say of their requests."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.evidence.base import UnseenError
from gpuwatch.agent.evidence.server_pages import requests_on

# As the servers write them, shortened.
VLLM = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="Qwen/Qwen2.5-7B"} 0.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="Qwen/Qwen2.5-7B"} 0.0
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="Qwen/Qwen2.5-7B"} 21.0
# TYPE vllm:prompt_tokens_created gauge
vllm:prompt_tokens_created{engine="0",model_name="Qwen/Qwen2.5-7B"} 1.7513e+09
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0",finished_reason="stop",model_name="Qwen/Qwen2.5-7B"} 3.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="Qwen/Qwen2.5-7B"} 1.0
"""
SGLANG = b"""# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="meta-llama/Llama-3.1-8B-Instruct"} 2.0
sglang:num_queue_reqs{model_name="meta-llama/Llama-3.1-8B-Instruct"} 1.0
sglang:prompt_tokens_total{model_name="meta-llama/Llama-3.1-8B-Instruct"} 8.128902e+06
"""
TGI = b"""# TYPE tgi_request_count counter
tgi_request_count{method="generate"} 12
# TYPE tgi_queue_size gauge
tgi_queue_size 0
tgi_batch_current_size 0
"""
TRITON = b"""# HELP nv_inference_request_success Number of successful inference requests, all batch sizes
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="resnet",version="1"} 5
nv_inference_request_success{model="bert",version="1"} 0
nv_inference_pending_request_count{model="resnet",version="1"} 0
"""
LLAMA = b"""# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 17
llamacpp:tokens_predicted_total 40
llamacpp:requests_processing 1
llamacpp:requests_deferred 0
"""
OLLAMA = b"""{"models":[{"name":"llama3:latest","model":"llama3:latest","size":5137025024,"digest":"2ae6f6dd7a3d",
"details":{"parent_model":"","format":"gguf","families":["llama"]},"expires_at":"2026-11-23T03:20:31.83753-07:00",
"size_vram":5137025024}]}"""


@pytest.mark.parametrize(
    ("page", "server", "running"),
    [
        (VLLM, "vLLM", 0),
        (SGLANG, "SGLang", 3),
        (TGI, "TGI", 0),
        (b"te_request_count 4\nte_queue_size 0\n", "TEI", 0),
        (TRITON, "Triton", 0),
        (LLAMA, "llama.cpp", 1),
        (json.dumps(LLAMA.decode()).encode(), "llama.cpp", 1),
        (VLLM.replace(b"vllm:", b"vllm_"), "vLLM", 0),
        (TRITON + VLLM, "Triton and vLLM", 0),
        (OLLAMA, "Ollama", 0),
        (b'{"models":[]}', "Ollama", 0),
        (b'{"models":null}', "Ollama", 0),
    ],
)
def test_a_server_is_known_by_its_page(page: bytes, server: str, running: float) -> None:
    """Not by its address or a setting; requests that run or wait are counted."""
    found = requests_on(page)

    assert (found.server, found.running) == (server, running)


@pytest.mark.parametrize(
    ("before", "after", "asked"),
    [
        (VLLM, VLLM, False),
        (VLLM, VLLM.replace(b'"stop",model_name="Qwen/Qwen2.5-7B"} 3.0', b'"stop",model_name="Q"} 4.0'), True),
        (VLLM, VLLM.replace(b"} 21.0", b"} 22.0"), True),
        (VLLM, VLLM.replace(b"1.7513e+09", b"1.7514e+09"), False),
        (VLLM, VLLM.replace(b"} 3.0", b"} 0.0"), True),
        (SGLANG, SGLANG.replace(b"8.128902e+06", b"8.128903e+06"), True),
        (TGI, TGI.replace(b" 12", b" 13"), True),
        (TRITON, TRITON.replace(b'"bert",version="1"} 0', b'"bert",version="1"} 1'), True),
        (LLAMA, LLAMA.replace(b" 40", b" 41"), True),
        (OLLAMA, OLLAMA, False),
        (OLLAMA, OLLAMA.replace(b"03:20:31", b"03:25:31"), True),
        (OLLAMA, OLLAMA.replace(b"llama3:latest", b"qwen3"), True),
        (OLLAMA, b'{"models":[]}', False),
        (b'{"models":[]}', OLLAMA, True),
        (VLLM, TRITON, True),
    ],
)
def test_a_request_shows(before: bytes, after: bytes, asked: bool) -> None:
    """A counter that moved, also back to zero; a model loaded, or kept for longer. An unloaded model is no request."""
    assert requests_on(after).asked_since(requests_on(before)) is asked


def test_a_counter_without_a_sample_stands_at_zero() -> None:
    """No request has touched it yet; its first sample is a request."""
    fresh = requests_on(b"# TYPE vllm:request_success_total counter\n# TYPE vllm:num_requests_running gauge\n")
    asked = requests_on(b'# TYPE vllm:request_success_total counter\nvllm:request_success_total{a="b"} 1.0\n')

    assert asked.asked_since(fresh)
    assert not fresh.asked_since(fresh)


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"<html>",
        b"go_goroutines 7\n",
        b"vllm:num_requests_running 0\n",
        b"vllm:request_success_total NaN\n",
        b"vllm:request_success_total +Inf\n",
        b"vllm:request_success_total -1\n",
        b"vllm:request_success_total many\n",
        b"xvllm:request_success_total 1\n",
        b"{}",
        b'{"models":[{"name":"a"}]}',
        b'{"models":"a"}',
        b'{"error":"not found"}',
        b'"vllm:request',
        b"\xff\xfe",
    ],
)
def test_a_page_without_a_known_counter_is_unseen(page: bytes) -> None:
    """A gauge alone would miss every request between two looks."""
    with pytest.raises(UnseenError):
        requests_on(page)


@pytest.mark.parametrize("label", ['a="}"', 'a="} 9 "', 'a="\\" } 7"', 'a="{",b="}"'])
def test_labels_may_hold_anything(label: str) -> None:
    """A model's name is its maker's choice."""
    found = requests_on(f"vllm:request_success_total{{{label}}} 5 1700000000000\n".encode())

    assert set(found.stamps.values()) <= {5.0, 1700000000000.0}
    assert found.stamps["vllm_request_success_total"] == 5.0


@given(st.binary(max_size=400))
def test_no_page_whatever_breaks_the_reader(page: bytes) -> None:
    """It is read, or it is unseen."""
    for each in (page, VLLM + page, b"{" + page, b'"' + page):
        try:
            requests_on(each)
        except UnseenError:
            continue


def test_a_page_made_to_be_slow_is_not() -> None:
    """Four megabytes of what is nearly a sample take a moment, not minutes."""
    for filler in (b"}", b"} ", b" ", b"{", b"x"):
        line = b"vllm:request_success_total{" + filler * ((2 << 20) // len(filler))
        with pytest.raises(UnseenError):
            requests_on(line + b"\n")
