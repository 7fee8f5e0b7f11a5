"""The command line: `jaxprivnb COMMAND`, or `python -m jaxprivnb COMMAND`.

parser.py      every command and option
study.py       `figure1`, `study`, `plot`, `summary`
release.py     `release`, the data holder's half
plan.py        `plan`, before any data are read
fit.py         `fit`, the analyst's half
synthesize.py  `synthesize`, synthetic records
report.py      `report`, one page about a release
arguments.py   what several commands take
exits.py       signals, errors and exit codes

JAX is imported only when work begins, so help and errors are immediate.
"""

from jaxprivnb.cli.parser import build_parser, main

__all__ = ["build_parser", "main"]
