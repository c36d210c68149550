"""Size of the sources against the house limits: says every offender, fails only on gross ones and on repeated lines."""

import ast
import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src", "scripts", "benchmarks", "examples", "tests")
# what is measured: (house limit, discussed in review; gross limit, fails)
LIMITS = {"lines of a file": (400, 600), "lines of a function": (60, 100), "parameters": (7, 10), "nesting": (3, 5)}
REPEATED_RUN = 6  # this many equal lines in a row, in two places, count as repeated
REPEATED_SHARE = 0.05
BLOCKS = (ast.For, ast.AsyncFor, ast.While, ast.If, ast.With, ast.AsyncWith, ast.Try, ast.Match)


def nesting(node: ast.AST) -> int:
    """Depth of blocks inside a function; an elif is as deep as its if, a nested function starts again."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        deepest = max(deepest, nesting(child) + (isinstance(child, BLOCKS) and not is_elif))
    return deepest


def measures(path: Path) -> list[tuple[str, str, int]]:
    """(what, where, how much) for a file and each of its functions; `self` and `cls` are no parameters."""
    text = path.read_text()
    name = str(path.relative_to(ROOT))
    found = [("lines of a file", name, len(text.splitlines()))]
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        where = f"{name}:{node.lineno} {node.name}"
        first = node.body[0]
        is_documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        docstring = (first.end_lineno or 0) - first.lineno + 1 if is_documented else 0
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        found.append(("lines of a function", where, (node.end_lineno or 0) - node.lineno + 1 - docstring))
        found.append(("parameters", where, sum(argument.arg not in ("self", "cls") for argument in arguments)))
        found.append(("nesting", where, nesting(node)))
    return found


def repeated_lines(paths: list[Path]) -> tuple[int, int, list[str]]:
    """(repeated, counted, places) over lines of code: no blanks, comments, imports or closing brackets alone."""
    lines: list[tuple[str, int, str]] = []
    for path in paths:
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            code = line.strip()
            if re.search(r"\w", code) and not code.startswith(("#", "import ", "from ")):
                lines.append((str(path.relative_to(ROOT)), number, code))
    runs = defaultdict(list)
    for i in range(len(lines) - REPEATED_RUN + 1):
        run = lines[i : i + REPEATED_RUN]
        if run[0][0] == run[-1][0]:
            runs[tuple(code for _, _, code in run)].append(i)
    again = {i + k for starts in runs.values() for i in starts[1:] for k in range(REPEATED_RUN)}
    begins = [i for i in sorted(again) if i - 1 not in again]
    return len(again), len(lines), [f"{lines[i][0]}:{lines[i][1]}" for i in begins]


def main() -> int:
    """Print the report; 1 where a gross limit is passed."""
    paths = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    gross = 0
    for what, where, value in (row for path in paths for row in measures(path)):
        limit, gross_limit = LIMITS[what]
        if value > limit:
            is_option_list = what == "parameters" and where.startswith("src/simforcing/cli/")  # one per --option
            is_gross = value > gross_limit and not is_option_list
            gross += is_gross
            print(f"size: {where}: {value} {what} (limit {limit}{', GROSS' if is_gross else ''})")
    library = [path for path in paths if ROOT / "src" in path.parents]
    repeated, counted, places = repeated_lines(library)
    share = repeated / max(counted, 1)
    for place in places:
        print(f"size: {place}: repeats lines that stand elsewhere")
    totals = {path: len(path.read_text().splitlines()) for path in paths}
    sums = {folder: sum(n for path, n in totals.items() if ROOT / folder in path.parents) for folder in FOLDERS}
    print("size: lines " + ", ".join(f"{folder} {count}" for folder, count in sums.items() if count), end="; ")
    print(f"repeated in src {share:.1%}")
    return 1 if gross or share > REPEATED_SHARE else 0


if __name__ == "__main__":
    sys.exit(main())
