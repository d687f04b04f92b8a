"""Metric families and Prometheus' text format."""
