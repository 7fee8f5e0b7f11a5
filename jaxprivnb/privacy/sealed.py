"""JSON files that are read as if an enemy had written them.

A file is `{"format": ..., "version": ..., "sha256": ..., "content": {...}}`. Size, nesting and
number of values are bounded before anything is parsed; the checksum shows truncation and edits.
It is no signature: who can write the file can write its checksum.
"""

import errno
import hashlib
import json
import os
import re
import stat
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxprivnb.storage import LocalStorage, StorageError, check_path

MAX_BYTES = 64 * 2**20
MAX_DEPTH = 8
MAX_VALUES = 4_000_000
MAX_CONTAINERS = 200_000
MAX_STRINGS = 3_000_000

_TEXT_OR_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}"]')


def seal(format_: str, version: int, content: dict[str, Any]) -> bytes:
    """The file's bytes."""
    body = _canonical(content)
    head = f'{{"format":{json.dumps(format_)},"version":{version},"sha256":"{_digest(body)}"'
    return f'{head},\n"content":{body}}}\n'.encode()


def write(path: str | os.PathLike[str], data: bytes) -> None:
    """Replace the file as a whole, or leave it as it was."""
    target = Path(check_path("path", path))
    LocalStorage(target.parent).write(target.name, data)


def try_output(path: str | os.PathLike[str], inputs: Mapping[str, str | None]) -> None:
    """Raise unless a file can be written at `path` that replaces none of the inputs.

    Args:
        path: where to write, after work that cannot be had again.
        inputs: files that are read, by what the user calls them; None for one that is not given.
    """
    target = Path(path)
    for name, other in inputs.items():
        if other is not None and _same_file(target, other):
            raise ValueError(f"{target} is {name}: write to another file")
    if target.exists() and not target.is_file():
        raise StorageError(f"cannot write {target}: it is not a regular file")
    storage, name = LocalStorage(target.parent), f".{target.name}.{uuid.uuid4().hex[:8]}.try"
    try:
        storage.write(name, b"")
        storage.remove(name)
    except OSError as error:
        reason = os.strerror(error.errno or errno.EIO)
        raise StorageError(error.errno, f"cannot write {target}: {reason}") from None


def _same_file(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Whether both are, or would be, one file, under whatever names."""
    if os.path.exists(one) and os.path.exists(other):
        return os.path.samefile(one, other)
    return os.path.realpath(one) == os.path.realpath(other)


def unseal(path: str | os.PathLike[str], format_: str, version: int) -> dict[str, Any]:
    """The content of a file that is whole, of this format and version."""
    data = _read_bounded(check_path("path", path))
    try:
        return open_sealed(data, format_, version)
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from None


def open_sealed(data: bytes, format_: str, version: int) -> dict[str, Any]:
    """The same, from bytes."""
    _check_bounds(data)
    top, problem = None, ""  # raised outside: the parser's errors hold the text, in a context too
    try:
        top = json.loads(data, object_pairs_hook=_distinct, parse_constant=_no_constant)
    except RecursionError:
        problem = "nested too deeply"
    except json.JSONDecodeError as error:
        problem = f"not JSON, or cut off (line {error.lineno}: {error.msg})"
    except UnicodeDecodeError:
        problem = "not UTF-8 text"
    if problem:
        raise ValueError(problem)
    if not isinstance(top, dict) or top.get("format") != format_:
        raise ValueError(f'not a file of format "{format_}"')
    found = top.get("version")
    if isinstance(found, bool) or not isinstance(found, int):
        raise ValueError("version must be a whole number")
    if found != version:
        raise ValueError(
            f"version {found} of the format is not known here; this jaxprivnb reads {version}"
        )
    fields(top, "the file", {"format": str, "version": int, "sha256": str, "content": dict})
    if _digest(_canonical(top["content"])) != top["sha256"]:
        raise ValueError("sha256 does not match the content: the file was edited or damaged")
    return top["content"]


def fields(
    value: Any, where: str, wanted: dict[str, Any], defaults: Mapping[str, Any] | None = None
) -> list[Any]:
    """The values of an object with exactly these keys and types, in their order.

    Keys that files of earlier versions lack have `defaults`.
    """
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be an object")
    value = {**(defaults or {}), **value}
    for key in value:
        if key not in wanted:
            raise ValueError(f"{where} has an unknown key {key[:40]!r}")
    for key, kinds in wanted.items():
        if key not in value:
            raise ValueError(f"{where} lacks {key!r}")
        is_bool = isinstance(value[key], bool)
        if not isinstance(value[key], kinds) or (is_bool and kinds is not bool):
            raise ValueError(f"{where}: {key!r} is of the wrong type")
    return [value[key] for key in wanted]


def _canonical(content: dict[str, Any]) -> str:
    # 1e999 is read as infinity, which allow_nan=False refuses.
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()


def _read_bounded(path: str | os.PathLike[str]) -> bytes:
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError(f"{os.fspath(path)}: not a regular file")
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise type(error)(error.errno, f"cannot read {path}: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise ValueError(f"{os.fspath(path)}: larger than {MAX_BYTES} bytes")
    return data


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # a pipe without a writer


def _check_bounds(data: bytes) -> None:
    """Raise on more values, containers or depth than any file of ours has.

    Linear in the file: a string that is not closed ends the scan instead of starting it again.
    """
    if data.count(b",") + data.count(b":") > MAX_VALUES:
        raise ValueError(f"more than {MAX_VALUES} values")
    if data.count(b'"') > 2 * MAX_STRINGS:
        raise ValueError(f"more than {MAX_STRINGS} strings")
    depth = containers = 0
    for token in _TEXT_OR_BRACKET.finditer(data):
        text = token[0] if token.end() - token.start() == 1 else b""
        if text == b'"':
            raise ValueError("not JSON, or cut off: a string is not closed")
        if text in (b"[", b"{"):
            depth += 1
            containers += 1
            if depth > MAX_DEPTH:
                raise ValueError(f"nested more than {MAX_DEPTH} deep")
            if containers > MAX_CONTAINERS:
                raise ValueError(f"more than {MAX_CONTAINERS} lists and objects")
        elif text:
            depth -= 1
            if depth < 0:
                raise ValueError("not JSON: a bracket closes that was not open")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has the same key twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of ours")
