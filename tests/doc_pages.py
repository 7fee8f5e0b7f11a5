"""The examples of a page of documentation: found, and run in the order a reader meets them.

    python tests/doc_pages.py README.md docs/method.md ...

A fence's language says what it is:

    python          run; with `>>>` prompts its output must be what is shown
    console         lines after `$ ` are commands, and what they print must be what is shown
    (none)          commands, one a line, without output
    toml            a file, if the line before the fence is `<!-- file: NAME -->`
    text            not an example
    {directive}     Sphinx's

and `<!-- setup ... -->` is Python that a reader of the page does not see. A page has one namespace
and an empty folder to work in. All pages share one interpreter, so that equal fits compile once,
under JAX's default configuration.
"""

import contextlib
import doctest
import io
import os
import re
import shlex
import sys
import tempfile
import tomllib
import traceback
import types
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_OPEN = re.compile(r"(?P<fence>`{3,})(?P<info>.*)")


class Block(NamedTuple):
    """One fence, or one hidden set-up."""

    language: str
    text: str
    line: int
    """Of its first line of text, from 1."""
    file: str | None = None
    """The name it is to be saved under."""


class WrongExampleError(Exception):
    """An example that fails, or shows what is not so."""


def blocks(text: str) -> list[Block]:
    """Every block of a page, in order."""
    found = []
    lines = iter(enumerate(text.splitlines(), 1))
    file = None
    for number, line in lines:
        if line.strip() == "<!-- setup":
            body = _until("-->", lines)
            found.append(Block("python", "\n".join(body), number + 1))
        elif match := re.fullmatch(r"<!-- file: (\S+) -->", line.strip()):
            file = match[1]
        elif match := _OPEN.fullmatch(line):
            body = _until(match["fence"], lines)
            found.append(Block(match["info"].strip(), "\n".join(body), number + 1, file))
            file = None
    return found


def _until(end: str, lines: Any) -> list[str]:
    body = []
    for _, line in lines:
        if line.strip() == end:
            return body
        body.append(line)
    raise WrongExampleError(f"a block is not ended with {end}")


def run_page(path: Path) -> int:
    """Run a page's examples; how many there were."""
    namespace: dict[str, Any] = {"__name__": "__page__"}
    # Dataclasses look their module up.
    sys.modules["__page__"] = types.ModuleType("__page__")
    count = 0
    for block in blocks(path.read_text(encoding="utf-8")):
        try:
            count += run_block(block, namespace)
        except WrongExampleError as wrong:
            raise WrongExampleError(f"{path.name}:{block.line}: {wrong}") from None
        except BaseException as error:
            how = "".join(traceback.format_exception(error))
            raise WrongExampleError(f"{path.name}:{block.line}: {how}") from None
    return count


def run_block(block: Block, namespace: dict[str, Any]) -> int:
    """Run one block; 1 if it was an example."""
    if block.file is not None:
        Path(block.file).write_text(block.text + "\n", encoding="utf-8")
        return 1
    if block.language.startswith("{") or block.language in ("text", "toml"):
        return 0
    if block.language == "python" and ">>> " in block.text:
        _run_session(block, namespace)
    elif block.language == "python":
        exec(compile(block.text, f"<line {block.line}>", "exec"), namespace)
    elif block.language == "console":
        _run_console(block)
    elif block.language == "":
        for line in block.text.splitlines():
            if line.strip():
                run_command(line)
    else:
        raise WrongExampleError(f"nobody knows how to run {block.language!r}")
    return 1


def _run_session(block: Block, namespace: dict[str, Any]) -> None:
    test = doctest.DocTestParser().get_doctest(block.text, {}, "page", None, block.line - 1)
    test.globs = namespace
    report = io.StringIO()
    runner = doctest.DocTestRunner(verbose=False, optionflags=FLAGS)
    runner.run(test, out=report.write, clear_globs=False)
    if runner.failures:
        raise WrongExampleError(report.getvalue())


def _run_console(block: Block) -> None:
    """Commands after `$ `, each followed by its output, or by nothing if that is not shown."""
    shown: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            shown.append((line[2:], []))
        elif shown:
            shown[-1][1].append(line)
        else:
            raise WrongExampleError(f"{line!r} comes before any command")
    for command, expected in shown:
        got = run_command(command)
        want = "\n".join(expected) + "\n"
        if want.strip() and not doctest.OutputChecker().check_output(want, got, FLAGS):
            raise WrongExampleError(f"$ {command}\nis shown to print\n{want}but prints\n{got}")


def run_command(line: str) -> str:
    """What a command prints. `jaxprivnb` is run; `make` and `pip` are checked against the files
    they read, because they would set up a machine.
    """
    words = shlex.split(line, comments=True)
    if words[0] == "jaxprivnb":
        from jaxprivnb import cli

        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            try:
                code = cli.main(words[1:])
            except SystemExit as end:  # of --help, --version and wrong usage
                code = end.code
        if code:
            raise WrongExampleError(f"{line} exits with {code}:\n{out.getvalue()}")
        return out.getvalue()
    if words[0] == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        if not set(words[1:]) <= set(targets):
            raise WrongExampleError(f"{line}: the Makefile has {', '.join(targets)}")
    elif words[:2] == ["pip", "install"]:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        for extras in re.findall(r"\[(.*?)\]", line):
            for extra in extras.split(","):
                if extra not in project["optional-dependencies"]:
                    raise WrongExampleError(f"{line}: there is no extra {extra!r}")
    else:
        raise WrongExampleError(f"nobody knows how to run {line!r}")
    return ""


def main(pages: list[str]) -> int:
    """Run every page, each in a folder of its own; the exit code."""
    import jax

    before = {name: repr(value) for name, value in jax.config.values.items()}
    wrong = 0
    for page in map(Path, pages):
        here = os.getcwd()
        path = page.resolve()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                print(f"{page}: {run_page(path)} examples", flush=True)
            except WrongExampleError as error:
                wrong += 1
                print(error, file=sys.stderr, flush=True)
            finally:
                os.chdir(here)
        changed = [k for k, v in jax.config.values.items() if repr(v) != before.get(k)]
        if changed:
            print(f"{page} changes JAX's {', '.join(changed)}", file=sys.stderr)
            return 1
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
