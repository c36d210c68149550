"""Documents against the repository: links lead somewhere; names of code, commands, options and make targets exist.

Names are found in the syntax trees of src/, so nothing is imported. A name is anything in backticks that starts with a
package or module of simforcing and has a dot: `flow.path.interpolate`, `training.objectives.FlowMatching.weight`.
Commands stand in backticks and in console and sh blocks; the tests run console blocks, sh ones are too long for that.
"""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "simforcing"
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
NAME = re.compile(r"`(?:simforcing\.)?([a-z_]\w*(?:\.\w+)+)(?:\(\))?`")
BLOCK = re.compile(r"^```(?:console|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`((?:simforcing|make) [^`\n]*)`")
COMMAND = re.compile(r"\b(simforcing|make) ([^#;|&\n]*)")
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


def command_options() -> dict[str, set[str]]:
    """Subcommand -> its options, from the signatures in cli; a parameter that is a record stands for its fields."""
    names: dict[str, ast.AST] = {}
    for path in (SOURCE / "cli").glob("*.py"):
        found = defined_in(ast.parse(path.read_text()))
        names |= {name: node for name, node in found.items() if name not in names or is_own(node)}
    table = names["COMMANDS"]
    assert isinstance(table, ast.Assign)
    assert isinstance(table.value, ast.Dict)
    options = {}
    for key, value in zip(table.value.keys, table.value.values, strict=True):
        assert isinstance(key, ast.Constant)
        assert isinstance(value, ast.Name)
        function = names[value.id]
        assert isinstance(function, ast.FunctionDef)
        arguments = (*function.args.args, *function.args.kwonlyargs)
        found = {name for argument in arguments for name in fields_of(argument, names) or {argument.arg}}
        options[key.value] = {name.replace("_", "-") for name in found}
    return options


def is_own(node: ast.AST) -> bool:
    """Whether a module defines a name itself."""
    return not isinstance(node, ast.ImportFrom)


def fields_of(argument: ast.arg, names: dict[str, ast.AST]) -> set[str]:
    """Fields of the record (or alias of one) that annotates a parameter; empty for any other parameter."""
    todo: list[ast.expr | None] = [argument.annotation]
    fields: set[str] = set()
    while todo:
        for node in ast.walk(todo.pop() or ast.Constant(None)):
            known = names.get(node.id) if isinstance(node, ast.Name) else None
            if isinstance(known, ast.ImportFrom) and isinstance(node, ast.Name):
                known = imported(node.id, known)
            if isinstance(known, ast.ClassDef):
                fields |= {item.target.id for item in known.body if isinstance(item, ast.AnnAssign)}
                todo += known.bases  # a record has the fields of those it extends
            elif isinstance(known, ast.Assign):
                todo.append(known.value)
    return fields


def imported(name: str, statement: ast.ImportFrom) -> ast.AST | None:
    """What a name that was imported from a module of the package is defined by there."""
    file = SOURCE.parent / f"{(statement.module or '').replace('.', '/')}.py"
    return defined_in(ast.parse(file.read_text())).get(name) if file.is_file() else None


def make_targets() -> set[str]:
    """Words that `make` knows."""
    return set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def unknown_commands(path: Path) -> list[str]:
    """Subcommands, options and make targets that a document names and that do not exist."""
    text = path.read_text().replace("\\\n", " ")
    options, targets, faults = command_options(), make_targets(), []
    for program, rest in COMMAND.findall("\n".join(BLOCK.findall(text) + INLINE.findall(text))):
        words = [word for word in rest.split() if "=" not in word]
        if not words or not re.match(r"[a-z]", words[0]):  # RUN, --help, nothing
            continue
        if program == "make":
            faults += [f"make {words[0]}: no such target"] * (words[0] not in targets)
        else:
            faults += command_faults(words, options)
    return faults


def command_faults(words: list[str], options: dict[str, set[str]]) -> list[str]:
    """What one call `simforcing WORDS` asks for that is not there."""
    name, used = words[0], [word[2:] for word in words[1:] if word.startswith("--") and word != "--help"]
    if name not in options:
        return [f"simforcing {name}: no such command"]
    known = options[name]
    return [
        f"simforcing {name}: no option --{o}" for o in used if o not in known and o.removeprefix("no-") not in known
    ]


def main() -> int:
    """Print what is wrong; 1 if anything is."""
    checks = (broken_links, unknown_names, unknown_commands)
    found = [(path, fault) for path in documents() for check in checks for fault in check(path)]
    for path, fault in found:
        print(f"docs: {path.relative_to(ROOT)}: {fault}")
    if not found:
        print(f"docs: all links, names and commands in {len(documents())} documents exist")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
