"""The rules of --veto as Python has them, without a run; what they decide: tests/unit/core/step_rules_test.cc. Whose fault a step is: refused_step_test.cc."""
import math
import os

import kintsugi
from kintsugi.verdicts import Losses, bits_of, rules_of

os.environ["KINTSUGI_VETO"] = "norm:2"
assert rules_of(" nan, spike:6 ,most:0").most == 0 and "KINTSUGI_VETO" not in os.environ  # the script's word is the last
os.environ["KINTSUGI_VETO"] = "norm:2"
rules = rules_of(None)
assert (rules.any, rules.norm, rules.spike, rules.most, rules_of(None).any) == (True, 2.0, 0.0, None, False)

for said, words in (("nan,spike", "'spike' is no rule"), ("spike:0", "'spike:0' is no rule")):
    try:
        rules_of(said)
    except kintsugi.Error as error:
        assert words in str(error) and error.code == kintsugi.abi.Code.INVALID_ARGUMENT, error
    else:
        raise AssertionError(said)

try:
    rules.judge()
except kintsugi.Error as error:
    assert "norm has nothing to go by" in str(error) and error.code == kintsugi.abi.Code.FAILED_PRECONDITION, error
else:
    raise AssertionError("no norm is known")
rules.note_norm(math.nan)
assert rules.judge() == ("the norm of the gradients is nan", True)
rules.begin()
rules.note_norm(1.0)
assert rules.judge() == ("", False)

spikes = rules_of("spike:3")
losses = Losses(spikes)
losses.load_state_dict([1.0, 2.0] * 8)
spikes.note_loss(9.0, [4, 5])
assert spikes.judge() == ("its loss 9 is 15.0 standard deviations above the usual (samples 4, 5)", False), spikes.judge()
spikes.note_loss(1.5, [])
spikes.pass_gate()
assert losses.state_dict() == [1.0, 2.0] * 8 + [1.5]

for one, other in ((-1.0, -2.0), (0.0, -0.0), (math.inf, math.nan), (math.inf, -math.inf), (1.0, 1.0 + 2**-52)):
    assert bits_of(one) != bits_of(other), (one, other)
assert bits_of(math.nan) == bits_of(-math.nan) and bits_of(0.5) == bits_of(0.5)
