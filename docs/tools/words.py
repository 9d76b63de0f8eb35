"""Words that went: python docs/tools/words.py, part of `make lint`. Exit code 1, and a line for every one that is back.

Looks at pages, at README and at what users read in the code: docstrings, help, errors, reports, tutorials, examples;
and at what colleagues read: comments of the package, docstrings and comments of tests, benchmarks and tools.
What stands in `backticks` or code blocks does not count, nor do the ledger's pages, which quote the papers.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# What went, and what to write instead.
WENT = {
    r"behind (?:(?:a|an|the|every|each) (?!figure|token\b)|it|them)\w*": "after",
    r"in front of": "before",
    r"(?:seed|width|level|names?): Of\b": "what it is: “Random seed.”",
    r"(?:lay|lays|laid) (?:\w+ ){0,3}beside": "compare with",
    r"the laws? of|\blaws? (?:for|with|over|at)\b|kernel's law": "distribution",
    r"surely": "clearly",
    r"drawn anew|draws? anew|made anew|makes anew|computes? it anew|re-drawn|dealt anew": "re-initialized, regenerated",
    r"takes? (?:\w+ ){1,3}off\b|taken off": "subtracts",
    r"mend(?:s|ed|ing)?\b": "fix",
    r"goes on\b|go on\b": "resumes, continues",
    r"worth while": "worthwhile",
    r"foret(?:ell|old)|fore(?:see|sees|seen)\b": "predict",
    r"as asked": "as requested",
    r"so many": "this many, as many",
    r"not asked(?: for)?(?=[,;:.])": "not requested, not checked",
    r"(?:these|the) very (?:weights|values)|training bears": "exactly these; can be trained",
    r"(?:weights|norm|embed|padding|signal|key|tokens), in front|in front(?=[);])": "before it",
    r"beside": "next to, compared with, besides",
    r"(?:one|known|unknown|same|predicted|another|that|its|the) laws?": "distribution",
    r"anew": "again",
    r"(?:is|are|not) sure": "clear, certain",
    r"for want of": "because ... is short",
    r"and its (?:like|kin)": "and similar ones",
    r"not trainability|harmless, not useful|guesse?s? so": "a plain sentence",
    r"handful": "a few",
    r"(?:one|value|step|test|point|network|item|row|task)s? a (?:layer|cell|point|step|member|class|core)": "per",
    r"(?:factor|gradient|member|label|entry|output|ms)s? a (?:layer|point|step|member|class|block|task)": "per",
    r"(?:one|value|step|test|network|item|second|row)s? a (?:row|task|epoch|page|fault|test)": "per",
    r"\ba (?:layer|cell|point|step) going back": "per layer",
    r"Of arrays": "For arrays",
    r"bring bias|bring bias of their own": "add bias",
    r"sure or not|brought by": "statistically clear or not; caused by",
}  # fmt: skip
PATTERN = re.compile("|".join(f"(?P<w{k}>\\b(?:{went})\\b)" for k, went in enumerate(WENT)), re.I)
_DOCS = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "jobs").glob("*.md")]
PAGES = ["README.md", "CONTRIBUTING.md", *sorted(p.relative_to(ROOT).as_posix() for p in _DOCS)]
SKIPPED = {"docs/claims.md", "docs/gallery.md"}  # written by programs, from records


def main() -> None:
    found = [*of_pages(), *of_code(), *of_remarks()]
    print("\n".join(found) if found else "No word that went is back.")
    sys.exit(1 if found else 0)


def of_pages() -> Iterator[str]:
    for name in PAGES:
        if name not in SKIPPED:
            text = (ROOT / name).read_text(encoding="utf-8")
            text = re.sub(r"```.*?```", lambda block: "\n" * block[0].count("\n"), text, flags=re.DOTALL)
            for number, line in enumerate(text.split("\n"), 1):
                yield from (f"{name}:{number}: {said}" for said in complaints(line))


def of_code() -> Iterator[str]:
    """Strings of more than one word in the package, tutorials and examples; and templates of reports."""
    package = ROOT / "src" / "firstguess"
    others = [*(ROOT / "tutorials").glob("*.py"), *(ROOT / "examples").glob("*.py")]
    reproduce = ROOT / "papers" / "src" / "firstguess_papers" / "command.py"
    for path in sorted([*package.rglob("*.py"), *others, *([reproduce] if reproduce.exists() else [])]):
        name = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                plain = re.sub(r"^\s*(>>>|\.\.\.).*$", "", node.value, flags=re.M)
                for k, line in enumerate(plain.split("\n")):
                    yield from (f"{name}:{node.lineno + k}: {said}" for said in complaints(line))
    for path in sorted(package.rglob("templates/*.html")):
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            yield from (f"{path.relative_to(ROOT).as_posix()}:{number}: {said}" for said in complaints(line))


def of_remarks() -> Iterator[str]:
    """Comments everywhere, and docstrings of what users do not see. Word lists quote what went."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for folder in ("src", "tests", "benchmarks", "docs/tools"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.name in ("words.py", "test_words.py", "test_word_list.py"):
                continue
            name, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
            for number, line in enumerate(text.split("\n"), 1):
                _, mark, remark = line.partition("# ")
                yield from (f"{name}:{number}: {said}" for said in complaints(mark + remark))
            for node in ast.walk(ast.parse(text)) if folder != "src" else ():
                if isinstance(node, documented) and (said := ast.get_docstring(node, clean=False)):
                    first = node.body[0].lineno
                    for k, line in enumerate(said.split("\n")):
                        yield from (f"{name}:{first + k}: {told}" for told in complaints(line))


def complaints(line: str) -> Iterator[str]:
    """What stands in this line, and what to write instead."""
    instead = list(WENT.values())
    for hit in PATTERN.finditer(re.sub(r"`[^`]*`", "`…`", line)):
        yield f"“{hit[0]}”: write {instead[int(str(hit.lastgroup)[1:])]}"


if __name__ == "__main__":
    main()
