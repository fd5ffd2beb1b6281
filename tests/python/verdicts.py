"""Rules by which steps are refused, and whose fault it is: pure, without a run."""
import math

import kintsugi
from kintsugi.verdicts import Usual, Veto, Verdicts, differ, judge


def of(why="", times=0, differ=None):
    return {"why": why, "times": times, "differ": differ}


def says(*told):
    verdict = judge(dict(enumerate(told)))
    return verdict and (verdict.says, verdict.to_blame, verdict.is_exact)


assert says(of(), of()) is None
assert says(of(), of("nan")) == ("again", (), True)
assert says(of(times=1, differ=False), of("nan", times=1, differ=False)) == ("data", (), True)
assert says(of(times=1, differ=True), of("nan", times=1, differ=False)) == ("machine", (0,), True)
assert says(of(times=1, differ=False), of("nan", times=1, differ=True)) == ("machine", (1,), True)
assert says(of(times=1, differ=True), of("nan", times=1, differ=True)) == ("data", (), False)  # a program that is not deterministic
assert says(of("nan"), of(times=1, differ=False)) == ("data", (), True)  # one of them has come since
assert says(of("nan", times=1, differ=True)) == ("data", (), False)  # alone it is not told apart from such a program
assert says(of(times=1, differ=False), of(times=1, differ=False)) is None

assert not differ({"loss": [1], "dp": [1, 2, 3]}, {"dp": [1, 2]})  # as far as both came
assert differ({"dp": [1, 2, 3]}, {"dp": [1, 4]})
assert differ({"loss": [1], "dp": [1]}, {"loss": [2], "dp": [1]})

assert Veto.read("") == Veto()
assert Veto.read(" nan, spike:6 ,norm:1e3,most:0") == Veto(True, 6.0, 1000.0, 0)
for wrong in ("nan:1", "spike", "spike:0", "spike:-1", "norm:inf", "norm:x", "most:-1", "most:1.5", "nans", "6"):
    try:
        Veto.read(wrong)
    except kintsugi.Error as error:
        assert f"'{wrong}' is no rule" in str(error), error
    else:
        raise AssertionError(wrong)

usual = Usual()
for k in range(15):
    usual.note(1.0 + k % 2)
assert usual.deviations(1e9) == 0.0  # too few to say
usual.note(2.0)
assert math.isclose(usual.deviations(3.5), 4.0)
assert usual.deviations(-1e9) < 0.0
for _ in range(100):
    usual.note(1.0)
assert usual.deviations(1.0) == 0.0 and usual.deviations(1.1) == math.inf  # the older ones are forgotten
assert len(usual.state_dict()) == 64


class Ranks:
    """Of which the first refuses step 5, each time it is made; `sums`: of what each gives to collectives."""

    def __init__(self):
        self.sums = [[1], [2]]
        self.all = [Verdicts(Veto(nan=True), lambda rank=rank: {"dp": self.sums[rank]}, may_be_replaced=False) for rank in range(2)]

    def compute(self):
        for rank in self.all:
            rank.begin(5)
        self.all[0].refuse("nan")

    def learn(self, *ranks, told=None):
        told = told or {number: rank.facts(4) for number, rank in enumerate(self.all)}
        return [self.all[number].learn(4, told) for number in ranks]

    def left_out(self):
        return [rank.leaves_out(5) for rank in self.all]


ranks = Ranks()
ranks.compute()
ranks.learn(0)  # a fault, before the other one has heard of it: all begin anew
assert all("computed again" in said for said in ranks.learn(0, 1)) and ranks.left_out() == [False, False]
ranks.compute()
ranks.learn(1)
assert all("the data is to blame" in said for said in ranks.learn(0, 1)) and ranks.left_out() == [True, True]
ranks.all[1] = Verdicts(Veto(nan=True), dict, may_be_replaced=False)  # is lost before the step is left out
ranks.learn(0, 1)
assert ranks.left_out() == [True, True]
ranks.all[0].begin(6)
assert not ranks.all[0].leaves_out(5)

ranks = Ranks()
ranks.compute()
ranks.learn(0, 1)
ranks.sums[1] = [3]
ranks.compute()
assert "rank 1 alone computed otherwise" in ranks.learn(0, 1)[0] and ranks.left_out() == [False, False]


def refusal(veto, norm, loss=None):
    verdicts = Verdicts(Veto.read(veto), dict, may_be_replaced=False)
    verdicts.begin(1)
    if loss is not None:
        verdicts.note_loss(loss, ())
    try:
        return verdicts.why_by_rules(lambda: norm)
    except kintsugi.Error as error:
        return str(error)


for veto, norm, loss, words in (("norm:1", None, 1.0, "--veto norm has nothing to go by"), ("nan", None, None, "--veto nan has nothing to go by"),
                                ("spike:3", 1.0, None, "--veto spike goes by losses"), ("nan", None, math.inf, "its loss is inf"), ("nan", math.nan, 1.0, "gradients is nan"),
                                ("norm:1", 2.0, None, "gradients is 2")):
    assert words in refusal(veto, norm, loss), (veto, refusal(veto, norm, loss))
assert refusal("nan", None, 1.0) == refusal("nan", 1.0) == refusal("norm:1", 1.0) == ""


def figures(loss):
    verdicts = Verdicts(Veto(nan=True), dict, may_be_replaced=False)
    verdicts.begin(1)
    verdicts.note_loss(loss, ())
    verdicts.close()
    return verdicts._figures


for one, other in ((-1.0, -2.0), (0.0, -0.0), (math.inf, math.nan), (math.inf, -math.inf), (1.0, 1.0 + 2**-52)):
    assert differ(figures(one), figures(other)), (one, other)
assert not differ(figures(math.nan), figures(-math.nan)) and not differ(figures(0.5), figures(0.5))
