"""What the agent exposes: each metric once, as text for Prometheus, also under the names of other exporters."""
