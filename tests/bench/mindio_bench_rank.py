"""What markers of mindio_ttp cost where nothing happens: a world of one. Prints microseconds, of processor time and of the clock.

  mindio_bench_rank.py PORT PAIRS
"""
import json
import sys
import time

from mindio_ttp import framework_ttp as ttp

port, pairs = int(sys.argv[1]), int(sys.argv[2])
ttp.tft_init_controller(0, 1, False)
ttp.tft_start_controller("127.0.0.1", port, False, "")
ttp.tft_init_processor(0, 1, False, False, "")
ttp.tft_start_processor("127.0.0.1", port)
ttp.tft_set_optimizer_replica(0, [{"rank_list": [0], "replica_cnt": 1, "replica_shift": 0}])
figures = {}


def nothing(_):
    pass


def timed(function, clock):
    """Best of five: others use the processor too."""
    global step
    best = float("inf")
    each = pairs // 5
    for _ in range(5):
        begun = clock()
        for _ in range(each):
            step += 1
            function(step)
        best = min(best, (clock() - begun) / each)
    return best * 1e6


step = 0


def pair(number, start=ttp.tft_start_updating_os, end=ttp.tft_end_updating_os):
    start(-1)
    end(number)


@ttp.tft_exception_handler
def train():
    global step
    for name, clock in (("processor", time.thread_time), ("clock", time.perf_counter)):
        kept = step
        loop = timed(nothing, clock)
        pause = timed(ttp.tft_pause_train, clock) - loop
        step = kept
        figures[name] = {"pair": timed(pair, clock) - loop, "pause": pause}


train()
print(json.dumps(figures))
