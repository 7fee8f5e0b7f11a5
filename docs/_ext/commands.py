"""A directive that prints the command line's help, from the parser itself."""

import argparse
import os
from typing import Any
from unittest import mock

from docutils import nodes
from sphinx.util.docutils import SphinxDirective


class CommandHelp(SphinxDirective):
    """`{command-help} fit`: what `jaxprivnb fit --help` prints; without a name, the top level."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        """One literal block."""
        name = self.arguments[0] if self.arguments else None
        text = help_text(name)
        self.env.note_dependency("../jaxprivnb/cli.py")
        block = nodes.literal_block(text, text)
        block["language"] = "text"
        return [block]


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The commands by name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def help_text(name: str | None) -> str:
    """The help of a command, 88 columns wide."""
    from jaxprivnb.cli import build_parser

    with mock.patch.dict(os.environ, COLUMNS="88", NO_COLOR="1"):
        parser = build_parser()
        chosen = parser if name is None else subparsers(parser)[name]
        return chosen.format_help().rstrip()


def setup(app: Any) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
