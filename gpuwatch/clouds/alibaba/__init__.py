"""Alibaba Cloud's ECS and its Auto Scaling (ESS), by its RPC API and the official signer and credentials."""
