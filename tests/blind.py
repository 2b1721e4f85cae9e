"""Programs that answer a task without the lines that its answer should rest on, and the tasks that they answer."""

from __future__ import annotations

import itertools
import json
import operator
import random
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from vpo_envs.core import Call
from vpo_envs.pareto import spread_weights
from vpo_envs.tasks.archive.generate import THEMES
from vpo_envs.tasks.archive.task import OPEN
from vpo_envs.tasks.countdown.generate import _gains, _reachable
from vpo_envs.tasks.eureqa.compact import whole_chains
from vpo_envs.tasks.eureqa.task import write_names
from vpo_envs.tasks.gsm8k.task import write_answer as write_equations
from vpo_envs.tasks.language import LISTS
from vpo_envs.tasks.musique.generate import RELATIONS
from vpo_envs.tasks.musique.task import write_answer
from vpo_envs.tasks.tools.task import write_attempt
from vpo_envs.text import format_answers

Rules = Callable[[Any], Sequence[str]]
"""Returns the answers to a task that a list of rules makes, the same rules in the same order for every task."""


# Rules that are the same for every task; training tasks tell which are best -------------------------------------


def expressions(training: Sequence[Any], env: Any) -> Rules:
    """Every sum, difference, product and quotient of one, two and three numbers, by their ranks."""
    count, signs = env.config.count, "+-*/"
    rules = [f"{{{i}}}" for i in range(count)]
    rules += [f"{{{i}}} {sign} {{{j}}}" for i, j in itertools.permutations(range(count), 2) for sign in signs]
    rules += [
        f"( {{{i}}} {one} {{{j}}} ) {other} {{{k}}}"
        for i, j, k in itertools.permutations(range(count), 3)
        for one, other in itertools.product(signs, repeat=2)
    ]
    return lambda task: [rule.format(*sorted(task.numbers)) for rule in rules]


def programs(training: Sequence[Any], env: Any) -> Rules:
    """The customers' common steps, alone and with one more, where a line states them; else programs of other tasks."""
    if env.config.named:
        return lambda task: [" ".join((*task.common, *more)) for more in [(), *((step,) for step in LISTS)]]
    short = [steps for count in (1, 2) for steps in itertools.product(LISTS, repeat=count)]
    wanted = [program for task in training for program in (*task.programs, task.common)]
    known = [" ".join(steps) for steps in dict.fromkeys([*short, *wanted])]
    return lambda task: known


def fixed_programs(training: Sequence[Any], env: Any) -> Rules:
    """Programs of one and two steps, and those of training tasks."""
    short = [" ".join(steps) for count in (1, 2) for steps in itertools.product(LISTS, repeat=count)]
    known = list(dict.fromkeys([*short, *(" ".join(task.program) for task in training)]))
    return lambda task: known


def routes(training: Sequence[Any], env: Any) -> Rules:
    """The routes of other mazes' fronts, turned and mirrored so that S is where it is in this maze."""
    fronts = [(view_of(task), [env.parse(point.answer) for point in env.front(task)]) for task in training]
    known = list(dict.fromkeys(as_seen(view, route) for view, moves in fronts for route in moves))
    return lambda task: [as_seen(view_of(task), route, back=True) for route in known]


class View(NamedTuple):
    """How a maze is to be turned so that S is on the left edge, in the upper half."""

    swapped: bool
    """Rows become columns."""
    from_right: bool
    from_below: bool
    offset: int
    """Cells between S and the upper edge, after all that."""


def view_of(task: Any) -> View:
    last = task.size - 1
    row, column = divmod("".join(task.rows).index("S"), task.size)
    swapped = 0 < column < last
    if swapped:
        row, column = column, row
    return View(swapped, column == last, row > last - row, min(row, last - row))


def as_seen(view: View, moves: str, back: bool = False) -> str:
    """A route in the turned maze; or, back, one of the turned maze in the maze itself, as words."""
    exchanged = str.maketrans("UDLR", "LRUD" if view.swapped else "UDLR")
    flipped = str.maketrans("LRUD", ("RL" if view.from_right else "LR") + ("DU" if view.from_below else "UD"))
    return (
        " ".join(moves.translate(flipped).translate(exchanged))
        if back
        else moves.translate(exchanged).translate(flipped)
    )


INVENTED = ["".join(letters) for letters in itertools.product("nrst", "aeiou", "ln", "aeo")]
"""Words without a rare letter."""


def texts(training: Sequence[Any], env: Any) -> Rules:
    """Good texts for other personas, with their topic replaced; and salads of invented words and of wanted ones.

    A salad has a number of words, sentences, bullets and capitals. Its words are those that checks ask for most often.
    """
    rng, source = np.random.default_rng(0), random.Random(0)
    known = [(task.topic, text) for task in training[:40] for text in env.demonstrations(task, rng, 2)]
    asked = Counter(
        check.value
        for task in training
        for own in task.personas
        for check in own
        if check.family == "keyword" and check.least
    )
    often = [word for word, _ in asked.most_common(110)]
    salads = []
    for words, sentences, bullets, capitals in itertools.product(
        (8, 17, 24, 40, 70), (1, 3, 5, 8), (0, 1, 2), (0, 1, 2, 4)
    ):
        chosen = ["{}", *(often[: words - 1] if source.random() < 0.8 else source.choices(INVENTED, k=words - 1))]
        chosen += source.choices(INVENTED, k=words - len(chosen))
        if sentences <= words // 2 and bullets <= sentences:
            for place in range(capitals):
                chosen[-1 - place] = chosen[-1 - place].upper()
            parts = [" ".join(chosen[place::sentences]) + "." for place in range(sentences)]
            salads.append(" ".join(parts[bullets:]) + "".join(f"\n* {part}" for part in parts[:bullets]))
    return lambda task: [
        *(text.replace(topic, task.topic) for topic, text in known),
        *(text.format(task.topic) for text in salads),
    ]


def solutions(training: Sequence[Any], env: Any) -> Rules:
    """Stories that the places of the numbers allow: a start, up to three events, a price, and asides among them."""
    count = len(numbers_of(training[0])) // 2
    shapes = []
    for price in range(count):
        for told in itertools.product((None, "-", "+"), repeat=count - 1):
            kinds = [*told[:price], "price", *told[price:]]
            pairs = [place for place, kind in enumerate(kinds) if kind in ("-", "+")]
            if 1 <= len(pairs) <= 1 + env.config.events[1] and kinds[pairs[0]] == "+":
                shapes += [story(kinds, pairs, f"n{2 * price + which}") for which in (0, 1)]
    chosen = random.Random(0).sample(shapes, min(len(shapes), 900))
    return lambda task: [calculated(shape, numbers_of(task)) for shape in chosen] or [""]


def story(kinds: Sequence[str | None], pairs: Sequence[int], price: str) -> tuple[str, ...]:
    """The calculations of a story; n3 is the fourth number, r1 the second result."""
    lines = [f"n{2 * pairs[0]}*n{2 * pairs[0] + 1}"]
    for place in pairs[1:]:
        total = f"r{len(lines) - 1}"
        lines += [f"n{2 * place}*n{2 * place + 1}", f"{total}{kinds[place]}r{len(lines)}"]
    return (*lines, f"r{len(lines) - 1}*{price}")


def numbers_of(task: Any) -> list[str]:
    return re.findall(r"\d+(?:\.\d+)?", task.question)


def calculated(shape: tuple[str, ...], numbers: list[str]) -> str:
    """The equations of a shape with these numbers."""
    known = {f"n{place}": Fraction(number) for place, number in enumerate(numbers)}
    lines = []
    for place, left in enumerate(shape):
        one, sign, other = re.split("([-+*])", left)
        value = {"*": operator.mul, "-": operator.sub, "+": operator.add}[sign](known[one], known[other])
        known[f"r{place}"] = value
        lines.append(f"({known[one]}) {sign} ({known[other]}) = {value}")
    return write_equations(lines, str(value))


# Guesses that see a part of each task --------------------------------------------------------------------------------


def longest_chains(task: Any) -> list[tuple[str, ...]]:
    """All chains of people with the most links that end at the leaf, without a look at trades and relations."""
    leading: dict[str, list[str]] = {}
    for fact in task.facts:
        leading.setdefault(re.findall(r"\w+", fact)[-1], []).append(re.findall(r"\w+", fact)[0])
    longest: list[tuple[str, ...]] = []
    chains: list[tuple[str, ...]] = [(task.leaf,)]
    while chains:
        longest, chains = chains, [(person, *chain) for chain in chains for person in leading.get(chain[0], [])]
    return longest


def statements_of_last_relation(task: Any) -> dict[str, str]:
    """What the last relation of the question leads to, by the title of the paragraph that states it."""
    stated = {}
    for relation in RELATIONS:
        if re.fullmatch(re.escape(relation.question).replace(r"\{s\}", ".+"), task.question):
            for sentence in relation.sentences:
                pattern = re.escape(sentence).replace(r"\{s\}", r"[^.]+?").replace(r"\{o\}", r"([^.]+?)")
                for paragraph in task.paragraphs:
                    for name in re.findall(pattern, paragraph.text, re.IGNORECASE):
                        stated[paragraph.title] = " ".join(re.findall(r"[A-Z]\w+", name))
    return stated


def paths_to_last_relation(task: Any) -> list[list[str]]:
    """Titles from the one in the question, for the right number of steps, to each statement of the last relation."""
    text = {paragraph.title: paragraph.text for paragraph in task.paragraphs}
    paths = [[title] for title in text if re.search(rf"\b{title}\b", task.question)]
    for _ in task.hops[1:]:
        paths = [
            [*path, title]
            for path in paths
            for title in text
            if title not in path and re.search(rf"\b{title}\b", text[path[-1]])
        ]
    stated = statements_of_last_relation(task)
    return [path for path in paths if path[-1] in stated]


def titles_to_last_relation(task: Any, env: Any) -> list[str]:
    """Any titles from the one in the question, for the right number of steps, to a statement of the last relation.

    Those answers come first that together are worth most if every such path is as likely as the others.
    """
    about = {paragraph.title: paragraph for paragraph in task.paragraphs}
    stated = statements_of_last_relation(task)
    paths = paths_to_last_relation(task)
    paths = random.Random(0).sample(paths, min(len(paths), 60))
    answers = [
        (cited, stated[path[-1]])
        for path in paths
        for cited in itertools.combinations(path, min(task.max_citations, len(path)))
    ]
    weights = spread_weights(len(task.hops) + 1, 60)[:60]
    worth = np.array(
        [
            [weights @ [*(title in cited for title in path), name == stated[path[-1]]] for path in paths]
            for cited, name in answers
        ]
    )
    best, order = np.zeros(worth.shape[1:]), list[int]()
    for _ in range(min(max(SIZES), len(answers))):
        order.append(int(np.maximum(worth, best).mean(axis=(1, 2)).argmax()))
        best = np.maximum(best, worth[order[-1]])
    return [write_answer([about[title].number for title in answers[i][0]], answers[i][1]) for i in order]


def calls_by_type(task: Any, env: Any) -> list[str]:
    """Calls to tools whose parameters have the types of the stated values; names and descriptions are not read.

    Where tools have a price and an accuracy, those come first that are worth most together. Where no call is wanted,
    any number of the observation is the answer.
    """
    if task.reply is not None:
        [seen] = re.findall("<obs> (.*) </obs>", task.dialogue)
        return [write_attempt([], "The {} was {}.".format(*pair.split(": "))) for pair in seen.split("; ")]
    listed = re.findall(r"^\d+\. Name: (.*)\nDescription: (.*)\nParameters: (.*)$", task.instructions, re.MULTILINE)
    tools = [
        (name, note, {key: one["type"].split()[0] for key, one in json.loads(text).items()})
        for name, note, text in listed
    ]
    wanted = [call.parameters for call in task.calls]
    wanted += [part.arguments for part in task.market.requests] if task.market else []
    source, attempts = random.Random(0), []
    fitting = [[tool for tool in tools if [*map(of_type, one.values())] == [*tool[2].values()]] for one in wanted]
    if task.market:
        return best_buys(task, wanted, fitting)
    for _ in range(200):
        calls = []
        for values, fits in zip(wanted, fitting, strict=True):
            name, _, parameters = source.choice(fits)
            calls.append((name, dict(zip(parameters, values.values(), strict=True))))
        attempts.append(write_attempt(calls))
    return attempts


def best_buys(task: Any, wanted: Sequence[Any], fitting: Sequence[Sequence[Any]]) -> list[str]:
    """Affordable calls to fitting tools by their stated price and accuracy, the best first."""

    def stated(word: str, note: str) -> float:
        return float(re.findall(rf"{word} ([0-9.]*[0-9])", note)[0])

    attempts, served = [], []
    for chosen in itertools.product(*[(None, *fits) for fits in fitting]):
        called = [(values, tool) for values, tool in zip(wanted, chosen, strict=True) if tool]
        if called and sum(stated("Costs", tool[1]) for _, tool in called) <= task.market.budget:
            served.append([stated("accuracy", tool[1]) if tool else 0 for tool in chosen])
            calls = [(tool[0], dict(zip(tool[2], values.values(), strict=True))) for values, tool in called]
            attempts.append(write_attempt(calls))
    worth = np.array(served) @ spread_weights(len(wanted), 60)[:60].T
    best, order = np.zeros(worth.shape[1]), list[int]()
    for _ in range(min(max(SIZES), len(attempts))):
        order.append(int(np.maximum(worth, best).mean(axis=1).argmax()))
        best = np.maximum(best, worth[order[-1]])
    return [attempts[i] for i in order]


def of_type(value: Any) -> str:
    """The first word of a value's type in the list of tools."""
    kinds = {bool: "boolean", str: "string", int: "integer", float: "number", list: "list", dict: "object"}
    return kinds[type(value)]


def chains(task: Any, env: Any) -> list[str]:
    """The longest chains into the leaf."""
    return [write_names(chain[:5]) for chain in longest_chains(task)]


def people_of_chains(task: Any, env: Any) -> list[str]:
    """The people of chains, each answer the one that adds most to those before it if all clues are equally likely.

    Chains of the same statements answer the same clues, one for each user. A decoy may have fewer chains. An answer may
    mix the people of several chains.
    """
    statements = {}
    for fact in task.facts:
        first, *_, last = re.findall(r"\w+", fact)
        statements[first, last] = fact.rstrip(".").removeprefix(first).removesuffix(last)
    alike: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for chain in longest_chains(task):
        alike.setdefault(tuple(statements[link] for link in itertools.pairwise(chain)), []).append(chain[:-1])
    users = statistics.mode(map(len, alike.values()))
    wanted = np.array([one[:users] for one in alike.values() if len(one) >= users])
    people = wanted.reshape(-1, wanted.shape[-1])
    source = np.random.default_rng(0)
    mixed = source.permuted(np.tile(people, (1 + 300 // len(people), 1)), axis=0)
    answers = np.unique(np.concatenate([people, mixed]), axis=0)
    rewards = (answers[:, None, None] == wanted).mean(axis=-1)
    return [write_names(answers[index]) for index in greedy_set(rewards @ spread_weights(users, 60)[:60].T)]


def chains_by_kind(training: Sequence[Any], env: Any) -> Rules:
    """Every chain that can be followed, whoever vouches for it; those of people with names of another kind first."""

    def kinds(chain: Sequence[str]) -> list[str]:
        return [person[0] for person in chain[2::2]]

    return lambda task: [" ".join(chain) for chain in sorted(whole_chains(task), key=kinds)]


# What compact tasks tell without some of their lines, always in the same order ---------------------------------------


def calls_by_shape(training: Sequence[Any], env: Any) -> Rules:
    """Every tool, known by the number of its parameters, for every need, and for the first argument of all needs."""

    def calls(task: Any) -> list[str]:
        wanted = [*task.needs, tuple(need[0] for need in task.needs)]
        tools = sorted(task.tools, key=lambda tool: (tool[0][0] == "t", -len(tool[1])))
        return [" ".join((name, *itertools.chain(*pairs))) for name, _ in tools for pairs in wanted]

    return calls


def lines_on_their_own(training: Sequence[Any], env: Any) -> Rules:
    """A name of another kind; what the lines about the question's name lead to; and the names of each other line."""

    def answers(task: Any) -> list[str]:
        others = [" ".join(pair) for pair in task.paragraphs if pair[0] != task.about]
        first = [target for name, target in task.paragraphs if name == task.about]
        return [*sorted(first, key=lambda name: name[0] == "n"), *others]

    return answers


def answers_about_anyone(training: Sequence[Any], env: Any) -> Rules:
    """The region and the readings of every name to which nothing leads."""

    def answers(task: Any) -> list[str]:
        onwards = dict(task.paragraphs)
        led_to = {target for _, target in task.paragraphs}
        heads = [name for name in dict.fromkeys(name for name, _ in task.paragraphs) if name not in led_to]
        told = []
        for head in sorted(heads, key=lambda name: all((name, f"z{i}") not in task.paragraphs for i in range(10))):
            paths = [[target] for name, target in task.paragraphs if name == head]
            for path in sorted(paths, key=lambda path: path[0] in onwards):
                while path[-1] in onwards:
                    path.append(onwards[path[-1]])
                told.append(" ".join(path))
        return told

    return answers


# Documents of the archive that are opened, and answers that do not rest on them --------------------------------------


def opened_archive(env: Any, task: Any, titles: Sequence[str], word: str) -> str:
    """An answer after documents were opened."""
    return str(env.played(task, [Call(OPEN, title) for title in titles], word))


def words_asked_for(training: Sequence[Any], env: Any) -> Rules:
    """The kinds of thing that the question may mean, and the things; or the answers to other tasks."""
    known = list(dict.fromkeys(word for task in training for word in (task.kind, task.near, task.far)))

    def words(task: Any) -> list[str]:
        for theme in THEMES:
            if re.fullmatch(re.escape(theme["question"]).replace(r"\{s\}", ".+"), task.question):
                return [*theme["kinds"], *itertools.chain(*theme["kinds"].values())]
        return known

    return words


def words_unread(training: Sequence[Any], env: Any) -> Rules:
    """Words that the question may ask for, with the document opened that it names."""
    words = words_asked_for(training, env)
    return lambda task: [opened_archive(env, task, [named_title(task)], word) for word in words(task)]


def named_title(task: Any) -> str:
    """The title that the question names."""
    return next(document.title for document in task.documents if document.title in task.question)


def words_in_order(training: Sequence[Any], env: Any) -> Rules:
    """What each document tells, after the first documents of the list up to it or beyond."""

    def answers(task: Any) -> list[str]:
        titles = [document.title for document in task.documents]
        told = [word_told(document) for document in task.documents]
        ends = range(1, len(titles) + 1)
        return [opened_archive(env, task, titles[:end], word) for end in ends for word in told[:end]]

    return answers


def words_of_all(training: Sequence[Any], env: Any) -> Rules:
    """What each document tells, after all of them: the kind in the named document, things of that kind, then others."""
    kind_of_thing = {thing: kind for theme in THEMES for kind, things in theme["kinds"].items() for thing in things}

    def answers(task: Any) -> list[str]:
        told = {document.title: word_told(document) for document in task.documents}
        kind = told[named_title(task)]
        words = sorted(told.values(), key=lambda word: (word != kind, kind_of_thing.get(word) != kind))
        return [opened_archive(env, task, list(told), word) for word in words]

    return answers


# What the compromise of a task rests on, which is less than the other good answers rest on ---------------------------


def names_without_lines(task: Any, env: Any) -> list[str]:
    """The names beside the question's from which no line leads on, and then the last two names of other paths."""
    named = Counter(name for pair in task.paragraphs for name in pair)
    beside = [target for name, target in task.paragraphs if name == task.about]
    others = [pair for pair in task.paragraphs if pair[0] != task.about]
    last = [" ".join(pair) for pair in others if named[pair[0]] == 2 and named[pair[1]] == 1]
    return [*(name for name in beside if named[name] == 1), *last]


def chains_by_number_of_witnesses(task: Any, env: Any) -> list[str]:
    """The chains of two witnesses for every link; then those of one, beginning with one for each second person."""
    sizes = {chain: {len(witnesses) for witnesses in chain[1::2]} for chain in whole_chains(task)}
    double, single = ([chain for chain in sizes if sizes[chain] == {size}] for size in (2, 1))
    first = {chain[2]: chain for chain in reversed(single)}.values()
    return [" ".join(chain) for chain in [*double, *first, *single]]


def words_behind_the_named(task: Any, env: Any) -> list[str]:
    """What the document that the question names tells, alone; and what others tell, each opened after that one."""
    title = named_title(task)
    documents = sorted(task.documents, key=lambda document: document.title != title)
    opened = [list(dict.fromkeys([title, document.title])) for document in documents]
    return [
        opened_archive(env, task, titles, word_told(document))
        for titles, document in zip(opened, documents, strict=True)
    ]


TOLD = [
    re.sub(r"\\{[ok]\\}", "([^.]+)", re.escape(sentence)).replace(r"\{s\}", "[^.]+?")
    for theme in THEMES
    for sentence in (theme["line"], *theme["sentences"])
]


def word_told(document: Any) -> str:
    """The kind or the thing that a document of the archive states, whoever it is about."""
    found = [match[1] for pattern in TOLD if (match := re.search(pattern, document.text))]
    return found[0] if found else document.text.split()[-1]


# Which program answers which task ------------------------------------------------------------------------------------

SIZES = (1, 3, 30)
"""Numbers of answers that are measured."""
PRESETS = ("paper", "conflict", "compact")
EDGE: dict[str, Any] = {"preset": "compact", "difficulty": {"count": 4, "most": 4, "needs": 3}}
THREE_HOPS: dict[str, Any] = {"preset": "compact", "difficulty": {"hops": [3, 3]}}
NAMED: dict[str, Any] = {"preset": "compact", "difficulty": {"named": True}}


class Row(NamedTuple):
    """One row of the table."""

    env: str
    options: dict[str, Any]
    left_out: str
    """Lines that are not read."""
    answers: Callable[..., Any]
    """Of a task and its environment, guesses; of training tasks and their environment, :data:`Rules`. Guesses come in
    random order, unless the program is one of :data:`IN_ORDER`."""
    learned: int = 0
    """Training tasks from which rules are taken, and by which they are chosen; 0 for guesses; below 0 that many
    variants of each task."""


LEARNED = 1500
"""Training tasks of programs that learn."""
FEW = 200
"""Training tasks of programs whose three answers earn more, on the tested tasks, if they learn from these alone."""


ROWS = [
    Row("vpo/Maze-v0", {"preset": "paper"}, "the grid but for S", routes, FEW),
    *(Row("vpo/Maze-v0", {"preset": preset}, "the grid but for S", routes, LEARNED) for preset in PRESETS[1:]),
    Row("vpo/Maze-v0", {"preset": "compact", "reward_shape": "exit"}, "the grid but for S", routes, LEARNED),
    Row("vpo/Countdown-v0", {"preset": "paper"}, "the targets", expressions, FEW),
    *(Row("vpo/Countdown-v0", {"preset": preset}, "the targets", expressions, LEARNED) for preset in PRESETS[1:]),
    Row("vpo/Countdown-v0", EDGE, "the targets", expressions, LEARNED),
    Row("vpo/GSM8K-v0", {"preset": "paper"}, "the words", solutions, LEARNED),
    *(Row("vpo/Personas-v0", {"preset": preset}, "the checks", texts, LEARNED) for preset in PRESETS[:2]),
    *(
        Row("vpo/MuSiQue-v0", {"preset": preset}, "all relations but the last", titles_to_last_relation)
        for preset in PRESETS[:2]
    ),
    Row("vpo/MuSiQue-v0", {"preset": "compact"}, "which line follows which", lines_on_their_own, LEARNED),
    Row("vpo/MuSiQue-v0", {"preset": "compact"}, "the name asked about", answers_about_anyone, LEARNED),
    Row("vpo/MuSiQue-v0", THREE_HOPS, "which line follows which", lines_on_their_own, LEARNED),
    Row("vpo/MuSiQue-v0", THREE_HOPS, "the name asked about", answers_about_anyone, LEARNED),
    Row("vpo/MuSiQue-v0", NAMED, "which line follows which", lines_on_their_own, LEARNED),
    Row("vpo/EUREQA-v0", {"preset": "paper"}, "the clues", chains),
    Row("vpo/EUREQA-v0", {"preset": "conflict"}, "the clues", people_of_chains),
    Row("vpo/EUREQA-v0", {"preset": "conflict", "difficulty": {"decoys": 8}}, "the clues", chains),
    Row("vpo/EUREQA-v0", {"preset": "compact"}, "which lines name the same witness", chains_by_kind, LEARNED),
    Row("vpo/EUREQA-v0", NAMED, "which lines name the same witness", chains_by_kind, LEARNED),
    *(Row("vpo/Tools-v0", {"preset": preset}, "names and descriptions", calls_by_type) for preset in PRESETS[:2]),
    Row("vpo/Tools-v0", {"preset": "compact"}, "which parameters a tool takes", calls_by_shape, LEARNED),
    Row("vpo/Tools-v0", NAMED, "which parameters a tool takes", calls_by_shape, LEARNED),
    Row("vpo/Code-v0", {"preset": "compact"}, "the customers' lines", programs, FEW),
    Row("vpo/Code-v0", NAMED, "the customers' lines", programs, LEARNED),
    *(
        Row("vpo/Programs-v0", {"preset": "compact", "difficulty": knobs}, "the examples", fixed_programs, learned)
        for learned, knobs in (
            (FEW, {}),
            (FEW, {"steps": [2, 2]}),
            (FEW, {"steps": [4, 4]}),
            (LEARNED, {"decisive": False}),
            (FEW, {"parts": True, "steps": [3, 4], "decisive": False}),
        )
    ),
    *(
        Row("vpo/Archive-v0", {"preset": preset}, left_out, answers, LEARNED)
        for preset in PRESETS[1:]
        for left_out, answers in (
            ("all documents, which stay closed", words_asked_for),
            ("the named document, which is opened", words_unread),
            ("which document follows which, opened in order", words_in_order),
            ("which document follows which, all opened", words_of_all),
        )
    ),
]


COMPROMISE = [
    Row("vpo/MuSiQue-v0", {"preset": "compact"}, "from which names a line leads on", names_without_lines),
    Row("vpo/EUREQA-v0", {"preset": "compact"}, "how many witnesses a line names", chains_by_number_of_witnesses),
    *(
        Row("vpo/Archive-v0", {"preset": preset}, "the document that the question names", words_behind_the_named)
        for preset in PRESETS[1:]
    ),
]
"""Rows of programs that are not blind: they read what the compromise rests on, and guess the other answers."""


COSTLY = [
    Row("vpo/Countdown-v0", options, "the targets, guessed from the numbers", expressions, -40)
    for options in (*({"preset": preset} for preset in PRESETS[1:]), EDGE)
]
"""Rows of 60 tasks, untested: rules are chosen for each by 40 other targets that its numbers allow."""


IN_ORDER = (titles_to_last_relation, people_of_chains, calls_by_type, *(row.answers for row in COMPROMISE))
"""Programs that give their best answers first."""


def points(env: Any, task: Any, answers: Sequence[str]) -> NDArray[np.float64]:
    """The reward vectors of answers, active objectives only, shape (n, d)."""
    scored = env.score_batch([task] * len(answers), [format_answers([answer]) for answer in answers]).rewards[:, 0]
    return np.asarray(scored[:, env.active(task)], dtype=np.float64)


TRIED = 400
"""Rules of which the best are chosen; more are first compared on a part of the training tasks."""
COMPARED = 60


def best_rules(env: Any, rules: Rules, training: Sequence[Any]) -> list[int]:
    """Which rules to take, each the one that adds most to those before it on training tasks."""
    tried = np.arange(len(rules(training[0])))
    if len(tried) > TRIED:
        means = sum(utilities_of(env, task, rules(task)).mean(axis=1) for task in training[:COMPARED])
        tried = np.sort(np.argsort(-means, kind="stable")[:TRIED])
    utilities = np.stack([utilities_of(env, task, np.array(rules(task))[tried].tolist()) for task in training], axis=1)
    return [int(tried[place]) for place in greedy_set(utilities)]


def greedy_set(utilities: NDArray[np.float64]) -> list[int]:
    """Which answers to take, each the one that adds most to those before it.

    Utilities have shape (n, tasks, weightings).
    """
    best, chosen = np.zeros(utilities.shape[1:]), list[int]()
    for _ in range(max(SIZES)):
        chosen.append(int(np.maximum(utilities, best).mean(axis=(1, 2)).argmax()))
        best = np.maximum(best, utilities[chosen[-1]])
    return chosen


def utilities_of(env: Any, task: Any, answers: Sequence[str]) -> NDArray[np.float64]:
    """What each answer is worth to users of 60 weightings, shape (n, 60)."""
    vectors = points(env, task, answers)
    return np.asarray(vectors @ spread_weights(vectors.shape[1], 60)[:60].T)


def kind_of(task: Any) -> int:
    """How many numbers a word problem has, and how far S is from a corner; 0 for the other tasks."""
    if hasattr(task, "rows"):
        return view_of(task).offset
    return len(numbers_of(task)) if hasattr(task, "question") else 0


def other_targets(task: Any, env: Any, count: int) -> list[Any]:
    """Tasks of the same numbers whose targets the generator may have drawn."""
    source, (low, high) = random.Random(0), env.config.gap
    values, found = _reachable(tuple(sorted(task.numbers)), env.config), list[Any]()
    for _ in range(50 * count):
        middle = source.choice(values)
        below, above = ([one for one in values if low <= sign * (one - middle) <= high] for sign in (-1, 1))
        if below and above and len(found) < count:
            other = task.model_copy(update={"targets": (source.choice(below), middle, source.choice(above))})
            found += [other] * env.config.certifies(partial(_gains, other))
    return found or [task.model_copy(update={"targets": tuple(source.sample(values, 3))})]


def ordered(row: Row, tasks: Sequence[Any]) -> Iterator[list[str]]:
    """Each task's answers, best first as far as that is known without reading."""
    if row.learned < 0:
        env: Any = gym.make(row.env, **row.options).unwrapped
        rules: Rules = row.answers([], env)
        for task in tasks:
            yield [rules(task)[index] for index in best_rules(env, rules, other_targets(task, env, -row.learned))]
        return
    if not row.learned:
        env = gym.make(row.env, **row.options).unwrapped
        for number, task in enumerate(tasks):
            known = list(dict.fromkeys(row.answers(task, env)))
            yield known if row.answers in IN_ORDER else random.Random(number).sample(known, len(known))
        return
    env = gym.make(row.env, **row.options).unwrapped
    training = [env.task(index) for index in range(row.learned)]
    chosen: dict[int, tuple[Rules, list[int]]] = {}
    for task in tasks:
        if (kind := kind_of(task)) not in chosen:
            alike = [one for one in training if kind_of(one) == kind]
            rules = row.answers(alike, env)
            chosen[kind] = rules, best_rules(env, rules, alike)
        rules, order = chosen[kind]
        listed = rules(task)
        yield [listed[index] for index in order]
