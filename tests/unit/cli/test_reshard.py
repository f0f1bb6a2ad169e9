"""``photon registry reshard``: its requests, output and exit codes, against a scripted registry."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result

from photon.idregistry.client import grpc_client as client
from photon.idregistry.core.commands import END_OF_TIME, NO_TIME, Range
from photon.idregistry.core.outcomes import Refusal, Status
from photon.idregistry.core.resharding import Action, Ask, Change, Resharding, ReshardOutcome, ShardView, Stage
from photon.idregistry.operate import resharding as applying
from tests.unit.cli.test_ledger import DEPLOYMENT
from tests.unit.refusals import photon, refused

START = 1_795_000_000_000_000_000
NOW = START - 12_500_000_000
RANGES = (Range(-(2**63), END_OF_TIME, (1, 2)),)
SHARDS = [
    ShardView(1, 1, 1, 2, 0, NOW, NO_TIME, END_OF_TIME, 1234, "r1"),
    ShardView(2, 1, 1, 0, 0, NO_TIME, NO_TIME, END_OF_TIME, 0, ""),
    ShardView(3, 0, 0, 0, 0, NO_TIME, NO_TIME, END_OF_TIME, 0, ""),
]


def state(
    stage: Stage | None, *, settled: bool = False, reason: str = "", problems: list[str] | None = None
) -> Resharding:
    change = None if stage is None else Change(2, START, (1, 2, 3), (3,), (), stage, reason, settled)
    why = ("events of up to 5 s ahead may still be entered",) if stage is Stage.PLANNED else ()
    return Resharding("r1", 1, RANGES, change, SHARDS, (), NOW, why, problems or ())


SILENT = Refusal(Status.UNKNOWN, "no registry replica answers")


@pytest.fixture
def deployment(tmp_path: Path) -> Path:
    path = tmp_path / "photon.toml"
    path.write_text(DEPLOYMENT)
    return path


@pytest.fixture(autouse=True)
def script(monkeypatch: pytest.MonkeyPatch) -> list[ReshardOutcome]:
    """Answers in turn, the last one repeatedly; ``asked`` has the requests."""
    answers: list[ReshardOutcome] = []
    asked.clear()

    async def reshard(self: object, ask: Ask, *, replica: str = "", timeout: float) -> ReshardOutcome:
        asked.append((ask, replica))
        return answers.pop(0) if len(answers) > 1 else answers[0]

    monkeypatch.setattr(client.RegistryClient, "reshard", reshard)
    monkeypatch.setattr(applying, "WATCH_SECONDS", 0.001)
    return answers


asked: list[tuple[Ask, str]] = []


def run(deployment: Path, *arguments: str) -> Result:
    """``status``: photon status shards; ``verify``: photon registry verify --shards."""
    command = {"status": ["status", "shards"], "verify": ["registry", "verify", "--shards"]}
    first = command.get(arguments[0])
    words = [*first, *arguments[1:]] if first else ["registry", "reshard", *arguments]
    return photon(*words, "--config", deployment)


def test_dry_run_shows_when_and_why_not_sooner(deployment: Path, script: list[ReshardOutcome]) -> None:
    script.append(state(Stage.PLANNED))
    result = run(deployment, "--shards", "3", "--lead", "2s", "--dry-run")
    assert result.exit_code == 0, result.output
    assert "change 2 would be: events from 2026-11-18T11:06:40.000Z (in 12.5 s) go to shards 1 2 3; new: 3" in (
        result.stdout
    )
    assert "not sooner: events of up to 5 s ahead" in result.stdout
    assert asked == [(Ask(Action.APPLY, 3, True, 2.0), "")]


def test_json_has_times_as_numbers_and_text_and_null_for_none(deployment: Path, script: list[ReshardOutcome]) -> None:
    script.append(state(Stage.PREPARING))
    result = run(deployment, "status", "-o", "json")
    said = json.loads(result.stdout)
    assert said["change"] == {
        "number": 2,
        "stage": "preparing",
        "settled": False,
        "starts": "2026-11-18T11:06:40.000Z",
        "starts_ns": START,
        "shards": [1, 2, 3],
        "added": [3],
        "leaving": [],
        "reason": "",
    }
    assert said["ranges"] == [{"from": None, "from_ns": None, "until": None, "until_ns": None, "shards": [1, 2]}]
    first, second, _ = said["shards"]
    assert (first["ids"], first["prepared"], first["latest_ns"]) == (1234, 2, NOW)
    assert (second["prepared"], second["latest"], second["until_ns"]) == (None, None, None)


@pytest.mark.parametrize(
    ("stage", "settled", "code"),
    [
        (None, False, 0),
        (Stage.PREPARING, False, 3),
        (Stage.ACTIVATED, False, 3),
        (Stage.ACTIVATED, True, 0),
        (Stage.ABORTED, False, 0),
    ],
)
def test_status_says_whether_a_change_is_under_way(
    deployment: Path, script: list[ReshardOutcome], stage: Stage | None, settled: bool, code: int
) -> None:
    script.append(state(stage, settled=settled))
    result = run(deployment, "status", "--replica", "r1")
    assert result.exit_code == code, result.output
    assert asked == [(Ask(Action.STATUS), "r1")]
    if stage is Stage.PREPARING:
        assert "1 of 2 shards are ready" in result.stdout
        assert "ready for change 2" in result.stdout
        assert "opening" in result.stdout


def test_apply_tells_its_progress_and_ends_when_settled(deployment: Path, script: list[ReshardOutcome]) -> None:
    done = state(Stage.ACTIVATED, settled=True)
    script += [state(Stage.PLANNED), state(Stage.PREPARING), state(Stage.PREPARING), state(Stage.ACTIVATED), done]
    result = run(deployment, "--shards", "3", "-o", "json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["change"]["settled"] is True
    stages = [line.split(":")[0] for line in result.stderr.splitlines()]
    assert stages == [
        "change 2 would be",
        "change 2 is preparing, 1 of 2 shards are ready",
        "change 2 is activated, not yet in every shard",
        "change 2 is activated and settled",
    ]


def test_apply_that_is_aborted_fails(deployment: Path, script: list[ReshardOutcome]) -> None:
    script += [state(Stage.PLANNED), state(Stage.PREPARING), state(Stage.ABORTED, reason="by the operator")]
    result = run(deployment, "--shards", "3")
    assert result.exit_code == 1
    assert "change 2 was aborted: by the operator" in result.output


def test_apply_that_does_not_settle_in_time_needs_attention(deployment: Path, script: list[ReshardOutcome]) -> None:
    script += [state(Stage.PLANNED), state(Stage.PREPARING)]
    result = run(deployment, "--shards", "3", "--limit", "50ms")
    assert result.exit_code == 3
    assert "photon status shards" in result.stderr


@pytest.mark.parametrize("flag", ["--dry-run", "--no-wait"])
def test_apply_that_does_not_wait_asks_once(deployment: Path, script: list[ReshardOutcome], flag: str) -> None:
    script.append(state(Stage.PREPARING))
    assert run(deployment, "--shards", "3", flag).exit_code == 0
    assert asked == [(Ask(Action.APPLY, 3, flag == "--dry-run"), "")]


def test_abort(deployment: Path, script: list[ReshardOutcome]) -> None:
    script.append(state(Stage.ABORTED, reason="by the operator"))
    assert run(deployment, "--abort", "--change", "2").exit_code == 0
    assert asked == [(Ask(Action.ABORT, config=2), "")]
    script[:] = [state(Stage.ACTIVATED)]
    assert run(deployment, "--abort").exit_code == 1


def test_verify_asks_every_replica(deployment: Path, script: list[ReshardOutcome]) -> None:
    script.append(state(None))
    result = run(deployment, "verify")
    assert result.exit_code == 0, result.output
    assert asked == [(Ask(Action.VERIFY), "r1")]
    script[:] = [state(None, problems=["shard 2 holds 3 ids of shard 1"])]
    result = run(deployment, "verify", "-o", "json")
    assert result.exit_code == 1
    r1 = {"answered": True, "config": 1, "shards": 3, "ids": 1234, "problems": ["shard 2 holds 3 ids of shard 1"]}
    assert json.loads(result.stdout) == {"ok": False, "replicas": {"r1": r1}}
    assert "photon: replica r1: shard 2 holds 3 ids of shard 1" in result.stderr
    script[:] = [SILENT]
    result = run(deployment, "verify")
    assert result.exit_code == 1
    assert "replica r1 did not answer: no registry replica answers" in result.stderr


def test_verify_says_who_was_silent(deployment: Path, script: list[ReshardOutcome]) -> None:
    with deployment.open("a") as file:
        for name, port in (("r2", 7109), ("r3", 7110)):
            file.write(f'[registry.replicas.{name}]\naddress = "127.0.0.1:{port}"\ndirectory = "{name}"\n')
    script += [state(None), SILENT]
    result = run(deployment, "verify")
    assert result.exit_code == 3
    assert "replica r2 did not answer" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "refusal", "said"),
    [
        (("--shards", "2", "--dry-run"), Refusal(Status.REFUSED, "2 shards already"), "2 shards already"),
        (("--shards", "2"), SILENT, "the registry does not answer: no registry replica answers"),
        (("--abort",), Refusal(Status.REFUSED, "no change is under way"), "no change is under way"),
        (("status",), SILENT, "does not answer"),
    ],
)
def test_refusals_are_one_line(
    deployment: Path, script: list[ReshardOutcome], arguments: tuple[str, ...], refusal: Refusal, said: str
) -> None:
    script.append(refusal)
    result = run(deployment, *arguments)
    assert said in refused(result, 1)
    assert not result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--dry-run",), "give either --shards N or --abort"),
        (("--shards", "2", "--abort"), "give either --shards N or --abort"),
        (("--shards", "2", "--change", "2"), "--change requires --abort"),
        (("--shards", "0"), "--shards"),
        (("--shards", "2", "--lead", "soon"), "a duration is"),
        (("status", "--replica", "r9"), "--replica r9: there are r1"),
        (("--shards", "2", "--set", "registry.shards=x"), "registry.shards"),
    ],
)
def test_wrong_usage(deployment: Path, script: list[ReshardOutcome], arguments: tuple[str, ...], said: str) -> None:
    script.append(SILENT)
    assert said in refused(run(deployment, *arguments))
    assert not asked
