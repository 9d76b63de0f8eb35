"""What is shipped: wheel and source archive, built and used away from the source; extras that errors name."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import firstguess as fg

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "firstguess"
PAGES = ("page.html", "report.html", "study.html", "study.js", "style.css", "watch.html")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def run(*command: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True,
        timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The source archive of this tree, and the wheel that is made from it (as pip does), not from the tree."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    run("-m", "hatchling", "build", "-t", "sdist", "-d", str(folder), cwd=ROOT)
    (archive,) = folder.glob("*.tar.gz")
    offline = ("--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check", "--quiet")
    run("-m", "pip", "wheel", *offline, "-w", str(folder), str(archive), cwd=folder)
    (wheel,) = folder.glob("*.whl")
    target = folder / "installed"
    run("-m", "pip", "install", *offline, "--target", str(target), str(wheel), cwd=folder)
    return {"sdist": archive, "wheel": wheel, "installed": target}


def shipped() -> set[str]:
    files = (path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(SOURCE.parent).as_posix() for path in files}


def test_everything_ships(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        names = set(wheel.namelist())
    assert (
        {"firstguess/py.typed", *(f"firstguess/show/report/templates/{name}" for name in PAGES)} <= shipped() <= names
    )
    assert {name for name in names if not name.startswith("firstguess-")} == shipped()
    with tarfile.open(built["sdist"]) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in shipped()} <= held
    assert {"README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md", "tests/test_package.py", "constraints.txt"} <= held
    assert not any(name.startswith((".venv", "out/", ".ci", "docs/images")) for name in held)
    assert built["sdist"].stat().st_size < 5e6


@pytest.mark.slow
def test_what_is_installed_works(built: dict[str, Path], tmp_path: Path) -> None:
    """Import, a doctest, the command, a figure and a report, from the wheel alone."""
    path = {"PYTHONPATH": str(built["installed"]), "OMP_NUM_THREADS": "1"}
    program = (
        "import doctest, firstguess as fg, firstguess.network.builders as builders\n"
        "for module in (fg, builders):\n"
        "    done = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)\n"
        "    assert done.attempted > 0 == done.failed, done\n"
        "import torch\n"
        "d = fg.diagnose(torch.nn.Linear(8, 2), torch.randn(50, 8), inits=4, seconds=2, advice=False)\n"
        "d.save('report.html')\n"
        "s = fg.study('two', fg.grid(depth=[1, 2]), lambda p: fg.predict(fg.mlp(**p)), store='runs').run(workers=1)\n"
        "s.save('study.html')\n"
        "print(fg.__file__, fg.__version__)"
    )
    (tmp_path / "program.py").write_text(f"if __name__ == '__main__':\n{re.sub('^', '    ', program, flags=re.M)}\n")
    file, version = run("program.py", cwd=tmp_path, **path).split()[-2:]
    assert file.startswith(str(built["installed"]))
    assert version == fg.__version__
    assert all((tmp_path / name).stat().st_size > 100_000 for name in ("report.html", "study.html"))
    script = str(built["installed"] / "bin" / "firstguess")
    assert run(script, "--version", cwd=tmp_path, **path) == f"firstguess {fg.__version__}\n"
    page = run(script, "predict", "mlp", "--depth", "20", "--figure", "law.svg", cwd=tmp_path, **path)
    assert "deeply biased" in page
    assert (tmp_path / "law.svg").read_text("utf-8").startswith("<svg")


def test_the_version_is_one(built: dict[str, Path]) -> None:
    assert fg.__version__ == "0.2.0"
    assert built["wheel"].name.startswith(f"firstguess-{fg.__version__}-py3-none-any")


def test_errors_name_extras_that_there_are() -> None:
    named: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        for line in path.read_text("utf-8").splitlines():
            found = re.findall(r"pip install (.?)firstguess\[(\w+)\]", line)
            named |= {extra for _, extra in found}
            named |= set(re.findall(r"optional\(\"?[\w.]+\"?, \"(\w+)\"", line))
            assert all(quote in ("'", "`") or "`pip" in line for quote, _ in found), (
                line
            )  # brackets mean files to a shell
    assert named == set(PROJECT["optional-dependencies"]) - {"dev", "docs"}


@pytest.mark.parametrize(
    ("package", "extra"), [("pyarrow", "studies"), ("cloudpickle", "studies"), ("ray", "ray"), ("PIL", "images")]
)
def test_a_package_that_is_missing_is_one_error_that_names_its_extra(
    package: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)

    def use() -> object:
        if extra == "images":
            return fg.data.parquet(tmp_path)
        return fg.study("a", [{"k": 1}], lambda p: p, store=tmp_path).run(engine="ray" if extra == "ray" else "local")

    with pytest.raises(fg.InvalidInput, match=rf"the package {package}.*firstguess\[{extra}\]"):
        use()


def test_the_papers_package_needs_what_its_items_need() -> None:
    from firstguess_papers.registry import items

    papers = tomllib.loads((ROOT / "papers" / "pyproject.toml").read_text("utf-8"))["project"]
    needed = {re.split(r"[^\w-]", line)[0] for line in papers["dependencies"]} - {"firstguess"}
    wanted = {package for item in items().values() for package in item.packages}
    wanted |= {"scikit-learn" for item in items().values() if "digits" in item.needs}
    assert wanted == needed
    assert papers["version"] == fg.__version__


def test_reproduce_without_the_papers_says_how_to_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from firstguess.cli import research

    broken = importlib.metadata.EntryPoint("reproduce", "no_such_package:reproduce", "firstguess.commands")
    for points in ((), (broken,)):
        monkeypatch.setattr("importlib.metadata.entry_points", lambda points=points, **_: points)
        assert research.installed("reproduce") is None
    with pytest.raises(fg.InvalidInput, match="pip install firstguess-papers"):
        research.reproduce()


def test_issue_templates_are_forms() -> None:
    folder = ROOT / ".github" / "ISSUE_TEMPLATE"
    forms = [path for path in folder.glob("*.yml") if path.name != "config.yml"]
    assert len(forms) >= 3
    for form in forms:
        text = form.read_text("utf-8")
        assert all(re.search(rf"^{key}:", text, re.M) for key in ("name", "description", "body")), form
