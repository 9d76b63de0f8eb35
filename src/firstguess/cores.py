"""All cores for work in NumPy, whose loops run without the interpreter's lock."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

from threadpoolctl import ThreadpoolController


def in_threads(job: Callable[[int], None], count: int) -> None:
    """Run job(0) … job(count − 1), a core each, with products on the core that asks for them.

    OpenBLAS' own threads would compete with ours, and keep a core busy for some 30 ms after each product.
    """
    workers = min(os.cpu_count() or 1, count)
    with _libraries().limit(limits=1, user_api="blas"):
        if workers <= 1:
            for index in range(count):
                job(index)
            return
        with ThreadPoolExecutor(workers) as pool:
            for _ in pool.map(job, range(count)):
                pass


@lru_cache(maxsize=1)
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()  # looking for them takes milliseconds: once
