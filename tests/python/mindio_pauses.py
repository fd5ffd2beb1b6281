"""A rank's part in pauses that follow each other at once. Needs no run."""
import threading
import types

from mindio_ttp._kintsugi.rank_pause import RankPause
from mindio_ttp._kintsugi.state import RankState

LIMIT = 30
told, state = [], RankState()


def wait_told(what, times):
    with state.changed:
        assert state.changed.wait_for(lambda: sum(word == what for word, _ in told) == times, LIMIT), told


def tell(what, **more):
    with state.changed:
        told.append((what, more))
        state.changed.notify_all()


pauses = RankPause(types.SimpleNamespace(state=state, link=types.SimpleNamespace(tell=tell), callbacks=types.SimpleNamespace(has=lambda _: False)),
                   leave_now=lambda: None)


def train():
    for step in range(1, 4):
        pauses.pause_train(step)


pauses.on_hold({})
trainer = threading.Thread(target=train, daemon=True)
trainer.start()
pauses.on_pause_at({"step": 1})
wait_told("paused", 1)
with state.changed:  # the trainer's thread does not see the moment between the two
    pauses.on_continue({})
    pauses.on_hold({})
held = [more["step"] for word, more in told if word == "held"]
assert held == [0, 1], told
pauses.on_pause_at({"step": 2})
wait_told("paused", 2)
assert state.last_step == 2, state.last_step
pauses.on_continue({})
trainer.join(LIMIT)
assert not trainer.is_alive() and state.last_step == 3
print("both pauses ended")
