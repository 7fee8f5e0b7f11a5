"""VB, exact and naive under wrong priors and wrong noise: the study `misspecified` and its picture.

    python bench/misspecified.py

Writes bench/results/misspecified.json and misspecified.png. The study is in
results/misspecified; one that was stopped goes on where it was.
"""

from common import RESULTS, write

from jaxprivnb.study.figures import draw, render
from jaxprivnb.study.load import read_study_rows
from jaxprivnb.study.run import run_study
from jaxprivnb.study.specfile import shipped_spec
from jaxprivnb.study.summary import summarise

OUT = RESULTS.parents[1] / "results" / "misspecified"
MEASURES = ("se_feature", "se_class", "coverage_feature_95", "coverage_class_95")


def main():
    spec = shipped_spec("misspecified")
    run_study(spec, OUT, display="log")
    study = read_study_rows(OUT)
    summary = summarise(study)
    rows = []
    for g, (c, m) in enumerate(zip(summary.cell, summary.method, strict=True)):
        cell = spec.cells[c]
        axes = ("assumed_noise", "assumed_scale", "truth", "epsilon_per_table")
        rows.append(
            {name: cell.column(name) for name in axes}
            | {"method": spec.arms[m].label, "failures": int(summary.failures[g])}
            | {x: [float(summary.mean[x][g]), float(summary.se[x][g])] for x in MEASURES}
        )
    (page,) = draw(study, "nested", summary)
    (RESULTS / "misspecified.png").write_bytes(render(page))
    write("misspecified", {"replicates": spec.replicates.total, "rows": rows})


if __name__ == "__main__":
    main()
