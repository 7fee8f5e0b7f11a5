"""The command `fit`: the analyst's half."""

import argparse
import io
import sys
from typing import Any

from jaxprivnb.cli.arguments import add_compilation_cache, keep_compiled, level, positive, whole
from jaxprivnb.cli.exits import Stop
from jaxprivnb.methods import METHODS, fit_function, names
from jaxprivnb.study.spec import NOISES


def add_commands(commands: Any) -> None:
    """Add the parser; imports no JAX."""
    fit = commands.add_parser("fit", help="fit a release", description=run_fit.__doc__)
    fit.add_argument(
        "release",
        help="a file that `jaxprivnb release` wrote; or with --noise a CSV file of noisy counts "
        "with the columns feature, class, category, count",
    )
    fit.add_argument("--noise", choices=NOISES, help="that was added to the counts of a CSV file")
    fit.add_argument("--scale", type=float, help="of that noise (sigma if gaussian)")
    fit.add_argument("--n-records", type=whole, metavar="N", help="N, if it is public")
    fit.add_argument("--method", choices=names("tables"), default="exact")
    fit.add_argument(
        "--prior",
        default="uniform",
        help="uniform (the default), a concentration, or learned: concentrations from the release "
        "itself (--method exact)",
    )
    fit.add_argument("--level", type=level, default=0.95, help="of intervals (default: 0.95)")
    fit.add_argument(
        "--counts", action="store_true", help="true counts too, with intervals (--method exact)"
    )
    fit.add_argument("--format", choices=("terminal", "csv"), default="terminal")
    fit.add_argument("--draws", type=whole, metavar="N", help="posterior draws to write")
    fit.add_argument("--draws-out", metavar="FILE", help="where to: an .npz file")
    fit.add_argument("--seed", type=int, default=0, help="of the draws (default: 0)")
    add_compilation_cache(fit)
    fit.set_defaults(command=run_fit, stop=Stop.AT_ONCE)


def run_fit(arguments: argparse.Namespace) -> int:
    """Print the posterior of P(class) and P(feature | class), with intervals, and write draws
    if asked to.
    """
    if (arguments.draws is None) != (arguments.draws_out is None):
        raise ValueError("--draws and --draws-out go together")
    if arguments.draws_out is not None:
        from jaxprivnb.privacy.sealed import try_output

        try_output(arguments.draws_out, {"the release": arguments.release})
    if (arguments.noise is None) != (arguments.scale is None):
        raise ValueError("--noise and --scale go together")
    if arguments.noise is None and arguments.n_records is not None:
        raise ValueError("--n-records is for a CSV file of noisy counts: a release states its own")
    prior = _prior(arguments)
    keep_compiled(arguments)
    import jax

    from jaxprivnb.status import Status
    from jaxprivnb.tables import Prior

    with jax.enable_x64(True):
        release, heading = _tables(arguments)
        if isinstance(prior, float):
            prior = Prior.symmetric(release, prior)
        posterior = fit_function(arguments.method)(release, prior)
        summary = posterior.summary(arguments.level, counts=arguments.counts)
        if arguments.draws is not None:
            _write_draws(release, posterior, arguments)
    if arguments.format == "csv":
        print(summary.to_csv(), end="")
    else:
        print(heading)
        print(f"{arguments.method} posterior, {arguments.level:g} intervals")
        print(f"{summary.prior}\n" if summary.prior else "")
        print(summary.table())
    if summary.status != Status.SUCCESS:
        status = summary.status
        print(f"note: the fit's status is {status.name}: {status.sentence}", file=sys.stderr)
    return 0


def _prior(arguments: argparse.Namespace) -> Any:
    """What a fit is given: None, "learned", or a number."""
    word = arguments.prior
    if word == "uniform":
        return None
    if word == "learned":
        if not METHODS[arguments.method].learns_prior:
            raise ValueError(f"--prior learned does not go with --method {arguments.method}")
        return word
    try:
        return positive(word)
    except argparse.ArgumentTypeError:
        raise ValueError("--prior must be uniform, learned, or a number above 0") from None


def _tables(arguments: argparse.Namespace) -> tuple[Any, str]:
    """(The tables, what is to be said of them.)"""
    if arguments.noise is None:
        from jaxprivnb.privacy.file import load_release

        release = load_release(arguments.release)
        promise = release.guarantee
        return release, f"{promise}, {promise.mechanism} noise, {release.size_text}"
    from jaxprivnb import noise
    from jaxprivnb.published import load_tables

    made = getattr(noise, arguments.noise.capitalize())(arguments.scale)
    tables = load_tables(arguments.release, noise=made, n_records=arguments.n_records)
    size = "N unknown" if arguments.n_records is None else f"N={arguments.n_records}"
    return tables, f"{arguments.noise} noise of scale {arguments.scale:g}, {size}"


def _write_draws(release: Any, posterior: Any, arguments: argparse.Namespace) -> None:
    import jax
    import numpy as np

    from jaxprivnb.privacy.sealed import write

    class_probs, feature_probs = posterior.sample(jax.random.key(arguments.seed), arguments.draws)
    data, domain = io.BytesIO(), release.domain
    np.savez_compressed(
        data,
        class_probs=np.asarray(class_probs),
        feature_probs=np.asarray(feature_probs)[:, :, : len(domain.features)],
        classes=np.asarray([str(c) for c in domain.class_.categories]),
        feature_names=np.asarray([feature.name for feature in domain.features]),
    )
    write(arguments.draws_out, data.getvalue())
