"""``vpo bench`` on a few prompts: scores, interruptions, entries that are verified, and ways to game it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paths import ROOT
from scripted_endpoint import Body, Reply, scripted
from tokenizers import pre_tokenizers

from envs_data import BUNDLED_MODELS
from vpo_agent.bench.entry import make_entry, read_entry, score_task, score_track
from vpo_agent.bench.sample import WRITTEN, make_plan, optimal_responses, sample_track, sample_written, weights_hash
from vpo_agent.bench.tasks import ANSWERS, RESPONSES, TRACKS, VERSION, BenchTask, digest
from vpo_agent.command import main
from vpo_agent.measure.measures import report_weights
from vpo_agent.measure.pool import Pool
from vpo_agent.rollouts.collect import score
from vpo_envs.pareto import set_utility
from vpo_envs.text import format_answers

SAMPLING = {"max_new_tokens": 1, "temperature": 1.0}


def task_named(name: str, track: str = "compact") -> BenchTask:
    [task] = [task for task in TRACKS[track] if task.name == name]
    return task


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two tasks a track, with three prompts each."""
    for track, names in {"compact": ("musique", "tools"), "natural": ("maze", "gsm8k")}.items():
        small = tuple(task_named(name, track)._replace(size=3, max_new_tokens=30) for name in names)
        monkeypatch.setitem(TRACKS, track, small)
    monkeypatch.chdir(tmp_path)


def scored(task: BenchTask, responses: list[str]) -> dict[str, Any]:
    return score_task(task, sample_written(task.environment(0), responses, SAMPLING), 0)[0]


# What the number means -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("track", "name"), [("compact", "countdown"), ("compact", "parts"), ("natural", "eureqa"), ("natural", "maze")]
)
def test_the_best_three_of_the_front_score_one(track: str, name: str) -> None:
    task = task_named(name, track)
    row = scored(task, optimal_responses(task.environment(0), 3))
    assert [row[one] for one in ("mean", "low", "high")] == pytest.approx([1, 1, 1], abs=1e-6)


@pytest.mark.parametrize("track", TRACKS)
def test_tasks_state_what_the_best_three_earn(track: str) -> None:
    entry = read_entry(ROOT / "leaderboard" / f"{track}_optimum.json")
    for task in TRACKS[track]:
        assert task.best == pytest.approx(entry["tasks"][task.name]["best three of the front"], abs=5.1e-5)


def test_copies_of_one_answer_score_as_one_answer() -> None:
    task = task_named("tools")
    env = task.environment(0)
    answers = [env.front(env.task(index))[0].answer for index in range(3)]
    copies = scored(task, [format_answers([answer] * 3) for answer in answers])
    alone = scored(task, [format_answers([answer, None, None]) for answer in answers])
    assert copies["mean"] == alone["mean"]
    assert copies["utility of three"] == alone["utility of three"]


def test_responses_that_cannot_be_read_score_less_than_blind_ones() -> None:
    task = task_named("musique")
    row = scored(task, ["I cannot help with that.", "", "<answer_1>n1 n2"])
    assert row["mean"] == pytest.approx(-task.blind / (1 - task.blind))
    assert row["read"] == 0


def test_a_score_compares_mean_utilities_over_all_weightings() -> None:
    task = task_named("countdown")
    env = task.environment(0)
    responses = ["", *optimal_responses(env, 2)[1:]]
    pool = sample_written(env, responses, SAMPLING)
    weights = report_weights(np.ones(env.reward_dim, dtype=bool))
    best = [set_utility(np.array([point.vector for point in env.front(env.task(index))]), weights) for index in (0, 1)]
    share = best[1] / sum(best)  # fronts of three points, which one response can hold
    row, _ = score_task(task, pool, 0)
    assert row["mean"] == pytest.approx((share - task.blind) / (1 - task.blind), abs=1e-6)


def test_the_score_of_a_track_is_the_mean_over_tasks_with_an_interval_over_their_prompts() -> None:
    parts = []
    for place, name in enumerate(("countdown", "tools")):
        task = task_named(name)
        env = task.environment(0)
        responses = ["" if index % 2 else text for index, text in enumerate(optimal_responses(env, 20))]
        parts.append(score_task(task, sample_written(env, responses, SAMPLING), place))
    rows, resamples = zip(*parts, strict=True)
    band = score_track(rows, resamples)
    assert band.mean == pytest.approx(np.mean([row["mean"] for row in rows]))
    widths = [row["high"] - row["low"] for row in rows]
    assert band.high - band.low == pytest.approx(np.hypot(*widths) / 2, rel=0.1)


def test_another_seed_has_other_prompts_and_another_digest() -> None:
    task = task_named("maze")._replace(size=3)
    public, private = task.prompts(0), task.prompts(7)
    assert not {*public} & {*private}
    assert digest({"maze": public}) == digest({"maze": task.prompts(0)}) != digest({"maze": private})
    assert digest({"a": ["bc"]}) != digest({"a": ["b", "c"]}) != digest({"ab": ["c"]})


def test_every_task_of_tiny_models_has_a_bundled_base() -> None:
    assert {task.model for task in TRACKS["compact"]} <= BUNDLED_MODELS.keys()


@pytest.mark.parametrize("track", TRACKS)
def test_entries_are_of_the_prompts_and_the_models_of_today(track: str) -> None:
    prompts = digest(make_plan(track, 0, ["optimum"]).prompts)
    for file in sorted((ROOT / "leaderboard").glob(f"{track}_*.json")):
        entry = json.loads(file.read_text(encoding="utf-8"))
        again = f"sample {file.name} again"
        assert (entry["seed"], entry["prompts"]) == (0, prompts), f"{again}: tasks or prompts have changed"
        for task, model in entry["models"].items():
            if model["target"] not in (*WRITTEN, *BUNDLED_MODELS):
                continue  # its weights are not part of the project
            assert model["weights"] == weights_hash(model["target"]), f"{again}: {task} has another model"


@pytest.mark.parametrize(
    "file",
    sorted((ROOT / "leaderboard" / "answers").glob("*/*.npz")),
    ids=lambda file: f"{file.parent.name}-{file.stem}",
)
def test_answers_that_are_kept_are_to_the_prompts_of_today_and_score_as_the_file_and_the_entry_say(file: Path) -> None:
    pool = Pool.load(file)
    task = task_named(pool.source["task"], pool.source["track"])
    assert file.stem == task.name
    assert file.parent.name.startswith(f"{pool.source['track']}_")
    stated = {name: pool.source[name] for name in ("bench", "prompts", "max_new_tokens")}
    prompts = digest({task.name: task.prompts(0)})
    assert stated == {"bench": VERSION, "prompts": prompts, "max_new_tokens": task.max_new_tokens}
    assert pool.rewards.shape[:3] == (task.size, RESPONSES, ANSWERS)
    assert pool.responses is not None
    texts = [text for responses in pool.responses for text in responses]
    env = task.environment(0)
    tasks = [env.task(index) for index in pool.indices]
    rewards, status = score(env, tasks, texts, rollouts=RESPONSES, num_answers=np.full(task.size, ANSWERS))
    assert np.array_equal(rewards, pool.rewards)
    assert np.array_equal(status, pool.status)
    entry = read_entry(ROOT / "leaderboard" / f"{file.parent.name}.json")
    assert entry["models"][task.name]["weights"] == pool.source["weights"]
    number = [other.name for other in TRACKS[entry["track"]]].index(task.name)
    assert score_task(task, pool, number)[0] == pytest.approx(entry["tasks"][task.name])


@pytest.mark.parametrize("task", TRACKS["compact"], ids=lambda task: task.name)
def test_a_limit_leaves_room_for_three_answers_in_the_pieces_that_ordinary_tokenizers_split_into_tokens(
    task: BenchTask,
) -> None:
    env, rng = task.environment(0), np.random.default_rng(0)
    shown = [format_answers(env.demonstrations(env.task(index), rng, 3)[:3], 3) for index in range(10)]
    split = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str
    longest = max(len(split(text)) for text in (*optimal_responses(env, 10), *shown))
    assert 1.4 * longest <= task.max_new_tokens <= 2.6 * longest


@pytest.mark.parametrize("task", [task for tasks in TRACKS.values() for task in tasks], ids=lambda task: task.name)
def test_three_blind_answers_earn_at_most_a_part_on_every_task(task: BenchTask) -> None:
    assert task.blind <= 0.6


# The command ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("few")
def test_a_bench_that_was_stopped_goes_on_and_its_entry_is_reproduced(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--out", "out", "--price", "1,2"]) == 0
    told = capsys.readouterr()
    assert "2 tasks, 6 prompts, 60 responses" in told.out
    assert "at most 1,800 generated; at most 0.00 at these prices" in told.out
    assert "bench-v2, compact track, bundled bases: " in told.out
    entry = read_entry(Path("out/entry.json"))
    assert [*entry["tasks"]] == ["musique", "tools"]
    assert entry["models"]["tools"]["target"] == "tiny-tools"

    Path("out/tools.npz").unlink()
    assert main(["bench", "--out", "out"]) == 0
    assert capsys.readouterr().err.count("answered by") == 1
    assert read_entry(Path("out/entry.json")) == entry

    assert main(["bench", "--verify", "out/entry.json"]) == 0
    assert "reproduced" in capsys.readouterr().out
    assert main(["bench", "--verify", "out/entry.json", "--out", "out"]) == 2
    assert "'out' holds answers already, and --verify samples all of them" in capsys.readouterr().err
    Path("unasked.unfinished.jsonl").write_text("")
    assert main(["bench", "--verify", "out/entry.json", "--out", "unasked"]) == 2

    assert main(["bench", "--seed", "5", "--out", "out"]) == 2
    assert "answers of another model, seed or version: give another --out" in capsys.readouterr().err


@pytest.mark.usefixtures("few")
def test_an_entry_states_its_dtype_and_is_verified_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--dtype", "bfloat16", "--sample-batch", "7", "--out", "out"]) == 0
    assert read_entry(Path("out/entry.json"))["sampling"]["dtype"] == "bfloat16"
    Path("entry.json").write_text(Path("out/entry.json").read_text())
    assert main(["bench", "--verify", "out/entry.json", "--out", "again"]) == 0
    assert {Pool.load(file).source["dtype"] for file in Path("again").glob("*.npz")} == {"bfloat16"}
    capsys.readouterr()

    assert main(["bench", "--dtype", "float32", "--out", "out"]) == 2
    assert "'out' holds answers in bfloat16: give --dtype bfloat16 or another --out" in capsys.readouterr().err
    Path("out/tools.npz").unlink()
    assert main(["bench", "--out", "out"]) == 2
    assert "'out' holds answers in bfloat16 and in float32: " in capsys.readouterr().err
    verify = ["bench", "--verify", "entry.json", "--endpoint", "http://127.0.0.1:1/v1", "--model", "some"]
    assert main(verify) == 2
    assert "'entry.json' is an entry of local models: leave --endpoint out" in capsys.readouterr().err
    assert main(["bench", "optimum", "--dtype", "half"]) == 2
    assert "unknown dtype 'half': choose one of auto, float32, bfloat16" in capsys.readouterr().err
    assert main(["bench", "--endpoint", "http://127.0.0.1:1/v1", "--model", "some", "--dtype", "float32"]) == 2
    assert "--dtype does not apply to a model behind an endpoint: leave it out" in capsys.readouterr().err


@pytest.mark.usefixtures("few")
def test_written_answers_are_entries_as_those_of_models_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "tools=optimum", "musique=blind", "--name", "both", "--out", "out"]) == 0
    entry = read_entry(Path("out/entry.json"))
    assert entry["name"] == "both"
    assert entry["tasks"]["tools"]["mean"] == pytest.approx(1)
    assert entry["tasks"]["musique"]["mean"] < 0.8
    assert main(["bench", "blind", "--seed", "1"]) == 2
    assert (
        "the blind answers belong to the prompts of seed 0; got --seed 1: leave --seed out" in capsys.readouterr().err
    )


@pytest.mark.usefixtures("few")
def test_an_entry_of_other_prompts_or_of_another_version_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    plan = make_plan("compact", 0, ["optimum"])
    entry = make_entry(plan, sample_track(plan, Path("out"), print), "optimum")
    for change, status, said in [
        ({"prompts": "0"}, 1, "the installed version has other prompts than"),
        ({"bench": "bench-v0"}, 2, f"is an entry of bench-v0, and this is {VERSION}"),
        ({"track": "none"}, 2, "is no entry of vpo bench"),
    ]:
        Path("changed.json").write_text(json.dumps({**entry, **change}))
        assert main(["bench", "--verify", "changed.json"]) == status
        assert said in capsys.readouterr().err


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("path", "value", "status", "said"),
    [
        (
            ("tasks", "tools", "mean"),
            0.0,
            1,
            "error: not reproduced: tools differs by +1.0000, and the tolerance is 0.005",
        ),
        (("tasks", "tools", "utility@1"), 2.0, 1, "error: not reproduced: tools utility@1 differs by -"),
        (("tasks", "tools", "distinct"), 2, 1, "error: not reproduced: tools distinct differs by +0.3333"),
        (("tasks", "tools", "tokens"), 5.0, 1, "error: not reproduced: tools tokens differs by +inf"),
        (("score", "low"), 0.9, 1, "error: not reproduced: score low differs by +0.1000"),
        (("models", "tools", "weights"), "0", 1, "tools: 'optimum' has other weights than the entry states"),
        (("score", "mean"), float("nan"), 2, "is damaged: NaN is not a JSON number"),
        (("score", "mean"), 10**400, 2, "of 401 characters, is too large"),
        (("tasks", "tools", "mean"), 1e12, 2, "is damaged: tools has no finite number 'mean'"),
        (("score",), {"mean": 1.0}, 2, "is damaged: score has no finite number 'low'"),
        (("tasks",), {}, 2, "is damaged: its tasks are not musique, tools"),
        (("tasks", "tools"), None, 2, "is damaged: tools has no finite number 'mean'"),
        (("models",), {"tools": {}}, 2, "is damaged: its models are not stated for each task"),
        (("models", "tools"), {}, 2, "is damaged: its models are not stated for each task"),
        (("sampling", "dtype"), "float8", 2, "is damaged: its dtype is neither float32 nor bfloat16"),
        (("sampling",), {}, 2, "is damaged: its dtype is neither float32 nor bfloat16"),
        (("seed",), "0", 2, "is damaged: its seed is no whole number"),
        (("track",), [], 2, "is no entry of vpo bench"),
    ],
)
def test_an_entry_that_was_edited_is_not_reproduced(
    path: tuple[str, ...], value: Any, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = make_plan("compact", 0, ["optimum"])
    entry = make_entry(plan, sample_track(plan, Path("out"), print), "optimum")
    *parents, last = path
    part = entry
    for name in parents:
        part = part[name]
    part[last] = value
    Path("edited.json").write_text(json.dumps(entry))
    assert main(["bench", "--verify", "edited.json"]) == status
    assert said in capsys.readouterr().err


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tool=tiny-tools"], "'tool=tiny-tools' names no task: did you mean tools? choose among musique, tools"),
        (["--track", "natural"], "the task maze of the track natural has no model of its own: give a model"),
        (["runs/nothing"], "'runs/nothing' does not exist"),
        (["tiny-maz"], "'tiny-maz' is no folder and no bundled model: did you mean tiny-maze? give a run"),
        (["tools=optimun"], "'optimun' is no folder and no bundled model: did you mean optimum? give a run"),
        (["--price", "1"], "--price must be two prices such as 0.15,0.60, got '1'"),
        (["--model", "x"], "--model applies only to a model behind an --endpoint"),
        (["--verify", "none.json"], "cannot read 'none.json'"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_sentence(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.usefixtures("few")
def test_refusals_and_responses_that_were_cut_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    def script(body: Body, number: int) -> Body | Reply:
        said = [
            {"content": None, "refusal": "no"},
            {"content": "<answer_1>" + "{" * 50},
            {"content": "\ud83d<answer_3>"},
        ]
        choices = [
            {"index": index, "message": said[index % 3], "finish_reason": "length" if index % 3 == 1 else "stop"}
            for index in range(body["n"])
        ]
        return {"choices": choices, "usage": {"prompt_tokens": 7, "completion_tokens": 40}}

    with scripted(script) as endpoint:
        assert main(["bench", "--endpoint", endpoint.url, "--model", "m", "--out", "out"]) == 0
        assert len(endpoint.requests) == 6
    entry = read_entry(Path("out/entry.json"))
    for name, row in entry["tasks"].items():
        assert row["truncated"] == pytest.approx(0.3)
        assert (row["read"], row["utility@30"]) == (0, 0)
        assert row["mean"] == pytest.approx(
            -task_named(name, "natural").blind / (1 - task_named(name, "natural").blind)
        )
    assert entry["tokens"] == {"read": 42, "generated": 240}
    assert entry["endpoint"] == {"endpoint": endpoint.url, "model": "m"}
    assert not Path("out.unfinished.jsonl").exists()
    assert "natural track, m: -" in capsys.readouterr().out


@pytest.mark.usefixtures("few")
def test_a_model_with_too_short_a_context_is_refused_with_the_track(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(TRACKS, "natural", tuple(task._replace(max_new_tokens=2048) for task in TRACKS["natural"]))
    assert main(["bench", "tiny-maze", "--track", "natural"]) == 2
    said = capsys.readouterr().err
    assert "the context of 'tiny-maze' is too short for the natural track, whose limits are fixed: task " in said
    assert "lower max_new_tokens" not in said
