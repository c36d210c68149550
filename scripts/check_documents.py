"""Documents against the repository: links between them lead somewhere, names of code in them exist.

Names are found in the syntax trees of src/, so nothing is imported. A name is anything in backticks that starts with a
package or module of simforcing and has a dot: `flow.path.interpolate`, `training.objectives.FlowMatching.weight`.
"""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "simforcing"
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
NAME = re.compile(r"`(?:simforcing\.)?([a-z_]\w*(?:\.\w+)+)(?:\(\))?`")
FILE_ENDINGS = ("py", "md", "toml", "txt", "json", "mp4", "gif", "png", "html", "npz", "parquet")


def documents() -> list[Path]:
    """The documents of the repository's root and of docs/."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")])


def anchors(path: Path) -> set[str]:
    """Anchors of a document's headings, as code forges make them."""
    headings = re.findall(r"^#+\s+(.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def broken_links(path: Path) -> list[str]:
    """Relative links of one document that lead nowhere."""
    broken = []
    for target in LINK.findall(re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        other = (path.parent / file).resolve() if file else path
        is_there = other.exists() and (not anchor or other.suffix != ".md" or anchor in anchors(other))
        if not is_there:
            broken.append(f"link to {target} leads nowhere")
    return broken


def defined_in(tree: ast.Module | ast.ClassDef) -> dict[str, ast.AST]:
    """Names that a module or class binds at its top level (imports too: a package's front door re-exports)."""
    names: dict[str, ast.AST] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names[node.name] = node
        elif isinstance(node, ast.Assign):
            names |= {target.id: node for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names[node.target.id] = node
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name: node for alias in node.names}
    return names


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or something that a module or one of its classes defines."""
    place, parts = SOURCE, name.split(".")
    while parts and (place / parts[0]).is_dir():
        place = place / parts.pop(0)
    is_module = bool(parts) and (place / f"{parts[0]}.py").is_file()
    file = place / f"{parts.pop(0)}.py" if is_module else place / "__init__.py"
    if not file.is_file():
        return False
    scope: ast.AST = ast.parse(file.read_text())
    for part in parts:
        if not isinstance(scope, ast.Module | ast.ClassDef) or part not in defined_in(scope):
            return False
        scope = defined_in(scope)[part]
    return True


def unknown_names(path: Path) -> list[str]:
    """Names of code in one document that src/ does not define."""
    tops = {item.stem for item in SOURCE.iterdir() if item.suffix == ".py" or item.is_dir()}
    names = [name for name in NAME.findall(path.read_text()) if name.split(".")[0] in tops]
    names = [name for name in names if name.rsplit(".", 1)[-1] not in FILE_ENDINGS]
    return [f"`{name}` is not in src/simforcing" for name in dict.fromkeys(names) if not exists(name)]


def main() -> int:
    """Print what is wrong; 1 if anything is."""
    found = [(path, fault) for path in documents() for fault in broken_links(path) + unknown_names(path)]
    for path, fault in found:
        print(f"docs: {path.relative_to(ROOT)}: {fault}")
    if not found:
        print(f"docs: all links and names in {len(documents())} documents exist")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
