"""Ray for tests: on a machine that is busy with others it takes longer to start than it is willing to wait."""

from __future__ import annotations

import os
import sys
import time
import warnings
from typing import Any

_PATIENCE = 900  # seconds


def be_patient() -> None:
    """Let Ray's processes take their time; its workers find what this process finds."""
    os.environ["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    os.environ.setdefault("RAY_worker_register_timeout_seconds", str(_PATIENCE))
    from ray._private import services

    known: Any = services.get_node
    if getattr(known, "patient", False):
        return

    def get_node(*args: Any, **kwargs: Any) -> Any:
        """Ray asks for 30 seconds whether its node is up, and then gives up."""
        started = time.monotonic()
        while True:
            try:
                return known(*args, **kwargs)
            except RuntimeError:
                if time.monotonic() - started > _PATIENCE:
                    raise
                time.sleep(0.2)

    get_node.patient = True  # type: ignore[attr-defined]
    services.get_node = get_node


def start(**options: Any) -> Any:
    """`ray.init`, in silence."""
    import ray

    be_patient()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ray.init(log_to_driver=False, logging_level="error", **options)
