"""`gpuwatch` and `python -m gpuwatch`: the agent and its probe start without the operators' command line."""

import sys

# Started on every host for years: each has its own small parser, and click with all that hangs on it stays on disk.
_LEAN = {
    "agent": "gpuwatch.agent.launch",
    "probe": "gpuwatch.agent.probe.main",
    "handover": "gpuwatch.config.handover",  # of the settings, to the agent that starts; internal
}
_STAY = ("agent", "probe")  # they run on; the third one ends at once


def main() -> int:
    """Run the command line; the result is the exit status."""
    import importlib  # noqa: PLC0415  the branch decides what is loaded

    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name in _STAY:
        from gpuwatch.runtime.later import load_without_more, loaded_later  # noqa: PLC0415  likewise

        loaded_later()
        if name == "probe":  # the agent does it when the judge of its settings is at work
            load_without_more()
    if name in _LEAN:
        return int(importlib.import_module(_LEAN[name]).main(sys.argv[2:]))
    from gpuwatch.cli.main import main as operators  # noqa: PLC0415  likewise

    return operators()


if __name__ == "__main__":
    sys.exit(main())
