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
    """Run the command line; the result is the exit status. No error ends in a traceback on somebody's terminal."""
    try:
        return _run()
    except Exception as error:  # noqa: BLE001  the last resort is for all of them
        from gpuwatch.runtime.program import report  # noqa: PLC0415  loaded for an error alone

        words = sys.argv[3:] if sys.argv[1:2] == ["--config"] else sys.argv[1:]
        return report(error, words[0] if words else "")


def _run() -> int:
    """Run what the first word names; the result is the exit status."""
    import importlib  # noqa: PLC0415  the branch decides what is loaded

    arguments = sys.argv[1:]
    if arguments[:1] == ["--config"] and arguments[2:3] == ["agent"]:  # before the command, as elsewhere
        arguments = [*arguments[2:], *arguments[:2]]
    name = arguments[0] if arguments else ""
    if arguments[:2] == ["agent", "join"]:  # a person's command, which runs once
        name = "join"
    if name in _LEAN:
        from gpuwatch.runtime.later import load_without_more, loaded_later  # noqa: PLC0415  likewise

        if name in _STAY:
            loaded_later()
        from gpuwatch.runtime.lean_classes import share_methods  # noqa: PLC0415  after the stand-ins

        share_methods()
        if name == "probe":  # the agent does it when the judge of its settings is at work
            load_without_more("msgspec")
        return int(importlib.import_module(_LEAN[name]).main(arguments[1:]))
    from gpuwatch.cli.main import main as operators  # noqa: PLC0415  likewise

    return operators()


if __name__ == "__main__":
    sys.exit(main())
