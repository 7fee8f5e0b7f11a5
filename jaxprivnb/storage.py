"""Where files are kept: a local folder, or any storage that fsspec reaches.

Every write is whole: bytes go aside under another name and are renamed when they are safe, so a
reader never sees half a file and a kill never leaves one under its final name.
"""

import contextlib
import csv
import errno
import os
import shutil
import stat
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from jaxprivnb.extras import require

_STALE_SECONDS = 3600.0


class StorageError(OSError):
    """A file could not be written or read."""


class Storage(Protocol):
    """A place to keep files in; names are relative, with forward slashes."""

    url: str

    def read(self, name: str) -> bytes:
        """The file's bytes; FileNotFoundError if there is none."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Replace the file as a whole, durably; StorageError if that fails."""
        ...

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted; empty if there is no such folder."""
        ...

    def remove(self, name: str) -> None:
        """Delete a file, or a folder and all in it."""
        ...

    def sweep(self, folder: str) -> None:
        """Delete what killed writers left aside in a folder."""
        ...


def check_path(name: str, value: Any) -> str:
    """A path or URL, as text. What is none, such as a file's text, is refused without being shown:
    the system's errors would quote it.
    """
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str) or not text.isprintable():
        raise TypeError(f"{name} must be a path, got {type(value).__name__} that is none")
    return text


def csv_rows(path: str) -> Iterator[tuple[int, list[str]]]:
    """(Line, cells) of each row of a CSV file in UTF-8, its header first and blank lines left out.

    Errors show nothing of what the file holds.
    """
    readable = True
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True)
            for row in reader:
                if row:
                    yield reader.line_num, row
    except OSError as error:
        raise OSError(error.errno, f"cannot read {path}: {error.strerror}") from None
    except (csv.Error, UnicodeDecodeError):
        readable = False  # to be raised outside: these hold the data, in a context too
    if not readable:
        raise ValueError(f"{path} is not a CSV file in UTF-8")


def open_storage(out: str | os.PathLike[str]) -> Storage:
    """A local folder for a path, fsspec for a URL."""
    text = os.fspath(out)
    return FsspecStorage(text) if "://" in text else LocalStorage(text)


class LocalStorage:
    """A folder of this machine, or a shared file system mounted on it."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.url = str(self.folder)

    def read(self, name: str) -> bytes:
        """The file's bytes."""
        path = self.folder / name
        try:
            return path.read_bytes()
        except NotADirectoryError as error:
            raise FileNotFoundError(error.errno, error.strerror, str(path)) from error
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StorageError(error.errno, f"cannot read {path}: {error.strerror}") from error

    def write(self, name: str, data: bytes) -> None:
        """Write aside, sync, rename, sync the folder."""
        path = self.folder / name
        aside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and not path.is_file():  # a device, say, whose node a rename takes
                raise OSError(errno.EINVAL, "it is not a regular file")
            with open(aside, "wb") as file:
                with contextlib.suppress(FileNotFoundError):  # who could not read it still cannot
                    os.chmod(aside, stat.S_IMODE(path.stat().st_mode))
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, path)
            _sync_folder(path.parent)
        except OSError as error:
            raise StorageError(
                error.errno, f"cannot write {path}: {error.strerror or error}"
            ) from error
        finally:
            with contextlib.suppress(OSError):
                aside.unlink(missing_ok=True)

    def names(self, folder: str) -> list[str]:
        """Names in a folder; files that are still being written are not among them."""
        try:
            found = os.listdir(self.folder / folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(name for name in found if not name.startswith("."))

    def remove(self, name: str) -> None:
        """Delete a file or a folder."""
        path = self.folder / name
        try:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(
                error.errno, f"cannot delete {path}: {error.strerror or error}"
            ) from error

    def sweep(self, folder: str) -> None:
        """Delete half-written files that are too old to be anyone's work in progress."""
        for aside in (self.folder / folder).glob(".*.tmp"):
            with contextlib.suppress(OSError):
                if time.time() - aside.stat().st_mtime > _STALE_SECONDS:
                    aside.unlink()


class FsspecStorage:
    """A place with a URL, such as s3://bucket/study."""

    def __init__(self, url: str) -> None:
        fsspec = require("fsspec", "cluster", "a study at a URL")
        self.url = url.rstrip("/")
        self.fs: Any
        self.root: str
        self.fs, self.root = fsspec.core.url_to_fs(self.url)

    def read(self, name: str) -> bytes:
        """The file's bytes."""
        return self.fs.cat_file(self._path(name))

    def write(self, name: str, data: bytes) -> None:
        """Write aside and move; object stores make both steps whole."""
        path = self._path(name)
        folder, _, last = path.rpartition("/")
        aside = f"{folder}/.{last}.{uuid.uuid4().hex[:8]}.tmp"
        try:
            self.fs.makedirs(folder, exist_ok=True)
            self.fs.pipe_file(aside, data)
            self.fs.mv(aside, path)
        except Exception as error:  # each backend has its own exceptions
            raise StorageError(f"cannot write {self.url}/{name}: {error}") from error

    def names(self, folder: str) -> list[str]:
        """Names in a folder."""
        self.fs.invalidate_cache()
        try:
            found = self.fs.ls(self._path(folder), detail=False)
        except FileNotFoundError:
            return []
        names = (path.rstrip("/").rpartition("/")[2] for path in found)
        return sorted(name for name in names if name and not name.startswith("."))

    def remove(self, name: str) -> None:
        """Delete a file or a folder."""
        if self.fs.exists(self._path(name)):
            self.fs.rm(self._path(name), recursive=True)

    def sweep(self, folder: str) -> None:
        """Leave them: most object stores drop unfinished uploads themselves."""

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root


def _sync_folder(folder: Path) -> None:
    """Make a rename durable, where the system lets a folder be synced."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
