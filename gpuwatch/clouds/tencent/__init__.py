"""Tencent Cloud: Cloud Virtual Machine (CVM) and its Auto Scaling groups."""
