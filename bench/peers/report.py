"""From measures to the JSON's rows, the verdict on each target, and the Markdown page."""

from typing import NamedTuple

import numpy as np
from peers import measures
from peers.designs import DESIGNS, timing_name
from peers.protocol import LEVEL
from peers.registry import CAN, LABELS, OURS, PEERS

ALPHA = 0.05
"""Chance of any false alarm in a family of comparisons (Bonferroni)."""
PRECISION = (0.01, 0.1)
"""Errors of a posterior mean, in posterior sds, that a sampler's time is quoted for."""
NAMES = [p.name for p in PEERS]


def summarise(design, truth, values, reports, answers) -> dict:
    """What the JSON keeps of a design: every measure in every cell, times, memory."""
    n_cells = len(design.cells)
    sd = posterior_sd(answers[OURS])
    out = {
        "title": design.title,
        "cells": [
            {"n_records": c.n_records, "epsilon": design.epsilon(c), "scale": c.scale}
            for c in design.cells
        ],
        "methods": {},
    }
    for name, found in values.items():
        answer, report = answers[name], reports[name]
        size = len(found["se_feature"])
        row = {
            "replicates": size // n_cells,
            "cells": measures.by_cell(found, truth.cell, n_cells),
            "overall": {k: measures.mean_se(v) for k, v in found.items()},
            "ours_on_the_same": {k: float(v[:size].mean()) for k, v in values[OURS].items()},
            "paired": {
                k: measures.paired(values[OURS][k], found[k], truth.cell, n_cells)
                for k in ("se_feature", "se_class")
            },
            "distance_in_sd": distance(answer, answers[OURS], sd),
            **{k: report[k] for k in ("times", "peak_mib", "answer_seconds")},
            "extra": {k: float(np.mean(v)) for k, v in (answer.extra or {}).items()},
        }
        chain = next(p.chain for p in PEERS if p.name == name)
        if chain is not None and "ess_median" in (answer.extra or {}):
            row["precision"] = precision(design, truth, answer, report, chain)
        out["methods"][name] = row
    return out


def posterior_sd(answer) -> np.ndarray:
    """About a posterior sd of each P(X|Y), `[R, I, K, J]`: an exact 95% interval holds 3.92."""
    return (answer.feature_interval[1] - answer.feature_interval[0]) / 3.92


def distance(answer, exact, sd) -> float:
    """RMS distance of the means of P(X|Y) from the exact ones, in exact posterior sds."""
    size = min(len(answer.feature_mean), len(sd))
    gap = (answer.feature_mean[:size] - exact.feature_mean[:size]) / sd[:size]
    return float(np.sqrt(np.mean(gap**2)))


def precision(design, truth, answer, report, chain) -> dict:
    """For each timed cell: effective samples a second, and seconds to each precision.

    Effective samples are those of the median parameter, averaged over the cell's releases.
    """
    out = {}
    for cell in design.timed:
        name = timing_name(design, cell)
        if name not in report["times"]:
            continue
        here = truth.cell[: len(answer.class_mean)] == design.cells.index(cell)
        ess, least = (float(answer.extra[k][here].mean()) for k in ("ess_median", "ess_min"))
        times = report["times"][name]
        needed = lambda seconds, at, ess=ess: measures.seconds_to_precision(  # noqa: E731
            seconds, *chain, ess, at
        )
        out[name] = {
            "ess": ess,
            "ess_min": least,
            "ess_per_second": ess / times["alone"],
            "ess_per_second_batch": ess / times["batch"],
            "alone": {str(p): needed(times["alone"], p) for p in PRECISION},
            "batch": {str(p): needed(times["batch"], p) for p in PRECISION},
        }
    return out


def targets(content) -> list[dict]:
    """Each claim on the paper's grid: what was asked, what was found, and whether it holds."""
    if "paper" not in content["designs"]:
        return []
    methods = content["designs"]["paper"]["methods"]
    rows = []

    def claim(text: str, asked: str, found: str, holds: bool) -> None:
        rows.append({"claim": text, "asked": asked, "found": found, "holds": bool(holds)})

    for what, key in (("P(X|Y)", "se_feature"), ("P(Y)", "se_class")):
        p = comparisons(methods, key)
        if p:
            wins = [at for at, value in p.items() if value < ALPHA / len(p)]
            claim(
                f"exact has the lowest squared error of {what} in every cell",
                "nobody lower beyond chance",
                f"{len(wins)} of {len(p)} paired comparisons won from it; smallest p-value "
                f"{min(p.values()):.2g}, allowed {ALPHA / len(p):.1g}",
                not wins,
            )
    off = {n: coverage_off(m, "coverage_feature") for n, m in methods.items()}
    off = {n: o for n, o in off.items() if o is not None}
    if OURS in off:
        said = [f"{n} {o.cells} of {o.of}, {o.mean:.3f} ± {o.error:.3f}" for n, o in off.items()]
        claim(
            "exact has the only nominal coverage of P(X|Y)",
            "95% in every cell, nobody else",
            "cells off beyond chance, and the mean of all with its standard error: "
            + "; ".join(said),
            [n for n, o in off.items() if o.cells == 0] == [OURS],
        )
    time = lambda name, cell, how: methods[name]["times"][cell][how]  # noqa: E731
    cells = list(methods[OURS]["times"])

    def faster(text: str, factor: float, fast: str, slow) -> None:
        found = {c: slow(c) / time(fast, c, "batch") for c in cells}
        claim(
            text, f"{factor:,.0f} times",
            ", ".join(f"{v:,.0f} ({c.split()[-1]})" for c, v in found.items()),
            min(found.values()) >= factor,
        )  # fmt: skip

    vb = "jaxprivnb vb"
    for loss in ("l1", "l2"):
        pgm = f"private-pgm {loss}"
        if pgm in methods:
            faster(f"`fit_many` exact against {pgm} alone", 100, OURS,
                   lambda c, p=pgm: time(p, c, "alone"))  # fmt: skip
            faster(f"`fit_many` exact against {pgm} under vmap", 10, OURS,
                   lambda c, p=pgm: time(p, c, "batch"))  # fmt: skip
            if vb in methods:
                faster(f"`fit_many` vb against {pgm} alone", 10, vb,
                       lambda c, p=pgm: time(p, c, "alone"))  # fmt: skip
    nuts = methods.get("NumPyro NUTS", {}).get("precision")
    if nuts:
        for how, text in (("alone", ""), ("batch", ", its chains side by side")):
            for p in PRECISION:
                faster(
                    f"`fit_many` exact against NUTS to means within {p:.0%} of an sd{text}",
                    10_000, OURS, lambda c, p=p, how=how: nuts[c][how][str(p)],
                )  # fmt: skip
    return rows


def comparisons(methods, key) -> dict[tuple[str, int], float]:
    """`{(peer, cell): p-value of being no better than exact}`, 5 replicates or more.

    Only of methods that answer from the same release: GaussianNB makes its own from raw data.
    """
    return {
        (name, c): cell["p"]
        for name, m in methods.items()
        if name not in (OURS, "GaussianNB") and m["replicates"] >= 5
        for c, cell in enumerate(m["paired"][key])
        if np.isfinite(cell["p"])
    }


class CoverageOff(NamedTuple):
    """Where a method's coverage is not 95% beyond chance."""

    cells: int
    """In how many cells, `ALPHA` shared among them."""
    of: int
    """Cells that were judged."""
    mean: float
    """Coverage over all cells: it shows what few replicates a cell hide, but is not judged."""
    error: float
    """Standard error of that."""


def coverage_off(method, key) -> CoverageOff | None:
    """How far a method is from nominal, if it has intervals for 5 replicates or more of a cell."""
    n = "replicates_of_intervals"
    found = [(*c[key], c[n]) for c in method["cells"] if key in c and c[n] >= 5]
    if not found:
        return None
    p = [measures.off_nominal(*f, LEVEL) for f in found]
    return CoverageOff(sum(x < ALPHA / len(p) for x in p), len(p), *method["overall"][key])


# The page.


def markdown(content) -> str:
    """The whole of peers.md."""
    parts = ["# Against the field", "", intro(content), ""]
    if "paper" in content["designs"]:
        parts += ["## In short", "", short_table(content["designs"]["paper"])]
    if content["targets"]:
        parts += ["## What was asked, on the paper's grid", "", targets_table(content["targets"])]
    for name, design in content["designs"].items():
        parts += [f"## {design['title'][0].upper()}{design['title'][1:]}", ""]
        parts += [accuracy_table(name, design), speed_table(name, design)]
    parts += ["## Where a peer beats us", "", beaten(content), ""]
    parts += ["## What each can do that jaxprivnb cannot", "", "| peer | what |", "|---|---|"]
    parts += [f"| {who} | {what} |" for who, what in CAN]
    return "\n".join(parts) + "\n"


def intro(content) -> str:
    """What the tables mean."""
    seen: dict[str, str] = {}
    for found in content["versions"].values():
        seen |= {k: v for k, v in found.items() if k not in ("jaxlib",)}
    versions = ", ".join(f"{k} {v}" for k, v in sorted(seen.items()))
    return (
        f"One run of `make peers` ({content['mode']}): {versions}; {content['platform']}. "
        "Everyone gets the same simulated releases: noisy tables, N and the scale of the noise; "
        "parameters come from uniform priors. Slow methods answer the first replicates of every "
        "cell; ratios are to jaxprivnb `exact` on the releases both answered, so above 1 is worse "
        "than exact. Squared errors are means over all cells of a design; lost nats are "
        "-E log q(y, x)/p(y, x) of a fresh record, and accuracy is the share of fresh records put "
        "in their class, both from the method's means, none of them taken below "
        f"{measures.FLOOR:g}. Milliseconds are warm; compilation is apart."
    )


def short_table(design) -> str:
    """The paper's grid in one table, timed on the middle one of its timed cells."""
    times = list(design["methods"][OURS]["times"])
    cell = times[len(times) // 2]
    lines = [
        "| paper's grid | squared error of P(X\\|Y), P(Y): times exact's | coverage of 95% "
        "intervals | ms a fit: alone, in a batch |",
        "|---|---|---|---|",
    ]
    for peer in PEERS:
        m = design["methods"].get(peer.name)
        if m is None:
            continue
        o, ours, t = m["overall"], m["ours_on_the_same"], m["times"][cell]
        error = ", ".join(f"{o[k][0] / ours[k]:.2f}" for k in ("se_feature", "se_class"))
        cover = f"{o['coverage_feature'][0]:.2f}" if "coverage_feature" in o else "none"
        batch = ms(t["batch"]) if t["batch_size"] > 1 else "-"
        lines.append(f"| {LABELS[peer.name]} | {error} | {cover} | {ms(t['alone'])}, {batch} |")
    return "\n".join([*lines, "", f"Timed at {cell.split(' ', 1)[1]}."]) + "\n"


def targets_table(rows) -> str:
    lines = ["| claim | asked | found | holds |", "|---|---|---|---|"]
    lines += [
        f"| {r['claim']} | {r['asked']} | {r['found']} | {'yes' if r['holds'] else '**no**'} |"
        for r in rows
    ]
    return "\n".join(lines) + "\n"


def accuracy_table(name, design) -> str:
    """Squared errors against exact, coverage, width, prediction."""
    lines = [
        "| method | replicates a cell | P(X\\|Y): squared error, of exact's | P(Y): squared error, "
        "of exact's | 95% intervals of P(X\\|Y): coverage (least to most of a cell), width | nats "
        "lost | accuracy (exact's) |",
        "|---|---|---|---|---|---|---|",
    ]
    for peer in PEERS:
        m = design["methods"].get(peer.name)
        if m is None:
            continue
        o, ours = m["overall"], m["ours_on_the_same"]
        error = lambda k, o=o, ours=ours: f"{o[k][0]:.4f}, {o[k][0] / ours[k]:.2f}"  # noqa: E731
        cover = "-"
        if "coverage_feature" in o:
            of_cells = [c["coverage_feature"][0] for c in m["cells"]]
            cover = (
                f"{o['coverage_feature'][0]:.3f} ({min(of_cells):.2f} to {max(of_cells):.2f}), "
                f"{o['width_feature'][0]:.2f}"
            )
        lines.append(
            f"| {LABELS[peer.name]} | {m['replicates']} | {error('se_feature')} | "
            f"{error('se_class')} | {cover} | {-o['log_density'][0]:.3f} | "
            f"{o['accuracy'][0]:.3f} ({ours['accuracy']:.3f}) |"
        )
    left_out = [p for p in PEERS if p.limit(name) is None]
    lines += [""] + [f"Not run: {LABELS[p.name]}, because {p.why_not[name]}." for p in left_out]
    return "\n".join(lines) + "\n"


def speed_table(name, design) -> str:
    """Milliseconds alone and in a batch on each timed cell, compile seconds, memory."""
    cells = list(design["methods"][OURS]["times"])
    shown = [c.removeprefix(f"{name} ") for c in cells]
    lines = [
        "| method | "
        + " | ".join(f"{c}: ms alone, in a batch (times exact's)" for c in shown)
        + " | batch | compile s: alone, batch | peak MiB | effective samples a second: alone, "
        "batch |",
        "|---" * (len(cells) + 5) + "|",
    ]
    for peer in PEERS:
        m = design["methods"].get(peer.name)
        if m is None:
            continue
        row = []
        for c in cells:
            t, best = m["times"][c], design["methods"][OURS]["times"][c]["batch"]
            row.append(f"{ms(t['alone'])}, {ms(t['batch'])} ({number(t['batch'] / best)})")
        t = m["times"][cells[0]]
        ess = "-"
        if "precision" in m:
            found = m["precision"][cells[len(cells) // 2]]
            ess = f"{found['ess_per_second']:.0f}, {found['ess_per_second_batch']:.0f}"
        size = f"{t['batch_size']:,}" if t["batch_size"] > 1 else "none"
        lines.append(
            f"| {LABELS[peer.name]} | {' | '.join(row)} | {size} | {t['compile']:.1f}, "
            f"{t['compile_batch']:.1f} | {m['peak_mib']:.0f} | {ess} |"
        )
    ours = design["methods"][OURS]["times"][cells[len(cells) // 2]]
    note = (
        f"Intervals of every P(X|Y) and P(Y) are part of a sampler's time; for `exact` they take "
        f"{ms(ours['intervals'])} ms more a fit, in a batch at {shown[len(cells) // 2]}. "
    )
    for sampler, m in design["methods"].items():
        if "precision" in m:
            found = m["precision"][cells[len(cells) // 2]]
            note += (
                f"{LABELS[sampler]} needs {found['alone']['0.01']:.1f} s alone for means within 1% "
                f"of a posterior sd, {found['alone']['0.1']:.1f} s for 10%; its means here are "
                f"{m['distance_in_sd']:.2f} sds from the exact ones. "
            )
    return "\n".join([*lines, "", note]) + "\n"


def ms(seconds: float) -> str:
    """Milliseconds in two or three digits."""
    return number(1e3 * seconds)


def number(x: float) -> str:
    """Three significant digits, thousands with commas."""
    if not np.isfinite(x):
        return "-"
    if abs(x) >= 100:
        return f"{x:,.0f}"
    return f"{x:.3g}"


def beaten(content) -> str:
    """Every comparison that a peer wins, found by the run, not by hand."""
    lines = []
    for name, design in content["designs"].items():
        ours = design["methods"][OURS]
        for peer in PEERS:
            m = design["methods"].get(peer.name)
            if m is None or peer.environment == "jaxprivnb":
                continue
            wins = []
            for key, what in (("se_feature", "P(X|Y)"), ("se_class", "P(Y)")):
                p = comparisons(design["methods"], key)
                cells = [c for (n, c), v in p.items() if n == peer.name and v < ALPHA / len(p)]
                if cells:
                    where = ", ".join(cell_name(design["cells"][c]) for c in cells)
                    wins.append(f"squared error of {what} at {where}")
            for c, t in m["times"].items():
                best = ours["times"][c]
                if t["alone"] < best["alone"]:
                    wins.append(
                        f"one fit alone at {c.removeprefix(name + ' ')} ({ms(t['alone'])} against "
                        f"{ms(best['alone'])} ms)"
                    )
                if t["batch"] < best["batch"]:
                    wins.append(
                        f"a batch at {c.removeprefix(name + ' ')} ({ms(t['batch'])} against "
                        f"{ms(best['batch'])} ms a fit)"
                    )
            first, best = next(iter(m["times"].values())), next(iter(ours["times"].values()))
            if first["compile"] < best["compile"]:
                wins.append(f"compilation ({first['compile']:.1f} against {best['compile']:.1f} s)")
            if m["peak_mib"] < ours["peak_mib"]:
                wins.append(f"memory ({m['peak_mib']:.0f} against {ours['peak_mib']:.0f} MiB)")
            if m["overall"]["accuracy"][0] > m["ours_on_the_same"]["accuracy"] + 0.0005:
                wins.append(
                    f"mean accuracy ({m['overall']['accuracy'][0]:.3f} against "
                    f"{m['ours_on_the_same']['accuracy']:.3f})"
                )
            if wins:
                lines.append(f"- {LABELS[peer.name]}, {DESIGNS[name].title}: {'; '.join(wins)}.")
    return "\n".join(lines) if lines else "Nowhere in this run."


def cell_name(cell) -> str:
    """Such as "N=200, eps=0.1"."""
    return f"N={cell['n_records']}, eps={cell['epsilon']:g}"
