"""What a trial says, and the search for the highest rate: pure functions over counters, without TRex.

A trial that says nothing about the device under test is never counted for or against it:

    void               frames were lost in the rings of the generator, more arrived than were sent, or nothing was sent
    generator-limited  the generator sent less than it was asked to
    pass, fail         by the loss, and only then
"""

import dataclasses
from typing import Callable, List, Optional

VOID, LIMITED, PASS, FAIL = 'void', 'generator-limited', 'pass', 'fail'
LEAST_OFFERED = 0.97


@dataclasses.dataclass(frozen=True)
class Counters:
    """Totals of a trial over all ports, packets that were flushed out afterwards included."""
    tx: int
    rx: int
    rx_errors: int
    tx_errors: int
    # Sent before the flush, in how many seconds.
    sent: int
    seconds: float
    # Frames that the device sent of its own beside them; None where they cannot be told from packets.
    foreign: Optional[int] = None


@dataclasses.dataclass(frozen=True)
class Trial:
    """One rate, tried once."""
    requested: float
    counters: Counters
    latency: Optional[dict] = None

    @property
    def offered(self):
        """Packets a second that really left: an overloaded generator sends them all, for longer."""
        return self.counters.sent / self.counters.seconds if self.counters.seconds > 0 else 0.0

    @property
    def loss(self):
        return (self.counters.tx - self.counters.rx) / self.counters.tx if self.counters.tx else 1.0

    def verdict(self, allowed_loss):
        counters = self.counters
        # Some network cards have gone backwards.
        if counters.rx_errors > 0 or counters.tx_errors > 0 or counters.tx <= 0 or not 0 <= counters.rx <= counters.tx:
            return VOID
        if self.offered < LEAST_OFFERED * self.requested:
            return LIMITED
        return PASS if self.loss <= allowed_loss else FAIL


@dataclasses.dataclass
class Found:
    """The highest rate that passed: a lower bound, and what was in the way above it."""
    rate: float
    # 'device', 'generator', 'void' or 'maximum' (the highest rate asked for passed).
    above: str
    trials: List[Trial]
    voids: int
    confirmed: Optional[bool] = None

    def text(self):
        if self.rate == 0:
            return {'device': 'below the minimum', 'generator': 'not found: the generator is the limit',
                    'void': 'not found: the generator lost frames itself'}.get(self.above, 'not found')
        if self.confirmed is False:
            return '%.0f pps, not confirmed' % self.rate
        if self.above == 'device':
            return '%.0f pps' % self.rate
        why = {'generator': 'generator-limited', 'void': 'above, the generator lost frames itself',
               'maximum': 'no higher rate was asked for'}[self.above]
        return '>= %.0f pps (%s)' % (self.rate, why)


ABOVE = {FAIL: 'device', LIMITED: 'generator', VOID: 'void'}


def search(trial: Callable[[float], Trial], lowest, highest, allowed_loss, gap=0.02, known=()):
    """Bisects between two rates to a gap of `gap` of the rate. `known` trials of another search count too.

    A void trial at the lowest rate says nothing about the device: the search goes on above it, and only a rate that
    passed is a result."""
    if not 0 < lowest <= highest:
        raise ValueError('rates: 0 < %s <= %s' % (lowest, highest))
    found = Found(0.0, 'maximum', [], 0)
    low, high = 0.0, None
    for one in sorted(says_something(known, lowest, allowed_loss), key=lambda one: one.requested):
        low, high = narrow(found, one, one.verdict(allowed_loss), low, high)
    if high is None and low < highest:
        low, high = narrow(found, *attempt(found, trial, highest, allowed_loss), low, high)
    floor = low
    if low == 0.0 and high is not None and high > lowest:
        one, verdict = attempt(found, trial, lowest, allowed_loss)
        if verdict in (PASS, VOID):
            low, floor = (lowest if verdict == PASS else 0.0), lowest
        else:
            low, high = narrow(found, one, verdict, low, high)
    while 0 < floor and high is not None and high - floor > gap * high:
        low, high = narrow(found, *attempt(found, trial, (floor + high) / 2, allowed_loss), low, high)
        floor = max(floor, low)
    found.rate = low
    return found


def says_something(known, lowest, allowed_loss):
    """Trials of another search without the void ones that were repeated with another verdict, or were at the lowest rate."""
    settled = {one.requested for one in known if one.verdict(allowed_loss) != VOID} | {lowest}
    return [one for one in known if one.verdict(allowed_loss) != VOID or one.requested not in settled]


def attempt(found, trial, rate, allowed_loss):
    """A trial; a void one is repeated once."""
    for _ in range(2):
        one = trial(rate)
        found.trials.append(one)
        verdict = one.verdict(allowed_loss)
        if verdict != VOID:
            break
        found.voids += 1
    return one, verdict


def narrow(found, one, verdict, low, high):
    """The bounds after a trial, and what is known to be in the way."""
    if verdict == PASS:
        return max(low, one.requested), high
    if high is None or one.requested < high:
        found.above = ABOVE[verdict]
        return low, one.requested
    return low, high


def confirm(found, trial, allowed_loss, steps=5, gap=0.02):
    """Tries the rate again for the final length, and goes down by `gap` until one passes: what was offered then is the rate."""
    for _ in range(steps):
        if found.rate <= 0:
            break
        one, verdict = attempt(found, trial, found.rate, allowed_loss)
        if verdict == PASS:
            found.confirmed = True
            # What passed is what was sent, and a generator at its limit sends less than it is asked to.
            found.rate = min(found.rate, one.offered)
            return found
        found.above = ABOVE[verdict]
        found.rate *= 1 - gap
    found.confirmed = False
    return found
