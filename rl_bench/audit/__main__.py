"""``python -m rl_bench.audit RESULTS/SWEEP``: judges recorded runs by the present rules.

Nothing is run again and no ledger is changed; see `rl_bench.audit.recorded`.

Exit codes: 0 no breach was found; 1 there are some, a run's records could not be read, or of no run
enough is there to tell; 2 bad input, nothing judged; 130 interrupted.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.text import Text

from rl_bench import __version__
from rl_bench.audit.recorded import AuditRecord, RecordedSweep
from rl_bench.audit.references import check_references
from rl_bench.audit.rules import RULES_VERSION
from rl_bench.command_line import EXIT_FAILED, check_no_flags, ended, prepare_process, say
from rl_bench.compose import compose
from rl_bench.counts import plural
from rl_bench.errors import ConfigError
from rl_bench.events import ModeAudited
from rl_bench.judges.check import check_judge
from rl_bench.lines import one_line, printable
from rl_bench.nearest import did_you_mean
from rl_bench.paths import SweepPaths
from rl_bench.plan_view import make_console, plain_table, print_table
from rl_bench.waiting import told_while

_HELP = f"""\
usage: python -m rl_bench.audit RESULTS/SWEEP [--run ID] [--config-dir DIR] [audit.KEY=VALUE ...]

Judges the recorded runs of a sweep by the present rules ({RULES_VERSION}): whether each kept to its
mode, and what else a reader of its scores must know. Nothing is run again; no ledger is changed.

examples:
  python -m rl_bench.audit results/full
  python -m rl_bench.audit results/full --run codex-gpt_5_4-sft_only
  python -m rl_bench.audit results/full +audit.references.instruct=/models/Qwen3-8B
  python -m rl_bench.audit results/full audit=judged audit.judge.num_votes=5

overrides (Hydra's grammar):
  audit=NAME                    default, or judged: a language model reads the traces too
  audit.references.NAME=PATH    a known checkpoint of the base model's shape
  audit.judge.KEY=VALUE         model_id, base_url, key_variable, num_votes, ...
  paths.cache=PATH, paths.data=PATH

results:
  RESULTS/SWEEP/audits/{RULES_VERSION}.jsonl holds a line a run: verdict, findings, evidence, and
  what the run's ledger said before.

flags:
  --run ID          judge this run alone; its id, how it begins, or its digest; may be repeated
  --config-dir DIR  a folder with more options, laid out like conf/; may be repeated
  --version, --help

exit codes:
  0    no breach was found
  1    a run or a submission broke the rules, a run could not be judged, or too little is there
       of every run to tell
  2    bad input; nothing was judged
  130  interrupted
"""
_KEYS = ("audit", "paths")
_NOTHING = (
    "of no run enough is there to be judged: what this found says nothing. "
    "An audit needs the runs' folders, with code.git and workspace, and the sweep's snapshots"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Judges what the command line names.

    Args:
        argv: Words after the program's name; by default the process's own.

    Returns:
        The exit code, see the module's docstring.
    """
    if argv is None:
        prepare_process()
    given = sys.argv[1:] if argv is None else argv
    return ended(lambda: _run(given), interrupted="no verdict was written")


def _run(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("rl-bench-audit", add_help=False, allow_abbrev=False)
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("--version", action="version", version=f"rl_bench {__version__}")
    parser.add_argument("--run", action="append", default=[])
    parser.add_argument("--config-dir", type=Path, action="append", default=[])
    args, words = parser.parse_known_args(argv)
    if args.help:
        say(_HELP)
        return 0
    check_no_flags(words, parser)
    sweep = _sweep(words, config_dirs=args.config_dir)
    records = _judge(sweep, sweep.chosen(args.run))
    path = sweep.keep(records)
    show(records, console=make_console())
    say(f"\nwritten to {path}")
    if not any(record.is_judged for record in records):
        say(f"warning: {_NOTHING}", to_stderr=True)
        return EXIT_FAILED
    return int(any(record.is_breach or record.not_audited for record in records))


def _judge(sweep: RecordedSweep, run_ids: Sequence[str]) -> list[AuditRecord]:
    """Judges runs; tells on standard error how far that is."""
    tell = partial(say, to_stderr=True)
    tell(f"judging {plural(len(run_ids), 'run')} by rules {RULES_VERSION}")
    records = []
    for number, run_id in enumerate(run_ids, 1):
        name, began = f"{number}/{len(run_ids)} {run_id}", time.monotonic()
        with told_while(name, tell):
            record = sweep.audit(run_id)
        verdict = record.not_audited or _verdict(record.mode)
        found = plural(len(record.findings), "finding")
        tell(f"{name}: {verdict}, {found}, {time.monotonic() - began:.1f} s")
        records.append(record)
    return records


def _sweep(words: Sequence[str], *, config_dirs: Sequence[Path]) -> RecordedSweep:
    folders = [word for word in words if "=" not in word or Path(word).is_dir()]
    overrides = [word for word in words if word not in folders]
    if len(folders) != 1:
        raise ConfigError(
            f"{len(folders)} folders are named, one is wanted", cure="Write RESULTS/SWEEP first"
        )
    for word in overrides:
        key = word.lstrip("+~").partition("=")[0].partition(".")[0]
        if key not in _KEYS:
            raise ConfigError(f"override '{word}' changes no audit", cure=did_you_mean(key, _KEYS))
    experiment = compose(overrides, config_dirs=config_dirs).experiment
    config = experiment.audit
    check_references(config.references)
    if config.judge is not None:
        check_judge(config.judge, where="audit.judge")
    paths = SweepPaths(Path(folders[0]).expanduser().absolute())
    return RecordedSweep(paths=paths, folders=experiment.paths, config=config)


def show(records: Sequence[AuditRecord], *, console: Console) -> None:
    """A table of verdicts, then every finding and every verdict that is not clean."""
    columns = {
        "run": [one_line(record.run_id) for record in records],
        "mode": [record.mode_name for record in records],
        "before": [_verdict(record.mode_before) for record in records],
        "now": ["not judged" if each.not_audited else _verdict(each.mode) for each in records],
        "methods": [", ".join(each.mode.methods) if each.mode else "" for each in records],
        "findings": [_counts(record) for record in records],
    }
    told = {heading: cells for heading, cells in columns.items() if set(cells) - {"", "-"}}
    table = plain_table(*told)
    for row in zip(*told.values(), strict=True):
        table.add_row(*map(Text, row))
    console.print(f"Audit of {plural(len(records), 'run')}, rules {RULES_VERSION}", style="bold")
    print_table(table, console)
    for record in records:
        _explain(record, console)


def _verdict(mode: ModeAudited | None) -> str:
    return "-" if mode is None else mode.verdict.value


def _counts(record: AuditRecord) -> str:
    counts = Counter(f"{f.severity}: {f.rule}" for f in record.findings if f.severity != "info")
    num_info = sum(f.severity == "info" for f in record.findings)
    lines = [f"{name} x{num}" if num > 1 else name for name, num in sorted(counts.items())]
    return "\n".join([*lines, *([f"{num_info} info"] if num_info else [])]) or "none"


def _explain(record: AuditRecord, console: Console) -> None:
    lines = [f"not judged: {record.not_audited}"] if record.not_audited else []
    if record.mode is not None and record.mode.verdict.value != "clean":
        lines.append(f"mode {record.mode.verdict.value}: {record.mode.summary}")
        for piece in record.mode.evidence[:4]:
            where = ":".join(str(p) for p in (piece.path, piece.line) if p)
            lines.append(f"    {piece.source} {where} {piece.quote}")
    lines += [f"{f.severity} {f.rule}: {f.summary}" for f in record.findings]
    if lines:
        console.print(f"\n{one_line(record.run_id)}", markup=False)
        for line in lines:
            console.print(f"  {printable(line)}", markup=False)


if __name__ == "__main__":
    sys.exit(main())
