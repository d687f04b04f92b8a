"""What a cloud says of a stop, on record and compared."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.stops import LastStop, StopAnswer, read_answer, why_not_ours

AT = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
TIMES = st.integers(0, 10**6).map(lambda seconds: AT + timedelta(seconds=seconds))
WORDS = st.text("0123456789abcdef-", min_size=1)
YES = st.sampled_from([True])
ANSWERS = st.one_of(
    st.just(StopAnswer(ran=False)),
    st.builds(StopAnswer, ran=YES, request=WORDS | st.none()),
    st.builds(StopAnswer, ran=YES, earliest=TIMES, latest=TIMES | st.none(), request=WORDS | st.none()),
)


@given(ANSWERS)
def test_what_is_written_down_of_an_answer_is_read_again(answer: StopAnswer) -> None:
    """The record has it all, in words for people."""
    assert read_answer(answer.words) == answer


def test_a_record_of_an_earlier_version_proves_nothing() -> None:
    """It does not say whether the machine ran."""
    assert read_answer("the cloud accepted the stop") is None
    assert why_not_ours(None, None) is not None


@given(TIMES, TIMES, TIMES)
def test_a_stop_is_ours_only_within_the_time_of_our_call(earliest: datetime, latest: datetime, at: datetime) -> None:
    """By the cloud's own clock, at both ends."""
    answer = StopAnswer(ran=True, earliest=earliest, latest=latest)

    assert (why_not_ours(answer, LastStop(at=at)) is None) is (earliest <= at <= latest)


@given(WORDS, WORDS | st.none())
def test_a_stop_is_ours_only_by_its_own_request(ours: str, shown: str | None) -> None:
    """Where the cloud names requests, no other one stands for it."""
    answer = StopAnswer(ran=True, request=ours)

    assert (why_not_ours(answer, LastStop(request=shown)) is None) is (ours == shown)


@given(
    ANSWERS, st.none() | st.builds(LastStop, at=TIMES | st.none(), request=WORDS | st.none(), other=WORDS | st.none())
)
def test_doubt_is_never_proof(answer: StopAnswer, shown: LastStop | None) -> None:
    """A machine that was down already, another cause, or a cloud that does not say when: its owner's."""
    unclear = shown is not None and (shown.other is not None or (shown.at is None and shown.request is None))
    if not answer.ran or unclear:
        assert why_not_ours(answer, shown) is not None
