"""Which other system owns a machine on Azure, by what such systems leave. Any doubt makes it theirs.

Services of Azure make machines in resource groups of their own; the names of these are of each service's documentation.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase

from gpuwatch.clouds.tags import Owners, owner_by

# Patterns of a tag's key in small letters, and what owns the machine. The first match wins.
_TAGS: Owners = (
    ("aks-managed-*", "AKS cluster"),
    ("karpenter*", "Karpenter"),
    ("kubernetes.io*cluster*", "Kubernetes cluster"),
    ("k8s.io*cluster-autoscaler*", "cluster autoscaler"),
    ("databricks*", "Databricks"),
    ("vendor=Databricks", "Databricks"),  # with the tags ClusterId and ClusterName, which CycleCloud has, too
    ("azurebatch*", "Azure Batch"),
    ("batchaccountname", "Azure Batch"),
    ("clusterid", "Azure CycleCloud"),
    ("cyclecloud*", "Azure CycleCloud"),
    ("cm-resource-parent", "Azure Virtual Desktop"),
    ("ray-cluster-name", "Ray cluster"),
    ("hidden-devtestlabs-*", "Azure DevTest Labs"),
)
# Patterns of a resource group's name in small letters, and what makes it.
_GROUPS: Owners = (
    ("mc_*", "AKS cluster of the resource group"),
    ("databricks-rg-*", "Databricks' resource group"),
    ("azureml*", "Azure Machine Learning's resource group"),
)


# Types of what manages a resource group, in small letters.
_SERVICES = {
    "microsoft.containerservice/managedclusters": "AKS cluster",
    "microsoft.databricks/workspaces": "Databricks workspace",
    "microsoft.machinelearningservices/workspaces": "Azure Machine Learning's workspace",
    "microsoft.batch/batchaccounts": "Azure Batch",
    "microsoft.solutions/applications": "managed application",
}


def managed_by(
    tags: Mapping[str, str], resource_group: str, manager: str | None = None, *, of_group: str | None = None
) -> str | None:
    """Which other system owns a machine or a scale set; None if none does.

    `manager` is its own `managedBy`, and `of_group` that of its resource group.
    """
    for pattern, owner in _GROUPS:
        if fnmatchcase(resource_group.lower(), pattern):
            return f"{owner} {resource_group}"
    tagged = owner_by(_TAGS, {key.lower(): tags[key] for key in tags})
    told = next((each for each in (of_group, manager) if each), None)
    return tagged or (None if told is None else _manager(told))


def _manager(path: str) -> str:
    """What manages it, by the id of that."""
    kind, _, name = path.lower().rpartition("/providers/")[2].rpartition("/")
    owner = _SERVICES.get(kind)
    return f"the resource {path}" if owner is None or not name else f"{owner} {path.rpartition('/')[2]}"
