"""`photon join` with impossible input: one clear line on stderr, the right exit code, nothing on stdout."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from photon.lab.demo.check import records
from tests.integration.commands import Result, interrupt, photon, running, until
from tests.integration.forked import FIRST
from tests.integration.join_logs import CONFIG, Logs

FAILED, USAGE, ATTENTION = 1, 2, 3


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    logs = Logs(tmp_path, clicks=20)
    logs.write()
    return logs


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Logs:
    """A finished run; tests work on copies of its output."""
    logs = Logs(tmp_path_factory.mktemp("finished"), clicks=20)
    logs.finish()
    return logs


@pytest.fixture
def again(finished: Logs, tmp_path: Path) -> Logs:
    """The finished run with a separate output."""
    shutil.copytree(finished.base, tmp_path / "copy")
    copy = Logs.__new__(Logs)
    copy.__dict__.update(finished.__dict__)
    copy.base = tmp_path / "copy"
    for name in ("primary", "foreign", "output", "config"):
        setattr(copy, name, copy.base / getattr(finished, name).name)
    return copy


def one_line(result: Result, code: int, *said: str) -> None:
    """Exactly one line, which says everything."""
    assert result.out == ""
    assert result.err.startswith("photon: "), result.err
    assert result.err.count("\n") == 1, result.err
    assert "defect" not in result.err
    for words in said:
        assert words in result.err
    assert result.code == code, result.err


# -- directories -----------------------------------------------------------------------------------------------------
def _missing_foreign(logs: Logs) -> tuple[str, ...]:
    logs.foreign = logs.base / "nowhere"
    return ("--foreign", "nowhere: no such directory or file; give the directory of the foreign logs")


def _missing_primary(logs: Logs) -> tuple[str, ...]:
    logs.primary = logs.base / "nowhere"
    return ("--primary", "nowhere: no such directory")


def _dangling_link(logs: Logs) -> tuple[str, ...]:
    logs.foreign = logs.base / "link"
    logs.foreign.symlink_to(logs.base / "nowhere")
    return ("--foreign", "link: no such directory")


def _output_is_a_file(logs: Logs) -> tuple[str, ...]:
    logs.output.touch()
    return ("out: is not a directory; choose a directory for the output",)


def _output_below_a_file(logs: Logs) -> tuple[str, ...]:
    logs.output = logs.config / "out"
    return ("out: cannot be created (Not a directory); choose a writable one",)


def _output_among_the_logs(logs: Logs) -> tuple[str, ...]:
    logs.output = logs.foreign / "out"
    return ("--output", "is inside --foreign", "it would be read as a log; choose a directory outside")


def _output_is_the_logs_by_another_name(logs: Logs) -> tuple[str, ...]:
    logs.output = logs.base / "link"
    logs.output.symlink_to(logs.primary)
    return ("link: is inside --primary",)


def _logs_are_the_output(logs: Logs) -> tuple[str, ...]:
    logs.foreign = logs.output / "joined"
    logs.foreign.mkdir(parents=True)
    return ("--foreign", "is inside the files written by --output", "; choose another output")


# -- configuration ---------------------------------------------------------------------------------------------------
def _no_config_file(logs: Logs) -> tuple[str, ...]:
    logs.config = logs.base / "none.toml"
    return ("none.toml: no such file; name an existing configuration file",)


def _config_is_a_directory(logs: Logs) -> tuple[str, ...]:
    logs.config = logs.base
    return ("cannot be read",)


def _wrong_toml(logs: Logs) -> tuple[str, ...]:
    logs.config.write_text("[join\n")
    return ("join.toml: not valid TOML",)


def _unknown_key(logs: Logs) -> tuple[str, ...]:
    logs.config.write_text(CONFIG.replace("id =", "ids ="))
    return ("ids", "join.clicks.foreign", "did you mean 'id'?")


def _two_joins(logs: Logs) -> tuple[str, ...]:
    logs.config.write_text(CONFIG + CONFIG.replace("join.clicks", "join.views"))
    return ("the configuration has 2 joins (clicks, views); name one with --join",)


def _adapter(source: str | None, said: str) -> Callable[[Logs], tuple[str, ...]]:
    def prepare(logs: Logs) -> tuple[str, ...]:
        logs.config.write_text('[join.clicks]\nadapter = "mine.py:Mine"\n')
        if source is not None:
            (logs.base / "mine.py").write_text(source)
        return (f"{logs.base}/mine.py{said}",)

    return prepare


MINE = "from photon.adapters.contract import Adapter\nclass Mine(Adapter):\n    {}\n"
CASES = {
    "missing foreign": _missing_foreign,
    "missing primary": _missing_primary,
    "dangling link": _dangling_link,
    "output is a file": _output_is_a_file,
    "output below a file": _output_below_a_file,
    "output among the logs": _output_among_the_logs,
    "output is the logs": _output_is_the_logs_by_another_name,
    "logs are the output": _logs_are_the_output,
    "no config file": _no_config_file,
    "config is a directory": _config_is_a_directory,
    "wrong TOML": _wrong_toml,
    "unknown key": _unknown_key,
    "two joins": _two_joins,
    "no adapter file": _adapter(None, ": there is no such file; correct the adapter's path"),
    "adapter is incomplete": _adapter(MINE.format("pass"), ":2: Mine does not define "),
}


@pytest.mark.parametrize("case", CASES)
def test_usage_and_configuration(logs: Logs, case: str) -> None:
    said = CASES[case](logs)
    existed = logs.output.exists()
    one_line(logs.once(), USAGE, *said)
    assert logs.output.exists() is existed, "nothing is begun"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--join", "views"], "join 'views': not in the configuration; there are: clicks"),
        (["--set", "limits.record"], "--set limits.record: must be KEY=VALUE"),
        (["--set", "limits.recrod=1"], "limits.recrod: unknown key"),
        (["--max-rejected", "-1"], "Invalid value for '--max-rejected'"),
        (["--what"], "No such option"),
    ],
)
def test_options(logs: Logs, options: list[str], said: str) -> None:
    one_line(logs.once(*options), USAGE, said)


def test_keep_pending_goes_with_once(logs: Logs) -> None:
    one_line(photon(*logs.arguments("--keep-pending")), USAGE, "--keep-pending requires --once")


def test_debug_shows_the_traceback(logs: Logs) -> None:
    logs.config.write_text("[join\n")
    result = photon("--debug", *logs.arguments("--once"))
    assert result.code != 0
    assert "Traceback" in result.err
    assert "ConfigError" in result.err


def test_logs_that_cannot_be_inferred(logs: Logs) -> None:
    (logs.foreign / "clicks.log").write_text("nothing\nthat\nis known\n")
    for said in (
        "the foreign logs are plain text without a common layout",
        "the foreign logs hold no records yet",
    ):
        result = logs.once(config=False)
        line, example = result.err.split("\n", 1)
        one_line(Result(result.code, result.out, line + "\n"), USAGE, said, "pass it with --config")
        assert "join" in tomllib.loads(example)  # below it a file to begin with
        (logs.foreign / "clicks.log").unlink(missing_ok=True)
    assert not (logs.output / ".photon" / "inferred.toml").exists()


# -- an output that was begun otherwise, or is damaged ---------------------------------------------------------------
def test_other_rules_on_an_output(again: Logs) -> None:
    """Any rule that would join events a second time is refused."""
    again.config.write_text(CONFIG.replace('id = "click_id"\n', ""))
    said = "this output was started with id = click_id; to use id = place, give a new --output"
    one_line(again.once(), USAGE, f"{again.output}: {said}")
    again.config.write_text(CONFIG.replace("join.clicks", "join.views"))
    one_line(again.once(), USAGE, "dispatcher.db: was written under another key file or other", "restore the key")
    again.config.write_text(CONFIG)
    one_line(
        again.once("--set", "registry.shards=3"), USAGE, f"{again.output}: this registry was set up with 1 shards"
    )
    again.finish()


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("dispatcher.db", "is damaged or unreadable"),
        ("key", "is damaged"),
        ("slots/local-1/durable.json", "unreadable"),
        ("slots/local-1/slot.json", "unreadable"),
        ("slots/local-1/verifier/cleared.json", "unreadable"),
    ],
)
def test_damaged_state_is_refused(again: Logs, file: str, said: str) -> None:
    path = again.output / ".photon" / file
    path.write_bytes(b"nonsense" * 600)
    one_line(again.once(), FAILED, f"{path}: {said}", "; ")
    if file == "dispatcher.db":
        one_line(photon("status", "ledger", again.output), FAILED, f"{path}: {said}")


def test_a_damaged_file_map_is_made_anew(again: Logs) -> None:
    (again.output / ".photon" / "eventstore" / "catalog.db").write_bytes(b"nonsense" * 600)
    again.finish()


def test_ledger_of_what_is_none(tmp_path: Path) -> None:
    one_line(photon("status", "ledger", tmp_path / "none"), USAGE, "none: no ledger; give an output of photon join")
    one_line(photon("status", "ledger", tmp_path), USAGE, "no ledger; give")


# -- files that cannot be read ---------------------------------------------------------------------------------------
def refused(*command: str | Path) -> Result:
    """Runs a command to which permissions apply: root without the right to bypass them."""
    return photon(*command, env={FIRST: str(Path(__file__).with_name("less_root.py"))})


def test_an_unreadable_foreign_log_is_named_and_read_later(logs: Logs) -> None:
    secret = logs.foreign / "more.log"
    secret.write_text('{"click_id":"mine","query_id":"none","time_us":1760000000000000}\n')
    secret.chmod(0)
    result = refused(*logs.arguments("--once", "-o", "json", "--max-rejected", "100"))
    assert result.code == ATTENTION
    told = result.err.splitlines()[-1]
    assert told.startswith("photon: 1 foreign log was not read to the end: more.log: cannot be opened (Permission ")
    assert "Traceback" not in result.err
    logs.exact(result.json)
    secret.chmod(0o644)
    after = logs.once("--max-rejected", "100")
    assert (after.code, after.err) == (0, "")
    assert after.json["read"] == result.json["read"] + 1
    assert after.json["unmatched"] == result.json["unmatched"] + 1


def test_an_unreadable_primary_log_makes_nothing_unmatched(logs: Logs) -> None:
    (logs.primary / "queries.log").chmod(0)
    result = refused(*logs.arguments("--once", "-o", "json"))
    one_line(
        result, FAILED, "queries.log: cannot be opened (Permission denied)", "no event can be declared unmatched"
    )
    (logs.primary / "queries.log").chmod(0o644)
    logs.finish()


@pytest.mark.parametrize("side", ["primary", "foreign"])
def test_logs_of_which_none_can_be_read_are_not_called_empty(logs: Logs, side: str) -> None:
    (log,) = getattr(logs, side).glob("*")
    log.chmod(0)
    result = refused(*logs.arguments("--once", config=False))
    one_line(result, USAGE, f"{log}: cannot be read (Permission denied); make it readable for this user")


def test_what_is_not_looked_at_for_a_configuration_is_said(logs: Logs) -> None:
    secret = logs.foreign / "more.log"
    secret.write_text('{"click_id":"mine","query_id":"none","time_us":1760000000000000}\n')
    secret.chmod(0)
    result = refused(*logs.arguments("--once", "--max-rejected", "100", config=False))
    assert result.code == ATTENTION
    assert f"photon: not read: {secret}: cannot be read (Permission denied)\n" in result.err
    assert "1 foreign log was not read to the end: more.log: " in result.err


def test_a_directory_whose_files_cannot_be_looked_at(logs: Logs) -> None:
    """Its names can be listed, and nothing else."""
    logs.foreign.chmod(0o444)
    try:
        result = refused(*logs.arguments("--once", "--max-rejected", "100"))
        assert result.code == ATTENTION
        assert "clicks.log: cannot be examined (Permission denied)" in result.err.splitlines()[-1]
        directory = logs.foreign
        for logs.foreign in (directory / "clicks.log", directory / "*.log"):
            one_line(refused(*logs.arguments("--once")), USAGE, "(Permission denied); make", "readable for this user")
    finally:
        directory.chmod(0o755)


def test_an_unreadable_primary_log_is_named_while_logs_are_followed(logs: Logs) -> None:
    (logs.primary / "more.log").write_text("{}\n")
    (logs.primary / "more.log").chmod(0)
    said = logs.base / "said"
    first = {FIRST: str(Path(__file__).with_name("less_root.py"))}
    with running(*logs.arguments(), log=said, env=first) as process:
        until(lambda: "more.log" in said.read_text(), 60.0, "it is named")
        interrupt(process)
    assert "photon: primary log more.log: cannot be opened (Permission denied); make it readable" in said.read_text()


@pytest.mark.parametrize("what", ["config", "output", "primary"])
def test_what_may_not_be_opened(logs: Logs, what: str) -> None:
    path: Path = getattr(logs, what)
    if what == "output":
        path.mkdir()
    path.chmod(0o500 if what == "output" else 0)
    try:
        one_line(refused(*logs.arguments("--once")), USAGE, str(path))
    finally:
        path.chmod(0o755)


@pytest.mark.parametrize("side", ["primary", "foreign"])
def test_a_damaged_compressed_log_is_named(logs: Logs, side: str) -> None:
    (getattr(logs, side) / "old.log.gz").write_bytes(b"\x1f\x8b\x08\x00 no gzip")
    result = logs.once("--max-rejected", "100")
    assert result.code == (FAILED if side == "primary" else ATTENTION)
    assert "old.log.gz: " in result.err.splitlines()[-1]
    assert "Traceback" not in result.err
    if side == "foreign":
        logs.exact(result.json)
    else:
        assert list(records(logs.output / "unmatched")) == []
