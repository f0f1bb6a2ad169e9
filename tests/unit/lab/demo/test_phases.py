from photon.lab.demo.run import Phases


def _ledgers(east: int, west: int, wasted: int) -> dict[str, dict[str, int]]:
    return {
        "east": {"joined": east, "unmatched": 1, "wasted": wasted},
        "west": {"joined": west, "unmatched": 0, "wasted": 0},
    }


def test_phases_are_what_was_made_between_two_cuts() -> None:
    phases = Phases(_ledgers(0, 0, 0), 10.0)
    phases.end("both up", _ledgers(60, 40, 2), 20.0)
    phases.end("west down", _ledgers(160, 40, 2), 25.0)
    both, alone = phases.done
    assert (both.made, both.wasted, both.seconds) == ({"east": 60, "west": 40}, 2, 10.0)
    assert both.share("west") == 0.4
    assert both.wasted_share == 0.02
    assert alone.share("east") == 1.0


def test_a_phase_without_verdicts_has_no_shares() -> None:
    phases = Phases(_ledgers(5, 5, 1), 0.0)
    phases.end("idle", _ledgers(5, 5, 1), 1.0)
    assert phases.done[0].share("east") == 0.0
    assert phases.done[0].wasted_share == 0.0
