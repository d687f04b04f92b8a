"""A progress bar on standard error for commands that may take over two seconds; none without a terminal."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from gpuwatch.model.progress import Advance, no_advance

_SOON_SECONDS = 0.5  # what is done by then shows no bar


@contextmanager
def progress(words: str) -> Iterator[Advance]:
    """While the block runs, show what is done; gone at its end. Without a whole, the bar only shows that it works.

    Nothing is written where standard error is no terminal: a pipe, a file, a unit's journal. NO_COLOR takes the colours
    away. The block must not print.
    """
    if not sys.stderr.isatty() or os.environ.get("TERM", "dumb") in {"dumb", "unknown", ""}:
        yield no_advance
        return
    from rich.console import Console  # for people at terminals only
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn
    from rich.progress import TimeElapsedColumn as Elapsed

    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        Elapsed(),
        console=Console(stderr=True, highlight=False),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    task = bar.add_task(words, total=None)
    begin = threading.Timer(_SOON_SECONDS, bar.start)
    begin.daemon = True
    begin.start()
    try:
        yield lambda done, whole: bar.update(task, completed=done, total=whole)
    finally:
        begin.cancel()
        begin.join()
        bar.stop()
