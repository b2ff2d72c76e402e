"""The Trainer's state by transformers: `trainer_state.json` in a folder for each history. A record
without a step is numbered by its order.
"""

from pathlib import Path

from histories import History, Truth, placed


def write(histories: list[History], folder: Path) -> list[Truth]:
    return [_write(history, folder / history.name) for history in histories]


def _write(history: History, folder: Path) -> Truth:
    from transformers.trainer_callback import TrainerState

    said: list[tuple[int, dict[str, float]]] = []
    state = TrainerState()
    for job, rows in enumerate(history.jobs):
        if job and history.fork is not None:  # as it resumes from the checkpoint before
            said = [(step, values) for step, values in said if step < rows[0].step]
            state.log_history = [log for log in state.log_history if log["step"] < rows[0].step]
        for row in rows:
            place = {} if history.kind == "none" else {"step": row.step}
            said.append((len(said) if history.kind == "none" else row.step, row.values))
            state.log_history.append(row.values | place)
    folder.mkdir()
    state.save_to_json(str(folder / "trainer_state.json"))
    metrics, replaced = placed(said)
    counts = {"replaced": replaced} if replaced else {}
    if history.kind == "none":
        counts["no step"] = sum(len(values) for _, values in said)
    return Truth(history.name, metrics, counts)
