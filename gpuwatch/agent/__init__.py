"""The agent on a GPU host: a probe that can be killed, a verdict on use, and an exporter that never waits."""
