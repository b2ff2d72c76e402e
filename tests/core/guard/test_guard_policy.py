"""The exit table, the restart table and the reasons to give up: pure values in, pure values out."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from albor_core.guard.policy import (
    Ended,
    ExitClass,
    ExitFacts,
    ExitPolicy,
    ExitStatus,
    Finish,
    GuardMemory,
    Restart,
    TrainerWords,
    classify,
    decide,
    remember,
)
from albor_core.run.guard_options import Options

OPTIONS = Options()
CRASH = classify(ExitStatus(139), ExitFacts())
EXCEPTION = classify(ExitStatus(1), ExitFacts())


def words(code: int, reason: str = "") -> TrainerWords:
    return TrainerWords(code=code, reason=reason, step=7)


SPOKEN = [
    (2, "config", ExitPolicy.FATAL, 2),
    (4, "andon", ExitPolicy.FATAL, 4),
    (5, "internal", ExitPolicy.FATAL, 1),
    (6, "no_checkpoint", ExitPolicy.FATAL, 6),
    (7, "data", ExitPolicy.FATAL, 7),
    (8, "in_use", ExitPolicy.FATAL, 8),
]


@pytest.mark.parametrize(("code", "name", "verdict", "final"), SPOKEN)
def test_codes_2_to_8_mean_what_the_design_says_when_the_last_words_say_so(
    code: int, name: str, verdict: ExitPolicy, final: int
) -> None:
    found = classify(ExitStatus(code), ExitFacts(words=words(code)))
    assert (found.name, found.verdict, found.exit_code) == (name, verdict, final)


@pytest.mark.parametrize("code", [1, 2, 3, 4, 5, 6, 7, 8, 42, 255])
def test_without_last_words_any_other_code_is_an_exception_and_restartable(code: int) -> None:
    found = classify(ExitStatus(code), ExitFacts())
    assert (found.name, found.verdict) == ("exception", ExitPolicy.RESTART)


def test_last_words_of_another_code_do_not_explain_this_exit() -> None:
    assert classify(ExitStatus(2), ExitFacts(words=words(0, "completed"))).name == "exception"


SIGNALS = {
    129: "external",
    130: "external",
    131: "crash",
    132: "fatal_signal",
    133: "signal",
    134: "crash",
    135: "fatal_signal",
    136: "crash",
    137: "killed",
    138: "signal",
    139: "crash",
    141: "signal",
    143: "external",
    152: "signal",
    153: "fatal_signal",
    159: "fatal_signal",
}


@pytest.mark.parametrize("code", range(129, 160))
def test_every_signal_has_its_class(code: int) -> None:
    found = classify(ExitStatus(code), ExitFacts())
    assert found.name == SIGNALS.get(code, "signal")
    assert found.verdict is (
        ExitPolicy.FATAL if found.name == "fatal_signal" else ExitPolicy.RESTART
    )
    assert found.is_crash is (found.name == "crash")


def test_exit_75_is_a_passing_trouble() -> None:
    assert classify(ExitStatus(75), ExitFacts()).name == "temporary"


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        (ExitFacts(words=words(0, "completed")), "done"),
        (ExitFacts(words=words(0, "early_stopped")), "done"),
        (ExitFacts(reached_end=True), "done"),
        (ExitFacts(needs_words=False), "done"),
        (ExitFacts(), "early_exit"),
    ],
)
def test_exit_0_is_only_the_end_when_something_says_so(facts: ExitFacts, name: str) -> None:
    assert classify(ExitStatus(0), facts).name == name


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        (ExitFacts(needs_words=False), "stopped"),
        (ExitFacts(needs_words=False, words=words(0, "completed")), "stopped"),  # it says so itself
        (ExitFacts(needs_words=False, reached_end=True), "done"),
        (ExitFacts(words=words(0, "completed")), "done"),  # our trainer knows its end
        (ExitFacts(words=words(0, "early_stopped")), "done"),
        (ExitFacts(words=words(0, "stopped")), "stopped"),
        (ExitFacts(), "stopped"),
    ],
)
def test_exit_0_of_a_program_that_was_asked_to_stop_is_only_the_end_at_its_last_step(
    facts: ExitFacts, name: str
) -> None:
    found = classify(ExitStatus(0), replace(facts, stop_signal=15))
    assert found.name == name
    assert found.exit_code == (143 if name == "stopped" else 0)


def test_a_trainer_that_left_after_the_step_it_was_told_is_not_started_again() -> None:
    kind = classify(ExitStatus(0), ExitFacts(words=words(0, "stopped")))
    action = decide(GuardMemory(), ended(kind), OPTIONS)[1]
    assert isinstance(action, Finish)
    assert (action.state, action.exit_code) == ("stopped", 0)


def test_a_hung_program_that_leaves_with_0_when_it_is_ended_has_not_done_its_work() -> None:
    assert classify(ExitStatus(0), ExitFacts(needs_words=False, hung=True)).name == "hang"
    at_end = ExitFacts(needs_words=False, hung=True, reached_end=True)
    assert classify(ExitStatus(0), at_end).name == "done"


@pytest.mark.parametrize("code", [0, 1, 2, 3, 42, 75, 129, 130, 132, 135, 137, 139, 143, 255])
def test_a_stop_ends_as_stopped_whatever_the_exit_code(code: int) -> None:
    facts = ExitFacts(needs_words=False, stop_signal=15)
    kind = classify(ExitStatus(code), facts)
    action = decide(GuardMemory(), ended(kind, stop_signal=15), OPTIONS)[1]
    assert isinstance(action, Finish)
    assert (action.state, action.exit_code) == ("stopped", 143)


@pytest.mark.parametrize(
    ("code", "facts", "name"),
    [
        (137, ExitFacts(oom_killed=True), "oom_host"),
        (137, ExitFacts(oom_killed=False), "killed"),
        (137, ExitFacts(oom_killed=None), "killed"),
        (1, ExitFacts(out_of_memory=True), "oom_host"),
        (1, ExitFacts(words=words(1, "gpu_memory")), "oom_gpu"),
        (137, ExitFacts(killed_by_guard=True), "killed_by_guard"),
        (137, ExitFacts(killed_by_guard=True, stop_signal=15), "stopped"),
        (143, ExitFacts(stop_signal=15), "stopped"),
        (None, ExitFacts(stop_signal=15), "stopped"),
        (137, ExitFacts(hung=True, killed_by_guard=True), "hang"),
        (143, ExitFacts(hung=True, stop_signal=15), "hang"),
        (None, ExitFacts(), "unknown_exit"),
        (139, ExitFacts(xids=(31,)), "crash"),
        (139, ExitFacts(xids=(31, 79)), "gpu_lost"),
        (1, ExitFacts(xids=(48,)), "gpu_lost"),
        (8, ExitFacts(locked_out=True), "in_use"),
        (4, ExitFacts(words=words(4, "andon"), stop_signal=15), "andon"),
        (137, ExitFacts(words=words(4, "andon")), "andon"),  # killed on its way out
        (139, ExitFacts(words=words(0, "completed")), "done"),
        (137, ExitFacts(words=words(0, "stopped")), "killed"),
    ],
)
def test_evidence_decides_where_the_code_alone_cannot(
    code: int | None, facts: ExitFacts, name: str
) -> None:
    assert classify(ExitStatus(code), facts).name == name


def test_an_unknown_status_is_read_from_the_last_words() -> None:
    found = classify(ExitStatus(None, "unknown"), ExitFacts(words=words(0, "completed")))
    assert found.verdict is ExitPolicy.DONE


# --- restarts ------------------------------------------------------------------------------------


def ended(kind: ExitClass = EXCEPTION, **changes: object) -> Ended:
    values: dict[str, object] = {"now_s": 0.0, "lived_s": 1.0, "step": 5, **changes}
    return Ended(kind, ExitStatus(1), **values)  # type: ignore[arg-type]


def crash_loop(lives: int, *, progress: bool, lived_s: float = 1.0) -> list[Restart | Finish]:
    memory, actions = GuardMemory(), []
    for life in range(lives):
        event = ended(
            checkpoint=life * 10 + 10 if progress else None,
            lived_s=lived_s,
            now_s=life * 1000.0,
        )
        memory, action = decide(memory, event, OPTIONS)
        actions.append(action)
    return actions


def delays(actions: list[Restart | Finish]) -> list[float]:
    return [action.delay_s for action in actions if isinstance(action, Restart)]


def test_a_crash_loop_waits_exactly_by_the_table() -> None:
    assert delays(crash_loop(8, progress=True)) == [30, 60, 120, 240, 600, 600, 600, 600]


def test_the_guard_gives_up_after_three_restarts_without_a_newer_checkpoint() -> None:
    actions = crash_loop(4, progress=False)
    assert delays(actions) == [30, 60, 120]
    last = actions[-1]
    assert isinstance(last, Finish)
    assert (last.state, last.exit_code) == ("failed", 5)


def test_a_newer_checkpoint_forgives_earlier_restarts() -> None:
    memory = GuardMemory(no_progress=3, checkpoint=100, backoff_index=3)
    after, action = decide(memory, ended(checkpoint=101), OPTIONS)
    assert isinstance(action, Restart)
    assert after.no_progress == 0


def test_an_old_or_vanished_checkpoint_is_no_progress() -> None:
    for checkpoint in (100, 99, None):
        memory = GuardMemory(no_progress=3, checkpoint=100)
        action = decide(memory, ended(checkpoint=checkpoint), OPTIONS)[1]
        assert isinstance(action, Finish), checkpoint


def test_an_hour_of_life_with_a_newer_checkpoint_starts_the_table_again() -> None:
    memory = GuardMemory(backoff_index=4, checkpoint=10)
    stable = ended(checkpoint=20, lived_s=3600.0)
    assert delays([decide(memory, stable, OPTIONS)[1]]) == [30]
    assert delays([decide(memory, ended(checkpoint=20, lived_s=3599.0), OPTIONS)[1]]) == [600]
    assert delays([decide(memory, ended(checkpoint=10, lived_s=7200.0), OPTIONS)[1]]) == [600]


def test_a_diagnostic_life_is_never_called_stable() -> None:
    memory = GuardMemory(backoff_index=4, checkpoint=10, is_diagnostic=True)
    assert delays([decide(memory, ended(checkpoint=20, lived_s=7200.0), OPTIONS)[1]]) == [600]


def test_fifty_restarts_a_day_are_the_end_and_older_ones_are_forgotten() -> None:
    memory = GuardMemory(restarts_s=tuple(float(at) for at in range(50)), checkpoint=1)
    event = ended(checkpoint=2, now_s=86_399.0)
    last = decide(memory, event, OPTIONS)[1]
    assert isinstance(last, Finish)
    assert last.exit_code == 5
    next_day = decide(memory, ended(checkpoint=2, now_s=86_425.0), OPTIONS)[1]
    assert isinstance(next_day, Restart)


def test_the_same_exception_at_the_same_place_and_step_twice_is_a_bug() -> None:
    fault = ("ValueError", "loop.py:12", 812)
    memory, first = decide(GuardMemory(), ended(fault=fault), OPTIONS)
    assert isinstance(first, Restart)
    again = decide(memory, ended(fault=fault, checkpoint=800), OPTIONS)[1]
    assert isinstance(again, Finish)
    assert (again.state, again.exit_code) == ("failed", 1)
    for other in (("KeyError", "loop.py:12", 812), ("ValueError", "loop.py:12", 813), None):
        assert isinstance(decide(memory, ended(fault=other), OPTIONS)[1], Restart), other


TYPO = "ModuleNotFoundError: No module named 'nunpy'"


def unlogged(error: str = TYPO, **changes: object) -> Ended:
    return ended(step=None, error=error, is_unlogged=True, **changes)


def test_an_exception_before_a_step_is_tried_again_at_once_and_the_same_is_final() -> None:
    memory, first = decide(GuardMemory(), unlogged(), OPTIONS)
    assert first == Restart(0.0, TYPO)
    assert decide(memory, unlogged(), OPTIONS)[1] == Finish("failed", 5, TYPO)


def test_another_exception_before_the_first_logged_step_waits_by_the_table() -> None:
    memory, _ = decide(GuardMemory(), unlogged(), OPTIONS)
    memory, second = decide(memory, unlogged("OSError: busy"), OPTIONS)
    memory, third = decide(memory, unlogged(), OPTIONS)
    assert delays([second, third]) == [30, 60]
    assert decide(memory, unlogged(), OPTIONS)[1] == Finish("failed", 5, TYPO)


def test_the_same_words_from_a_life_that_had_logged_are_no_typo() -> None:
    memory, first = decide(GuardMemory(), ended(error=TYPO), OPTIONS)
    assert isinstance(first, Restart) and (first.delay_s, first.reason) == (30, TYPO)
    memory, second = decide(memory, unlogged(), OPTIONS)  # the first before its first step
    assert delays([second]) == [0]
    assert delays([decide(memory, ended(error=TYPO), OPTIONS)[1]]) == [60]


@pytest.mark.parametrize("code", [75, 134, 137, 139, 143])
def test_other_classes_keep_the_table_before_the_first_step(code: int) -> None:
    kind = classify(ExitStatus(code), ExitFacts())
    assert delays(
        [decide(GuardMemory(), ended(kind, error="x", is_unlogged=True), OPTIONS)[1]]
    ) == [30]


def test_a_program_that_says_nothing_and_exits_alike_twice_is_final_too() -> None:
    memory, first = decide(GuardMemory(), unlogged(""), OPTIONS)
    assert first == Restart(0.0, "exited with code 1")
    assert decide(memory, unlogged(""), OPTIONS)[1] == Finish("failed", 5, first.reason)


@pytest.mark.parametrize("limit", [0, 1, 5])
def test_a_number_of_restarts_is_kept_to_whatever_ends_the_lives(limit: int) -> None:
    memory, options, actions = GuardMemory(), Options(restarts=limit), []
    for _ in range(limit + 1):
        memory, action = decide(memory, unlogged(fault=("E", "x.py:1", 0)), options)
        actions.append(action)
    assert delays(actions) == [0, 30, 60, 120, 240][:limit]
    last = actions[-1]
    assert isinstance(last, Finish) and last.exit_code == 5
    assert last.reason.startswith(TYPO)


def test_no_number_of_restarts_brings_back_what_is_final() -> None:
    andon = classify(ExitStatus(4), ExitFacts(words=words(4, "andon")))
    action = decide(GuardMemory(), ended(andon), Options(restarts=9))[1]
    assert isinstance(action, Finish) and action.exit_code == 4


def test_a_crash_before_the_first_step_gets_one_diagnostic_life_and_a_second_one_is_the_end() -> (
    None
):
    early = ended(CRASH, step=0, before_first_step=True)
    memory, first = decide(GuardMemory(), early, OPTIONS)
    assert isinstance(first, Restart)
    assert first.is_diagnostic
    assert memory.is_diagnostic
    second = decide(memory, early, OPTIONS)[1]
    assert isinstance(second, Finish)
    assert second.links_reports
    later, third = decide(memory, ended(CRASH, step=9), OPTIONS)
    assert isinstance(third, Restart)
    assert not third.is_diagnostic
    assert not later.is_diagnostic


def test_a_stop_is_a_stop_however_the_program_takes_it() -> None:
    action = decide(GuardMemory(), ended(stop_signal=2), OPTIONS)[1]
    assert action == Finish("stopped", 130, action.reason)
    done = classify(ExitStatus(0), ExitFacts(words=words(0, "completed"), stop_signal=15))
    finished = decide(GuardMemory(), ended(done, stop_signal=15), OPTIONS)[1]
    assert isinstance(finished, Finish)
    assert (finished.state, finished.exit_code) == ("done", 0)


def test_memory_survives_the_guards_own_death_and_forgets_clocks_of_another_boot() -> None:
    memory = GuardMemory((5.0, 9.5), 3, 2, 800, ("ValueError", "loop.py:12", 812), True, TYPO, 7)
    document = json.loads(json.dumps(asdict(memory)))
    assert remember(document, same_boot=True) == memory
    assert remember(document, same_boot=False).restarts_s == ()
    assert (
        remember({"fault": 3, "no_progress": "x", "restarts_s": 1}, same_boot=True) == GuardMemory()
    )
