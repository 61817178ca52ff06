"""Answers of real TRex servers: `recorded/*.json` says from where each is, and of which version. `v3.08.json` has what one
such server was asked and answered from connecting to letting the ports go.

    Exchange   a question and its answer, as they went over the wire
    Replay     the stand-in, with each answer that is recorded in the place of its own
    unlike     what the stand-in's answer lacks of a recorded one, field by field, type by type
"""

import dataclasses
import glob
import json
import os

from server import PORTS, Device, Server

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'recorded')
# What the streams and sessions of a replay say themselves.
OWN = ('get_all_streams', 'get_async_events', 'get_active_pgids', 'get_pgid_stats', 'capture', 'start_traffic')
# Of ports these move: a replay adds what is sent to what was recorded.
MOVE = ('opackets', 'ipackets', 'obytes', 'ibytes', 'ierrors', 'oerrors')


@dataclasses.dataclass(frozen=True)
class Exchange:
    """`gone`: fields of the answer that later servers have no more, `ports.speed`."""
    where: str
    method: str
    params: dict
    reply: dict
    gone: tuple = ()

    @property
    def result(self):
        return self.reply.get('result')


def load(name):
    with open(os.path.join(FOLDER, name)) as file:
        return json.load(file)


def exchanges():
    """All of them."""
    found = []
    for name in sorted(os.path.basename(path) for path in glob.glob(os.path.join(FOLDER, '*.json'))):
        recorded = load(name)
        for one in recorded.get('exchanges', []):
            reply = {key: one[key] for key in ('result', 'error') if key in one}
            gone = tuple(recorded.get('gone', {}).get(one['method'], ()))
            found.append(Exchange(name, one['method'], one.get('params', {}), reply, gone))
    return found


def statistics():
    """What `get_stats` of the client returned, with the numbers of ports and groups as it has them."""
    return [numbered(one['stats']) for one in load('statistics.json')['returned']]


def numbered(value):
    if not isinstance(value, dict):
        return value
    return {int(name) if name.isdigit() else name: numbered(inner) for name, inner in value.items()}


def unlike(recorded, answered, where, gone=()):
    """A line for each field that is missing or of another type. Lists: of what they have."""
    if where in gone:
        return
    if type(recorded) is not type(answered):
        yield '%s is %s, and %s on a server' % (where, type(answered).__name__, type(recorded).__name__)
    elif isinstance(recorded, dict) and not where.endswith('.histogram'):  # its names are times
        for name, inner in recorded.items():
            field = '%s.%s' % (where, name) if where else str(name)
            if name in answered:
                yield from unlike(inner, answered[name], field, gone)
            elif field not in gone:
                yield '%s is missing' % field
    elif isinstance(recorded, list):
        for one in answered[:1] if recorded else []:
            yield from unlike(recorded[0], one, where, gone)


class Replay(Server):
    """Every recorded field of every recorded answer has the recorded value. What a later server adds, what was never
    recorded, and the packets that a port has counted since come from the stand-in. `replayed`: the methods of the first."""

    def __init__(self, device=None, **known):
        super().__init__(device or Device(), **known)
        self.recorded = {one.method: one for one in exchanges() if one.result is not None}
        self.replayed = set()
        self.handle = self.recorded['api_sync_v2'].result['api_h']

    def answer(self, asked):
        reply = super().answer(asked)
        method = asked['method']
        if 'result' not in reply or method not in self.recorded or method in OWN:
            return reply
        self.replayed.add(method)
        port = (asked['params'] or {}).get('port_id')
        result = over(reply['result'], self.laid(method, port))
        if method == 'acquire':
            self.handler[port] = result
        if method == 'get_port_stats':
            result.update({name: result[name] + self.counters[port][name] for name in MOVE})
        return dict(reply, result=result)

    def laid(self, method, port):
        """What was recorded, for this port: who has it is as it is now."""
        result = self.recorded[method].result
        if method == 'get_port_status':
            state = 'STREAMS' if self.streams[port] else 'IDLE'
            return dict(result, owner=self.owner[port], state=state, state_profile={'_': state})
        if method == 'get_supported_cmds':
            return sorted({*result, *super().get_supported_cmds({})})
        return result


def over(below, above):
    """`above`, with what only `below` has."""
    if isinstance(below, dict) and isinstance(above, dict):
        return {**below, **{name: over(below.get(name), inner) for name, inner in above.items()}}
    if isinstance(below, list) and isinstance(above, list) and len(below) == len(above) == len(PORTS):
        return [over(one, other) for one, other in zip(below, above)]
    return above
