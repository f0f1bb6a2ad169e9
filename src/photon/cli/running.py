"""Commands for the processes of ``photon up``: show, restart, hold, drain, pause and stop them."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from photon.cli.audited import audited
from photon.cli.errors import ATTENTION, DONE
from photon.cli.heads import Deployed, Printed, added, deployed, dry_run, file_and_names, formatted, run_option
from photon.cli.looking import waited
from photon.config.words import duration, many
from photon.fleet.parts import Column, Part

if TYPE_CHECKING:
    from photon.supervision.states import ServiceState

WORDS = click.argument("words", nargs=-1, metavar="FILE [NAME]...")  # FILE may be left out if PHOTON_CONFIG names it
TIMEOUT = click.option("--timeout", type=click.FloatRange(min=1.0), default=180.0, show_default=True,
                       help="Maximum number of seconds to wait.")  # fmt: skip
POLL_S = 0.1
WAIT_S = 180.0
TELL_S = 2.0
# Time for a process to stop and import the program again on an idle machine; add the time of its start.
RESTART_S = 2.0
STYLES = {"up": "green", "failing": "bold red", "silent": "red", "not serving": "red"}


# -- the photon up of a run directory --------------------------------------------------------------------------------
def place(file: Path, run: Path | None) -> Path:
    """Returns the run directory given by FILE and --run. Raises UsageError."""
    from photon.config.errors import UsageError
    from photon.supervision.run_directory import run_directory

    if run is None and not file.is_file():
        raise UsageError(f"{file}: no such file; give the deployment file that photon up was started with")
    return run_directory(file, run)


def tell(directory: Path, do: str, names: Sequence[str] = (), patience_s: float | None = None) -> list[ServiceState]:
    """Sends a request to the ``photon up`` of a run directory. Raises PhotonError."""
    from photon.supervision.control import Request
    from photon.supervision.detached import ask_patiently

    request = Request(do=do, names=tuple(names), patience_s=patience_s)  # type: ignore[arg-type]
    return ask_patiently(directory, request).services


def wait_for(
    directory: Path, name: str, timeout: float, is_so: Callable[[ServiceState], bool] | str, *, telling: bool = False
) -> ServiceState:
    """Waits for a process to reach a state, or to satisfy a function. ``telling``: from time to time, reports its
    state on standard error. Raises PhotonError after ``timeout``, or if the process starts and refuses to run."""
    from photon.config.errors import PhotonError
    from photon.supervision.states import USAGE_EXIT

    began = told = time.monotonic()
    refused_before: int | None = None  # number of restarts at its first refusal
    while True:
        state = tell(directory, "ps", [name])[0]
        if state.state == is_so if isinstance(is_so, str) else is_so(state):
            return state
        now = time.monotonic()
        said = _words(state)
        refuses = state.state == "failing" and state.pid is None and state.exit_code == USAGE_EXIT
        if refused_before is None:
            refused_before = state.restarts if refuses else -1
        if refuses and state.restarts != refused_before:
            raise PhotonError(f"{name}: {said}")
        if now - began > timeout:
            raise PhotonError(f"{name}: still {said} after {timeout:g} s; see photon status processes")
        if telling and now - told > TELL_S:
            told = now
            click.echo(f"{name}: {said} after {now - began:.0f} s", err=True)
        time.sleep(POLL_S)


def _words(state: ServiceState) -> str:
    return state.words + (f": {state.detail}" if state.detail else "")


# -- photon status processes -----------------------------------------------------------------------------------------
def show_processes(at: Deployed, run: Path | None = None, wait: bool = False, timeout: float = WAIT_S) -> int:
    """Implements ``photon status processes``. Exit code 3: a process is not up."""
    directory = place(at.config, run)
    states = waited(lambda: tell(directory, "ps"), _all_up, timeout if wait else 0.0, POLL_S)
    show(at, states, directory)
    return DONE if _all_up(states) else ATTENTION


def _all_up(states: Sequence[ServiceState]) -> bool:
    return all(state.state == "up" for state in states)


def show(at: Deployed, states: Sequence[ServiceState], run: Path) -> None:
    """Prints all processes on standard output."""
    import msgspec

    rows = [msgspec.to_builtins(state) | {"words": _words(state)} for state in states]
    at.part(Part("processes", rows, PROCESSES, style=lambda row: STYLES.get(row["state"], "yellow")), run=str(run))


PROCESSES = (
    Column("process", "name"), Column("datacentre"), Column(">pid", "pid", lambda pid: str(pid or "-")),
    Column("state", "words"), Column(">uptime", "uptime_s", duration), Column(">restarts"), Column("address"),
)  # fmt: skip


# -- restart, hold, release ------------------------------------------------------------------------------------------
def _on_processes(done: str) -> Callable[[Callable[..., None]], Callable[..., Any]]:
    """Adds FILE [NAME]... and --datacentre. The command gets the run directory and the process names; ``done`` is the
    JSON key of the result."""

    def add(command: Callable[..., None]) -> Callable[..., Any]:
        @functools.wraps(command)
        def headed(
            out: Printed, words: tuple[str, ...], datacentre: str | None, run: Path | None, timeout: float,
            dry_run: bool, **more: Any,
        ) -> int:  # fmt: skip
            verb = click.get_current_context().info_name or ""
            file, names = file_and_names(words, verb)
            directory = place(file, run)
            chosen = _chosen(directory, verb, names, datacentre)
            if dry_run:
                held = "released" if done == "up" else done
                said = f"would be {held}: {', '.join(chosen)}; nothing was changed"
                out.show({"run": str(directory), "dry_run": True, held: chosen}, said)
                return DONE
            command(out, directory, chosen, timeout, **more)
            if done != "restarted":
                out.show({"run": str(directory), done: chosen}, f"{done}: {', '.join(chosen)}")
            return DONE

        whose = click.option("--datacentre", metavar="NAME", help="Only processes of this datacentre.")
        return added(audited(formatted(headed)), [WORDS, whose, run_option, TIMEOUT, dry_run])

    return add


@click.command()
@_on_processes("restarted")
@click.option("--at-once", is_flag=True, help="Restart all processes at the same time.")
def restart(out: Printed, directory: Path, chosen: list[str], timeout: float, at_once: bool) -> None:
    """Restart processes that photon up keeps running, one after another.

    NAME is a name shown by photon status processes ("joiner east-1" or joiner-east-1), or a kind (joiner). A kind
    without processes is skipped, with a message, if other names are given. Each process stops cleanly and is up again
    before the next one stops; it then has the new release, settings and certificates. Replicas are restarted first,
    then one datacentre after another.

    \b
    Examples:
      photon restart photon.toml "registry r1"
      photon restart photon.toml joiner dispatcher --datacentre east
      photon restart photon.toml --datacentre east --at-once
    Exit codes: 0 all are up again; 1 one is not (those after it were not restarted); 2 wrong usage.
    """
    from photon.supervision.draining import in_turn

    names = [state.name for state in in_turn(tell(directory, "ps", chosen), chosen)]
    seconds: dict[str, float] = {}
    for some in [names] if at_once else [[name] for name in names]:
        seconds |= _restarted(out, directory, some, timeout)
    if out.json:
        rows = [{"name": name, "up_after_s": seconds[name]} for name in names]
        out.show({"run": str(directory), "restarted": rows}, "")


def _restarted(out: Printed, directory: Path, names: list[str], timeout: float) -> dict[str, float]:
    """Restarts processes together and waits until they are up. Prints and returns how many seconds each one took."""
    seconds: dict[str, float] = {}
    began = time.monotonic()
    before = {state.name: state.pid for state in tell(directory, "ps", names)}
    tell(directory, "restart", names)
    for name in names:
        wait_for(directory, name, timeout, lambda state: state.state == "up" and state.pid != before[state.name])
        seconds[name] = round(time.monotonic() - began, 3)
        if not out.json:
            click.echo(f"{name}: up again after {seconds[name]:.1f} s")
    return seconds


@click.command()
@_on_processes("held")
def hold(out: Printed, directory: Path, chosen: list[str], timeout: float) -> None:
    """Stop processes that photon up keeps running, until photon release.

    NAME is a name shown by photon status processes ("joiner east-1" or joiner-east-1), or a kind (joiner). A kind
    without processes is skipped, with a message, if other names are given.

    \b
    Example:
      photon hold photon.toml joiner verifier
    Exit codes: 0 all have stopped; 1 one has not; 2 wrong usage.
    """
    tell(directory, "hold", chosen)
    for name in chosen:
        wait_for(directory, name, timeout, "held")


@click.command()
@_on_processes("up")
def release(out: Printed, directory: Path, chosen: list[str], timeout: float) -> None:
    """Start held processes again, all at once, and wait until they are up.

    NAME is a name shown by photon status processes ("joiner east-1" or joiner-east-1), or a kind (joiner). A kind
    without processes is skipped, with a message, if other names are given.

    \b
    Example:
      photon release photon.toml joiner verifier
    Exit codes: 0 all are up; 1 one is not; 2 wrong usage.
    """
    tell(directory, "release", chosen)
    for name in chosen:
        wait_for(directory, name, timeout, "up")


def _chosen(directory: Path, verb: str, names: Sequence[str], datacentre: str | None) -> list[str]:
    """Returns the chosen processes in start order. Skips kinds without a process, with a message, so that one list
    fits all deployments. Raises UsageError."""
    from photon.config.errors import UsageError
    from photon.fleet.processes import KINDS

    states = tell(directory, "ps")
    if not names and datacentre is None:
        raise UsageError(f"{verb}: give processes, a kind, or --datacentre; photon status processes shows them")
    known = [state.name for state in states if datacentre in (None, state.datacentre)]
    if not known:
        raise UsageError(f"--datacentre {datacentre}: has no processes of its own")
    chosen: list[str] = []
    skipped: list[str] = []
    for name in names or known:
        found = [each for each in known if name in (each, each.replace(" ", "-"), each.partition(" ")[0])]
        if not found and name not in KINDS:
            raise UsageError(f"{name}: no such process; there are: {', '.join(known)}")
        chosen += found
        skipped += [] if found else [name]
    if not chosen:
        raise UsageError(f"{', '.join(names)}: no such process; there are: {', '.join(known)}")
    if skipped:
        click.echo(f"photon: skipped, because no such process runs here: {', '.join(skipped)}", err=True)
    return [name for name in known if name in chosen]


# -- drain, pause, resume --------------------------------------------------------------------------------------------
def _takes_out(datacentre: str = "") -> Callable[[Callable[..., int]], Callable[..., Any]]:
    head = deployed(datacentre=datacentre, sets=False)
    return lambda command: added(audited(head(command)), [run_option, TIMEOUT, dry_run])


@click.command()
@click.argument("name")
@click.option("--last", is_flag=True, help="Drain even the last joiner of its datacentre, whose events then wait.")
@_takes_out()
def drain(at: Deployed, name: str, run: Path | None, last: bool, timeout: float, dry_run: bool) -> int:
    """Take joiner NAME out of service. It gets no new events, finishes those it has, and stops.

    Other joiners of its datacentre get the new events. Refused if no other joiner is up. It stays down until photon
    release, or until photon up is restarted. In containers: docker-compose stop.

    \b
    Examples:
      photon joiner drain east-1 --config photon.toml --dry-run
      photon joiner drain east-1 --config photon.toml
    Exit codes: 0 drained and stopped; 1 refused, or it did not stop; 2 wrong usage; 3 stopped, but something was
    still undecided (the registry did not answer): its next start redoes it.
    """
    from photon.supervision.draining import PATIENCE_S, check_drain, joiner_named

    directory = place(at.config, run)
    states = tell(directory, "ps")
    joiner = joiner_named(states, name)
    check_drain(states, joiner, last=last)
    if dry_run:
        line = f"{joiner.name} would be drained and held"
        return _say(at, {"joiner": joiner.name, "dry_run": True}, line)
    tell(directory, "hold", [joiner.name], PATIENCE_S)
    held = wait_for(directory, joiner.name, timeout, "held", telling=True)
    drained = held.exit_code == 0
    words = "drained and held" if drained else "held; something was still undecided, so its next start redoes it"
    _say(at, {"joiner": joiner.name, "dry_run": False, "drained": drained}, f"{joiner.name}: {words}")
    return DONE if drained else ATTENTION


@click.command()
@_takes_out("Datacentre of the dispatcher (default: the only one).")
def pause(at: Deployed, run: Path | None, timeout: float, dry_run: bool) -> int:
    """Stop a datacentre's dispatchers until they are resumed.

    Events without a verdict stay in the dispatchers' state. Other datacentres that read the same logs continue. The
    dispatchers stay paused until they are resumed, or photon up is restarted. In containers: docker-compose stop.

    \b
    Examples:
      photon dispatcher pause --config photon.toml --datacentre east --dry-run
      photon dispatcher pause --config photon.toml --datacentre east
    Exit codes: 0 paused; 1 a dispatcher did not stop in time; 2 wrong usage.
    """
    from photon.supervision.draining import dispatchers_of, readers_left

    directory = place(at.config, run)
    states = tell(directory, "ps")
    chosen = dispatchers_of(states, at.datacentre)
    names, others = [state.name for state in chosen], readers_left(states, chosen)
    if not others:
        click.echo(
            "photon: no other datacentre reads these logs: one deleted during the pause is never read", err=True
        )
    said = {"dispatchers": names, "reading_on": others, "dry_run": dry_run}
    if dry_run:
        return _say(at, said, f"would be paused: {', '.join(names)}")
    tell(directory, "hold", names)
    for name in names:
        wait_for(directory, name, timeout, "held", telling=True)
    return _say(at, said, f"paused: {', '.join(names)}")


@click.command()
@_takes_out("Datacentre of the dispatcher (default: the only one).")
def resume(at: Deployed, run: Path | None, timeout: float, dry_run: bool) -> int:
    """Start a datacentre's paused dispatchers again. Waits until they are up.

    \b
    Example:
      photon dispatcher resume --config photon.toml --datacentre east
    Exit codes: 0 all are up; 1 one is not; 2 wrong usage.
    """
    from photon.supervision.draining import dispatchers_of

    directory = place(at.config, run)
    names = [state.name for state in dispatchers_of(tell(directory, "ps"), at.datacentre)]
    said = {"dispatchers": names, "dry_run": dry_run}
    if dry_run:
        return _say(at, said, f"would be resumed: {', '.join(names)}")
    tell(directory, "release", names)
    for name in names:
        wait_for(directory, name, timeout, "up", telling=True)
    return _say(at, said, f"resumed: {', '.join(names)}")


def _say(at: Deployed, found: dict[str, object], line: str) -> int:
    at.show(found, line + ("; nothing was changed" if found["dry_run"] else ""))
    return DONE


# -- the deployment as a whole ---------------------------------------------------------------------------------------
@click.command()
@deployed(file=True)
@run_option
@TIMEOUT
@click.option("--no-wait", is_flag=True, help="Do not wait until new processes are up.")
@click.option("--restart", "again", is_flag=True, help="Restart the changed processes, one after another.")
@dry_run
@audited
def reload(at: Deployed, run: Path | None, timeout: float, no_wait: bool, again: bool, dry_run: bool) -> int:
    """Apply the changed deployment file and the operator's certificate to the running photon up.

    Starts new processes and waits for them; stops those no longer in the file. Others keep running. A process that
    read a changed key at its start is reported as changed; it needs a restart to use the new settings. --restart
    restarts changed processes one after another: replicas, then one datacentre after another, each only while another
    one joins. It first lists them and estimates the total time (--dry-run: only that). An invalid file changes
    nothing.

    \b
    Examples:
      photon reload photon.toml --restart --dry-run
      photon reload photon.toml --restart
    Exit codes: 0 done; 1 refused, or a process is not up (those after it were not restarted); 2 wrong usage.
    """
    from photon.supervision.control import Changes, Request, ask
    from photon.supervision.draining import in_turn

    directory = place(at.config, run)
    changes = ask(directory, Request(do="reload", dry_run=dry_run), timeout).changes or Changes()
    turn = in_turn(tell(directory, "ps"), changes.changed)
    rows = {"started": changes.started, "ended": changes.ended, "changed": [state.name for state in turn],
            "keys": changes.keys}  # fmt: skip
    takes_s = round(sum(RESTART_S + (state.start_s or 0.0) for state in turn), 1)
    said = f"restarted one after another, in about {takes_s:.0f} s (longer on a busy machine)"
    last = said if again else "changed; take effect after a restart"
    words = {"started": "started", "ended": "ended", "changed": last}
    people = [f"keys: {', '.join(changes.keys)}"] if changes.keys else []
    people += [f"{word}: {', '.join(rows[name]) or 'none'}" for name, word in words.items()]
    people += ["dry run: nothing was changed"] if dry_run else []
    if not at.json:
        click.echo("\n".join(people))
    for name in () if no_wait or dry_run else changes.started:
        wait_for(directory, name, timeout, "up")
    for state in turn if again and not dry_run else ():
        _wait_for_others(at.config, directory, state, timeout)
        _restarted(at, directory, [state.name], timeout)
    at.show({"run": str(directory), "dry_run": dry_run, "restarts_s": takes_s, **rows}, lambda: None)
    return DONE


def _wait_for_others(file: Path, directory: Path, state: ServiceState, timeout: float) -> None:
    """Waits until another datacentre joins while the process ``state`` restarts. Raises PhotonError after
    ``timeout``."""
    from photon.config.errors import PhotonError
    from photon.supervision.draining import nobody_joins

    until = time.monotonic() + timeout
    while why := nobody_joins(tell(directory, "ps"), state):
        if time.monotonic() > until:
            raise PhotonError(
                f"{state.name} was not restarted, because nothing would join meanwhile: {why}; fix that, or "
                f"restart it anyway: photon restart {file} '{state.name}'"
            )
        time.sleep(POLL_S)


@click.command()
@deployed(file=True)
@run_option
@click.option("--timeout", type=click.FloatRange(min=1.0), default=60.0, show_default=True,
              help="Seconds to wait until all processes have stopped.")  # fmt: skip
@dry_run
@audited
def down(at: Deployed, run: Path | None, timeout: float, dry_run: bool) -> None:
    """Stop all processes of photon up, in the order dispatchers, joiners, event stores, caches, registry, proxy.

    Nothing is lost: photon up with the same file continues. Also stops processes left by a killed photon up.

    \b
    Example:
      photon down photon.toml
    Exit codes: 0 nothing runs any more, or nothing ran; 1 a process has not stopped.
    """
    from photon.supervision.detached import running, stop_detached

    directory = place(at.config, run)
    ended = running(directory) if dry_run else stop_detached(directory, timeout)
    what = "would be stopped" if dry_run else "stopped"
    said = f"{many(len(ended), 'process', 'processes')} {what}: {', '.join(ended)}"
    people = said + ("; nothing was changed" if dry_run else "") if ended else f"nothing runs in {directory}"
    at.show({"run": str(directory), "dry_run": dry_run, "ended": ended}, people)
