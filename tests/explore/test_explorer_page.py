"""The explorer in a real browser: sliders by key, numbers against `fg.predict`, nothing from outside, small screens."""

import importlib.util
import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

import firstguess as fg

if importlib.util.find_spec("marimo") is None:  # not imported here: Transformers takes a process with it for a notebook
    pytest.skip("pip install 'firstguess[explore]'", allow_module_level=True)

LIVE = "#fg-live"
_KEY = """async ([name, key]) => {
  const state = () => (document.querySelector('#fg-live') || {dataset: {}}).dataset.state;
  const slider = [...document.querySelectorAll('marimo-slider')].find(s => s.shadowRoot.textContent.includes(name));
  const before = state(), thumb = slider.shadowRoot.querySelector('[role=slider]');
  const start = performance.now();
  thumb.focus();
  thumb.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
  while (state() === before || state() === undefined) {
    if (performance.now() - start > 20000) throw new Error('nothing was drawn: ' + name);
    await new Promise(requestAnimationFrame);
  }
  return performance.now() - start;
}"""


@pytest.fixture(scope="module")
def address() -> Generator[str]:
    """A server of its own, ended by Ctrl-C."""
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "firstguess", "explore", "--headless"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as server:
        try:
            assert server.stdout is not None
            found = re.search(r"http://127\.0\.0\.1:\d+/\?access_token=\S+", server.stdout.readline())
            assert found, server.stderr.read() if server.stderr else ""
            yield found[0]
            server.send_signal(signal.SIGINT)
            assert server.wait(20) == 0
        finally:
            server.kill()


class Opened:
    """A tab on the explorer."""

    def __init__(self, browser: Any, address: str, query: str = "", width: int = 1280) -> None:
        context = browser._chromium.new_context(viewport={"width": width, "height": 900})
        self.page, self.errors, self.requests = context.new_page(), list[str](), list[str]()
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address + (f"&{query}" if query else ""))
        self.page.wait_for_selector(LIVE, timeout=90_000)

    def number(self, name: str) -> float:
        return float(self.page.get_attribute(LIVE, f"data-{name}"))

    def press(self, slider: str, key: str = "ArrowRight") -> float:
        return self.page.evaluate(_KEY, [slider, key])

    def close(self) -> None:
        self.page.context.close()


@pytest.fixture
def opened(browser: Any, address: str) -> Generator[Any]:
    tabs: list[Opened] = []

    def at(query: str = "", width: int = 1280) -> Opened:
        tabs.append(Opened(browser, address, query, width))
        return tabs[-1]

    yield at
    for tab in tabs:
        tab.close()


def test_sliders_move_the_numbers_of_predict(opened: Any):
    tab = opened()
    for depth in (11, 12, 13):
        tab.press("Depth")
        p = fg.predict(fg.mlp(depth))
        assert tab.number("gamma") == pytest.approx(p.gamma[-1], rel=1e-5)
        assert tab.number("largest") == pytest.approx(p.guesses.expected_max(), rel=1e-5)
    tab.press("Weight variance")
    tab.press("Bias variance")
    p = fg.predict(fg.mlp(13, weight_var=2.05, bias_var=0.01))
    assert tab.number("gamma") == pytest.approx(p.gamma[-1], rel=1e-5)
    assert tab.errors == []
    assert [url for url in tab.requests if not url.startswith(("http://127.0.0.1:", "data:", "blob:"))] == []


def test_a_link_restores_the_state_and_a_broken_one_says_so(opened: Any):
    query = "kind=residual&activation=gelu&norm=layernorm&depth=7&classes=10"
    tab = opened(query)
    net = fg.residual_mlp(7, "gelu", norm="layernorm", classes=10)
    assert tab.number("gamma") == pytest.approx(fg.predict(net).gamma[-1], rel=1e-5)
    tab.page.wait_for_selector("#fg-link")
    assert set(tab.page.get_attribute("#fg-link", "href").lstrip("?").split("&")) == set(query.split("&"))
    broken = opened("depth=many")
    broken.page.get_by_text("a number for depth").wait_for(timeout=20_000)


@pytest.mark.parametrize("width", [1280, 420])
def test_controls_stay_in_sight_after_comparing_and_scrolling(opened: Any, width: int):
    tab = opened(width=width)
    tab.page.get_by_text("Compare with this").first.click()
    tab.page.wait_for_selector("#fg-before")
    tab.page.evaluate("document.querySelector('#App').scrollTop = 600")
    tab.page.wait_for_timeout(300)
    assert tab.page.evaluate("document.querySelector('#App').scrollTop") > 300
    tab.page.mouse.move(width / 2, 700)  # marimo raises the cell under the mouse: over the panels
    tab.page.wait_for_timeout(300)
    above = tab.page.evaluate(
        "!!document.elementFromPoint(innerWidth / 2, 20).closest('[data-cell-id]:has(.fg-controls)')"
    )
    assert above
    box = tab.page.evaluate("document.querySelector('[data-cell-id]:has(.fg-controls)').getBoundingClientRect()")
    assert -1 <= box["top"] <= 1
    assert box["height"] <= 0.4 * 900 + 1


HOSTILE = [
    "<img src=http://outside.example/a.png>", "<form action=http://outside.example><input name=password></form>",
    "<style>body{display:none}</style>", "<script>window.hacked=1</script>", "<iframe src=http://outside.example></iframe>",
    "<svg onload=window.hacked=1>", "<a href=javascript:window.hacked=1>click</a>", "![x](http://outside.example/b.png)",
    "[click](http://outside.example)", "<link rel=stylesheet href=http://outside.example/c.css>", "<b>bold</b>",
    "<video src=http://outside.example/d.mp4 autoplay></video>", "<object data=http://outside.example></object>",
    "<meta http-equiv=refresh content='0;url=http://outside.example'>", "<base href=http://outside.example>",
    "<img src=x onerror=window.hacked=1>", "<marimo-button>press</marimo-button>", "&lt;b&gt;<details open>",
    "<textarea autofocus onfocus=window.hacked=1>", "'\"><embed src=http://outside.example>",
]  # fmt: skip
FIELDS = ("depth", "kind", "text", "activation")


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_a_link_is_never_read_as_a_page(opened: Any, number: int):
    """What stands in an address is shown as text: no element of it, no script, no request to outside."""
    hostile = HOSTILE[number]
    tab = opened(urlencode({FIELDS[number % len(FIELDS)]: hostile}))
    tab.page.wait_for_timeout(300)
    assert tab.page.evaluate("window.hacked") is None
    assert {urlsplit(url).hostname for url in tab.requests if url.startswith("http")} == {"127.0.0.1"}
    found = tab.page.evaluate(
        """() => [...document.querySelectorAll('marimo-ui-element, .output, #fg-live, p, span, div')]
             .flatMap(e => [...e.querySelectorAll('form, iframe, object, embed, video, details, b, marimo-button')])
             .filter(e => (e.outerHTML || '').includes('outside.example') || ['B', 'DETAILS', 'MARIMO-BUTTON', 'FORM']
               .includes(e.tagName) && /bold|press|password/.test(e.outerHTML)).map(e => e.outerHTML)"""
    )
    assert found == []
    assert tab.page.evaluate("getComputedStyle(document.body).display") != "none"


def test_without_the_token_there_is_no_page(browser: Any, address: str):
    context = browser._chromium.new_context()
    page = context.new_page()
    page.goto(address.split("?")[0])
    assert page.locator(LIVE).count() == 0
    assert "login" in page.url
    context.close()


def test_every_control_and_chart_has_a_name_for_screen_readers(opened: Any):
    tab = opened()
    unnamed = tab.page.evaluate(
        """() => [...document.querySelectorAll('marimo-slider, marimo-dropdown')]
             .flatMap(e => [...e.shadowRoot.querySelectorAll('[role=slider], select')])
             .filter(e => !(e.getAttribute('aria-label') || e.labels?.length || (e.getAttribute('aria-labelledby')
               && e.getRootNode().getElementById(e.getAttribute('aria-labelledby'))?.textContent.trim())))
             .map(e => e.outerHTML)"""
    )
    assert unnamed == []
    charts = tab.page.locator(f"{LIVE} svg")
    assert charts.count() >= 4
    assert all(charts.nth(k).get_attribute("aria-label") for k in range(charts.count()))


def test_nothing_sticks_out_on_a_small_screen(opened: Any):
    tab = opened(width=420)
    tab.page.wait_for_selector("#fg-phases", timeout=30_000)
    wide = tab.page.evaluate(
        f"""() => [...document.querySelectorAll('{LIVE} svg, #fg-phases svg, marimo-slider, marimo-dropdown')]
              .map(e => e.getBoundingClientRect()).filter(r => r.right > innerWidth + 1).length"""
    )
    assert wide == 0


def test_on_data_predicts_and_measures_on_demand(opened: Any):
    tab = opened("depth=2")
    assert tab.page.locator("#fg-data").count() == 0
    tab.page.get_by_role("button", name="Predict and measure on data").click()
    tab.page.wait_for_selector("#fg-data", timeout=90_000)
    said = tab.page.inner_text("#fg-data")
    assert "predicted on your data" in said
    assert "measured" in said


def test_changes_of_a_transformer_on_demand(opened: Any):
    tab = opened("kind=transformer&depth=2&style=bert&length=8")
    assert tab.page.locator("#fg-changes").count() == 0
    tab.page.get_by_role("button", name="Predict changes").click()
    tab.page.wait_for_selector("#fg-changes", timeout=90_000)
    said = tab.page.inner_text("#fg-changes")
    assert "gate the MLPs" in said
    assert "pre-norm" in said
    assert tab.errors == []
