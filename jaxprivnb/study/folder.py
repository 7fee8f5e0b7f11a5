"""Results on disk: one Parquet part a chunk, and a manifest of what is done.

    study.json                  the spec, its fingerprint, versions
    manifest.json               finished chunks: part, rows, failures
    parts/part-000012.parquet   one chunk's rows

A part has its final name only when it is whole, and carries the study's fingerprint; so the parts
themselves are the truth. The manifest is rewritten as a whole, now and then and at the end; a run
that was killed before it could do so finds its parts, checks them, and goes on from there.
"""

import json
import re
import time
import warnings
from typing import Any, NamedTuple

from jaxprivnb._version import __version__
from jaxprivnb.extras import require
from jaxprivnb.storage import Storage, open_storage
from jaxprivnb.study.chunks import chunk, n_chunks
from jaxprivnb.study.schema import row_table
from jaxprivnb.study.spec import Spec
from jaxprivnb.study.specfile import check_fields

STUDY, MANIFEST, PARTS = "study.json", "manifest.json", "parts"
_PART = re.compile(r"part-(\d{6,})\.parquet")
_MANIFEST_SECONDS = 1.0
FORMAT = 1
"""Of the rows and of these files; a different one is another study."""


class OtherStudyError(ValueError):
    """The folder holds a study with another spec."""


class Receipt(NamedTuple):
    """What is known of a finished chunk."""

    chunk: int
    rows: int
    failures: int
    """Rows whose status is not success."""


class StudyFolder:
    """The folder of one study."""

    def __init__(self, out: str, spec: Spec) -> None:
        self.storage: Storage = open_storage(out)
        self.spec = spec
        self.done: dict[int, Receipt] = {}
        self._saved_at = 0.0

    def begin(self, *, overwrite: bool = False) -> dict[int, Receipt]:
        """Claim the folder; the chunks that an earlier run finished.

        Raises:
            OtherStudyError: the folder's study has another spec; the message shows the difference.
        """
        if overwrite:
            for name in (MANIFEST, PARTS, STUDY):
                self.storage.remove(name)
        found = read_study(self.storage)
        if found is None:
            if self.storage.names(PARTS):
                raise OtherStudyError(
                    f"{self.storage.url} has parts but no {STUDY}; use another folder, or overwrite"
                )
            description = {
                "format": FORMAT,
                "fingerprint": self.spec.fingerprint,
                "jaxprivnb": __version__,
                "spec": self.spec.to_dict(),
            }
            self.storage.write(STUDY, json.dumps(description, indent=1).encode())
        elif (found["format"], found["fingerprint"]) != (FORMAT, self.spec.fingerprint):
            changes = "\n".join(differences(found["spec"], self.spec.to_dict()))
            changes = changes or f"  format: {found['format']} -> {FORMAT}"
            raise OtherStudyError(
                f"{self.storage.url} holds another study ({found['spec'].get('name')}); "
                f"the difference:\n{changes}\n"
                "Give another folder to keep both, or overwrite (--overwrite) to delete that one."
            )
        elif found["jaxprivnb"] != __version__:
            warnings.warn(
                f"{self.storage.url} was begun with jaxprivnb {found['jaxprivnb']}, this is "
                f"{__version__}: rows of the two may differ",
                stacklevel=3,
            )
        self.storage.sweep(PARTS)
        self.done = self._reconcile()
        self.save_manifest()
        return self.done

    def write_part(self, number: int, columns: dict[str, Any]) -> Receipt:
        """Store a chunk's rows durably. Does not touch the manifest, so workers may call it."""
        pa, pq = _pyarrow()
        table = row_table(self.spec, columns)
        receipt = Receipt(number, table.num_rows, int((columns["status"] != 0).sum()))
        table = table.replace_schema_metadata(
            {"fingerprint": self.spec.fingerprint, "receipt": json.dumps(receipt)}
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

    def save_manifest(self) -> None:
        """Write the manifest, whole."""
        manifest = {
            "fingerprint": self.spec.fingerprint,
            "chunks": n_chunks(self.spec),
            "done": [
                {"part": part_name(r.chunk), **r._asdict()} for _, r in sorted(self.done.items())
            ],
        }
        self.storage.write(MANIFEST, json.dumps(manifest, indent=0).encode())
        self._saved_at = time.monotonic()

    def _reconcile(self) -> dict[int, Receipt]:
        """Finished chunks: what the manifest says and the folder has, and whole parts besides."""
        listed = read_manifest(self.storage, self.spec)
        done = {}
        for number in part_numbers(self.storage, self.spec):
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
        right = metadata.get(b"fingerprint", b"").decode() == self.spec.fingerprint
        size = chunk(self.spec, number).size * len(self.spec.arms)
        return receipt if right and receipt.chunk == number and receipt.rows == size else None


def part_numbers(storage: Storage, spec: Spec) -> list[int]:
    """The chunks whose parts are in a folder, in order."""
    found = (_PART.fullmatch(name) for name in storage.names(PARTS))
    return [int(m[1]) for m in found if m is not None and int(m[1]) < n_chunks(spec)]


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
    found = read_study(storage)
    if found is None:
        raise FileNotFoundError(f"{storage.url} holds no study (there is no {STUDY} in it)")
    if found["format"] != FORMAT:
        raise ValueError(
            f"{storage.url} has format {found['format']}; this version reads format {FORMAT}"
        )
    return check_fields(found["spec"], f"{storage.url}/{STUDY}")


def read_manifest(storage: Storage, spec: Spec) -> dict[int, Receipt]:
    """The chunks that the manifest names; empty if there is no manifest of this study."""
    try:
        manifest = json.loads(storage.read(MANIFEST))
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
