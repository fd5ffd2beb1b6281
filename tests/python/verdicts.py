"""Rules by which steps are refused: pure, without a run. Whose fault it is: tests/unit/core/refused_step_test.cc."""
import math

import kintsugi
from kintsugi.verdicts import Rules, Usual, Veto, bits_of


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


def refusal(veto, norm, loss=None):
    rules = Rules(Veto.read(veto))
    if loss is not None:
        rules.note_loss(loss, ())
    try:
        return rules.why(lambda: norm)[0]
    except kintsugi.Error as error:
        return str(error)


for veto, norm, loss, words in (("norm:1", None, 1.0, "--veto norm has nothing to go by"), ("nan", None, None, "--veto nan has nothing to go by"),
                                ("spike:3", 1.0, None, "--veto spike goes by losses"), ("nan", None, math.inf, "its loss is inf"), ("nan", math.nan, 1.0, "gradients is nan"),
                                ("norm:1", 2.0, None, "gradients is 2")):
    assert words in refusal(veto, norm, loss), (veto, refusal(veto, norm, loss))
assert refusal("nan", None, 1.0) == refusal("nan", 1.0) == refusal("norm:1", 1.0) == ""


for one, other in ((-1.0, -2.0), (0.0, -0.0), (math.inf, math.nan), (math.inf, -math.inf), (1.0, 1.0 + 2**-52)):
    assert bits_of(one) != bits_of(other), (one, other)
assert bits_of(math.nan) == bits_of(-math.nan) and bits_of(0.5) == bits_of(0.5)
