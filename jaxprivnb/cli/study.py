"""The commands of studies: `figure1`, `study`, `plot`, `summary`."""

import argparse
import dataclasses
import os
import sys
from collections.abc import Callable
from typing import Any

from jaxprivnb.cli.arguments import add_compilation_cache, keep_compiled, whole
from jaxprivnb.cli.exits import EXIT_INCOMPLETE, Stop
from jaxprivnb.extras import require
from jaxprivnb.methods import names, plugin, register_all


def add_commands(commands: Any) -> None:
    """Add the parsers; imports no JAX."""
    figure1 = commands.add_parser(
        "figure1", help="run the paper's study and draw its Figure 1", description=_figure1.__doc__
    )
    figure1.add_argument(
        "--out", default="results/figure1", help="folder or URL (default: %(default)s)"
    )
    figure1.add_argument("--parameters", type=whole, help="parameter draws a cell (default: 200)")
    figure1.add_argument("--datasets", type=whole, help="data sets a parameter draw (default: 10)")
    figure1.add_argument("--noise-draws", type=whole, help="noise draws a data set (default: 5)")
    figure1.add_argument(
        "--replicates", type=whole, metavar="R",
        help="replicates a cell, all stages together; sets the number of parameter draws",
    )  # fmt: skip
    figure1.add_argument(
        "--classes", type=whole, metavar="I", help="number of classes (default: 2)"
    )
    figure1.add_argument(
        "--features", type=whole, metavar="K", help="number of features (default: 5)"
    )
    figure1.add_argument(
        "--categories", type=whole, metavar="J", help="categories a feature (default: 2)"
    )
    figure1.add_argument(
        "--methods",
        help=f"comma-separated, among {','.join(names())} (default: naive,vb,exact,bayes)",
    )
    _add_run_options(figure1)
    figure1.set_defaults(command=_figure1, stop=Stop.RESUMABLE)

    study = commands.add_parser("study", help="run or resume a study", description=_study.__doc__)
    study.add_argument(
        "spec", nargs="?", help="a TOML file, or the name of a study that comes with the package"
    )
    study.add_argument("--out", help="folder or URL for the results")
    study.add_argument(
        "--part", metavar="3/100",
        help="compute the third of a hundred parts, as a task of an array job: all may run at once",
    )  # fmt: skip
    study.add_argument(
        "--status", metavar="DIR",
        help="say what is missing of the study in a folder or at a URL, and compute nothing; "
        f"exit code {EXIT_INCOMPLETE} if it is not complete",
    )  # fmt: skip
    _add_run_options(study)
    study.set_defaults(command=_study, stop=Stop.RESUMABLE)

    plot = commands.add_parser("plot", help="draw a study's figures", description=_plot.__doc__)
    plot.add_argument("dir", help="the study's folder or URL")
    plot.add_argument("--out", help="where the figures go (default: the study's folder)")
    plot.add_argument("--format", choices=("png", "pdf", "svg"), default="png")
    plot.add_argument("--figures", help="comma-separated (default: all that apply)")
    plot.set_defaults(command=_plot, stop=Stop.BY_PYTHON)

    summary = commands.add_parser(
        "summary", help="a table of results", description=_summary.__doc__
    )
    summary.add_argument("dir", help="the study's folder or URL")
    summary.add_argument("--format", choices=("terminal", "csv", "markdown"), default="terminal")
    summary.set_defaults(command=_summary, stop=Stop.BY_PYTHON)


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how to run")
    group.add_argument("--engine", choices=("local", "dask"), default="local")
    group.add_argument(
        "--workers",
        type=whole,
        help="threads, or Dask processes to start here (default: one a core)",
    )
    group.add_argument(
        "--plugin", action="append", default=[], metavar="[LABEL=]MODULE:FUNCTION",
        help="an estimator of your own: compared too, or a method that the spec names",
    )  # fmt: skip
    group.add_argument("--address", help="of a Dask scheduler that runs already")
    group.add_argument("--seed", type=int, help="instead of the study's own")
    group.add_argument("--dtype", choices=("float64", "float32"), help="default: float64")
    add_compilation_cache(group)
    group.add_argument(
        "--overwrite", action="store_true", help="delete the study that is in the folder"
    )
    group.add_argument("--quiet", action="store_true", help="show errors only")


def _figure1(arguments: argparse.Namespace) -> int:
    """Run the paper's study (N from 50 to 500, epsilon from 1e-4 to 1) and leave figure1.png,
    summary.csv and the rows behind them.
    """
    from jaxprivnb.study.spec import Arm, SpecError
    from jaxprivnb.study.specfile import shipped_spec

    require("matplotlib", "figures", "drawing a study")  # before the work, not after it
    _register_plugins(arguments)
    spec = shipped_spec("figure1")
    design = {
        "parameters": arguments.parameters,
        "datasets": arguments.datasets,
        "noise_draws": arguments.noise_draws,
    }
    replicates = spec.replicates._replace(**{k: v for k, v in design.items() if v is not None})
    if arguments.replicates is not None:
        if arguments.parameters is not None:
            raise SpecError(
                "--replicates sets the number of parameter draws: leave --parameters out"
            )
        inner = replicates.datasets * replicates.noise_draws
        replicates = replicates._replace(parameters=-(-arguments.replicates // inner))
    sizes = spec.n_categories[0]
    shape = (arguments.categories or sizes[0],) * (arguments.features or len(sizes))
    changes: dict[str, Any] = {"replicates": replicates, "n_categories": (shape,)}
    if arguments.classes is not None:
        changes["n_classes"] = (arguments.classes,)
    if arguments.methods is not None:
        chosen = arguments.methods.split(",")
        for name in chosen:
            if name not in names():
                raise SpecError(f"--methods must be among {','.join(names())}, got {name!r}")
        own = {arm.label: arm for arm in spec.arms}
        changes["arms"] = tuple(own.get(name, Arm(name, name)) for name in chosen)
    return _run(dataclasses.replace(spec, **changes), arguments, figures=True)


def _study(arguments: argparse.Namespace) -> int:
    """Run a study, or what is missing of it: the same command resumes after a kill, and a spec that
    only asks for more (replicates, values of the grid, methods, levels, precision) goes on with it.
    """
    from jaxprivnb.study.specfile import load_spec, shipped_spec

    if arguments.status is not None:
        return _status(arguments)
    if arguments.spec is None or arguments.out is None:
        raise ValueError("study needs a SPEC and --out, or --status with a study's folder")
    _register_plugins(arguments)
    # A word that is neither a path nor a file is a study of the package, or a mistake in its name.
    word = not os.path.exists(arguments.spec) and not os.path.splitext(arguments.spec)[1]
    shipped = word and not os.path.dirname(arguments.spec)
    if not shipped:
        _spare(arguments.spec, arguments.out)
    spec = shipped_spec(arguments.spec) if shipped else load_spec(arguments.spec)
    return _run(spec, arguments, figures=False)


def _status(arguments: argparse.Namespace) -> int:
    """Say what is missing."""
    from jaxprivnb.study.missing import format_status, study_status

    if arguments.spec or arguments.out or arguments.part:
        raise ValueError("--status takes nothing but the study's folder")
    status = study_status(arguments.status)
    if not arguments.quiet:
        print(format_status(status))
    return 0 if status.complete else EXIT_INCOMPLETE


def _register_plugins(arguments: argparse.Namespace) -> None:
    """Before the spec is read, which may name them."""
    arguments.own = dict(map(plugin, arguments.plugin))
    register_all(arguments.own)


def _spare(spec: str, out: str) -> None:
    """Raise if running the study would replace or delete the file that describes it."""
    from jaxprivnb.study.folder import MANIFEST, PARTS, STUDY

    path = os.path.realpath(spec)
    written = [os.path.realpath(os.path.join(out, name)) for name in (STUDY, MANIFEST, PARTS)]
    if any(os.path.commonpath([path, other]) == other for other in written):
        raise ValueError(f"{spec} is among the files that a study writes in {out}: move it")


def _run(spec: Any, arguments: argparse.Namespace, *, figures: bool) -> int:
    """Run, then say what came of it."""
    changes = {
        name: value
        for name, value in (("seed", arguments.seed), ("dtype", arguments.dtype))
        if value is not None
    }
    spec = dataclasses.replace(spec, **changes)
    keep_compiled(arguments)
    from jaxprivnb.study.run import run_study

    say = (lambda text: None) if arguments.quiet else (lambda text: print(text, flush=True))
    outcome = run_study(
        spec,
        arguments.out,
        engine=arguments.engine,
        overwrite=arguments.overwrite,
        display="quiet" if arguments.quiet else "auto",
        workers=arguments.workers,
        address=arguments.address,
        part=getattr(arguments, "part", None),
        methods=arguments.own,
    )
    say(
        f"{outcome.rows} rows in {outcome.out} ({outcome.computed} chunks computed, "
        f"{outcome.resumed} resumed, {outcome.seconds:.1f} s); "
        f"{outcome.failures} rows with a status that is not success"
    )
    if figures:
        _report(arguments.out, say)
    else:
        out = arguments.out
        check = f"study --status {out}; jaxprivnb " if getattr(arguments, "part", None) else ""
        say(f"next: jaxprivnb {check}summary {out}; jaxprivnb plot {out}")
    return 0


def _report(out: str, say: Callable[[str], None]) -> None:
    """Figures and the summary beside the rows."""
    from jaxprivnb.storage import open_storage
    from jaxprivnb.study.figures import plot_study
    from jaxprivnb.study.load import read_study_rows
    from jaxprivnb.study.summary import format_summary, summarise

    study = read_study_rows(out)
    summary = summarise(study)
    storage = open_storage(out)
    storage.write("summary.csv", (format_summary(study, summary, "csv") + "\n").encode())
    storage.write("summary.md", (format_summary(study, summary, "markdown") + "\n").encode())
    files = plot_study(study, out, summary=summary)
    say(f"wrote {', '.join([*files, 'summary.csv', 'summary.md'])} to {out}")


def _plot(arguments: argparse.Namespace) -> int:
    """Draw a study: all figures that apply to it, or those that are named."""
    from jaxprivnb.study.figures import FIGURES, plot_study
    from jaxprivnb.study.load import read_study_rows

    names = tuple(arguments.figures.split(",")) if arguments.figures else FIGURES
    out = arguments.out or arguments.dir
    study = read_study_rows(arguments.dir)
    files = plot_study(study, out, figures=names, suffix=arguments.format)
    _warn_incomplete(study)
    for name in files:
        print(f"{out}/{name}")
    return 0


def _summary(arguments: argparse.Namespace) -> int:
    """Print means with Monte Carlo standard errors: 0.0842(13) means 0.0842 +- 0.0013."""
    from jaxprivnb.study.load import read_study_rows
    from jaxprivnb.study.summary import format_summary, summarise

    study = read_study_rows(arguments.dir)
    print(format_summary(study, summarise(study), arguments.format))
    _warn_incomplete(study)
    return 0


def _warn_incomplete(study: Any) -> None:
    if not study.complete:
        print(f"note: {study.chunks} of {study.wanted} chunks are done", file=sys.stderr)
