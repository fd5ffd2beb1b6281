"""What mindio_ttp says to wrong calls: each with its class and the words that name place and remedy. One process, a world of one.

  mindio_mistakes.py          all of them, or the name of the first that is wrong
"""
import ctypes
import os
import socket
import subprocess
import sys

import mindio_ttp
from mindio_ttp import controller_ttp, framework_ttp as ttp, utils
from mindio_ttp.framework_ttp import ttp_decorator as decorator


def nothing(*_):
    pass


def refused(what, error, words, call):
    try:
        call()
    except BaseException as raised:
        wrong = None if type(raised) is error or (error is Exception and isinstance(raised, Exception) and not isinstance(raised, TypeError)) else raised
        if wrong is not None:
            raise AssertionError(f"{what}: {type(raised).__name__} instead of {error.__name__}: {raised}") from raised
        for word in words:
            assert word in str(raised), f"{what}: '{word}' is not in: {raised}"
        return
    raise AssertionError(f"{what}: not refused")


def port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ends(what, words, code):
    """In a process of its own, which must end with exit code 2."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", "from mindio_ttp import framework_ttp as ttp\n" + code], capture_output=True,
                          text=True, timeout=60, env={**os.environ, "TTP_RETRY_TIMES": "1"}, check=False)
    assert done.returncode == 2, f"{what}: exit code {done.returncode}\n{done.stderr}"
    for word in words:
        assert word in done.stderr, f"{what}: '{word}' is not in\n{done.stderr}"


HANDLERS = ("save_ckpt", "rename", "exit", "stop", "clean", "rebuild_group", "repair", "rollback", "stream_sync", "zit_downgrade_rebuild",
            "zit_upgrade_rebuild", "zit_upgrade_repair", "zit_upgrade_rollback")


# Under the names by which MindSpore looks for them, and an older one.
LIBRARIES = ("mindspore_api/libttp_c_api.so", "framework_ttp/libttp_framework.so", "libttp.so")


def c_entries():
    """(start, end) of each library."""
    for name in LIBRARIES:
        library = ctypes.CDLL(os.path.join(mindio_ttp.__path__[0], name))
        yield tuple(lambda step, f=f: f(ctypes.c_int64(step)) for f in (library.MindioTtpSetOptimStatusUpdating, library.MindioTtpSetOptimStatusFinished))


def before_anything():
    for start, end in c_entries():
        assert start(-1) == 1 and end(1) == 1, "no processor"
    for name in HANDLERS:
        register = getattr(ttp, f"tft_register_{name}_handler")
        refused(name, TypeError, [f"tft_register_{name}_handler", "not callable"], lambda r=register: r(3))
        assert register(nothing) is None and register(nothing, ctx=7) is None
    refused("decorator", TypeError, ["tft_exception_handler", "not callable"], lambda: ttp.tft_exception_handler("train"))
    refused("decrypt", TypeError, ["tft_register_decrypt_handler"], lambda: ttp.tft_register_decrypt_handler(1))
    assert ttp.tft_register_decrypt_handler(None) is None
    refused("pattern", Exception, ["fault_pattern"], lambda: ttp.tft_register_exception_handler(1, "RS_RETRY", nothing))
    refused("pattern empty", Exception, ["fault_pattern is empty"], lambda: ttp.tft_register_exception_handler("", "RS_RETRY", nothing))
    refused("fault type", Exception, ["RS_NOTHING", "RS_NORMAL"], lambda: ttp.tft_register_exception_handler("X", "RS_NOTHING", nothing))
    refused("fault handle", TypeError, ["not callable"], lambda: ttp.tft_register_exception_handler("X", "RS_RETRY", None))
    init = ttp.tft_init_controller
    refused("world 0", Exception, ["world_size is 0", "1 to 100000"], lambda: init(0, 0, False))
    refused("world large", Exception, ["100001"], lambda: init(0, 100001, False))
    refused("world text", Exception, ["world_size is '4'", "an integer"], lambda: init(0, "4", False))
    refused("rank high", Exception, ["rank is 4", "-1 to 3"], lambda: init(4, 4, False))
    refused("rank low", Exception, ["rank is -2"], lambda: init(-2, 4, False))
    refused("flag", Exception, ["enable_arf is 1", "True or False"], lambda: init(0, 4, False, 1))
    refused("local copy", Exception, ["enable_local_copy is not offered"], lambda: init(0, 4, True))
    refused("no controller", SystemExit, ["2"], lambda: ttp.tft_start_controller("127.0.0.1", 8000, False, ""))
    for call in (lambda: ttp.tft_start_updating_os(), lambda: ttp.tft_end_updating_os(1), lambda: ttp.tft_start_copy_os(),
                 lambda: ttp.tft_set_optimizer_replica(0, []), lambda: ttp.tft_set_dp_group_info(0, [0]), lambda: ttp.tft_report_error(0),
                 lambda: ttp.tft_wait_next_action(), lambda: decorator.tft_wait_repair_action(), lambda: ttp.tft_is_reboot_node(),
                 lambda: ttp.tft_report_load_ckpt_step(1), lambda: ttp.tft_exception_handler(nothing)()):
        refused("no processor", Exception, ["processor", "comes first"], call)
    assert ttp.tft_get_repair_step() == 0 and ttp.tft_get_repair_type() == "unknown" and ttp.tft_pause_train(3) is None
    assert ttp.tft_reset_limit_step() is None and ttp.tft_destroy_controller() is None and ttp.tft_destroy_processor() is None
    refused("version", Exception, ["MindSpeed or MindSpeed-LLM"], lambda: ttp.set_mindio_export_version("Megatron"))
    refused("report", Exception, ["error_type is 9", "ReportState"], lambda: ttp.tft_report_error(9))
    refused("report enum", Exception, ["error_type"], lambda: ttp.tft_report_error(ttp.ReportState.RS_UCE))
    refused("code", Exception, ["fewer than 16"], lambda: ttp.tft_report_error(0, "x" * 16))
    assert ttp.tft_set_step_args(None) is None


def scheduler():
    c = controller_ttp
    assert c.tft_register_mindx_callback("report_nothing", nothing) == 1
    assert c.tft_register_mindx_callback("report_result", 3) == 1
    assert c.tft_query_high_availability_switch() is False
    for call in (c.tft_notify_controller_dump, lambda: c.tft_notify_controller_stop_train({}), lambda: c.tft_notify_controller_on_global_rank({}),
                 lambda: c.tft_notify_controller_change_strategy("retry"), lambda: c.tft_notify_controller_prepare_action("hot switch")):
        assert call() == 1


def times():
    can = utils.tft_can_do_uce_repair
    assert can(10, 3, 5) is True and can(4, 3, 5) is True and can(2, 3, 5) is False and can(3, 3, 5) is False
    assert can(10) is False and can(0, 3, 5) is False and can(None, 3, 5) is False and can(10, 3) is False
    utils.tft_set_update_start_time(3)
    utils.tft_set_update_end_time(5)
    assert can(10) is True and can(2) is False and ttp.tft_can_do_uce_repair(10) is True
    utils.tft_set_update_start_time()
    assert can(10) is False, "the update that began just now may have used it"
    assert utils.get_l2_hbm_error_time("HBM MULTI BIT ECC time us= 123, x") == 123 and utils.get_l2_hbm_error_time("nothing") is None
    refused("time", Exception, ["start_time is 'x'"], lambda: utils.tft_set_update_start_time("x"))
    refused("time text", Exception, ["text is 3"], lambda: utils.get_l2_hbm_error_time(3))


def patterns():
    from mindio_ttp._kintsugi.faults import FaultTable
    state = ttp.ReportState
    table = FaultTable()
    for text, expected in (("UCE ERROR device error type 507054", (state.RS_UCE, "507054")), ("HBM MULTI BIT ECC", (state.RS_UCE, "")),
                           ("a FORCE STOP b", (state.RS_NORMAL, "")), ("ARF FINISH", (state.RS_PREREPAIR_FINISH, "")),
                           ("STEP FINISH", (state.RS_STEP_FINISH, "")), ("HCCL OP RETRY FAILED", (state.RS_HCCL_FAILED, "")),
                           ("SUSPECT REMOTE ERROR", (state.RS_HCCL_FAILED, "")), ("UB LINK ERROR", (state.RS_HCCL_FAILED, "")),
                           ("HCCS LINK ERROR", (state.RS_HCCL_FAILED, "")), ("anything", (state.RS_UNKNOWN, "")),
                           ("UCE ERROR and FORCE STOP", (state.RS_UCE, ""))):
        assert table.classify(text, True, lambda _: True) == expected, text
    assert table.classify("HBM MULTI BIT ECC", True, lambda _: False)[0] is state.RS_UCE_CORRUPTED
    for text in ("UCE ERROR", "HBM MULTI BIT ECC", "HCCL OP RETRY FAILED", "UB LINK ERROR"):
        assert table.classify(text, False, lambda _: True)[0] is state.RS_UNKNOWN, text
    assert table.classify("FORCE STOP", False, lambda _: True)[0] is state.RS_NORMAL
    table.register("PRECISION ERROR", "RS_RETRY", lambda text: "PRECISION ERROR")
    assert table.classify("a PRECISION ERROR", True, lambda _: True)[0] is state.RS_RETRY
    table.register("ODD", "RS_RETRY", lambda text: "nowhere")
    refused("handle", Exception, ["'nowhere'", "no known pattern"], lambda: table.classify("ODD", True, lambda _: True))


def groups():
    from mindio_ttp._kintsugi.layout import Group, World, parse

    def entry(ranks, count=2, **more):
        return {"rank_list": ranks, "replica_cnt": count, "replica_shift": 0, **more}

    def parsed(info, rank=0, world=4, equal=False):
        return parse("call", rank, world, info, equal)

    assert parsed([entry([2, 0], 2, type=1)]) == [Group((0, 2), 2)], "sorted, other keys ignored"
    for info, words in (({}, "a list of dictionaries"), ([], "a list of dictionaries"), ([3], "a dictionary is needed"), ([{}], "lacks rank_list"),
                        ([entry([])], "a list of ranks"), ([entry([0, 4])], "0 to 3"), ([entry([0, 0])], "named twice"), ([entry([1, 2])], "without rank 0"),
                        ([entry([0, 1], 3)], "1 to 2"), ([entry([0, 1], 0)], "1 to 2"), ([entry([0, 1, 2], 2)], "do not divide"),
                        ([entry([0, 1], True)], "an integer"), ([entry([0])] * 1001, "1000 are allowed")):
        refused(f"replica_info {str(info)[:60]}", Exception, [words], lambda i=info: parsed(i))
    refused("MindSpore", Exception, ["must be equal"], lambda: parsed([entry([0, 1, 2, 3])], equal=True))

    def told(*said, world=4):
        all_of = World(world)
        return [all_of.add(rank, [Group(tuple(ranks), count) for ranks, count in kinds]) for rank, kinds in said]

    half = [((0, 1), 2)], [((2, 3), 2)]
    assert told((0, half[0]), (1, half[0]), (2, half[1]), (3, half[1])) == ["", "", "", ""]
    assert "unequal" in told((0, half[0]), (1, [((1, 2, 3), 3)]))[1]
    assert "overlap" in told((0, half[0]), (2, [((1, 2), 2)]))[1]
    assert "unequal" in told((0, half[0]), (1, [((0, 1), 1)]))[1]
    assert "optimizer types" in told((0, half[0]), (1, half[0] * 2))[1]
    assert "cannot cover" in told((0, [((0, 1, 2), 3)]))[0]
    assert "cover 2 of 4" in told((0, half[0]), (1, half[0]), (2, half[0]), (3, half[0]))[3]


def shrinking():
    """Who is left out, and why nobody can be."""
    from mindio_ttp._kintsugi.elastic import HANDLERS, CannotShrink, Elastic, isolated, remaining, shrink, why_not
    from mindio_ttp._kintsugi.layout import Group

    def world(dp_groups, *types):
        """types: (groups, replicas)"""
        told = {rank: [next(Group(g, count) for g in groups if rank in g) for groups, count in types] for g in dp_groups for rank in g}
        return told, {rank: Elastic(g, HANDLERS) for g in dp_groups for rank in g}

    one = world([(0, 1, 2, 3)], ([(0, 1, 2, 3)], 2))
    assert isolated(*one, {2}) == {2} and shrink(*one, {2}) == {2} and shrink(*one, {2, 3}) == {2, 3} and shrink(*one, {1, 2}) == {1, 2}
    # With tensor parallelism a slice of data parallelism is a rank of every group.
    two = world([(0, 2, 4, 6), (1, 3, 5, 7)], ([(0, 2, 4, 6), (1, 3, 5, 7)], 2))
    assert shrink(*two, {4}) == {4, 5} and shrink(*two, {4, 7}) == {4, 5, 6, 7}
    # With context parallelism the optimizer's groups are larger than the data-parallel ones, whose slices go as a whole.
    context = world([(0, 2, 4, 6), (1, 3, 5, 7)], ([tuple(range(8))], 2))
    assert isolated(*context, {4}) == {4, 5}
    # With experts they are smaller, and a place there is several in the others.
    experts = world([(0, 1, 2, 3)], ([(0, 1, 2, 3)], 2), ([(0, 2), (1, 3)], 2))
    assert isolated(*experts, {2}) == {2, 3} and shrink(*experts, {2}) == {2, 3}
    # What was left out before stays so.
    assert shrink(*two, {4, 5} | {2}) == {2, 3, 4, 5}
    assert remaining((0, 2, 4, 6), [0, 1, 2, 3, 6, 7]) == [0, 2, 6]

    def cannot(what, words, may_dump, *given):
        try:
            shrink(*given)
        except CannotShrink as error:
            assert all(word in str(error) for word in words) and error.may_dump is may_dump, f"{what}: {error}"
            return
        raise AssertionError(f"{what}: not refused")

    cannot("rank 0", ["rank 0 must stay"], True, *one, {0})
    cannot("rank 0's slice", ["[0, 1]", "rank 0 must stay"], True, *two, {1})
    cannot("both holders", ["all holders of rank 1's part of optimizer type 0: [1, 3]"], False, *one, {1, 3})
    cannot("both holders, one of them left out before", ["[2, 6]"], False, *two, {2, 3, 6})
    cannot("no copies", ["[2]"], False, *world([(0, 1, 2, 3)], ([(0, 1, 2, 3)], 1)), {2})
    cannot("rank 0 and the last copy", ["all holders of rank 0's part"], False, *one, {0, 2})

    def keeps(words, groups, said, size=4):
        text = why_not(size, groups, said)
        assert words in text if words else text == "", text

    groups, said = one
    keeps("", groups, said)
    keeps("rank 3 has not begun", groups, {rank: said[rank] for rank in (0, 1, 2)})
    keeps("rank 3 has not begun", {rank: groups[rank] for rank in (0, 1, 2)}, said)
    keeps("rank 1 was initialized without enable_zit", groups, {**said, 1: Elastic((0, 1, 2, 3), HANDLERS, False)})
    keeps("rank 2 has not set its data-parallel group (tft_set_dp_group_info)", groups, {**said, 2: Elastic((), HANDLERS)})
    keeps("no zit_upgrade_repair handler (tft_register_zit_upgrade_repair_handler)", groups,
          {**said, 2: Elastic((0, 1, 2, 3), tuple(name for name in HANDLERS if name != "zit_upgrade_repair"))})
    keeps("its member rank 2's is [2, 3]", groups, {**said, 2: Elastic((2, 3), HANDLERS), 3: Elastic((2, 3), HANDLERS)})
    uneven = {0: Elastic((0, 1, 2), HANDLERS), 1: Elastic((0, 1, 2), HANDLERS), 2: Elastic((0, 1, 2), HANDLERS), 3: Elastic((3,), HANDLERS)}
    keeps("rank 3's data-parallel group has 1 ranks, rank 0's has 3", groups, uneven)


def missed_loops():
    """A loop may be opened and closed again before the main thread, which waits for it, runs: on a busy machine, between two incidents."""
    import threading

    from mindio_ttp._kintsugi.callbacks import Callbacks
    from mindio_ttp._kintsugi.codes import Action, ReportState
    from mindio_ttp._kintsugi.faults import FaultTable
    from mindio_ttp._kintsugi.processor import Processor

    def goes_on(call, reported=None):
        processor = Processor(0, 2, Callbacks(), FaultTable(), True)
        processor.rank.agent = processor._guard = object()
        state, results = processor.state, []
        state.reported = reported
        main = threading.Thread(target=lambda: results.append(call(processor)), daemon=True)
        main.start()
        while not state.waits:
            pass
        with state.changed:
            state.open_loop(4)
            state.close_loop(lambda: True)
        main.join(20)
        assert results, call
        return results[0]

    retry = Action.RETRY.value
    assert goes_on(lambda processor: processor.reports.wait_repair_action(), ReportState.RS_NORMAL) == retry
    assert goes_on(lambda processor: processor.reports.wait_next_action(), ReportState.RS_NORMAL) == retry
    assert goes_on(lambda processor: processor.reports.wait_next_action(), ReportState.RS_INIT_FINISH) == retry
    assert goes_on(lambda processor: processor.await_loop()) is None
    assert goes_on(lambda processor: processor.finish()) is False


def with_a_processor():
    at = port()
    ttp.tft_init_controller(0, 1, False, True)
    refused("controller twice", Exception, ["there is a controller already"], lambda: ttp.tft_init_controller(0, 1, False))
    refused("port low", SystemExit, ["2"], lambda: ttp.tft_start_controller("127.0.0.1", 80, False))
    refused("all zero", SystemExit, ["2"], lambda: ttp.tft_start_controller("0.0.0.0", at, False))
    refused("TLS without files", SystemExit, ["2"], lambda: ttp.tft_start_controller("127.0.0.1", at))
    ttp.tft_start_controller("127.0.0.1", at, False, "")
    refused("started twice", SystemExit, ["2"], lambda: ttp.tft_start_controller("127.0.0.1", at, False))
    assert controller_ttp.tft_register_mindx_callback("report_result", nothing) == 1, "after the start"
    assert controller_ttp.tft_query_high_availability_switch() is False
    ttp.tft_init_processor(0, 1, False, False, "", True, True)
    refused("not started", Exception, ["tft_start_processor comes first"], ttp.tft_is_reboot_node)
    ttp.tft_start_processor("127.0.0.1", at)
    assert controller_ttp.tft_query_high_availability_switch() is True
    assert ttp.tft_is_reboot_node() is False and ttp.tft_is_reboot_node() is False and ttp.tft_get_reboot_type() == "arf"
    for call in (lambda: controller_ttp.tft_notify_controller_stop_train([]), lambda: controller_ttp.tft_notify_controller_stop_train({}, "rest"),
                 lambda: controller_ttp.tft_notify_controller_stop_train({0: 3}), lambda: controller_ttp.tft_notify_controller_on_global_rank({}, 0),
                 lambda: controller_ttp.tft_notify_controller_on_global_rank({}, 3601),
                 lambda: controller_ttp.tft_notify_controller_change_strategy("onwards"),
                 lambda: controller_ttp.tft_notify_controller_change_strategy("retry", "x" * 1024),
                 lambda: controller_ttp.tft_notify_controller_prepare_action("sleep"), controller_ttp.tft_notify_controller_dump,
                 lambda: controller_ttp.tft_notify_controller_prepare_action("hot switch", {0: 1}),
                 lambda: controller_ttp.tft_notify_controller_prepare_action("hot switch", {9: 1})):
        assert call() == 1
    assert controller_ttp.tft_notify_controller_prepare_action("stop switch") == 0  # nothing is being switched
    refused("copy", Exception, ["enable_local_copy is not offered"], ttp.tft_start_copy_os)
    ttp.tft_set_dp_group_info(0, [0])
    refused("step args", Exception, ["1 to"], lambda: ttp.tft_end_updating_os(0))
    refused("step text", Exception, ["an integer"], lambda: ttp.tft_end_updating_os("1"))
    refused("end first", Exception, ["tft_start_updating_os comes first"], lambda: ttp.tft_end_updating_os(1))
    refused("backup", Exception, ["backup_step is -2"], lambda: ttp.tft_start_updating_os(-2))
    ttp.tft_start_updating_os()  # before the replicas are known: counted, not protected
    ttp.tft_end_updating_os(6)
    ttp.tft_start_updating_os(-1)
    refused("goes back", Exception, ["step 7 is the one under way"], lambda: ttp.tft_end_updating_os(6))
    ttp.tft_end_updating_os(7)
    ttp.tft_set_optimizer_replica(0, [{"rank_list": [0], "replica_cnt": 1, "replica_shift": 0}])
    ttp.tft_start_updating_os(-1)
    refused("update twice", Exception, ["is under way"], lambda: ttp.tft_start_updating_os(-1))
    ttp.tft_end_updating_os(8)
    ttp.tft_start_updating_os(-1)
    refused("back again", Exception, ["step 9 is the one under way"], lambda: ttp.tft_end_updating_os(8))
    ttp.tft_end_updating_os(9)
    for number, (start, end) in enumerate(c_entries()):
        step = 10 + number
        assert end(step) == 1 and start(-2) == 1 and start(1 << 62) == 0, "the end first; no backup step; one that is"
        assert start(-1) == 1 and end(0) == 1 and end(-1) == 1 and end(step - 1) == 1 and end(step) == 0, "twice; no numbers of a step; the last one; this one"
    refused("other groups", Exception, ["training has begun"], lambda: ttp.tft_set_optimizer_replica(
        0, [{"rank_list": [0], "replica_cnt": 1, "replica_shift": 0}] * 2))
    assert ttp.tft_pause_train(-1) is None and ttp.tft_pause_train(9) is None
    refused("loaded", Exception, ["step is 0"], lambda: ttp.tft_report_load_ckpt_step(0))
    ttp.set_mindio_export_version("MindSpeed-LLM")
    assert decorator.get_mindio_export_version() == "MindSpeed-LLM" and os.environ["TTP_STOP_CLEAN_BEFORE_DUMP"] == "1"
    ttp.tft_destroy_processor()
    ttp.tft_destroy_processor()
    ttp.tft_destroy_controller()
    ttp.tft_destroy_controller()


def processes():
    ends("processor rank", ["rank is 4", "exit code 2"], "ttp.tft_init_processor(4, 4, False, False)")
    ends("processor zit for MindSpore", ["enable_zit is not offered for MindSpore"],
         "import os; os.environ['MINDIO_FOR_MINDSPORE'] = '1'\nttp.tft_init_processor(0, 4, False, False, enable_zit=True)")
    ends("zit without a scheduler", ["enable_zit: nobody would choose downgrade", "a run does not go on with fewer ranks", "port is 70000"],
         "ttp.tft_init_controller(0, 4, False, False, True); ttp.tft_start_controller('127.0.0.1', 70000, False)")
    ends("no processor", ["tft_init_processor comes first"], "ttp.tft_start_processor('127.0.0.1', 8000)")
    ends("nobody there", ["no controller at 127.0.0.1"], f"ttp.tft_init_processor(0, 4, False, False); ttp.tft_start_processor('127.0.0.1', {port()})")
    ends("start twice, port", ["port is 70000"], "ttp.tft_init_controller(0, 4, False); ttp.tft_start_controller('127.0.0.1', 70000, False)")
    at = port()
    ends("another world", ["rank 1 of 2 does not belong to a controller of 4 ranks"],
         f"ttp.tft_init_controller(-1, 4, False); ttp.tft_start_controller('127.0.0.1', {at}, False)\n"
         f"ttp.tft_init_processor(1, 2, False, False); ttp.tft_start_processor('127.0.0.1', {at})")
    at = port()
    ends("two of one rank", ["rank 1 has a processor already", "one process is one rank"],
         f"import os\nttp.tft_init_controller(-1, 4, False); ttp.tft_start_controller('127.0.0.1', {at}, False)\n"
         f"from mindio_ttp._kintsugi.processor import Processor\nfrom mindio_ttp._kintsugi.session import SESSION\n"
         f"first = Processor(1, 4, SESSION.callbacks, SESSION.faults, True); first.start('127.0.0.1', {at}, '', None, [])\n"
         f"ttp.tft_init_processor(1, 4, False, False); ttp.tft_start_processor('127.0.0.1', {at})")


if __name__ == "__main__":
    for part in (before_anything, scheduler, times, patterns, groups, shrinking, missed_loops, with_a_processor, processes):
        part()
        print(part.__name__, "ok", flush=True)
