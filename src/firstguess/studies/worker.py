"""A worker process of this machine: gets a function once, then jobs, and answers with what became of them.

Started by `local_pool.py` as a process of its own, not forked and not as a copy of the user's script: the script needs
no `if __name__ == "__main__"`. What comes through the pipe is from the process that started this one, and only from it.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection

from firstguess.studies.tasks import perform_all

READY = "ready"


def _leave_with(parent: int) -> None:
    """End when the process that started this one is gone, even in the middle of a task that hangs."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def main(fd: int, parent: int) -> None:
    """Work until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver, which then ends this one
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()
    with Connection(fd) as pipe:
        try:
            sent = pipe.recv_bytes()
        except EOFError:
            return
        try:
            work = pickle.loads(sent)
        except Exception as error:  # a module that is not found here
            pipe.send(f"{type(error).__name__}: {error}")
            return
        pipe.send(READY)
        while True:
            try:
                jobs = pickle.loads(pipe.recv_bytes())
            except EOFError:
                return
            pipe.send(perform_all(work, jobs))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
