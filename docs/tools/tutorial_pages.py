"""Tutorials (marimo notebooks) as pages of the site: run by marimo, written as plain Markdown with their outputs.

marimo's own HTML export fetches its front end, some 28 MB, from a content delivery network, and does not open from a
folder. A page made of the same session opens anywhere, prints, follows the site's colours and is found by its search.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

KEPT = Path("build") / "tutorials"  # runs of notebooks, made again when a notebook or the package changes


def made(root: Path) -> dict[str, str | bytes]:
    """Every tutorial's page and pictures, by their path within the site."""
    pages: dict[str, str | bytes] = {}
    for notebook in sorted((root / "tutorials").glob("*.py")):
        pages.update(page(notebook, session(notebook, root)))
        pages[f"tutorials/{notebook.name}"] = notebook.read_text(encoding="utf-8")
    return pages


def session(notebook: Path, root: Path) -> dict[str, Any]:
    """Run a notebook by `marimo export session`; what it shows, cell by cell."""
    kept = root / KEPT / f"{notebook.stem}.json"
    newest = max(path.stat().st_mtime for path in (notebook, *(root / "src").rglob("*.py")))
    if not kept.exists() or kept.stat().st_mtime < newest:
        kept.parent.mkdir(parents=True, exist_ok=True)
        copy = kept.parent / notebook.name  # marimo writes next to the notebook
        copy.write_text(notebook.read_text(encoding="utf-8"), encoding="utf-8")
        path = os.pathsep.join([str(root / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
        done = subprocess.run(
            [sys.executable, "-m", "marimo", "-q", "export", "session", str(copy), "--force-overwrite"],
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{notebook.name} did not run:\n{done.stdout}\n{done.stderr}")
        (kept.parent / "__marimo__" / "session" / f"{notebook.name}.json").replace(kept)
    return json.loads(kept.read_text(encoding="utf-8"))


def page(notebook: Path, shown: dict[str, Any]) -> dict[str, str | bytes]:
    """One page: text, code and what the code shows."""
    parts: list[str] = []
    files: dict[str, str | bytes] = {}
    for k, (cell, seen) in enumerate(zip(cells(notebook), shown["cells"], strict=True)):
        text = markdown_of(cell)
        code = without_text(cell)
        if text is None and code:
            parts.append(f"```python\n{code}\n```")
            printed = "".join(line["text"] for line in seen["console"] if line.get("name") == "stdout")
            if printed.strip():
                parts.append(f"```text\n{printed.rstrip()}\n```")
        for output in seen["outputs"]:
            if output["type"] != "data":
                raise RuntimeError(f"{notebook.name}, cell {k}: {output}")
            data = output["data"]
            if text is not None:
                parts.append(text if "{" not in cell else plain(data["text/markdown"]))
            elif chart := next((value for kind, value in data.items() if "vegalite" in kind), None):
                name = f"{notebook.stem}_{k}.png"
                files[f"tutorials/{name}"] = drawn(chart)
                parts.append(f"![What this cell draws]({name})")
            elif data.get("text/markdown"):
                parts.append(plain(data["text/markdown"]))
            elif any(data.values()):
                raise RuntimeError(f"{notebook.name}, cell {k} shows {list(data)}, which pages have no place for")
    title = next(k for k, part in enumerate(parts) if part.startswith("# "))
    parts.insert(0, parts.pop(title))  # before the imports
    parts.append(
        f"---\n\nThis page is a notebook, [{notebook.name}]({notebook.name}), run when the site was built. Try it: "
        f"`marimo edit tutorials/{notebook.name}`."
    )
    return {f"tutorials/{notebook.stem}.md": "\n\n".join(parts), **files}


def drawn(chart: str | dict[str, Any]) -> bytes:
    """A chart as a picture."""
    import vl_convert

    return vl_convert.vegalite_to_png(chart if isinstance(chart, str) else json.dumps(chart), scale=2)


def cells(notebook: Path) -> list[str]:
    """The code of every cell, in the notebook's order, without marimo's frame."""
    source = notebook.read_text(encoding="utf-8")
    found: list[str] = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.With):
            body = node.body
        elif isinstance(node, ast.FunctionDef) and node.decorator_list:
            body = [part for part in node.body if not isinstance(part, ast.Return)]
        else:
            continue
        lines = source.split("\n")[node.body[0].lineno - 1 : body[-1].end_lineno]
        found.append(textwrap.dedent("\n".join(lines)).strip())
    return found


def markdown_of(cell: str) -> str | None:
    """The text of a cell that is nothing but `mo.md(...)`."""
    (first, *rest) = ast.parse(cell).body
    if rest or not isinstance(first, ast.Expr) or not isinstance(first.value, ast.Call):
        return None
    if ast.unparse(first.value.func) != "mo.md":
        return None
    (said,) = first.value.args
    return textwrap.dedent(str(said.value)).strip() if isinstance(said, ast.Constant) else ""


def without_text(cell: str) -> str:
    """The code of a cell without the `mo.md(...)` at its end, which is shown as the text that it makes."""
    last = ast.parse(cell).body[-1]
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call) and ast.unparse(last.value.func) == "mo.md":
        return "\n".join(cell.split("\n")[: last.lineno - 1]).strip()
    return cell


def plain(html: str) -> str:
    """Text that marimo has rendered, for a page: no classes, headings that the site sees, links to its pages."""
    html = re.sub(r"^<span[^>]*>|</span>$", "", html.strip())
    html = re.sub(r"<h(\d)[^>]*>(.*?)</h\1>", lambda found: f"\n\n{'#' * int(found[1])} {found[2]}\n\n", html)
    html = re.sub(r'href="(\.\./[^"#]+)\.md', r'href="\1.html', html)
    return re.sub(r' (?:class|target|rel)="[^"]*"', "", html)
