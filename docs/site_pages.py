"""What the site needs beyond the files in docs/: pages of the repository, links to them, names and commands.

On GitHub the files in docs/ are read as they are. Here a page's text is changed as it is read:

- a link that leaves docs/ goes to the site's copy of that page, or else to the file on GitHub;
- a block ```{names} with names of the package, one a line, becomes their summary and their docstrings;
- the line `<!-- commands -->` becomes every command of `asrconfig` with its options.

The reference of the Go library's operations, reference/operations.md, is written before the build, and not kept in git.
"""

from __future__ import annotations

import argparse
import posixpath
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
REPOSITORY = DOCS.parent
GITHUB = "https://github.com/asrconfig/asrconfig-go"
COPIES = "_repository"  # in docs/; not kept in git
COPIED = ("CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/**/*.md")

_LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
_FENCED = re.compile(r"^(`{3,}).*?^\1`*\s*?$", re.DOTALL | re.MULTILINE)
_COLON = "\ue000"  # a character for private use
_NAMES = re.compile(r"^```\{names\} ?(\S*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    write_operations()  # before Sphinx looks for pages
    app.connect("builder-inited", copy_pages)
    app.connect("source-read", on_source_read)
    app.connect("autodoc-process-signature", with_plain_defaults)
    app.connect("autodoc-process-docstring", hide_colons, priority=400)  # napoleon's has 500
    app.connect("autodoc-process-docstring", show_colons, priority=600)
    return {"parallel_read_safe": True}


def with_plain_defaults(
    app: Any, what: str, name: str, of: Any, options: Any, arguments: str | None, gives: Any
) -> Any:
    """A signature whose defaults can be read as Python: `load_audio` instead of `<function load_audio>`."""
    return arguments and re.sub(r"<(?:function )?(\w+)>", r"\1", arguments), gives


def hide_colons(app: Any, what: str, name: str, of: Any, options: Any, lines: list[str]) -> None:
    """Let no colon in an attribute's docstring end its type, as napoleon reads it: types are annotations."""
    if what in ("attribute", "data", "property"):
        lines[:] = [line.replace(":", _COLON) for line in lines]


def show_colons(app: Any, what: str, name: str, of: Any, options: Any, lines: list[str]) -> None:
    """Put back what `hide_colons` took."""
    lines[:] = [line.replace(_COLON, ":") for line in lines]


def write_operations() -> None:
    """Write the reference of the operations, from the declarations in Go."""
    page = DOCS / "reference" / "operations.md"
    subprocess.run(["go", "run", "./build/generate", str(page)], cwd=REPOSITORY, check=True)


def copy_pages(app: Any) -> None:
    """Bring pages of the repository that docs/ links to into the site."""
    for pattern in COPIED:
        for file in REPOSITORY.glob(pattern):
            copy = DOCS / COPIES / file.relative_to(REPOSITORY)
            copy.parent.mkdir(parents=True, exist_ok=True)
            if not copy.exists() or copy.stat().st_mtime < file.stat().st_mtime:
                shutil.copyfile(file, copy)


def on_source_read(app: Any, docname: str, source: list[str]) -> None:
    """Change the text of one page."""
    text = with_links(source[0], docname)
    text = _NAMES.sub(lambda match: names_block(match[1] or "asrconfig_go", match[2].split()), text)
    if "<!-- commands -->" in text:
        text = text.replace("<!-- commands -->", commands())
    source[0] = f"---\norphan: true\n---\n{text}" if docname.startswith(COPIES) else text


def with_links(text: str, docname: str) -> str:
    """`text` with its links going where the site has what they name; code is left alone."""
    parts, end = [], 0
    for fence in _FENCED.finditer(text):
        parts += [_LINK.sub(lambda link: _link(docname, link), text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, _LINK.sub(lambda link: _link(docname, link), text[end:])])


def _link(docname: str, link: re.Match[str]) -> str:
    """A link's new target."""
    page = f"{docname}.md"
    in_repository = page.removeprefix(f"{COPIES}/") if page.startswith(COPIES) else f"docs/{page}"
    target = posixpath.normpath(posixpath.join(posixpath.dirname(in_repository), link[1]))
    if target.startswith("docs/"):
        place = target.removeprefix("docs/")
    elif any(Path(target).match(pattern) for pattern in (*COPIED, "benchmarks/*.md")):
        place = f"{COPIES}/{target}"
    else:
        kind = "tree" if (REPOSITORY / target).is_dir() else "blob"
        return f"{GITHUB}/{kind}/main/{target}{link[2] or ''}"
    return posixpath.relpath(place, posixpath.dirname(page) or ".") + (link[2] or "")


def names_block(module: str, names: list[str]) -> str:
    """A table of what the names are, and below it each with its docstring."""
    lines = [f".. currentmodule:: {module}", "", ".. autosummary::", "   :nosignatures:", ""]
    lines += [f"   {name}" for name in names]
    for name in names:
        directive = _directive(name)
        lines += ["", f".. {directive}:: {name}", *(["   :show-inheritance:"] if directive == "autoexception" else [])]
    return "\n".join(["```{eval-rst}", *lines, "```"])


def _directive(name: str) -> str:
    if name.endswith(("Error", "Warning")):
        return "autoexception"
    if name.isupper() and len(name) > 3:  # GPU is a class
        return "autodata"
    return "autoclass" if name[0].isupper() else "autofunction"


def commands() -> str:
    """Every command of `asrconfig` as a section, from its parser."""
    from asrconfig_go.__main__ import _parser

    (subparsers,) = (action for action in _parser()._actions if isinstance(action, argparse._SubParsersAction))
    helps = {choice.dest: choice.help or "" for choice in subparsers._choices_actions}
    return "\n\n".join(_command(name, helps.get(name, ""), parser) for name, parser in subparsers.choices.items())


def _command(name: str, what: str, parser: argparse.ArgumentParser) -> str:
    lines = [f"## asrconfig {name}", "", f"{what[:1].upper()}{what[1:]}.", ""]
    options = [action for action in parser._actions if action.help != argparse.SUPPRESS and action.dest != "help"]
    if options:
        lines += ["| option | what |", "| --- | --- |"]
        lines += [f"| {_spelled(option)} | {_cell(_said(option, parser))} |" for option in options]
    return "\n".join(lines)


def _spelled(option: argparse.Action) -> str:
    value = str(option.metavar or option.dest.upper()).replace("|", "\\|")
    if not option.option_strings:
        return f"`{value}{' …' if option.nargs == '+' else ''}`"
    takes = f" {value}" if option.nargs != 0 else ""
    return ", ".join(f"`{name}{takes}`" for name in option.option_strings)


def _said(option: argparse.Action, parser: argparse.ArgumentParser) -> str:
    text = (option.help or "") % {**vars(option), "prog": parser.prog}
    return f"{text} (required)" if option.required and option.option_strings else text


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_").replace("<", "&lt;")
