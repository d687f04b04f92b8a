"""The section `kubernetes`: bad input is named, and without the section nothing is loaded."""

import subprocess
import sys

import pytest

from gpuwatch.clouds.errors import AuthFailedError
from gpuwatch.kubernetes.settings import KubernetesSettings, contradictions
from gpuwatch.runtime.clock import ManualClock


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (KubernetesSettings(in_cluster=True, kubeconfig="k"), "two ways to the API server"),
        (KubernetesSettings(in_cluster=True, context="prod"), "names a context of a kubeconfig"),
        (KubernetesSettings(name="prod"), "does not say where the API server is"),
        (KubernetesSettings(in_cluster=True, timeout=60.0), "is shorter than kubernetes.timeout (1m)"),
    ],
)
def test_what_does_not_fit_together_is_named(settings: KubernetesSettings, says: str) -> None:
    """With the keys, and what would be right."""
    (found,) = contradictions(settings)

    assert says in found.wrong
    assert found.right


@pytest.mark.parametrize("settings", [KubernetesSettings(), KubernetesSettings(kubeconfig="k", context="c")])
def test_what_is_right_is_right(settings: KubernetesSettings) -> None:
    """No section, too: that is a fleet without Kubernetes."""
    assert list(contradictions(settings)) == []
    assert settings.configured == (settings.kubeconfig is not None)


def test_a_kubeconfig_that_is_missing_is_an_error_of_the_start() -> None:
    """Not one of some later round."""
    with pytest.raises(AuthFailedError, match="no-such-file cannot be read"):
        KubernetesSettings(kubeconfig="no-such-file").connect(ManualClock())


def test_without_a_cluster_no_client_is_loaded() -> None:
    """A controller of a fleet without Kubernetes needs neither the extra nor its memory."""
    program = (
        "import sys, gpuwatch.cli.controller\n"
        "loaded = [name for name in sys.modules if name.startswith('gpuwatch.kubernetes.')]\n"
        "print(*sorted(loaded), 'urllib3' in sys.modules)"
    )

    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert printed.split() == [
        "gpuwatch.kubernetes.calls",
        "gpuwatch.kubernetes.join",
        "gpuwatch.kubernetes.settings",
        "False",
    ]
