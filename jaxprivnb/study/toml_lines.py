"""Where a key stands in a TOML text; the standard library's parser does not say."""

import re

_HEADER = re.compile(r"^\s*\[{1,2}\s*(?P<name>[^\]]+?)\s*\]{1,2}\s*(#.*)?$")
_KEY = re.compile(r"""^\s*(?P<name>(?:"[^"]*"|'[^']*'|[A-Za-z0-9_.\s-])+?)\s*=""")


def find_line(text: str, key: tuple[str, ...]) -> int | None:
    """The 1-based line of `key`, or of the nearest table around it; None if there is neither.

    Keys inside inline tables are found at the line where the table begins.
    """
    best: tuple[int, int] | None = None  # (how many parts of the key the line settles, line)
    section: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            section = found = _parts(header["name"])
        elif assignment := _KEY.match(line):
            found = (*section, *_parts(assignment["name"]))
        else:
            continue
        if key[: len(found)] == found and (best is None or len(found) > best[0]):
            best = (len(found), number)
    return best[1] if best else None


def _parts(name: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in name.split("."))
