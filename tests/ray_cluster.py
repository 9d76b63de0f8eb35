"""Ray for tests: small clusters on this machine, which start however busy it is.

Ray gives its agents a quarter of a minute to say which port they have chosen, and a node half a minute to be up; on a
machine that is busy with other work neither is enough. Here ports are chosen before, and the wait for a node is longer.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import logging
import os
import socket
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

_PATIENCE = 900  # seconds
_PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port", "runtime_env_agent_port")


def started(*cpus: int, connect: bool = True) -> Any:
    """A cluster with a node for each number of processors, the first of them the head; and a connection to it."""
    import ray
    from ray.cluster_utils import Cluster

    _be_patient()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cluster = Cluster()
        for count in cpus:
            cluster.add_node(num_cpus=count, include_dashboard=False, **_ports())
        if connect:
            cluster.wait_for_nodes(timeout=_PATIENCE)
            ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    return cluster


def stopped(cluster: Any) -> None:
    """End it, and the connection; its processes are waited for, which Ray leaves to the collector, with a warning."""
    import ray

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.shutdown()
        cluster.shutdown()
        for found in [one for one in gc.get_objects() if isinstance(one, subprocess.Popen)]:
            if "ray" in str(found.args) and found.returncode is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    found.wait(timeout=60)
        gc.collect()


def forgotten() -> None:
    """A cluster whose driver was killed has left its address behind, where the next `ray.init()` would look for it."""
    from ray._common.utils import reset_ray_address

    reset_ray_address()


def _ports() -> dict[str, int]:
    """Free ones, as far as one can know."""
    sockets = [socket.socket() for _ in _PORTS]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    found = {name: one.getsockname()[1] for name, one in zip(_PORTS, sockets, strict=True)}
    for one in sockets:
        one.close()
    return found


def _be_patient() -> None:
    os.environ["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)  # for workers
    os.environ["RAY_worker_register_timeout_seconds"] = str(_PATIENCE)  # noqa: SIM112 (Ray's own spelling)
    from ray._private import services

    if getattr(services, "patient", False):
        return
    get_node: Any = services.get_node
    start_raylet: Any = services.start_raylet

    def patient_get_node(*args: Any, **kwargs: Any) -> Any:
        started = time.monotonic()
        while True:
            try:
                return get_node(*args, **kwargs)
            except RuntimeError:
                if time.monotonic() - started > _PATIENCE:
                    raise
                time.sleep(0.2)

    def told_start_raylet(*args: Any, **kwargs: Any) -> Any:
        """The agent writes its port to this file once it is up, and the raylet does not start before."""
        given = inspect.signature(start_raylet).bind(*args, **kwargs).arguments
        name = f"dashboard_agent_listen_port_{given['node_id']}"
        (Path(given["session_dir"]) / name).write_text(str(given["dashboard_agent_listen_port"]))
        return start_raylet(*args, **kwargs)

    services.get_node, services.start_raylet = patient_get_node, told_start_raylet
    services.patient = True  # type: ignore[attr-defined]
