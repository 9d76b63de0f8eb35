"""Break the package in small ways, one at a time, and see whether the tests notice.

    python tests/tools/mutants.py map --work /tmp/mutants tests src -m 'not slow'   # once, or in several parts
    python tests/tools/mutants.py run --work /tmp/mutants --seed 1 --count 100

`map` runs the tests on a copy of the checkout that notes which test enters which block, in subprocesses too. `run`
draws mutants: a statement from each of `count` equal parts of src/firstguess, or of `--rooms`, and one change in it
(text, types and messages stay). The tests that enter its block run on a second copy, those of its room and the
quickest first, until `--seconds` are used up; with more seconds the survivors continue. What survives is for a
reader: a test is missing, or the change means nothing.
"""
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportUnusedExpression=false
# pyright: reportConstantRedefinition=false

from __future__ import annotations

import argparse
import ast
import builtins
import contextlib
import copy
import faulthandler
import importlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path("src/firstguess")
PAIRS = [(ast.Lt, ast.GtE), (ast.Gt, ast.LtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn), (ast.Is, ast.IsNot)]
PAIRS += [(ast.And, ast.Or), (ast.Add, ast.Sub), (ast.Mult, ast.Div)]
SWAPPED = {a: b for pair in PAIRS for a, b in (pair, pair[::-1])} | {ast.Pow: ast.Mult, ast.FloorDiv: ast.Mult}
SYMMETRIC = {"max", "min", "maximum", "minimum", "hypot", "isclose", "allclose", "multiply"}
SYMMETRIC |= {"lcm", "gcd", "array_equal", "equal"}
TEXT = {"__repr__", "__str__", "__rich__", "_repr_html_", "_repr_mimebundle_", "warn", "round", "print", "echo"}
# Libraries that forks need not load again; plugins of pytest must not be among them.
LOADED = ["altair", "jinja2", "mpmath", "rich.table", "scipy.optimize", "scipy.stats", "torch.fx", "typer"]
RECORDER = """
import builtins, os
seen, log = set(), os.open(os.environ["MUTANTS_HITS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def hit(block):
    if block not in seen:
        seen.add(block)
        os.write(log, f"{os.environ.get('MUTANTS_TEST', '')}\\t{block}\\n".encode())
hit.seen = seen
builtins.__hit__ = hit
"""


def bodies(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """Every block within a function, its own first."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                for name in ("body", "orelse", "finalbody"):
                    body = getattr(node, name, None)
                    if isinstance(body, list) and not isinstance(node, ast.ClassDef):
                        yield body


def blocks(source: str) -> dict[int, int]:
    """First line -> last line of the blocks of a file; an `elif` counts as part of what it belongs to."""
    lines, found = source.splitlines(), dict[int, int]()
    for body in bodies(ast.parse(source)):
        code = [node for node in body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
        if code:
            first = min([code[0].lineno, *(node.lineno for node in getattr(code[0], "decorator_list", []))])
            if not lines[first - 1].lstrip().startswith("elif ") and not lines[first - 1][: code[0].col_offset].strip():
                found[first] = code[-1].end_lineno or first
    return found


def instrument(path: Path, name: str) -> None:
    source = path.read_text("utf-8")
    lines = source.splitlines(keepends=True)
    for first in sorted(blocks(source), reverse=True):
        line = lines[first - 1]
        lines.insert(first - 1, f"{line[: len(line) - len(line.lstrip())]}__hit__('{name}:{first}')\n")
    path.write_text("".join(lines), "utf-8")


def block_of(source: str, line: int) -> int | None:
    """The first line of the innermost block that has this line; None at the level of the module or a class."""
    return max((first for first, last in blocks(source).items() if first <= line <= last), default=None)


def copied(work: Path, name: str) -> Path:
    """A fresh copy of the files that git knows, as they are here."""
    target = work / name
    shutil.rmtree(target, ignore_errors=True)
    for file in subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0"):
        if file and (ROOT / file).is_file():
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, target / file)
    return target


class Recorder:
    """Notes the seconds of each test, and tells the instrumented copy which test is running."""

    def __init__(self, log: Path) -> None:
        self.log = log

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        os.environ["MUTANTS_TEST"] = nodeid.partition("[")[0]
        vars(builtins)["__hit__"].seen.clear()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        with self.log.open("a") as out:
            print(json.dumps([report.nodeid.partition("[")[0], report.duration, report.failed]), file=out)


def make_map(work: Path, arguments: list[str]) -> None:
    home = copied(work, "instrumented")
    for path in (home / SOURCE).rglob("*.py"):
        instrument(path, str(path.relative_to(home)))
    (home / "sitecustomize.py").write_text(RECORDER, "utf-8")
    paths = [str(home), str(home / "src"), str(home / "papers/src")]
    os.environ |= {"MUTANTS_HITS": str(work / "hits.txt"), "PYTHONPATH": os.pathsep.join(paths)}
    os.chdir(home)
    sys.path[:0] = paths
    exec(RECORDER, {})
    pytest.main(["-p", "no:cacheprovider", "-n", "0", *arguments], plugins=[Recorder(work / "tests.txt")])


def parts(node: ast.AST) -> Iterator[ast.AST]:
    """What is computed in a statement: no blocks below it, types, decorators or text."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            called = isinstance(child, ast.Call) and ast.unparse(child.func).rpartition(".")[2] in TEXT
            if name in {"annotation", "returns", "decorator_list"} or called or not isinstance(child, ast.AST):
                continue
            if not isinstance(child, ast.stmt | ast.JoinedStr | ast.match_case | ast.ExceptHandler):
                yield child
                yield from parts(child)


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def negated(node: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), node)


def changes(node: ast.AST, constants: bool) -> Iterator[tuple[str, ast.expr, ast.expr]]:
    """Kind of change, what stands there, what stands there instead."""
    new: Any = copy.deepcopy(node)
    match node:
        case ast.Compare() if type(node.ops[0]) in SWAPPED:
            new.ops[0] = SWAPPED[type(node.ops[0])]()
            yield "comparison", node, new
        case ast.BinOp() if type(node.op) in SWAPPED:
            if not is_text(node.left) and not is_text(node.right):
                new.op = SWAPPED[type(node.op)]()
                yield "arithmetic", node, new
        case ast.BoolOp():
            new.op = SWAPPED[type(node.op)]()
            yield "boolean", node, new
        case ast.UnaryOp(op=ast.Not()):
            yield "boolean", node, node.operand
        case ast.Constant(value=bool()):
            yield "constant", node, ast.Constant(not node.value)
        case ast.Constant(value=int() | float()) if constants:
            yield (
                "constant",
                node,
                ast.Constant(2 * node.value if isinstance(node.value, float) and node.value else node.value + 1),
            )
        case ast.Call(args=[first, second, *_]) if not any(is_text(a) or isinstance(a, ast.Starred) for a in node.args):
            if ast.unparse(node.func).rpartition(".")[2] not in SYMMETRIC and ast.dump(first) != ast.dump(second):
                new.args[:2] = [second, first]
                yield "arguments", node, new
        case ast.comprehension(ifs=[test, *_]):
            yield "boolean", test, negated(test)
        case ast.If() | ast.IfExp():
            if not isinstance(node.test, ast.Compare | ast.BoolOp | ast.UnaryOp):
                yield "boolean", node.test, negated(node.test)
            if isinstance(node, ast.If) and isinstance(
                node.body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break
            ):
                yield "branch", node.test, ast.Constant(False)
        case _:
            pass


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Every statement that computes something, outermost first."""
    for child in ast.iter_child_nodes(node):
        if getattr(child, "name", "") in TEXT or (
            isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        ):
            continue
        if isinstance(child, ast.stmt) and not isinstance(child, ast.Raise | ast.Assert | ast.ClassDef):
            yield child
        yield from statements(child)


def draw(home: Path, seed: int, count: int, rooms: list[str]) -> list[dict[str, Any]]:
    """Mutants: a statement of the package, a kind of change that it allows, one change of that kind."""
    rng, drawn = random.Random(seed), list[dict[str, Any]]()
    sources = {str(p.relative_to(home)): p.read_text("utf-8") for p in sorted((home / SOURCE).rglob("*.py"))}
    if rooms:
        sources = {file: source for file, source in sources.items() if file.split("/")[2] in rooms}
    everything = [(file, s) for file, source in sources.items() for s in statements(ast.parse(source))]
    while len(drawn) < count:
        place = (len(drawn) + rng.random()) / count  # one from each part of the package, so that no room is left out
        file, statement = everything[int(place * len(everything))]
        constants = not file.startswith(f"{SOURCE}/show")  # colours, sizes, places of labels
        kinds = defaultdict(list)
        for node in (statement, *parts(statement)):
            for kind, old, new in changes(node, constants):
                kinds[kind].append((old, new))
        if kinds:
            kind = rng.choice(sorted(kinds))
            old, new = rng.choice(kinds[kind])
            code = sources[file].encode().splitlines(keepends=True)
            start = sum(map(len, code[: old.lineno - 1])) + old.col_offset
            end = sum(map(len, code[: old.end_lineno - 1])) + old.end_col_offset
            whole, text = b"".join(code), ast.unparse(new)
            text = text if isinstance(new, ast.Constant) else f"({text})"
            mutant = {"file": file, "line": old.lineno, "kind": kind, "old": whole[start:end].decode(), "new": text}
            if mutant not in [{k: m[k] for k in mutant} for m in drawn]:
                drawn.append(mutant | {"source": (whole[:start] + text.encode() + whole[end:]).decode()})
    return drawn


class Tests:
    """Which tests enter which block, and how long they take."""

    def __init__(self, work: Path) -> None:
        self.seconds, failed = defaultdict[str, float](float), set[str]()
        self.hits = defaultdict[str, set[str]](set)
        for test, seconds, bad in map(json.loads, (work / "tests.txt").read_text().splitlines()):
            self.seconds[test] += seconds
            failed |= {test} if bad else set()
        for test, _, block in (line.partition("\t") for line in (work / "hits.txt").read_text().splitlines()):
            if test in self.seconds and test not in failed:
                self.hits[block].add(test)
                self.hits[block.partition(":")[0]].add(test)

    def of(self, file: str, source: str, line: int, seconds: float) -> list[str]:
        """Those of the room first, the quickest first, as many as fit; tests of one file stay together."""
        block = block_of(source, line)
        room = file.split("/")[2]
        found = self.hits[file] if block is None else self.hits[f"{file}:{block}"]
        chosen = defaultdict[str, list[str]](list)
        for test in sorted(found, key=lambda test: (room not in test.split("::")[0].split("/"), self.seconds[test])):
            seconds -= self.seconds[test]
            if seconds > 0 or not chosen:
                chosen[test.partition("::")[0]].append(test)
        return [test for tests in chosen.values() for test in tests]


class Limit:
    """Ends the process where a test takes far longer than it did, and notes the test that failed."""

    def __init__(self, tests: Tests, note: Path) -> None:
        self.tests, self.note, self.failed = tests, note, ""

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.note.write_text(f"time limit: {nodeid}")
        faulthandler.dump_traceback_later(30 + 10 * self.tests.seconds[nodeid.partition("[")[0]], exit=True)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        faulthandler.cancel_dump_traceback_later()
        if report.failed:
            self.failed = f"failed: {report.nodeid}"
        self.note.write_text(self.failed)


def outcome(home: Path, mutant: dict[str, Any], chosen: list[str], tests: Tests, number: int) -> str:
    """Run the tests on the mutant, in a fork: torch is loaded once."""
    path, note = home / mutant["file"], home / "note.txt"
    before, stat = path.read_text("utf-8"), path.stat()
    path.write_text(mutant["source"], "utf-8")
    os.utime(path, (stat.st_atime, stat.st_mtime + 10 * (number + 1)))  # never taken for what was compiled before
    note.write_text("not collected")
    child = os.fork()
    if not child:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_DATA, (8 << 30, 8 << 30))
        log = os.open(home / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1), os.dup2(log, 2)
        arguments = ["-x", "-n", "0", "-p", "no:cacheprovider", "-p", "no:faulthandler", "-m", "not slow", *chosen]
        os._exit(pytest.main(arguments, plugins=[Limit(tests, note)]))
    _, status = os.waitpid(child, 0)
    path.write_text(before, "utf-8")
    os.utime(path, (stat.st_atime, stat.st_mtime))
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what its tests started
    return "survived" if status == 0 else f"caught ({note.read_text() or f'status {status}'})"


def run(work: Path, seed: int, count: int, seconds: float, rooms: list[str]) -> None:
    for name in LOADED:
        importlib.import_module(name)
    home, tests, kept = copied(work, "mutated"), Tests(work), work / f"seed-{seed}.jsonl"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(home / "src"), str(home / "papers/src")])
    sys.path[:0] = [str(home / "src"), str(home / "papers/src")]
    os.chdir(home)
    done = {line["number"]: line for line in map(json.loads, kept.read_text().splitlines())} if kept.exists() else {}
    mutants = draw(home, seed, count, rooms)
    for mutant in mutants[:3]:  # nothing is learned from tests that fail on what is not broken
        source = (home / mutant["file"]).read_text("utf-8")
        chosen = tests.of(mutant["file"], source, mutant["line"], 3.0)
        said = outcome(home, mutant | {"source": source}, chosen, tests, -2) if chosen else "survived"
        if said != "survived":
            raise SystemExit(f"tests fail on the unchanged package: {said}, see {home / 'log.txt'}")
    for number, mutant in enumerate(mutants):
        source = (home / mutant["file"]).read_text("utf-8")
        chosen, before = tests.of(mutant["file"], source, mutant["line"], seconds), done.get(number, {})
        if not before or (before["outcome"] == "survived" and set(chosen) - set(before["tests"])):
            began = time.monotonic()
            new = [test for test in chosen if test not in before.get("tests", [])]
            said = outcome(home, mutant, new, tests, number) if new else "survived"
            line = {k: v for k, v in mutant.items() if k != "source"} | {
                "outcome": said,
                "number": number,
                "tests": chosen,
            }
            done[number] = line
            with kept.open("a") as out:
                print(json.dumps(line), file=out)
            print(f"{number} {mutant['file']}:{mutant['line']} {mutant['kind']}: {mutant['old']} -> {mutant['new']}")
            print(f"    {said}, {len(new)} tests, {time.monotonic() - began:.0f} s", flush=True)
    caught = sum(line["outcome"] != "survived" for line in done.values())
    print(f"seed {seed}: {caught} of {len(done)} caught")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["map", "run"])
    parser.add_argument(
        "--work", type=Path, required=True, help="a folder for copies and logs, outside of the checkout"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="of tests for a mutant; more, again: survivors go on"
    )
    parser.add_argument("--rooms", nargs="*", default=[], help="draw from these rooms only")
    options, rest = parser.parse_known_args()
    options.work.mkdir(parents=True, exist_ok=True)
    if options.what == "map":
        make_map(options.work.resolve(), rest)
    else:
        run(options.work.resolve(), options.seed, options.count, options.seconds, options.rooms)


if __name__ == "__main__":
    main()
