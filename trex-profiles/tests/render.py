"""The packets of a stream, rendered without a server: what TRex's field engine makes of its instructions.

Every packet steps each variable once; the first one has the initial values. A variable that another one names in
`next_var` steps only when that one begins again.
"""

import base64

UDP = 17


class Variable:
    def __init__(self, instruction):
        self.name = instruction['name']
        self.next = instruction['next_var']
        self.size = instruction['size']
        if 'value_list' in instruction:
            self.values = instruction['value_list']
        else:
            first, last = instruction['min_value'], instruction['max_value']
            if instruction['op'] != 'inc':
                raise ValueError('%s: "%s" cannot be rendered' % (self.name, instruction['op']))
            self.values = range(first, last + 1, instruction['step'])
            if instruction['init_value'] != first:
                raise ValueError('%s does not begin with its minimum' % self.name)
        self.at = 0

    @property
    def value(self):
        return self.values[self.at]

    def step(self):
        """True: it begins again."""
        self.at = (self.at + 1) % len(self.values)
        return self.at == 0


def packets(stream, count):
    """The first packets of a stream, as bytes."""
    template = base64.b64decode(stream['packet']['binary'])
    instructions = stream['vm'].get('instructions', [])
    variables = {one['name']: Variable(one) for one in instructions if one['type'] == 'flow_var'}
    followers = {variable.next for variable in variables.values() if variable.next}
    for _ in range(count):
        packet = bytearray(template)
        for instruction in instructions:
            write(packet, instruction, variables)
        yield bytes(packet)
        for variable in variables.values():
            if variable.name not in followers:
                step(variable, variables)


def step(variable, variables):
    if variable.step() and variable.next:
        step(variables[variable.next], variables)


def write(packet, instruction, variables):
    kind = instruction['type']
    if kind == 'flow_var':
        return
    if kind == 'write_flow_var':
        variable = variables[instruction['name']]
        value = (variable.value + instruction['add_value']) % (1 << 8 * variable.size)
        put(packet, instruction['pkt_offset'], value.to_bytes(variable.size, 'big'))
    elif kind == 'write_mask_flow_var':
        size, offset, mask = instruction['pkt_cast_size'], instruction['pkt_offset'], instruction['mask']
        value = variables[instruction['name']].value + instruction['add_value'] << instruction['shift']
        old = int.from_bytes(packet[offset:offset + size], 'big')
        put(packet, offset, (old & ~mask | value & mask).to_bytes(size, 'big'))
    elif kind == 'fix_checksum_hw':
        fix_udp_checksum(packet, instruction['l2_len'], instruction['l3_len'])
    else:
        raise ValueError('instruction "%s" cannot be rendered' % kind)


def put(packet, offset, value):
    if offset + len(value) > len(packet):
        raise ValueError('a write at %d is behind the end of a packet of %d bytes' % (offset, len(packet)))
    packet[offset:offset + len(value)] = value


def fix_udp_checksum(packet, before_ip, ip_length):
    """What the server does in software: the checksum over pseudo header, UDP header and data."""
    ip, udp = before_ip, before_ip + ip_length
    length = int.from_bytes(packet[udp + 4:udp + 6], 'big')
    addresses = packet[ip + 8:ip + 40] if packet[ip] >> 4 == 6 else packet[ip + 12:ip + 20]
    put(packet, udp + 6, bytes(2))
    covered = bytes(addresses) + length.to_bytes(4, 'big') + UDP.to_bytes(4, 'big') + bytes(packet[udp:udp + length])
    put(packet, udp + 6, ((~ones_sum(covered) & 0xffff) or 0xffff).to_bytes(2, 'big'))


def ones_sum(data):
    """The one's complement sum of 16-bit words (RFC 1071)."""
    if len(data) % 2:
        data += b'\0'
    total = sum(int.from_bytes(data[at:at + 2], 'big') for at in range(0, len(data), 2))
    while total > 0xffff:
        total = (total & 0xffff) + (total >> 16)
    return total
