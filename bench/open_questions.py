"""The figures of docs/open-questions.md, from the results of the benches that it names.

python bench/open_questions.py [NAME ...]     # ladder, convergence, starts, super_parent
"""

import argparse
import json

from common import RESULTS
from matplotlib.figure import Figure

from jaxprivnb.methods import METHODS

EXACT, PAPER = METHODS["exact"].look, METHODS["vb"].look
RUNGS = {
    "paper": (PAPER.color, PAPER.marker, "the paper's"),
    "free": ("#CC79A7", "^", "q(n) free"),
    "exact": (EXACT.color, EXACT.marker, "exact"),
}
SHADES = ("#08306b", "#2171b5", "#6baed6", "#bdd7e7", "#dddddd")
STARTS = {
    "naive": ("#D55E00", "s"),
    "uniform": ("#555555", "^"),
    "true": ("#009E73", "D"),
    "random": ("#56B4E9", "v"),
    "best": ("#0072B2", "o"),
}


def panels(rows, columns, height):
    """A figure, and its axes as a list of rows."""
    figure = Figure(figsize=(3.1 * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    return figure, axes


def ladder(result):
    """Gap, errors, coverage and emptied classes of the three rungs, against epsilon and K."""
    by_epsilon = [c for c in result["grid"] if c["n_records"] == 200]
    by_k = [c for c in result["features"] if c["epsilon"] == 0.1]
    shown = (
        ("gap", "evidence less bound (nats)"),
        ("class_error", "squared error of P(Y)"),
        ("feature_coverage", "coverage of P(X|Y), 95%"),
        ("emptied", "share with a class emptied"),
    )
    rows = [(by_epsilon, "epsilon", "epsilon per table (N = 200, K = 5)")]
    if by_k:
        rows.append((by_k, "n_features", "features K (N = 200, epsilon = 0.1)"))
    figure, axes = panels(len(rows), 4, 2.6)
    for row, (cells, x, label) in enumerate(rows):
        for axis, (quantity, title) in zip(axes[row], shown, strict=True):
            for rung, (color, marker, name) in RUNGS.items():
                if quantity == "gap" and rung == "exact":
                    continue
                points = [(c[x], *c[rung][quantity]) for c in cells]
                at, mean, error = zip(*points, strict=True)
                axis.errorbar(at, mean, error, color=color, marker=marker, ms=4, label=name, lw=1.2)
            if quantity == "emptied":
                true = [c["truly_empty"] for c in cells]
                axis.plot([c[x] for c in cells], true, color="k", ls=":", label="truly empty")
            if quantity == "feature_coverage":
                axis.axhline(0.95, color="k", ls=":", lw=0.8)
                axis.set_ylim(0, 1.02)
            if quantity == "gap":
                axis.set_ylim(bottom=0)
            if quantity == "class_error":
                axis.set_yscale("log")
            axis.set_xscale("log")
            if x == "n_features":
                axis.set_xticks([c[x] for c in cells], [str(c[x]) for c in cells])
                axis.minorticks_off()
            axis.set_title(title, fontsize=9)
            axis.set_xlabel(label, fontsize=8)
    axes[0][1].legend(fontsize=7, frameon=False)
    axes[0][3].legend(fontsize=7, frameon=False)
    return figure


def convergence(result):
    """Sweeps against N, K and the solver; the rate; how often plain and SQUAREM part."""
    figure, axes = panels(1, 4, 2.9)
    (sweeps, rates, features, solvers) = axes[0]
    cells = result["cells"]
    epsilons = sorted({c["epsilon"] for c in cells})
    of = lambda **own: sorted(  # noqa: E731
        (c for c in cells if all(c[k] == v for k, v in own.items())), key=lambda c: c["n_records"]
    )
    for epsilon, color in zip(epsilons, SHADES, strict=False):
        own = of(epsilon=epsilon, n_features=5, solver="kkt")
        N = [c["n_records"] for c in own]
        sweeps.loglog(N, [c["plain"][0] for c in own], color=color, marker="o", ms=4,
                      label=f"epsilon {epsilon:g}")  # fmt: skip
        sweeps.loglog(N, [c["squarem"][0] for c in own], color=color, ls="--", marker="s", ms=3)
        slow = [1 / max(1 - c["rate"][0], 1e-6) if c["rate"] else float("nan") for c in own]
        rates.loglog(N, slow, color=color, marker="o", ms=4)
        by_k = sorted(of(epsilon=epsilon, n_records=200, solver="kkt"),
                      key=lambda c: c["n_features"])  # fmt: skip
        K = [c["n_features"] for c in by_k]
        features.loglog(K, [c["plain"][0] for c in by_k], color=color, marker="o", ms=4)
        features.loglog(K, [c["squarem"][0] for c in by_k], color=color, ls="--", marker="s", ms=3)
        features.set_xticks(K, [str(k) for k in K])
        features.minorticks_off()
    for solver, marker in (("kkt", "o"), ("armijo", "^"), ("mm", "v")):
        own = sorted(of(n_records=200, n_features=5, solver=solver), key=lambda c: c["epsilon"])
        at = [c["epsilon"] for c in own]
        line = solvers.loglog(at, [c["plain"][0] for c in own], marker=marker, ms=4, label=solver)
        color = line[0].get_color()
        solvers.loglog(
            at, [c["squarem"][0] for c in own], marker=marker, ms=3, ls="--", color=color
        )
    for axis, title, label in (
        (sweeps, "sweeps to tolerance (median)", "N (K = 5)"),
        (rates, "1 / (1 - rate) of plain sweeps", "N (K = 5)"),
        (features, "sweeps to tolerance (median)", "features K (N = 200)"),
        (solvers, "sweeps, by simplex solver", "epsilon (N = 200, K = 5)"),
    ):
        axis.set_title(title, fontsize=9)
        axis.set_xlabel(label, fontsize=8)
    sweeps.legend(fontsize=7, frameon=False)
    sweeps.annotate("dashed: SQUAREM", (0.02, 0.02), xycoords="axes fraction", fontsize=7)
    solvers.legend(fontsize=7, frameon=False)
    return figure


def starts(result):
    """The bound and the errors that each start ends in, at N = 200."""
    figure, axes = panels(1, 4, 2.9)
    bound, of_class, of_feature, worse = axes[0]
    cells = [c for c in result["cells"] if c["n_records"] == 200]
    at = [c["epsilon"] for c in cells]
    for name, (color, marker) in STARTS.items():
        values = list(zip(*(c["starts"][name] for c in cells), strict=True))
        naive = [c["starts"]["naive"][0] for c in cells]
        gain = [v - n for v, n in zip(values[0], naive, strict=True)]
        for axis, y in ((bound, gain), (of_class, values[1]), (of_feature, values[2])):
            axis.plot(at, y, color=color, marker=marker, ms=4, lw=1.2, label=name)
    for N, color in zip((50, 200, 500), SHADES, strict=False):
        own = [c for c in result["cells"] if c["n_records"] == N]
        worse.plot([c["epsilon"] for c in own], [c["best_elsewhere"] for c in own], color=color,
                   marker="o", ms=4, label=f"N = {N}: elsewhere")  # fmt: skip
        share = [c["best_elsewhere"] * c["best_worse"] for c in own]
        worse.plot([c["epsilon"] for c in own], share, color=color, ls="--", marker="x", ms=4)
    for axis, title in (
        (bound, "bound, less naive's"),
        (of_class, "squared error of P(Y)"),
        (of_feature, "squared error of P(X|Y)"),
        (worse, "share where best is elsewhere"),
    ):
        axis.set_xscale("log")
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("epsilon per table" + " (N = 200)" * (axis is not worse), fontsize=8)
    of_class.set_yscale("log")
    of_feature.set_yscale("log")
    of_class.legend(fontsize=7, frameon=False, title="start", title_fontsize=7)
    worse.legend(fontsize=7, frameon=False)
    worse.annotate("dashed: and worse on P(Y)", (0.02, 0.02), xycoords="axes fraction", fontsize=7)
    worse.set_ylim(bottom=-0.08)
    return figure


def super_parent(result):
    """Bayes factors, replicate by replicate."""
    figure, axes = panels(1, 2, 2.6)
    for axis, depends in zip(axes[0], (True, False), strict=True):
        own = [c for c in result["cells"] if c["depends"] == depends]
        for at, cell in enumerate(own):
            y = cell["log10_factors"]
            x = [at + 0.3 * (i / max(len(y) - 1, 1) - 0.5) for i in range(len(y))]
            axis.plot(x, y, "o", ms=3, color="#0072B2", alpha=0.6)
            axis.plot([at - 0.25, at + 0.25], [cell["median"]] * 2, color="k")
        axis.axhline(0, color="k", lw=0.8, ls=":")
        axis.set_xticks(range(len(own)), [f"{c['epsilon']:g}" for c in own])
        axis.set_xlabel("epsilon per table", fontsize=8)
        said = "depend" if depends else "do not depend"
        axis.set_title(f"features {said} on the ward", fontsize=9)
    axes[0][0].set_ylabel("log10 Bayes factor\nsuper-parent : naive Bayes", fontsize=8)
    return figure


DRAWN = {f.__name__: f for f in (ladder, convergence, starts, super_parent)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[*DRAWN, []], default=list(DRAWN))
    for name in parser.parse_args().names:
        result = json.loads((RESULTS / f"{name}.json").read_text())
        path = RESULTS / f"{name}.png"
        DRAWN[name](result).savefig(path, dpi=150)
        print(f"wrote {path.relative_to(RESULTS.parents[1])}")


if __name__ == "__main__":
    main()
