"""PURE: what becomes of Kubernetes nodes, and of the pods that hold GPUs on them."""
