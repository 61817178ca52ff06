"""The RPC of a TRex server: what a command is asked with, and what it answers. Fields and types are those that the RPC
specification in TRex's documentation and the command handlers of its server (v3, stateless) name; an answer may have more.

A type is a Python type, a list with the type of its elements, or a dictionary of fields. A field whose name ends in `?` may
be missing.
"""

NUMBER = (int, float)
NOTHING = {}

# Asked before, or without, a handle of the interface.
WITHOUT_API = {'api_sync_v2', 'get_version', 'ping'}

# Asked with the handler that `acquire` gave.
OWNED = {'release', 'add_stream', 'remove_all_streams', 'remove_rx_filters', 'start_traffic', 'stop_traffic', 'service',
         'set_port_attr', 'set_rx_feature'}

SYSTEM = {
    'hostname': str, 'uptime': str, 'dp_core_count': int, 'dp_core_count_per_port': int, 'core_type': str,
    'is_multiqueue_mode': bool, 'port_count': int, 'ports': [{
        'index': int, 'driver': str, 'pci_addr': str, 'numa': int, 'hw_mac': str, 'description': str,
        'rx': {'caps': [str], 'counters': int}, 'is_fc_supported': bool, 'is_led_supported': bool,
        'is_link_supported': bool, 'is_prom_supported': bool, 'is_vxlan_supported': bool, 'is_virtual': bool,
        'supp_speeds': [int], 'cores': [int]}]}

PORT_STATUS = {
    'owner': str, 'state': str, 'state_profile?': dict, 'service': bool, 'max_stream_id': int,
    'attr': {'link': {'up': bool}, 'promiscuous': {'enabled': bool}, 'fc': {'mode': int}, 'vlan': {'tags': [int]}, 'layer_cfg': dict},
    'rx_info': dict}

PORT_STATS = {
    'opackets': int, 'ipackets': int, 'obytes': int, 'ibytes': int, 'ierrors': int, 'oerrors': int,
    'm_total_tx_bps': NUMBER, 'm_total_tx_pps': NUMBER, 'm_total_rx_bps': NUMBER, 'm_total_rx_pps': NUMBER}

STREAM = {
    'enabled': bool, 'self_start': bool, 'isg': NUMBER, 'packet': {'binary': str, 'meta': str},
    'mode': {'type': str, 'rate': {'type': str, 'value': NUMBER}}, 'vm': {'instructions': [dict]},
    'flow_stats': {'enabled': bool, 'stream_id?': int, 'rule_type?': str}}

# None: there is none.
ANY = (dict, type(None))
GROUPS = {'ver_id': ANY, 'flow_stats': ANY, 'latency': ANY}

# What did not happen is missing.
LATENCY_GROUP = {
    'er?': {'drp?': int, 'ooo?': int, 'dup?': int, 'sth?': int, 'stl?': int},
    'lat': {'average': NUMBER, 'jit': int, 'total_max': NUMBER, 'total_min': NUMBER, 'last_max': NUMBER, 'histogram?': dict,
            'hdrh?': str}}

PORT = {'port_id': int}
MINE = {'port_id': int, 'handler': str}

# Command: what it is asked with, and what it answers.
FORMS = {
    'api_sync_v2': ({'name': str, 'major': int, 'minor': int}, {'api_h': str}),
    'get_version': (NOTHING, {'version': str, 'build_date': str, 'build_time': str, 'built_by': str, 'mode': str}),
    'ping': (NOTHING, {'ts': NUMBER}),
    'get_system_info': (NOTHING, SYSTEM),
    'get_supported_cmds': (NOTHING, [str]),
    'get_port_status': (PORT, PORT_STATUS),
    'get_port_stats': (PORT, PORT_STATS),
    'get_port_xstats_names': (PORT, {'xstats_names': [str]}),
    'get_port_xstats_values': (PORT, {'xstats_values': [int]}),
    'get_global_stats': (NOTHING, {'m_tx_bps': NUMBER, 'm_tx_pps': NUMBER, 'm_rx_bps': NUMBER, 'm_rx_pps': NUMBER,
                                   'm_cpu_util': NUMBER, 'm_total_queue_full': int}),
    'publish_now': ({'key': int, 'baseline': bool}, {}),
    'get_async_events': (NOTHING, {'data': [dict]}),
    'acquire': ({'port_id': int, 'user': str, 'force': bool}, str),
    'release': (MINE, {}),
    'capture': ({'command': str}, object),
    'get_tpg_status': (NOTHING, {'enabled': bool}),
    'get_all_streams': (PORT, {'profiles?': dict, 'streams?': dict}),
    'remove_all_streams': (MINE, {}),
    'remove_rx_filters': (MINE, {}),
    'stop_traffic': (MINE, {}),
    'set_port_attr': (dict(MINE, attr=dict), {}),
    'set_rx_feature': (dict(MINE, type=str), {}),
    'service': (dict(MINE, enabled=bool), {}),
    'add_stream': (dict(MINE, stream_id=int, stream=STREAM), {}),
    'start_traffic': (dict(MINE, mul={'type': str, 'op': str, 'value': NUMBER}, duration=NUMBER, force=bool),
                      {'multiplier': NUMBER}),
    'get_active_pgids': (NOTHING, {'ids': {'latency': [int], 'flow_stats': [int]}}),
    'get_pgid_stats': ({'pgids': [int]}, GROUPS),
}


def misfits(method, params, result):
    """What is not of the form: a line each."""
    asked, answered = FORMS[method]
    found = ['%s: asked with %s' % (method, one) for one in against(asked, params, 'params')]
    found += ['%s: answered with %s' % (method, one) for one in against(answered, result, 'result')]
    if method == 'get_pgid_stats':
        for name, group in (result['latency'] or {}).items():
            if name != 'g':
                found += ['%s: answered with %s' % (method, one) for one in against(LATENCY_GROUP, group, name)]
    return found


def against(form, value, where):
    if isinstance(form, dict):
        if not isinstance(value, dict):
            yield '%s = %r, which is no object' % (where, value)
            return
        for name, inner in form.items():
            field = name.rstrip('?')
            if field in value:
                yield from against(inner, value[field], '%s.%s' % (where, field))
            elif not name.endswith('?'):
                yield 'no %s.%s' % (where, field)
    elif isinstance(form, list):
        if not isinstance(value, list):
            yield '%s = %r, which is no array' % (where, value)
            return
        for at, one in enumerate(value):
            yield from against(form[0], one, '%s[%d]' % (where, at))
    elif not isinstance(value, form) or (isinstance(value, bool) and form in (int, NUMBER)):
        yield '%s = %r, which is no %s' % (where, value, form)
