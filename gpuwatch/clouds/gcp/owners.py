"""Which other system owns a machine on Google Cloud, by the labels and metadata that such systems leave."""

from collections.abc import Mapping

from gpuwatch.clouds.tags import Owners, owner_by

# Labels and keys of metadata by which other systems own a machine: pattern, what owns it. The first match wins.
_OWNERS: Owners = (
    ("goog-k8s-cluster-name", "GKE cluster"),
    ("goog-gke-*", "GKE"),
    ("goog-fleet-project", "GKE"),
    ("kubernetes-io-cluster-*", "Kubernetes cluster"),
    ("k8s-io-*", "Kubernetes cluster"),
    ("karpenter*", "Karpenter"),
    ("goog-dataproc-cluster-name", "Dataproc cluster"),
    ("goog-dataproc-*", "Dataproc"),
    ("goog-dataflow-*", "Dataflow"),
    ("dataflow_job_name", "Dataflow"),
    ("goog-composer-*", "Cloud Composer"),
    ("batch-job-id", "Batch job"),
    ("goog-batch-*", "Batch"),
    ("goog-vertex-*", "Vertex AI"),
    ("goog-caip-*", "Vertex AI"),
    ("goog-managed-lustre", "Managed Lustre"),
    ("slurm_cluster_name", "Slurm cluster"),
    ("ray-cluster-name", "Ray cluster"),
    ("skypilot-cluster-name", "SkyPilot cluster"),
)
# Keys of the instance's metadata; the values may hold secrets, and are not looked at.
_METADATA = (("cluster-name", "GKE cluster"), ("kube-env", "GKE cluster"), ("notebooks-api-version", "Vertex AI"))


def managed_by(labels: Mapping[str, str], metadata: Mapping[str, str]) -> str | None:
    """Which other system owns a machine; None if none does. A managed instance group is not looked at here."""
    return owner_by(_OWNERS, labels) or next((owner for key, owner in _METADATA if key in metadata), None)
