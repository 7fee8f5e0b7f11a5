"""Results on disk: one Parquet part a chunk, and a manifest of what is done.

    study.json                  the spec, its fingerprint, versions; earlier specs, if it grew
    manifest.json               finished chunks: part, rows, failures
    manifest-3-of-100.json      the same, of one part of the work that is run by itself
    parts/part-000012.parquet   one chunk's rows

A part has its final name only when it is whole, and carries the study's fingerprint; so the parts
themselves are the truth. The manifest is rewritten as a whole, now and then and at the end; a run
that was killed before it could do so finds its parts, checks them, and goes on from there. Several
runs may work in one folder at once: a chunk's rows are the same whoever writes them.
"""

import json
import re
import time
import warnings
from typing import Any, NamedTuple

from jaxprivnb._version import __version__
from jaxprivnb.extras import require
from jaxprivnb.storage import Storage, StorageError, open_storage
from jaxprivnb.study.schedule import Schedule, continues
from jaxprivnb.study.schema import NAMES, row_table
from jaxprivnb.study.spec import Spec
from jaxprivnb.study.specfile import check_fields

STUDY, MANIFEST, PARTS = "study.json", "manifest.json", "parts"
_PART = re.compile(r"part-(\d{6,})\.parquet")
_MANIFEST = re.compile(r"manifest(-\d+-of-\d+)?\.json")
_MANIFEST_SECONDS = 1.0
FORMAT, GROWN = 1, 2
"""Of the rows and of these files; GROWN where the study has earlier specs. A different one is
another study."""


class OtherStudyError(ValueError):
    """The folder holds a study with another spec."""


class Receipt(NamedTuple):
    """What is known of a finished chunk."""

    chunk: int
    rows: int
    failures: int
    """Rows whose status is not success."""


class StudyFolder:
    """The folder of one study.

    Args:
        out: a folder or URL.
        schedule: of the study, or its one spec.
        manifest: what this run calls its manifest, where others run beside it.
    """

    def __init__(self, out: str, schedule: Schedule | Spec, *, manifest: str = MANIFEST) -> None:
        self.storage: Storage = open_storage(out)
        self.schedule = schedule if isinstance(schedule, Schedule) else Schedule([schedule])
        self.manifest = manifest
        self.done: dict[int, Receipt] = {}
        self._saved_at = 0.0

    @classmethod
    def found(cls, out: str) -> "StudyFolder":
        """The folder of the study that is there, with what is done; nothing is written."""
        folder = cls(out, read_schedule(open_storage(out)))
        folder.done = folder._reconcile()
        return folder

    @property
    def spec(self) -> Spec:
        """What is asked for."""
        return self.schedule.spec

    def begin(self, *, overwrite: bool = False) -> dict[int, Receipt]:
        """Claim the folder; the chunks that an earlier run finished.

        If the folder's study asks for less of the same, it grows: `schedule` has its specs too.

        Raises:
            OtherStudyError: the folder's study has another spec; the message shows the difference.
        """
        if overwrite:
            for name in (*_manifests(self.storage), PARTS, STUDY):
                self.storage.remove(name)
        found = read_study(self.storage)
        if found is None and self.storage.names(PARTS):
            found = read_study(self.storage)  # another run may have begun it just now
            if found is None:
                raise OtherStudyError(
                    f"{self.storage.url} has parts but no {STUDY}; use another folder, or overwrite"
                )
        if found is None:
            self._describe()
        else:
            self._join(found)
        self.storage.sweep(PARTS)
        self.done = self._reconcile()
        self.save_manifest()
        return self.done

    def _join(self, found: dict[str, Any]) -> None:
        """Go on with the study that is there, or refuse."""
        same = found["format"] in (FORMAT, GROWN) and found["fingerprint"] == self.spec.fingerprint
        before = (
            read_schedule(self.storage).specs if same or found["format"] in (FORMAT, GROWN) else ()
        )
        if not same and not (before and continues(before[-1], self.spec)):
            changes = "\n".join(differences(found["spec"], self.spec.to_dict()))
            changes = changes or f"  format: {found['format']} -> {FORMAT}"
            raise OtherStudyError(
                f"{self.storage.url} holds another study ({found['spec'].get('name')}); "
                f"the difference:\n{changes}\n"
                "A study that only asks for more goes on in its folder: replicates, values of the "
                "grid, methods, levels, precision. Give another folder to keep both, or "
                "overwrite (--overwrite) to delete that one."
            )
        if found["jaxprivnb"] != __version__:
            warnings.warn(
                f"{self.storage.url} was begun with jaxprivnb {found['jaxprivnb']}, this is "
                f"{__version__}: rows of the two may differ",
                stacklevel=4,
            )
        self.schedule = Schedule(before if same else (*before, self.spec))
        if not same:
            self._describe(found["jaxprivnb"])

    def _describe(self, version: str = __version__) -> None:
        """Write down what the study is, and what it was."""
        *earlier, spec = self.schedule.specs
        description: dict[str, Any] = {
            "format": GROWN if earlier else FORMAT,
            "fingerprint": spec.fingerprint,
            "jaxprivnb": version,
            "spec": spec.to_dict(),
        }
        if earlier:
            description["earlier"] = [spec.to_dict() for spec in earlier]
        self.storage.write(STUDY, json.dumps(description, indent=1).encode())

    def write_part(self, number: int, columns: dict[str, Any]) -> Receipt:
        """Store a chunk's rows durably. Does not touch the manifest, so workers may call it."""
        pa, pq = _pyarrow()
        work = self.schedule.work(number)
        if work.levels_only:
            columns = {k: v for k, v in columns.items() if k in NAMES or k.startswith("coverage_")}
        table = row_table(work.spec, columns)
        failures = int((columns["status"] != 0).sum()) if "status" in columns else 0
        receipt = Receipt(number, table.num_rows, failures)
        table = table.replace_schema_metadata(
            {"fingerprint": work.fingerprint, "receipt": json.dumps(receipt)}
        )
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        self.storage.write(f"{PARTS}/{part_name(number)}", sink.getvalue().to_pybytes())
        return receipt

    def record(self, receipt: Receipt) -> None:
        """Note a finished chunk; the manifest follows within a second or at `save_manifest`."""
        self.done[receipt.chunk] = receipt
        if time.monotonic() - self._saved_at >= _MANIFEST_SECONDS:
            self.save_manifest()

    def read_part(self, number: int, columns: list[str] | None = None) -> Any:
        """A chunk's rows, or those of the columns that it has, as a `pyarrow.Table`."""
        return read_part(self.storage, number, columns)

    def save_manifest(self) -> None:
        """Write the manifest, whole."""
        manifest = {
            "fingerprint": self.spec.fingerprint,
            "chunks": self.schedule.size,
            "done": [
                {"part": part_name(r.chunk), **r._asdict()} for _, r in sorted(self.done.items())
            ],
        }
        self.storage.write(self.manifest, json.dumps(manifest, indent=0).encode())
        self._saved_at = time.monotonic()

    def _reconcile(self) -> dict[int, Receipt]:
        """Finished chunks: what the manifest says and the folder has, and whole parts besides."""
        listed: dict[int, Receipt] = {}
        for name in _manifests(self.storage):
            for spec in self.schedule.specs:
                listed |= read_manifest(self.storage, spec, name)
        done = {}
        for number in part_numbers(self.storage, self.schedule):
            receipt = listed.get(number) or self._read_receipt(number)
            if receipt is not None:
                done[number] = receipt
        return done

    def _read_receipt(self, number: int) -> Receipt | None:
        """What a part says of itself; None if it is damaged or of another study."""
        pa, pq = _pyarrow()
        try:
            data = self.storage.read(f"{PARTS}/{part_name(number)}")
            schema = pq.read_schema(pa.BufferReader(data))
            metadata = schema.metadata or {}
            receipt = Receipt(*json.loads(metadata[b"receipt"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        work = self.schedule.work(number)
        right = metadata.get(b"fingerprint", b"").decode() == work.fingerprint
        size = work.task(number).rows
        return receipt if right and receipt.chunk == number and receipt.rows == size else None


def part_numbers(storage: Storage, schedule: Schedule) -> list[int]:
    """The chunks whose parts are in a folder, in order."""
    found = (_PART.fullmatch(name) for name in storage.names(PARTS))
    return sorted(int(m[1]) for m in found if m is not None and int(m[1]) < schedule.size)


def read_part(storage: Storage, number: int, columns: list[str] | None = None) -> Any:
    """What `StudyFolder.read_part` gives."""
    pa, pq = _pyarrow()
    name = f"{PARTS}/{part_name(number)}"
    try:
        file = pq.ParquetFile(pa.BufferReader(storage.read(name)))
        some = None if columns is None else [c for c in columns if c in file.schema_arrow.names]
        return file.read(some)
    except pa.ArrowInvalid as error:
        raise StorageError(
            f"{storage.url}/{name} is damaged ({error}); delete it and run the study again"
        ) from error


def _manifests(storage: Storage) -> list[str]:
    """The names of the manifests in a folder."""
    return [name for name in storage.names("") if _MANIFEST.fullmatch(name)]


def part_name(number: int) -> str:
    """The file of a chunk."""
    return f"part-{number:06d}.parquet"


def read_study(storage: Storage) -> dict[str, Any] | None:
    """The description of the study in a folder; None if there is no study."""
    try:
        found = json.loads(storage.read(STUDY))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):  # not JSON, or not text
        found = None
    kinds = {"format": int, "fingerprint": str, "jaxprivnb": str, "spec": dict}
    if not isinstance(found, dict) or not all(
        isinstance(found.get(key), kind) for key, kind in kinds.items()
    ):
        raise ValueError(
            f"{storage.url}/{STUDY} is damaged, or no study's: use another folder, or overwrite"
        )
    return found


def read_spec(storage: Storage) -> Spec:
    """The spec of the study in a folder."""
    return read_schedule(storage).spec


def read_schedule(storage: Storage) -> Schedule:
    """The schedule of the study in a folder."""
    found = read_study(storage)
    if found is None:
        raise FileNotFoundError(f"{storage.url} holds no study (there is no {STUDY} in it)")
    if found["format"] not in (FORMAT, GROWN):
        raise ValueError(
            f"{storage.url} has format {found['format']}; this version reads formats "
            f"{FORMAT} and {GROWN}"
        )
    place = f"{storage.url}/{STUDY}"
    earlier = found.get("earlier", [])
    if not isinstance(earlier, list) or not all(isinstance(fields, dict) for fields in earlier):
        raise ValueError(f"{place} is damaged, or no study's: use another folder, or overwrite")
    return Schedule([check_fields(fields, place) for fields in (*earlier, found["spec"])])


def read_manifest(storage: Storage, spec: Spec, name: str = MANIFEST) -> dict[int, Receipt]:
    """The chunks that a manifest names; empty if there is no manifest of this study."""
    try:
        manifest = json.loads(storage.read(name))
        if manifest["fingerprint"] != spec.fingerprint:
            return {}
        found = [Receipt(*(int(r[name]) for name in Receipt._fields)) for r in manifest["done"]]
    except (FileNotFoundError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return {}  # the parts say what is done
    return {receipt.chunk: receipt for receipt in found}


def differences(old: Any, new: Any, key: str = "") -> list[str]:
    """Lines that say what changed, one a key."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            line
            for name in dict.fromkeys([*old, *new])
            for line in differences(old.get(name), new.get(name), f"{key}.{name}" if key else name)
        ]
    return [] if old == new else [f"  {key}: {_show(old)} -> {_show(new)}"]


def _show(value: Any) -> str:
    return "(absent)" if value is None else json.dumps(value)


def _pyarrow() -> tuple[Any, Any]:
    return (
        require("pyarrow", "study", "storing a study"),
        require("pyarrow.parquet", "study", "storing a study"),
    )
