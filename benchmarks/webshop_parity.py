"""The shop against what the original WebShop answered: how much is equal.

    RL_BENCH_DATA=... python -m benchmarks.webshop_parity

Compared are recorded outputs of princeton-nlp/WebShop at 64fa2a5: prices and goals, rankings and
scores of searches, whole sessions word for word, and rewards. The part of a reward that spaCy's
model decides is compared with the recorded nouns, with the installed model, and with the word list
that stands in without one. Exit code 1 if anything but the last differs.
"""

import argparse
import hashlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.webshop_catalogue import read_rows
from envs.webshop_goals import Goal
from envs.webshop_nouns import WORD_LIST, NounTagger, find_tagger, get_tagger
from envs.webshop_pages import PageKind
from envs.webshop_reward import Reward, reward_of
from envs.webshop_session import NUM_HITS, Session
from envs.webshop_shop import Shop, ShopSettings, open_shop

GOALS_SEED = {"synthetic": 1101, "human": 1102}
"""Seeds of the recorded processes."""
_PARTS = (
    *("r_type", "r_att", "r_option", "r_price", "query_match", "category_match", "title_score"),
    *("num_attr_matches", "num_option_matches", "total"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """How many comparisons of one kind were equal."""

    what: str
    num_equal: int
    num_compared: int

    @property
    def holds(self) -> bool:
        """Whether all were."""
        return self.num_equal == self.num_compared > 0


class RecordedNouns:
    """A tagger that repeats what the original's found."""

    label = "recorded"

    def __init__(self, nouns: Mapping[str, list[str]]) -> None:
        self._nouns = nouns

    def nouns(self, title: str) -> tuple[str, ...]:
        """The nouns recorded for ``title``."""
        return tuple(self._nouns[title])


class Recorded:
    """The recorded outputs below a folder of real data, and our shops to compare with.

    Args:
        data: The folder that ``RL_BENCH_DATA`` names.
        tagger: As in `envs.webshop_nouns.find_tagger`.
    """

    def __init__(self, data: Path, *, tagger: str = WORD_LIST) -> None:
        self._folder = data / "webshop"
        self._tagger = tagger

    def shop(self, goals: str) -> Shop:
        """The shop of a recorded process, by its kind of goals."""
        settings = ShopSettings(
            split="all",
            price_seed=GOALS_SEED[goals],
            goals="human" if goals == "human" else "synthetic",
            tagger=self._tagger,
        )
        return open_shop(self._folder, settings)

    def rows(self, name: str) -> Iterator[dict[str, Any]]:
        """The lines of a recorded file."""
        return read_rows(self._folder / "vectors" / name)

    def compare_goals(self) -> list[Count]:
        """All prices, and the digest of all goals' texts, for each recorded process."""
        [recorded] = self.rows("goals_and_prices.json.xz")
        counts = []
        for kind, expected in recorded.items():
            shop = self.shop(kind)
            prices = expected["product_prices"]
            same = sum(shop.prices.get(asin) == price for asin, price in prices.items())
            counts.append(Count(what=f"prices, {kind}", num_equal=same, num_compared=len(prices)))
            text = "\n".join(goal.text for goal in shop.goals)
            digest = hashlib.sha256(text.encode()).hexdigest()
            same_goals = digest == expected["sha256_instruction_texts_joined_by_newline"]
            number = expected["n_goals"]
            counts.append(
                Count(
                    what=f"goals, {kind}, by digest of all texts",
                    num_equal=number if same_goals and len(shop.goals) == number else 0,
                    num_compared=number,
                )
            )
            samples = expected["sample_goals"]
            same = sum(_is_goal(shop.goals[int(at)], goal) for at, goal in samples.items())
            what = f"sample goals, {kind}, with options and weights"
            counts.append(Count(what=what, num_equal=same, num_compared=len(samples)))
        return counts

    def compare_searches(self) -> list[Count]:
        """Rankings, and single-precision scores."""
        index = self.shop("synthetic").catalogue.index
        ranked = scored = total = 0
        for row in self.rows("search_vectors.jsonl.xz"):
            hits = index.search(row["query"], NUM_HITS)
            expected = [(hit["asin"], hit["raw_bm25"]) for hit in row["hits"]]
            total += 1
            ranked += [hit.doc_id for hit in hits] == [asin for asin, _ in expected]
            scored += [tuple(hit) for hit in hits] == expected
        return [
            Count(what="search rankings", num_equal=ranked, num_compared=total),
            Count(what="search scores, to the last bit", num_equal=scored, num_compared=total),
        ]

    def compare_traces(self) -> list[Count]:
        """Sessions: observations, available actions and rewards of every step."""
        traces = [self._trace_holds(trace) for trace in self.rows("text_traces.jsonl.xz")]
        return [Count(what="sessions", num_equal=sum(traces), num_compared=len(traces))]

    def compare_rewards(self) -> Count:
        """Every part of every reward, given the recorded nouns."""
        rows = list(self.rows("reward_vectors.jsonl.xz"))
        equal = sum(self._reward_holds(row) for row in rows)
        what = "rewards with all their parts, recorded nouns"
        return Count(what=what, num_equal=equal, num_compared=len(rows))

    def compare_tagger(self, tagger: NounTagger) -> Count:
        """Rewards with a tagger's nouns, against those of the model's nearest recorded version."""
        rows = list(self.rows("reward_vectors.jsonl.xz"))
        older = tagger.label.endswith(" 3.6.0")
        expected = [row["alt_spacy_model_3_6_0" if older else "expected"] for row in rows]
        equal = sum(
            self.reward(row, tagger).total == theirs["total"]
            for row, theirs in zip(rows, expected, strict=True)
        )
        what = f"rewards with nouns by {tagger.label}, recorded {'3.6.0' if older else '3.8.0'}"
        return Count(what=what, num_equal=equal, num_compared=len(rows))

    def reward(self, row: dict[str, Any], tagger: NounTagger) -> Reward:
        """Our reward for a recorded purchase."""
        shop, goal, bought = self.shop("synthetic"), row["goal"], row["purchased"]
        options = goal["goal_options"]
        return reward_of(
            shop.product(bought["asin"]),
            options=bought["options"],
            price=bought["price"],
            goal=Goal(
                asin=goal["asin"],
                text=goal["instruction_text"],
                wording=goal["instruction_text"],
                attributes=tuple(goal["attributes"]),
                options=options if isinstance(options, dict) else tuple(options),
                price_upper=goal["price_upper"],
            ),
            wanted=shop.product(goal["asin"]),
            tagger=tagger,
        )

    def _reward_holds(self, row: dict[str, Any]) -> bool:
        title = self.shop("synthetic").product(row["purchased"]["asin"]).title
        nouns = {title: row["nouns"]["purchased"], row["goal"]["name"]: row["nouns"]["goal"]}
        ours = self.reward(row, RecordedNouns(nouns))
        return all(getattr(ours, part) == row["expected"].get(part) for part in _PARTS)

    def _trace_holds(self, trace: dict[str, Any]) -> bool:
        shop = self.shop(trace["goal_source"])
        session = Session(shop, shop.goals[trace["session"]])
        if not _shows(session, trace["reset"]):
            return False
        for step in trace["steps"]:
            reward = session.act(step["action"])
            bought = session.page.kind is PageKind.END
            if not (_shows(session, step) and (reward, bought) == (step["reward"], step["done"])):
                return False
        return True


def _is_goal(goal: Goal, expected: dict[str, Any]) -> bool:
    options = expected["goal_options"]
    return (
        goal.asin == expected["asin"]
        and goal.text == expected["instruction_text"]
        and list(goal.attributes) == expected["attributes"]
        and goal.options == (options if isinstance(options, dict) else tuple(options))
        and (goal.price_upper, goal.weight) == (expected["price_upper"], expected["weight"])
    )


def _shows(session: Session, expected: dict[str, Any]) -> bool:
    page, actions = session.page, expected["available_actions"]
    return bool(
        page.text == expected["observation"]
        and list(page.clickables) == actions["clickables"]
        and page.has_search_bar == actions["has_search_bar"]
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs all comparisons; 0 if all but the stand-in's are equal."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", help="real task data; default: RL_BENCH_DATA")
    args = parser.parse_args(argv)
    data = args.data or os.environ.get("RL_BENCH_DATA")
    if not data:
        sys.exit("set RL_BENCH_DATA or --data to real task data")
    tagger = find_tagger()
    recorded = Recorded(Path(data), tagger=tagger)
    counts = [
        *recorded.compare_goals(),
        *recorded.compare_searches(),
        *recorded.compare_traces(),
        recorded.compare_rewards(),
    ]
    if tagger != WORD_LIST:
        counts.append(recorded.compare_tagger(get_tagger(tagger)))
    stand_in = recorded.compare_tagger(get_tagger(WORD_LIST))
    for count in (*counts, stand_in):
        sys.stdout.write(f"{count.num_equal:5} of {count.num_compared:5} equal: {count.what}\n")
    if tagger == WORD_LIST:
        sys.stdout.write("no spaCy model is installed: rewards were not compared with one\n")
    return int(not all(count.holds for count in counts))


if __name__ == "__main__":
    sys.exit(main())
