"""The figures of README.md and docs/, written from bench/results/.

    python bench/readme.py [--check]      --check writes nothing; status 1 where a page differs

A page says which figure goes where, within a line or around whole lines, and what stands between
the marks is replaced:

    <!-- bench:accuracy feature_coverage_95 vb exact -->.54, .95<!-- /bench -->

The first word names a function below, the others are its arguments.
"""

import argparse
import csv
import functools
import json
import math
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from peers import report
from peers.registry import OURS

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
MARK = re.compile(r"(<!-- bench:([^>]+) -->)(.*?)(<!-- /bench -->)", re.DOTALL)
FIGURES: dict[str, Callable[..., str]] = {}


def figure(f: Callable[..., str]) -> Callable[..., str]:
    """Make a function one that pages can name."""
    FIGURES[f.__name__] = f
    return f


@functools.cache
def result(name: str) -> Any:
    """What bench/results/NAME.json holds."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def rendered(page: str) -> str:
    """The page with every figure as it was measured."""

    def figure_of(mark: re.Match) -> str:
        name, *words = mark[2].split()
        text = FIGURES[name](*words)
        return mark[1] + (f"\n{text}\n\n" if "\n" in text else text) + mark[4]

    return MARK.sub(figure_of, page)


# How numbers are written.


def bare(x: float, decimals: int) -> str:
    """0.1234 as ".123"."""
    return re.sub(r"^0\.", ".", f"{x:.{decimals}f}")


def two(x: float) -> str:
    """Two significant digits: "8,700", "12", "1.5", ".083"."""
    x = float(f"{x:.1e}")
    decimals = max(0, 1 - math.floor(math.log10(abs(x)))) if x else 0
    return re.sub(r"^0\.", ".", f"{x:,.{decimals}f}")


def power(x: float) -> str:
    """One significant digit, as "6e-7"."""
    digits, exponent = f"{x:.0e}".split("e")
    return f"{digits}e{int(exponent)}"


def duration(seconds: float) -> str:
    """Two digits in s or ms."""
    return f"{two(1e3 * seconds)} ms" if seconds < 0.1 else f"{two(seconds)} s"


def span(values: Iterable[float], show: Callable[[float], str] = two) -> str:
    """The least and the most."""
    values = list(values)
    return f"{show(min(values))} to {show(max(values))}"


# Each figure.


@functools.cache
def accuracy_rows() -> dict[tuple[int, float, str], dict]:
    """By N, epsilon and method."""
    return {(r["n_records"], r["epsilon"], r["method"]): r for r in result("accuracy")["rows"]}


@figure
def accuracy(quantity: str, *methods: str) -> str:
    """A quantity at N = 200, epsilon = .01, one number a method."""
    found = (accuracy_rows()[200, 0.01, method][quantity] for method in methods)
    values = (x[0] if isinstance(x, list) else x for x in found)
    return ", ".join(bare(x, 2 if "coverage" in quantity else 3) for x in values)


@figure
def accuracy_table() -> str:
    """Three cells, three methods."""
    lines = [
        "| N, epsilon | method | squared error of P(X given Y) "
        "| squared error of P(Y): mean, median | coverage | emptied a class |",
        "|---|---|---|---|---|---|",
    ]
    for N, epsilon in ((50, 0.001), (200, 0.01), (200, 0.1)):
        for method in ("naive", "vb", "exact"):
            row = accuracy_rows()[N, epsilon, method]
            lines.append(
                f"| {N}, {epsilon:g} | {method} | {row['feature_squared_error'][0]:.3f} "
                f"| {row['class_squared_error'][0]:.3f}, {row['class_squared_error_median']:.3f} "
                f"| {row['feature_coverage_95'][0]:.2f} "
                f"| {row['share_with_an_emptied_class']:.2f} |"
            )
    return "\n".join(lines)


@figure
def calibration() -> str:
    """How many coverages there are, and how far the worst is from nominal."""
    z = [
        abs(value["z"])
        for cell in result("calibration_exact")["cells"]
        for name, value in cell.items()
        if name.startswith("cover")
    ]
    return f"{len(z)} coverages, all within {max(z):.1f} standard errors"


@figure
def features(method: str, *sizes: str) -> str:
    """Mean squared error of P(Y) at epsilon = .03, one number for each K."""
    with open(RESULTS / "features.csv", newline="") as file:
        found = {
            row["n_features"]: float(row["se_class_mean"])
            for row in csv.DictReader(file)
            if row["method"] == method and float(row["epsilon_per_table"]) == 0.03
        }
    return ", ".join(bare(found[size], 3) for size in sizes)


def misspecified_rows(method: str) -> list[dict]:
    return [row for row in result("misspecified")["rows"] if row["method"] == method]


@figure
def misspecified(measure: str, method: str, *cells: str) -> str:
    """A mean at epsilon = .1, one a cell that is written noise/scale/truth."""
    found = {
        f"{row['assumed_noise']}/{row['assumed_scale']:g}/{row['truth']}": row[measure][0]
        for row in misspecified_rows(method)
        if row["epsilon_per_table"] == 0.1
    }
    return ", ".join(bare(found[cell], 2 if "coverage" in measure else 3) for cell in cells)


@figure
def misspecified_wins(measure: str, method: str, other: str) -> str:
    """In how many cells a method's mean is below another's."""
    pairs = list(zip(misspecified_rows(method), misspecified_rows(other), strict=True))
    return f"{sum(a[measure][0] < b[measure][0] for a, b in pairs)} of {len(pairs)}"


@figure
def misspecified_span(measure: str, method: str) -> str:
    """The least and the most of a mean over the cells."""
    return span((row[measure][0] for row in misspecified_rows(method)), lambda x: bare(x, 2))


@figure
def vb(quantity: str) -> str:
    """A quantity of `vb_throughput` at each epsilon, with its spread over repeats if a ratio."""

    def shown(x: Any) -> str:
        if not isinstance(x, dict):
            return two(x)
        return two(x["all"]) + f" ({span((x['least'], x['most']))})" * quantity.startswith("times")

    return ", ".join(shown(row[quantity]) for row in result("vb_throughput")["rows"])


@figure
def exact_share(prior: str) -> str:
    """Throughput of exact fits under a prior, in per cent of bare transforms."""
    rows = result("exact_throughput")["rows"]
    shares = [100 * r["share_of_bare_throughput"] for r in rows if r["prior"] == float(prior)]
    return span(shares, lambda x: f"{x:.0f}%")


@figure
def exact_scale() -> str:
    """The million records against the ten thousand."""
    found = result("exact_scale")
    big = found["rows"][-1]
    return (
        f"{two(found['ratio'])} times the time, {two(big['peak_gib'])} GiB, "
        f"at most {power(big['lost_mass']) if big['lost_mass'] else 0} of the mass lost"
    )


@figure
def million() -> str:
    """Time and memory of a million fits."""
    found = result("million")
    return f"{two(found['seconds'])} s, {two(found['peak_gib'])} GiB"


@figure
def growth(method: str) -> str:
    """Exponents of the time in N, K, I, J."""
    found = {r["size"]: r["exponent"] for r in result("growth")["rows"] if r["method"] == method}
    return ", ".join(bare(found[size], 1) for size in "NKIJ")


@figure
def float32(quantity: str) -> str:
    """The largest of a quantity over the paper's grid."""
    return power(result("float32")["largest"][quantity])


@figure
def precision(name: str) -> str:
    """What a grid with a target needed, or the fixed design that reaches it everywhere."""
    found = result("precision")["grid"]
    return f"{found['factor']:.1f}" if name == "factor" else f"{found[name]:,}"


@figure
def precision_spread() -> str:
    """The spread of many studies' means over the error that they state."""
    rows = result("precision")["spread"]
    return span((row["spread_over_stated"] for row in rows), "{:.2f}".format)


@figure
def precision_coverage() -> str:
    """How often mean ± 1.96 errors has the mean of all studies in it."""
    return span((row["coverage_95"] for row in result("precision")["spread"]), "{:.0%}".format)


@figure
def kills() -> str:
    """How often the study was killed."""
    return str(result("kill_resume")["kills"])


@figure
def audit() -> str:
    """The epsilon that draws of a release prove, of what it claims, with noise whole and halved."""
    usual = {"neighbours": "replace"}
    rows = [
        r
        for r in result("privacy_audit")["rows"]
        if "epsilon_total" in r["budget"] and r["told"] == r["really"] == usual
    ]
    whole, halved = sorted(rows, key=lambda row: row["noise_halved"])
    said = lambda row: "violation found" if row["violation"] else "no violation"  # noqa: E731
    return (
        f"at least {bare(whole['epsilon_lower_bound'], 2)} of {whole['epsilon_claimed']:g}, "
        f"{said(whole)}; with halved noise {bare(halved['epsilon_lower_bound'], 2)}, {said(halved)}"
    )


@figure
def plans() -> str:
    """How many expectations were held against releases, and how far the worst was off."""
    found = result("plan")
    n = sum(isinstance(x, dict) for row in found["rows"] for x in row.values())
    cases = {row["name"] for row in found["rows"]}
    return (
        f"{len(cases)} cases with both noises, {found['beyond_2']} of {n} expectations off by more "
        f"than two standard errors, the worst by {found['largest_z']:.1f}"
    )


@figure
def audits() -> str:
    """How many audits came out as they should, with and without a planted fault."""
    rows = result("privacy_audit")["rows"]
    planted = [r["violation"] for r in rows if r["fault_planted"]]
    sound = [r["violation"] for r in rows if not r["fault_planted"]]
    return (
        f"violations in {sum(sound)} of {len(sound)} audits of sound releases, "
        f"in {sum(planted)} of {len(planted)} with a planted fault"
    )


@figure
def synthetic() -> str:
    """Coverage of intervals from synthetic records at every epsilon, a rule after the other."""
    rows = result("synthetic")["rows"]
    rules = ("one set at face value", "5 sets", "20 sets")
    by_rule = ([r["coverage"] for r in rows if r["rule"] == rule] for rule in rules)
    return "; ".join(", ".join(bare(x, 2) for x in each) for each in by_rule)


@figure
def synthetic_table() -> str:
    """Every rule at every epsilon: coverage with its standard error, and the median width."""
    rows = result("synthetic")["rows"]
    epsilons = list(dict.fromkeys(r["epsilon_per_table"] for r in rows))
    lines = [
        "| interval | " + " | ".join(f"epsilon {e:g} a table" for e in epsilons) + " |",
        "|---|" + "---|" * len(epsilons),
    ]
    for rule in dict.fromkeys(r["rule"] for r in rows):
        cells = [
            f"{bare(r['coverage'], 3)} ± {bare(r['standard_error'], 3)}, {two(r['median_width'])}"
            for r in rows
            if r["rule"] == rule
        ]
        lines.append(f"| {rule} | {' | '.join(cells)} |")
    return "\n".join(lines)


@figure
def halving() -> str:
    """Squared errors of one release, of the average of two taken as one, and of their product."""
    each = result("published")["cases"]["halving"]
    names = ("one release", "the average of two, as one", "two releases")
    return ", ".join(bare(each[name][0], 4) for name in names)


@figure
def published_table() -> str:
    """Coverage of 95% intervals where what was published is said, and where it is not."""
    lines = [
        "| what was published; what a fit that ignores it takes it for "
        "| coverage of P(Y), P(X given Y), counts, N | when ignored |",
        "|---|---|---|",
    ]
    quantities = [f"coverage of {x}" for x in ("P(Y)", "P(X|Y)", "counts", "N")]
    for name, case in result("published")["cases"].items():
        if name == "halving":
            continue
        each = (
            ", ".join(bare(case[how][q][0], 3) for q in quantities if q in case[how])
            for how in ("taken in", "ignored")
        )
        lines.append(f"| {' '.join(case['what'].split()).rstrip('.')} | {' | '.join(each)} |")
    return "\n".join(lines)


@figure
def real_tables() -> str:
    """Seconds of a fit and of questions about it, warm, and as multiples of bare transforms."""
    lines = [
        "| tables | fit | 95% intervals | predict 1,000 | 1,000 draws | fit without N | peak |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in result("real_tables")["rows"]:
        J = row["J"]
        sizes = f"{len(J)} features of {min(J)} to {max(J)}" if len(set(J)) > 1 else (
            f"{len(J)} features of {J[0]}"
        )  # fmt: skip
        cells = [
            f"{duration(row['warm_seconds'][q])} ({row['times_transforms'][q]:.0f})"
            for q in ("fit", "intervals", "predict", "draws")
        ]
        lines.append(
            f"| N={row['N']:,}, I={row['I']}, {sizes}, b={row['b']:g} | {' | '.join(cells)} "
            f"| {duration(row['without_n_seconds']['warm'])} | {row['peak_gib']:.1f} GiB |"
        )
    return "\n".join(lines)


@figure
def real_seconds(name: str, question: str) -> str:
    """Warm time of a question about one of the real-sized tables."""
    (row,) = (r for r in result("real_tables")["rows"] if r["name"] == name)
    return duration(row["warm_seconds"][question])


def peer(name: str, design: str = "paper") -> Any:
    """A peer's row in peers.json; words of a name are joined by _ on a page."""
    return result("peers")["designs"][design]["methods"][name.replace("_", " ")]


@figure
def peers_table() -> str:
    """The paper's grid in one table, and where it was timed."""
    return report.short_table(result("peers")["designs"]["paper"]).strip()


@figure
def times_exact(design: str, how: str, *names: str) -> str:
    """How many times as long as a batch of exact fits the peers take, `how` they are run."""
    best = peer(OURS, design)["times"]
    ratios = [
        peer(name, design)["times"][cell][how] / best[cell]["batch"]
        for name in names
        for cell in best
    ]
    return span(ratios) if two(min(ratios)) != two(max(ratios)) else two(ratios[0])


@figure
def nuts_times_exact(how: str, precision: str) -> str:
    """The same for NUTS to a precision of the means."""
    best = peer(OURS)["times"]
    found = peer("NumPyro NUTS")["precision"]
    return span(found[cell][how][precision] / best[cell]["batch"] for cell in best)


@figure
def coverage(name: str) -> str:
    """Coverage of 95% intervals over all cells with its standard error."""
    mean, error = peer(name)["overall"]["coverage_feature"]
    return f"{mean:.3f} ± {error:.3f}"


@figure
def cells_off(name: str) -> str:
    """In how many cells of how many the coverage is off beyond chance."""
    found = report.coverage_off(peer(name), "coverage_feature")
    return f"{found.cells} of {found.of}"


@figure
def seconds(name: str, design: str, how: str) -> str:
    """Time of a fit, or what its intervals take more, in the middle one of the timed cells."""
    times = list(peer(name, design)["times"].values())
    return duration(times[len(times) // 2][how])


@figure
def error_times_exact(name: str, design: str) -> str:
    """Squared errors of P(X|Y) and P(Y), times exact's on the same releases."""
    found = peer(name, design)
    ratios = (
        found["overall"][k][0] / found["ours_on_the_same"][k] for k in ("se_feature", "se_class")
    )
    return " and ".join(two(x) for x in ratios)


# The paper's open questions.


@functools.cache
def cell(name: str, part: str, **own: Any) -> Any:
    """The cell of a grid with the given values."""
    cells = result(name)[part]
    return next(c for c in cells if all(c[k] == v for k, v in own.items()))


@figure
def ladder(quantity: str, N: str, epsilon: str, *rungs: str) -> str:
    """A quantity of some rungs at one cell."""
    of = cell("ladder", "grid", n_records=int(N), epsilon=float(epsilon))
    values = (of[rung][quantity][0] for rung in rungs)
    return ", ".join(bare(x, 2) if "coverage" in quantity else two(x) for x in values)


@figure
def ladder_features(quantity: str, K: str, *rungs: str) -> str:
    """The same at N = 200, epsilon = .1, for K features."""
    of = cell("ladder", "features", n_records=200, epsilon=0.1, n_features=int(K))
    values = (of[rung][quantity][0] for rung in rungs)
    return ", ".join(bare(x, 2) if "coverage" in quantity else two(x) for x in values)


@figure
def ladder_size(what: str) -> str:
    """How many replicates there were, and what was least among them."""
    cells = result("ladder")["grid"]
    if what == "replicates":
        return f"{sum(c['replicates'] for c in cells):,}"
    if what == "sizes":
        return ", ".join(str(N) for N in sorted({c["n_records"] for c in cells}))
    if what == "unfinished":
        return str(sum(c["unfinished"] for c in cells))
    if what in ("largest_fall", "largest_off"):
        return power(max(c[what] for c in cells))
    least = min(c[what] for c in cells)
    return two(least) if least > 0.01 else power(least)


@figure
def convergence(what: str, N: str, epsilon: str, solver: str = "kkt") -> str:
    """Median sweeps, "plain" or "squarem", or 1 / (1 - median rate)."""
    of = cell("convergence", "cells", n_records=int(N), epsilon=float(epsilon), n_features=5,
              solver=solver)  # fmt: skip
    return two(1 / (1 - of["rate"][0]) if what == "time" else of[what][0])


@figure
def convergence_optima() -> str:
    """In how many ascents plain sweeps and SQUAREM ended in two optima."""
    cells = [c for c in result("convergence")["cells"] if not any(c["unfinished"])]
    apart = sum(round(c["other_optimum"] * c["replicates"]) for c in cells)
    return f"{apart} of {sum(c['replicates'] for c in cells):,}"


@figure
def starts(N: str, epsilon: str, start: str, quantity: str) -> str:
    """What a start ends in: bound, class_error, feature_error, or the share of emptied classes."""
    at = ("bound", "class_error", "feature_error", "emptied").index(quantity)
    x = cell("starts", "cells", n_records=int(N), epsilon=float(epsilon))["starts"][start][at]
    return bare(x, 2) if quantity in ("emptied", "class_error") else two(x)


@figure
def starts_share(what: str, N: str = "", epsilon: str = "") -> str:
    """How often the best bound is elsewhere, and how often it is then the worse answer."""
    cells = result("starts")["cells"]
    if N:
        cells = [cell("starts", "cells", n_records=int(N), epsilon=float(epsilon))]
    elsewhere = sum(c["differing"] for c in cells)
    worse = round(sum(c["differing"] * c["best_worse"] for c in cells))
    total = sum(c["replicates"] for c in cells)
    return f"{elsewhere} of {total:,}" if what == "elsewhere" else f"{worse} of {elsewhere}"


@figure
def super_parent(depends: str, epsilon: str) -> str:
    """The median factor, and its least and largest."""
    of = cell("super_parent", "cells", depends=depends == "depends", epsilon=float(epsilon))
    least, most = of["log10_factors"][0], of["log10_factors"][-1]
    return f"{of['median']:.1f} ({least:.1f} to {most:.1f})"


@figure
def groups(quantity: str, *names: str) -> str:
    """A number of the posteriors with the totals, or without."""
    values = (result("groups")[name][quantity] for name in names)
    numbers = (x[0] if isinstance(x, list) else x for x in values)
    return ", ".join(bare(x, 3) for x in numbers)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    stale = 0
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        new = rendered(text)
        if new != text:
            stale += 1
            print(f"{page.relative_to(ROOT)} {'differs' if check else 'written'}")
            if not check:
                page.write_text(new, encoding="utf-8")
    return int(check and stale > 0)


if __name__ == "__main__":
    sys.exit(main())
