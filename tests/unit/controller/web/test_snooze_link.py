"""Signed links: what was signed comes back whole, and nothing else passes."""

from datetime import UTC, datetime, timedelta
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st
from itsdangerous import URLSafeSerializer

from gpuwatch.controller.web.snooze_link import Claim, LinkError, read_claim, secret_of, sign_claim, snooze_url

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
SECRET = b"0123456789abcdef0123456789abcdef"
CLAIM = Claim(node_id="i-1", key="gpuwatch-1-2-abc", whom="mail:ann@example.com", until=NOW + timedelta(days=1))
TOKEN = sign_claim(SECRET, CLAIM)
claims = st.builds(
    Claim,
    node_id=st.text(),
    key=st.text(),
    whom=st.text(),
    until=st.datetimes(min_value=datetime(2026, 3, 3), timezones=st.just(UTC)),  # noqa: DTZ001  hypothesis adds the zone
)


@given(claim=claims, secret=st.binary(min_size=32))
def test_what_was_signed_comes_back(claim: Claim, secret: bytes) -> None:
    """Whatever the texts are; the token needs no quoting in an address."""
    token = sign_claim(secret, claim)

    assert read_claim(secret, token, NOW) == claim
    assert set(token) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")


@given(at=st.integers(0, len(TOKEN) - 1), other=st.characters())
def test_any_changed_character_is_refused(at: int, other: str) -> None:
    """Of the version, the claim, the signature, and the dots between them."""
    changed = f"{TOKEN[:at]}{other}{TOKEN[at + 1 :]}"

    if changed != TOKEN:
        with pytest.raises(LinkError):
            read_claim(SECRET, changed, NOW)


@given(end=st.integers(0, len(TOKEN) - 1), tail=st.text(max_size=3))
def test_a_token_that_is_cut_or_continued_is_refused(end: int, tail: str) -> None:
    """Mail programs break long lines."""
    for wrong in (TOKEN[:end], TOKEN[end + 1 :], TOKEN + (tail or "=")):
        with pytest.raises(LinkError, match="not whole"):
            read_claim(SECRET, wrong, NOW)


@given(junk=st.text())
def test_junk_is_refused_and_nothing_else_happens(junk: str) -> None:
    """With a sentence, whatever comes."""
    with pytest.raises(LinkError):
        read_claim(SECRET, junk, NOW)


@given(secret=st.binary(min_size=32).filter(lambda secret: secret != SECRET))
def test_another_secret_s_signature_is_refused(secret: bytes) -> None:
    """A renewed secret ends all links that there are."""
    with pytest.raises(LinkError, match="secret has been renewed"):
        read_claim(secret, TOKEN, NOW)


@pytest.mark.parametrize("at", [len(TOKEN), -1, TOKEN.rindex(".") + 1, TOKEN.index(".") + 1])
@pytest.mark.parametrize("added", ["=", "!", "é", "\n", " ", "%", "\ud800"])
def test_a_token_written_in_another_way_is_refused(at: int, added: str) -> None:
    """Decoders of base64 skip such letters; a token with them is not the one that was made."""
    with pytest.raises(LinkError, match="not whole"):
        read_claim(SECRET, TOKEN[:at] + added + TOKEN[at:], NOW)


def test_a_signature_for_another_purpose_is_refused() -> None:
    """Whatever else is signed with the same secret gives no right here."""
    other = URLSafeSerializer(SECRET, salt="something else", signer_kwargs={"digest_method": sha256})
    token = other.dumps([CLAIM.node_id, CLAIM.key, CLAIM.whom, CLAIM.until.isoformat()])

    with pytest.raises(LinkError, match="not whole"):
        read_claim(SECRET, f"2.{token}", NOW)


def test_an_error_holds_no_secret_and_no_claim() -> None:
    """Neither its sentence nor what it was raised from."""
    with pytest.raises(LinkError) as caught:
        read_claim(SECRET[::-1], TOKEN, NOW)

    assert caught.value.__suppress_context__
    for text in (SECRET.decode(), SECRET[::-1].decode(), CLAIM.node_id, CLAIM.key, CLAIM.whom):
        assert text not in str(caught.value)


def test_a_link_ends() -> None:
    """At its very end, with the node and the time in the sentence."""
    last = CLAIM.until - timedelta(microseconds=1)

    assert read_claim(SECRET, TOKEN, last) == CLAIM
    with pytest.raises(LinkError, match=r"This link for i-1 ended at 2026-03-03 12:00 UTC\."):
        read_claim(SECRET, TOKEN, CLAIM.until)


@pytest.mark.parametrize("version", ["1", "3"])
def test_another_version_s_link_says_so(version: str) -> None:
    """Nobody can tell what it claims."""
    with pytest.raises(LinkError, match="another version of gpuwatch"):
        read_claim(SECRET, f"{version}{TOKEN[1:]}", NOW)


def test_the_address_is_the_base_and_the_token() -> None:
    """With one slash between, whether the base ends in one or not, and with the base's own path."""
    assert snooze_url("https://gpus.example.com", SECRET, CLAIM) == f"https://gpus.example.com/snooze/{TOKEN}"
    assert snooze_url("https://example.com/gpus/", SECRET, CLAIM) == f"https://example.com/gpus/snooze/{TOKEN}"


def test_the_secret_is_the_file_s_text() -> None:
    """As `openssl rand -base64 32` writes it, without the end of its line."""
    assert secret_of(b"q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=\n", "key").startswith(b"q83v")
    assert secret_of(b" " + SECRET + b"\r\n", "key") == SECRET


@pytest.mark.parametrize("content", [b"", b"\n", b"x" * 31, b" " * 40, b"x" * 31 + b"\n"])
def test_a_secret_that_can_be_guessed_is_refused(content: bytes) -> None:
    """The sentence names the file, what is there, what would be right, and not the secret."""
    with pytest.raises(ValueError, match=r"^/etc/key: \d+ bytes .* 32 .*openssl rand -base64 32`$") as caught:
        secret_of(content, "/etc/key")

    assert "xxx" not in str(caught.value)
