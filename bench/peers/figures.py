"""The figure: error against epsilon, coverage against epsilon, error against time."""

import numpy as np
from peers.designs import DESIGNS
from peers.registry import PEERS

SHORT = {
    "paper": "paper's grid, all N",
    "ju": "after Ju et al., N=100, I=5, K=5, J=3",
    "large": "N=10,000, I=4, K=20, J=5",
}
"""Designs in the order of the rows."""

FEW = 5
"""Replicates in a cell below which a line says little."""


def ratio_by_epsilon(design, name, key):
    """(epsilon, mean squared error over exact's on the same releases, paired), over all N."""
    m, cells = design["methods"][name], design["cells"]
    epsilons = sorted({c["epsilon"] for c in cells})
    ratios = []
    for e in epsilons:
        here = [i for i, c in enumerate(cells) if c["epsilon"] == e]
        theirs = np.array([m["cells"][i][key][0] for i in here])
        gap = np.array([m["paired"][key][i]["gap"] for i in here])
        ratios.append(theirs.sum() / (theirs - gap).sum())
    return epsilons, ratios


def mean_by_epsilon(design, name, key):
    """(epsilon, mean of a measure over all N)."""
    m, cells = design["methods"][name], design["cells"]
    epsilons = sorted({c["epsilon"] for c in cells})
    mean = lambda e: np.mean(  # noqa: E731
        [m["cells"][i][key][0] for i, c in enumerate(cells) if c["epsilon"] == e]
    )
    return epsilons, [mean(e) for e in epsilons]


def plot(content, path):
    """Draw what there is of the designs, a row for each."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    from jaxprivnb.style import FONT

    names = [d for d in SHORT if d in content["designs"]]
    if not names:
        return
    with matplotlib.rc_context(FONT):
        figure, axes = pyplot.subplots(
            len(names), 4, figsize=(13, 0.9 + 2.9 * len(names)), layout="constrained", squeeze=False
        )
        for row, name in zip(axes, names, strict=True):
            design = content["designs"][name]
            of = "all tables together" if DESIGNS[name].total else "one table"
            for peer in PEERS:
                if peer.name in design["methods"]:
                    draw(row, design, peer)
            for axis, what in zip(row, ("P(X|Y)", "P(Y)"), strict=False):
                axis.set(xscale="log", yscale="log", xlabel=f"ε, {of}")
                axis.set_title(f"Squared error of {what}, of exact's", loc="left")
                axis.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
                axis.yaxis.set_minor_formatter(
                    lambda y, _: f"{y:g}" if f"{y:.0e}"[0] in "235" else ""
                )
                axis.set_ylim(0.8, None)
            row[2].axhline(0.95, color="black", linewidth=0.8, linestyle="--")
            row[2].set(xscale="log", xlabel=f"ε, {of}", ylim=(0, 1.03))
            row[2].set_title("Coverage of 95% intervals of P(X|Y)", loc="left")
            row[3].set(xscale="log", yscale="log", xlabel="ms a fit: ○ alone, filled in a batch")
            row[3].set_title("Squared error of P(X|Y), of exact's, against time", loc="left")
            row[3].yaxis.set_major_formatter(lambda y, _: f"{y:g}")
            row[3].yaxis.set_minor_formatter(
                lambda y, _: f"{y:.2g}" if f"{y:.1e}"[0] in "235" else ""
            )
            row[0].set_ylabel(SHORT[name], fontweight="bold")
        handles = [
            matplotlib.lines.Line2D(
                [], [], color=p.color, marker=p.marker, markersize=5, linewidth=1.2, label=p.name
            )
            for p in PEERS
            if any(p.name in content["designs"][d]["methods"] for d in names)
        ]
        figure.legend(
            handles=handles, loc="outside upper center", ncols=6, frameon=False,
            title="Everyone on the same releases. Squared errors are divided by those of the exact "
            "posterior mean on these releases: 1 is exact, higher is worse.\n"
            f"Faint lines: fewer than {FEW} replicates in a cell, so mostly chance.",
        )  # fmt: skip
        figure.savefig(path, dpi=150)


def draw(row, design, peer):
    """One method in the four panels of a design."""
    m = design["methods"][peer.name]
    look = {"color": peer.color, "marker": peer.marker, "markersize": 4, "linewidth": 1.1}
    if m["replicates"] < FEW:
        look |= {"alpha": 0.3, "zorder": 1}
    for axis, key in zip(row, ("se_feature", "se_class"), strict=False):
        axis.plot(*ratio_by_epsilon(design, peer.name, key), **look)
    if "coverage_feature" in m["cells"][0]:
        row[2].plot(*mean_by_epsilon(design, peer.name, "coverage_feature"), **look)
    times = list(m["times"].values())
    t = times[len(times) // 2]
    level = m["overall"]["se_feature"][0] / m["ours_on_the_same"]["se_feature"]
    row[3].plot([1e3 * t["batch"], 1e3 * t["alone"]], [level] * 2, color=peer.color, linewidth=0.8)
    row[3].plot(1e3 * t["alone"], level, peer.marker, color=peer.color, fillstyle="none")
    row[3].plot(1e3 * t["batch"], level, peer.marker, color=peer.color)
