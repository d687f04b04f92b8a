"""Tokens from files and from programs: each as long as it holds, and never in an error."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from gpuwatch.clouds.errors import AuthFailedError
from gpuwatch.kubernetes.credentials import Credentials
from gpuwatch.kubernetes.kubeconfig import Login, Plugin
from gpuwatch.runtime.clock import ManualClock

_V1 = "client.authentication.k8s.io/v1"


def of(clock: ManualClock, **login: object) -> Credentials:
    """Those of a login."""
    return Credentials(Login(server="https://k", **login), clock, 5.0)  # type: ignore[arg-type]


def a_plugin(folder: Path, script: str, **other: object) -> Plugin:
    """A shell script that stands for a program."""
    path = folder / "plugin"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
    path.chmod(0o755)
    return Plugin(**{"api_version": _V1, "command": str(path), **other})  # type: ignore[arg-type]


def printed(status: dict[str, str]) -> str:
    """The script that prints a credential."""
    told = {"apiVersion": _V1, "kind": "ExecCredential", "status": status}
    return f"cat <<'END'\n{json.dumps(told)}\nEND"


def test_a_token_is_shown_as_it_is() -> None:
    """And nothing where there is nothing, as with `kubectl proxy`."""
    clock = ManualClock()

    assert of(clock, token="t").show().headers == {"Authorization": "Bearer t"}  # noqa: S106  no secret
    assert of(clock, basic=("u", "p")).show().headers == {"Authorization": "Basic dTpw"}
    assert of(clock).show().headers == {}


def test_a_token_s_file_is_read_again(tmp_path: Path) -> None:
    """Kubelets renew it; at once where the API server refused the one before."""
    clock, path = ManualClock(), tmp_path / "token"
    path.write_text("first\n", encoding="ascii")
    credentials = of(clock, token_path=path)
    first = credentials.show()
    path.write_text("second\n", encoding="ascii")

    assert credentials.show().headers == {"Authorization": "Bearer first"}
    credentials.drop_refused(first)
    assert credentials.show().headers == {"Authorization": "Bearer second"}
    path.write_text("third\n", encoding="ascii")
    clock.advance(61)
    assert credentials.show().headers == {"Authorization": "Bearer third"}


def test_a_program_is_run_again_before_its_token_ends(tmp_path: Path) -> None:
    """Not sooner: some of them ask a cloud each time."""
    clock = ManualClock()
    until = (clock.now() + timedelta(minutes=10)).isoformat()
    count = tmp_path / "count"
    plugin = a_plugin(tmp_path, f"echo x >> {count}\n" + printed({"token": "t", "expirationTimestamp": until}))
    credentials = of(clock, plugin=plugin)

    for minutes in (0, 5, 3.9):
        clock.advance(60 * minutes)
        assert credentials.show().headers == {"Authorization": "Bearer t"}
    assert count.read_text(encoding="ascii").count("x") == 1
    clock.advance(60)
    credentials.show()
    assert count.read_text(encoding="ascii").count("x") == 2


def test_a_program_may_give_a_certificate(tmp_path: Path) -> None:
    """With its key."""
    plugin = a_plugin(tmp_path, printed({"clientCertificateData": "c", "clientKeyData": "k"}))

    shown = of(ManualClock(), plugin=plugin).show()

    assert (shown.certificate, shown.key, shown.headers) == (b"c", b"k", {})


def test_a_program_is_told_what_the_kubeconfig_says(tmp_path: Path) -> None:
    """Its arguments, its environment, and of the cluster where it asks for that."""
    told = tmp_path / "told"
    plugin = a_plugin(
        tmp_path,
        f'echo "$1 $PROFILE $KUBERNETES_EXEC_INFO" > {told}\n' + printed({"token": "t"}),
        arguments=("--cluster",),
        environment={"PROFILE": "p"},
        cluster_info={"server": "https://k"},
    )

    of(ManualClock(), plugin=plugin).show()

    first, _, info = told.read_text(encoding="ascii").partition("{")
    assert first == "--cluster p "
    assert json.loads("{" + info)["spec"] == {"interactive": False, "cluster": {"server": "https://k"}}


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo 'no session: log in first' >&2; exit 3", "it ended with 3: no session: log in first"),
        ("echo s3cret", "what it printed is no ExecCredential"),
        (printed({"expirationTimestamp": "2026-11-23T12:00:00Z"}), "neither a token nor a certificate"),
        (printed({"token": "s3cret", "expirationTimestamp": "2026-11-23T12:00:00"}), "has no time zone"),
        (printed({"token": "s3 cret"}), "no printable ASCII"),
    ],
)
def test_a_program_that_fails_is_named(tmp_path: Path, script: str, says: str) -> None:
    """What it printed is never repeated."""
    plugin = a_plugin(tmp_path, script)

    with pytest.raises(AuthFailedError) as error:
        of(ManualClock(), plugin=plugin).show()
    assert says in str(error.value)
    assert "s3cret" not in str(error.value)


def test_a_program_that_is_missing_is_named_with_its_hint(tmp_path: Path) -> None:
    """The kubeconfig's own words on how to install it."""
    missing = Plugin(api_version=_V1, command=str(tmp_path / "none"), hint="Install aws-iam-authenticator.")

    with pytest.raises(AuthFailedError, match=r"there is no such program\. Install aws-iam-authenticator"):
        of(ManualClock(), plugin=missing).show()
    with pytest.raises(AuthFailedError, match="v1alpha1' is not known"):
        of(ManualClock(), plugin=Plugin(api_version="client.authentication.k8s.io/v1alpha1", command="x")).show()


def test_a_token_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """An empty one, too."""
    (tmp_path / "empty").touch()

    with pytest.raises(AuthFailedError, match="none cannot be read: No such file"):
        of(ManualClock(), token_path=tmp_path / "none").show()
    with pytest.raises(AuthFailedError, match="is empty"):
        of(ManualClock(), token_path=tmp_path / "empty").show()
