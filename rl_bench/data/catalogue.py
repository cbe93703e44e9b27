"""What each task needs, and its public home: the one list of sources.

A `DataFile` is what a task reads, below the data folder; `Download`s are the public files that it
is, or is made from. Nothing here touches the network or the disk.

Checksums. ``sha256`` is set where a digest is known: those marked *checked* were computed from real
files by this project's developers, the others are quoted by public repositories that pin the same
file and could not be checked by hand. A download with another digest is refused either way. Where
``sha256`` is empty the first download is trusted and its digest recorded (`rl_bench.data.records`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rl_bench.data.alfworld_zip import unpack_split
from rl_bench.data.alpaca_rows import write_first_rows
from rl_bench.data.webshop_catalogue import write_human_goals, write_products

Make = Callable[[Mapping[str, Path], Path], None]
"""Makes a file, or a folder, from downloads by name; the second argument does not exist yet."""

_GITHUB_RAW = "https://raw.githubusercontent.com"
_GSM8K = f"{_GITHUB_RAW}/openai/grade-school-math/3101c7d5072418e28b9008a6636bde82a006892c"
_HUMANEVAL = f"{_GITHUB_RAW}/openai/human-eval/6d43fb980f9fee3c892a914eda09951f772ad10d"
_HUB = "https://huggingface.co/datasets"
_ALPACA_EVAL = f"{_HUB}/tatsu-lab/alpaca_eval/resolve/2edc6fad8be6b14ea7230aabfd08188da6b8b814"
_ALPACA = f"{_HUB}/tatsu-lab/alpaca/resolve/dce01c9b08f87459cf36a430d809084718273017"
_DEEPSEARCHQA = f"{_HUB}/google/deepsearchqa/resolve/b2623f8653065c2672de6d941fc5434cd652376c"
_WEBSHOP_COPY = f"{_HUB}/YWZBrandon/webshop-data/resolve/ce990fff5aee388db2706f07820c578ab68e0453"
_ALFWORLD = "https://github.com/alfworld/alfworld/releases/download"


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """A public file.

    Attributes:
        name: Its file name, also when it is fetched by hand.
        url: Its public home.
        copies: Public copies of the same bytes, tried in turn after ``url``; need ``sha256``.
        num_bytes: Its size; ``None``: unknown.
        sha256: Its digest; empty: unknown.
    """

    name: str
    url: str
    copies: tuple[str, ...] = ()
    num_bytes: int | None = None
    sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """What a task reads: a file, or a folder.

    Attributes:
        path: Below the data folder.
        content: What it holds, for people.
        downloads: What it is, or is made from.
        make: How it is made; ``None``: it is its only download.
        made_bytes: What it takes on the disk when it is made, if that is much.
        variants: Patterns of files that hold the same and that the task reads as well.
        parts: Patterns of files that the task reads, but that hold only a part.
        num_rows: Rows of the whole, where a part has one a line; 0: unknown, or not so.
        is_folder: Whether ``path`` is a folder.
    """

    path: str
    content: str
    downloads: tuple[Download, ...]
    make: Make | None = None
    made_bytes: int = 0
    variants: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    num_rows: int = 0
    is_folder: bool = False

    @property
    def sha256(self) -> str:
        """The digest that the file must have; empty where it is made, or unknown."""
        return self.downloads[0].sha256 if self.make is None else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """The data of one kind of task.

    Attributes:
        name: The kind, and the folder below the data folder.
        is_extra: An alternative that no task reads unless told to with ``task.data_path``.
        instead: What the task of this name reads by default, for people; empty: these data.
    """

    name: str
    licence: str
    licence_url: str
    files: tuple[DataFile, ...]
    is_extra: bool = False
    instead: str = ""


def _plain(
    path: str,
    download: Download,
    *,
    content: str,
    num_rows: int = 0,
    **patterns: tuple[str, ...],
) -> DataFile:
    """A file that is its download; readers take it compressed by xz as well."""
    variants = (f"{path}.xz", *patterns.get("variants", ()))
    parts = patterns.get("parts", ())
    return DataFile(
        path=path,
        content=content,
        downloads=(download,),
        variants=variants,
        parts=parts,
        num_rows=num_rows,
    )


# Checked: train. Both are pinned by many repositories, e.g. as gsm8k-train.jsonl, gsm8k-test.jsonl.
GSM8K = Dataset(
    name="gsm8k",
    licence="MIT",
    licence_url="https://github.com/openai/grade-school-math/blob/master/LICENSE",
    files=(
        _plain(
            "gsm8k/train.jsonl",
            Download(
                name="train.jsonl",
                url=f"{_GSM8K}/grade_school_math/data/train.jsonl",
                num_bytes=4_166_206,
                sha256="17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465",
            ),
            content="7,473 train questions",
        ),
        _plain(
            "gsm8k/test.jsonl",
            Download(
                name="test.jsonl",
                url=f"{_GSM8K}/grade_school_math/data/test.jsonl",
                num_bytes=749_738,
                sha256="3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
            ),
            content="1,319 test questions",
            parts=("gsm8k/test_first*.jsonl",),
            num_rows=1319,
        ),
    ),
)

HUMANEVAL = Dataset(
    name="humaneval",
    licence="MIT",
    licence_url="https://github.com/openai/human-eval/blob/master/LICENSE",
    files=(
        _plain(
            "humaneval/HumanEval.jsonl.gz",
            Download(
                name="HumanEval.jsonl.gz",
                url=f"{_HUMANEVAL}/data/HumanEval.jsonl.gz",
                num_bytes=44_877,
                sha256="b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef",
            ),
            content="164 problems, for task.source=path; the package human-eval has them too",
            variants=("humaneval/HumanEval.jsonl",),
        ),
    ),
    is_extra=True,
    instead="the package human-eval",
)

# Checked: alpaca_eval_gpt4_baseline.json has the bytes of the leaderboard's
# results/gpt4_1106_preview/model_outputs.json.
ALPACAEVAL = Dataset(
    name="alpacaeval",
    licence="CC BY-NC 4.0",
    licence_url=f"{_HUB}/tatsu-lab/alpaca_eval",
    files=(
        _plain(
            "alpacaeval/model_outputs_gpt4_1106_preview.json",
            Download(
                name="alpaca_eval_gpt4_baseline.json",
                url=f"{_ALPACA_EVAL}/alpaca_eval_gpt4_baseline.json",
                num_bytes=1_899_765,
                sha256="83db546b872ddebee8965fd05fa48461ee3c32bc695c62fb57f2d214ff741ec4",
            ),
            content="805 instructions with the reference outputs",
        ),
        _plain(
            "alpacaeval/df_gamed.csv",
            Download(
                name="df_gamed.csv",
                url=f"{_ALPACA_EVAL}/df_gamed.csv",
                sha256="97aeec3f1c7de6dee6fd31fe66f1702623f4614c3efe1c6fc5f4927cd5fd674d",
            ),
            content="judgements that regularise the length control",
        ),
        _plain(
            "alpacaeval/instruction_difficulty.csv",
            Download(
                name="instruction_difficulty.csv",
                url=f"{_ALPACA_EVAL}/instruction_difficulty.csv",
                sha256="e28d875bb334f75e17acd1e4ed659b261860e3db379cf5de29060301bed0a18b",
            ),
            content="805 instructions' difficulty, for the length control",
            parts=("alpacaeval/instruction_difficulty_reconstructed.csv",),
        ),
        DataFile(
            path="alpacaeval/alpaca_train.jsonl",
            content="2,000 train instructions, the first of 52,002 of tatsu-lab/alpaca",
            downloads=(
                Download(
                    name="train-00000-of-00001-a09b74b3ef9c3b56.parquet",
                    url=f"{_ALPACA}/data/train-00000-of-00001-a09b74b3ef9c3b56.parquet",
                    sha256="06391b656a06fd3fb9d213160ef2398796c3b7f3dc75ef1e3ced30d461517073",
                ),
            ),
            make=write_first_rows,
            variants=("alpacaeval/alpaca_train.jsonl.xz",),
        ),
    ),
)

_TRAJECTORIES = Download(
    name="json_2.1.1_json.zip",
    url=f"{_ALFWORLD}/0.2.2/json_2.1.1_json.zip",
    num_bytes=72_018_818,
    sha256="25171f16e20ad7b048c47275c45b0babf3aa1cbab29cec97387922350a9844bc",
)
_FEW_SHOTS = DataFile(
    path="react/alfworld_3prompts.json",
    content="the ReAct few-shot transcripts",
    downloads=(
        Download(
            name="alfworld_3prompts.json",
            url=f"{_GITHUB_RAW}/ysymyth/ReAct/master/prompts/alfworld_3prompts.json",
            num_bytes=62_340,
            sha256="a10976b4ae99f4802aa9e621933bb71065ae103f2bd273a24466ab1005fbc45a",
        ),
    ),
)


def _alfworld(name: str, games: Download, *, dialect: str, is_extra: bool = False) -> Dataset:
    def split(of: str, content: str, *, made_bytes: int) -> DataFile:
        return DataFile(
            path=f"{name}/json_2.1.1/{of}",
            content=f"{content}, which say `{dialect}`",
            downloads=(_TRAJECTORIES, games),
            make=unpack_split,
            made_bytes=made_bytes,
            variants=(f"{name}/*{of}*.tar.xz",),
            is_folder=True,
        )

    return Dataset(
        name=name,
        licence="MIT (ALFWorld, ALFRED, ReAct)",
        licence_url="https://github.com/alfworld/alfworld/blob/master/LICENSE",
        files=(
            split("train", "3,553 train games", made_bytes=350_000_000),
            split("valid_unseen", "134 evaluation games", made_bytes=15_000_000),
            _FEW_SHOTS,
        ),
        is_extra=is_extra,
    )


# The archives that `alfworld-download` of the package alfworld names. Checked: the few-shot file.
ALFWORLD = _alfworld(
    "alfworld",
    Download(
        name="json_2.1.2_tw-pddl.zip",
        url=f"{_ALFWORLD}/0.4.0/json_2.1.2_tw-pddl.zip",
        num_bytes=36_493_542,
        sha256="eea90499df27b9cb3147d1d1927264146d38194b575e25f70a82875545742dcb",
    ),
    dialect="move X to Y",
)
# The games before release 0.4.0, which changed the command (github.com/alfworld/alfworld#96).
ALFWORLD_PUT = _alfworld(
    "alfworld_put",
    Download(
        name="json_2.1.1_tw-pddl.zip",
        url=f"{_ALFWORLD}/0.2.2/json_2.1.1_tw-pddl.zip",
        num_bytes=45_059_629,
        sha256="d376c4bbb097c068528a2a9805e358e4cd14bc75c4d68a24e5141aebd234ef67",
    ),
    dialect="put X in/on Y",
    is_extra=True,
)

_WEBSHOP_ITEMS = Download(
    name="items_shuffle_1000.json",
    url="https://drive.google.com/uc?export=download&id=1EgHdxQ_YxqIQlvvq5iKlCrkEKR6-j0Ib",
    copies=(f"{_WEBSHOP_COPY}/items_shuffle_1000.json",),
    num_bytes=4_467_013,
    sha256="30a4765c3a327af72d9a9a95a6b2486d516f0fa1d3ecd83681901ce82a21b269",
)
_WEBSHOP_INSTRUCTIONS = Download(
    name="items_ins_v2_1000.json",
    url="https://drive.google.com/uc?export=download&id=1IduG0xl544V_A_jv3tHXC0kyFi7PnyBu",
    copies=(f"{_WEBSHOP_COPY}/items_ins_v2_1000.json",),
    num_bytes=147_099,
    sha256="f88a36314a397b53b3d9c3fa5878e5f7b26d35019a51ec83fbedeca61a948f6f",
)
_WEBSHOP_HUMAN = Download(
    name="items_human_ins.json",
    url="https://drive.google.com/uc?export=download&id=14Kb5SPBk_jfdLZ_CDBNitW98QLDlKR5O",
    copies=(f"{_WEBSHOP_COPY}/items_human_ins.json",),
    num_bytes=5_137_548,
    sha256="cf78667548a71786e1d9049c24b802e48e1084ad4bb021cae56ce1f6d96954a3",
)
# The Drive files are those that the repository's setup.sh names. Checked: the instructions.
WEBSHOP = Dataset(
    name="webshop",
    licence="MIT",
    licence_url="https://github.com/princeton-nlp/WebShop/blob/master/LICENSE.md",
    files=(
        DataFile(
            path="webshop/products_1000.jsonl",
            content="1,000 products",
            downloads=(_WEBSHOP_ITEMS, _WEBSHOP_INSTRUCTIONS, _WEBSHOP_HUMAN),
            make=write_products,
            variants=("webshop/products_1000.jsonl.xz",),
        ),
        _plain(
            "webshop/items_ins_v2_1000.json",
            _WEBSHOP_INSTRUCTIONS,
            content="1,000 products' attributes, 415 with an instruction",
        ),
        DataFile(
            path="webshop/human_instructions_1000subset.json",
            content="13 instructions by people for these products",
            downloads=(_WEBSHOP_ITEMS, _WEBSHOP_HUMAN),
            make=write_human_goals,
            variants=("webshop/human_instructions_1000subset.json.xz",),
        ),
    ),
)

DEEPSEARCHQA = Dataset(
    name="deepsearchqa",
    licence="Apache-2.0",
    licence_url=f"{_HUB}/google/deepsearchqa",
    files=(
        _plain(
            "deepsearchqa/DSQA-full.csv",
            Download(
                name="DSQA-full.csv",
                url=f"{_DEEPSEARCHQA}/DSQA-full.csv",
                num_bytes=355_106,
                sha256="25d48dcf7efa872e5467032e8b8eedf38d301f59a252d0da95cda584baa78396",
            ),
            content="900 questions: 100 train, 200 evaluated",
            parts=("deepsearchqa/subset_*.jsonl",),
            num_rows=900,
        ),
    ),
)

CATALOGUE: Mapping[str, Dataset] = {
    dataset.name: dataset
    for dataset in (GSM8K, HUMANEVAL, ALPACAEVAL, ALFWORLD, WEBSHOP, DEEPSEARCHQA, ALFWORLD_PUT)
}
"""The data sets by name."""
