"""The administrator's own signal: a program whose exit status says busy or idle."""

from gpuwatch.agent.host import child
from gpuwatch.agent.host.knobs import CommandKnobs
from gpuwatch.agent.host.protocol import Moment, UnseenError, say
from gpuwatch.model.fleet import Evidence, State

# As pgrep and grep have it. A script that dies of a flaw often ends with 1, too, but not without a word: so idle is 1
# with nothing on standard error.
_SAYS = {0: State.BUSY, 1: State.IDLE}


class Command:
    """Status 0 is busy; 1, with nothing on standard error, is idle; anything else is unknown. Its output is dropped."""

    name = "command"
    source = "the administrator's command"

    def __init__(self, knobs: CommandKnobs, deadline_seconds: float) -> None:
        self._argv = knobs.argv
        self._deadline_seconds = deadline_seconds

    def look(self, now: Moment) -> tuple[Evidence, ...]:
        """One finding."""
        del now
        ran = child.run(self._argv, self._deadline_seconds)
        status = ran.status
        if _SAYS.get(status) is State.IDLE and ran.complained:
            raise UnseenError(f"{self._argv[0]} ended with status {status}, which is idle, and wrote to standard error")
        if status not in _SAYS:
            ended = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
            raise UnseenError(f"{self._argv[0]} {ended}; 0 would be busy, 1 idle")
        return (say(self, _SAYS[status], None, observed=status, limit=None, unit="exit status"),)
