"""Totals of groups of classes: are posteriors with them calibrated, and what do they narrow?

Six classes in a family of three levels, parameters from the prior: the exact posterior must cover
at the nominal rate with the totals as without.

    python bench/groups.py [--replicates 400] [--seed 0]
"""

import argparse
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)

from common import write  # noqa: E402

import jaxprivnb as pnb  # noqa: E402

N, EPSILON = 200, 0.1
FAMILY = ((0, 1, 2, 3), (0, 1), (4, 5), (2,))
GROUP_EPSILON = 1.0
LEVELS = (0.5, 0.95)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    key, group_key = jax.random.split(jax.random.key(arguments.seed))
    R = arguments.replicates
    sim = pnb.simulate(
        key, n_records=N, n_classes=6, n_categories=(2, 2), noise=pnb.Laplace(2 / EPSILON),
        shape=(R,),
    )  # fmt: skip
    n = sim.counts[:, :, 0].sum(-1)  # [R, I]
    noise = pnb.Laplace(2 / GROUP_EPSILON)
    drawn = noise.sample(group_key, (len(FAMILY), R))
    groups = tuple(
        pnb.Group(classes, n[:, jnp.asarray(classes)].sum(-1) + x, noise)
        for classes, x in zip(FAMILY, drawn, strict=True)
    )
    tables = {"with": dataclasses.replace(sim.tables, groups=groups), "without": sim.tables}
    report = {}
    for name, one in tables.items():
        fit = pnb.fit_many(one, "exact")
        row = {"failed": int((np.asarray(fit.status) != 0).sum())}
        for what, truth, interval in (
            ("class", sim.class_probs, fit.class_interval),
            ("feature", sim.feature_probs, fit.feature_interval),
        ):
            for level in LEVELS:
                low, high = interval(level)
                inside = np.asarray((low <= truth) & (truth <= high)).reshape(R, -1).mean(-1)
                error = inside.std(ddof=1) / np.sqrt(R)
                row[f"{what}_coverage_{round(100 * level)}"] = [float(inside.mean()), float(error)]
        row["class_sd"] = float(np.mean(fit.class_sd))
        square = np.square(np.asarray(fit.class_mean - sim.class_probs)).mean(-1)
        row["class_error"] = [float(square.mean()), float(square.std(ddof=1) / np.sqrt(R))]
        report[name] = row
        print(name, row, flush=True)
    write("groups", {"seed": arguments.seed, "replicates": R, **report})


if __name__ == "__main__":
    main()
