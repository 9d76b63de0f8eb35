"""What the page needs where Python runs in a browser: few packages, no threads, no processes."""

import subprocess
import sys

import pytest

pytest.importorskip("threadpoolctl")

# A fresh interpreter that has what the static page installs, and what WebAssembly has not.
_BROWSER = """
import sys, threading, importlib.abc
KNOWN = {"firstguess", "numpy", "scipy", "PIL", "threadpoolctl"}

class Only(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in KNOWN or top in sys.stdlib_module_names or top.startswith("_"):
            return None
        raise ModuleNotFoundError(f"{name} is not in the browser", name=name)

sys.meta_path.insert(0, Only())
import numpy, scipy.special, scipy.optimize, scipy.linalg, PIL.Image, threadpoolctl  # may start what they like

def refuse(*given, **named):
    raise RuntimeError("can't start new thread")  # Pyodide's words

import os, subprocess
threading.Thread.start = threading._start_new_thread = refuse
subprocess.Popen.__init__ = os.fork = os.posix_spawn = os.system = refuse
del os.sched_getaffinity
sys.platform = "emscripten"
for name in ("resource",):
    sys.modules[name] = None

from firstguess.explore import choice, panels
import firstguess

for query in QUERIES:
    chosen = choice.Choice.of(query)
    page = panels.live(choice.see(chosen))
    assert 'data-gamma="' in page and "data-gamma=\\"nan" not in page, query
    found = choice.phases_of(chosen)
    page = panels.no_phases(found) if isinstance(found, str) else panels.phases(chosen, *found)
    assert "fg-phases" in page
    assert chosen.python and choice.Choice.of(chosen.query) == chosen
    try:
        assert chosen.pytorch
    except firstguess.NotCovered:
        assert chosen.pool != "none" or chosen.kind == "transformer", query
try:
    choice.see(choice.Choice("text", text="dense > nothing"))
except firstguess.FirstguessError:
    print("all of it")
"""
QUERIES = [
    "",
    "activation=gelu&depth=30&norm=layernorm&after=1&classes=10",
    "activation=tanh&weight_var=1.5&bias_var=0.1&mean_square=0.5&pool=avgpool(2)",
    "kind=residual&activation=silu&norm=layernorm&depth=7",
    "kind=transformer&depth=2",
    "kind=transformer&depth=2&style=bert&length=100",
    "kind=transformer&depth=2&style=llama&length=8",
    "kind=transformer&depth=2&style=original&classes=5",
    "kind=text",
]


def test_the_closed_form_needs_four_packages_and_no_threads():
    code = _BROWSER.replace("QUERIES", repr(QUERIES))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "all of it"
