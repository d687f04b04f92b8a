"""A kubeconfig, and a pod's own service account: where the API server is, and every mistake by name."""

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuwatch.clouds.errors import AuthFailedError
from gpuwatch.kubernetes.client import certificates_of
from gpuwatch.kubernetes.kubeconfig import Plugin, from_kubeconfig, in_cluster
from gpuwatch.kubernetes.settings import KubernetesSettings


def written(folder: Path, *, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None) -> Path:
    """A kubeconfig with these entries."""
    content = {
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443/", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


def test_what_kubectl_reads_is_read(tmp_path: Path) -> None:
    """Data and files, the files relative to the kubeconfig."""
    (tmp_path / "key.pem").write_bytes(b"a key")
    path = written(
        tmp_path,
        cluster={"certificate-authority-data": base64.b64encode(b"a CA").decode(), "tls-server-name": "k"},
        user={"client-certificate-data": base64.b64encode(b"a certificate").decode(), "client-key": "key.pem"},
    )

    login = from_kubeconfig(path)

    assert (login.server, login.ca, login.server_name) == ("https://10.0.0.1:6443", b"a CA", "k")
    assert (login.certificate, login.key, login.insecure) == (b"a certificate", b"a key", False)
    assert login.files == (path, tmp_path / "key.pem")


def test_a_plugin_is_read_with_all_that_it_is_told(tmp_path: Path) -> None:
    """A command with a slash is relative to the kubeconfig, as with kubectl."""
    exec_ = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "./bin/token",
        "args": ["--cluster", "c"],
        "env": [{"name": "PROFILE", "value": "p"}],
        "installHint": "Install it.",
        "provideClusterInfo": True,
    }

    assert from_kubeconfig(written(tmp_path, user={"exec": exec_})).plugin == Plugin(
        api_version="client.authentication.k8s.io/v1",
        command=str(tmp_path / "bin/token"),
        arguments=("--cluster", "c"),
        environment={"PROFILE": "p"},
        hint="Install it.",
        cluster_info={"server": "https://10.0.0.1:6443/"},
    )


def test_no_secret_is_part_of_a_repr(tmp_path: Path) -> None:
    """A login stands in tracebacks."""
    path = written(tmp_path, user={"token": "s3cret", "username": "u", "password": "s3cret"})

    assert "s3cret" not in repr(from_kubeconfig(path))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"cluster": {"server": "10.0.0.1:6443"}}, "the server '10.0.0.1:6443'; expected is a URL"),
        ({"cluster": {"certificate-authority-data": "%"}}, "certificate-authority-data that is no base64"),
        ({"cluster": {"certificate-authority": "no.pem"}}, "no.pem cannot be read: No such file"),
        ({"user": {"auth-provider": {"name": "gcp"}}}, "auth-provider, which kubectl has dropped; use exec"),
        ({"user": {"exec": {"args": []}}}, "exec that names no command"),
        ({"user": {"exec": {"command": "aws", "env": [{"name": "AWS_PROFILE"}]}}}, "a value is missing"),
        ({"user": {"exec": {"command": "aws", "args": 5}}}, "of another kind"),
        ({"user": {"client-key": "~nobody-there/key.pem"}}, "~ leads to no home"),
        ({"user": {"tokenFile": "~nobody-there/token"}}, "~ leads to no home"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    """With the file, the entry, and what is expected."""
    path = written(tmp_path, **change)

    with pytest.raises(AuthFailedError, match=r"kubernetes\.kubeconfig") as error:
        from_kubeconfig(path)
    assert says in str(error.value)


def test_a_kubeconfig_in_the_home_of_nobody_is_named_with_what_is_expected() -> None:
    """Whoever asks for the login, and whoever watches its certificates, who has nothing to watch then."""
    settings = KubernetesSettings(kubeconfig="~nobody-there/config")

    with pytest.raises(AuthFailedError) as error:
        from_kubeconfig(Path("~nobody-there/config"))
    assert str(error.value) == (
        "kubernetes.kubeconfig: ~nobody-there/config leads nowhere: this machine has no home ~nobody-there; "
        "expected is a path such as /etc/kubeconfig"
    )
    assert certificates_of(settings, "kubernetes").paths == ()


def test_a_context_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    """So that a slip is seen."""
    with pytest.raises(AuthFailedError, match="has no context 'prod'; contexts are: x"):
        from_kubeconfig(written(tmp_path), "prod")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("clusters: [", "is no YAML, line 1"),
        ("just text", "is no kubeconfig"),
        ("{}", "has no current-context; set kubernetes.context"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_one_error(tmp_path: Path, text: str, says: str) -> None:
    """Nothing of its content is repeated."""
    path = tmp_path / "kubeconfig"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(AuthFailedError) as error:
        from_kubeconfig(path)
    assert says in str(error.value)


def test_a_pod_finds_its_own_api_server(tmp_path: Path) -> None:
    """By the environment that the kubelet gives it; of IPv6, too."""
    (tmp_path / "ca.crt").write_bytes(b"a CA")
    (tmp_path / "token").write_text("a-token", encoding="ascii")
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}

    login = in_cluster(tmp_path, environment)

    assert (login.server, login.ca, login.token_path) == ("https://[fd00::1]:443", b"a CA", tmp_path / "token")


def test_outside_of_a_pod_that_is_said(tmp_path: Path) -> None:
    """And what to set instead; likewise a pod without a service account."""
    with pytest.raises(AuthFailedError, match=r"set kubernetes\.kubeconfig"):
        in_cluster(tmp_path, {})
    with pytest.raises(AuthFailedError, match="automountServiceAccountToken"):
        in_cluster(tmp_path, {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"})
