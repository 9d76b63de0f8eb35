"""From a key on a slider to the drawn page, in Chromium: milliseconds, for some networks.

python benchmarks/explore.py          (needs firstguess[explore], playwright and a Chromium)
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import sys
from typing import Any

_KEY = """async (name) => {
  const state = () => (document.querySelector('#fg-live') || {dataset: {}}).dataset.state;
  const slider = [...document.querySelectorAll('marimo-slider')].find(s => s.shadowRoot.textContent.includes(name));
  const before = state(), thumb = slider.shadowRoot.querySelector('[role=slider]');
  thumb.focus();
  const start = performance.now();
  thumb.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true}));
  while (state() === before || state() === undefined) await new Promise(requestAnimationFrame);
  const time = performance.now() - start;
  await new Promise(r => setTimeout(r, 500));
  return time;
}"""
NETWORKS = {
    "ReLU, plain": "",
    "GELU, depth 60": "activation=gelu&depth=60",
    "tanh with biases": "activation=tanh&weight_var=1.5&bias_var=0.1&depth=30",
    "ReLU, ten classes": "classes=10",
    "LayerNorm after, ten classes": "norm=layernorm&after=1&classes=10",
    "residual, GELU": "kind=residual&activation=gelu&norm=layernorm&depth=20",
    "GPT-2 style, 32 tokens": "kind=transformer&depth=4",
}


def main() -> None:
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("google-chrome")
    command = [sys.executable, "-m", "firstguess", "explore", "--headless"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as play:
        assert server.stdout is not None
        found = re.search(r"http\S+", server.stdout.readline())
        assert found
        browser = play.chromium.launch(executable_path=program)
        try:
            for name, query in NETWORKS.items():
                page: Any = browser.new_page()
                page.goto(f"{found[0]}&{query}")
                page.wait_for_selector("#fg-live", timeout=60_000)
                page.wait_for_timeout(3000)
                times = sorted(page.evaluate(_KEY, "Depth") for _ in range(15))
                print(f"{name:32} median {statistics.median(times):4.0f} ms, slowest {times[-1]:4.0f} ms")
                page.close()
        finally:
            browser.close()
            server.kill()


if __name__ == "__main__":
    main()
