"""What shells wait for, as a test says it: at their prompts, unless told otherwise."""

from dataclasses import dataclass, field

PROMPT = 0o105061  # c_lflag while bash edits a line: neither ICANON (0o2) nor ECHO (0o10)
LINES = 0o105073  # while anything else runs: the terminal collects lines and echoes


@dataclass
class MadeShells:
    """The modes of terminals by device number, and where processes wait; `usual` for those not named."""

    usual: int | None = PROMPT
    terminals: dict[int, int | None] = field(default_factory=dict)
    waits: dict[int, str | None] = field(default_factory=dict)
    looks: int = 0

    def begin(self) -> None:
        """A look."""
        self.looks += 1

    def modes(self, tty: int) -> int | None:
        """As told."""
        return self.terminals.get(tty, self.usual)

    def waits_in(self, pid: int) -> str | None:
        """As told."""
        return self.waits.get(pid)
