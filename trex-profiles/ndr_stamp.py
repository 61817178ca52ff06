"""What the figures of a search were made with: what was typed, machine, kernel, versions of TRex, its client and srv6d."""

import datetime
import hashlib
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
CLIENT = 'lbr-trex-client'


def stamp(client, options):
    """All of it. No host names but those that were typed."""
    system = client.get_server_system_info() or {}
    version = client.get_server_version() or {}
    return {
        'command': options.command,
        'date': datetime.datetime.now(datetime.timezone.utc).isoformat(timespec='seconds'),
        'machine': machine(), 'kernel': platform.release(), 'load_average': os.getloadavg()[0],
        'trex': version.get('version'), 'trex_built': version.get('build_date'), 'trex_mode': version.get('mode'),
        'trex_client': client_version(), 'trex_cores': system.get('dp_core_count'), 'trex_core_type': system.get('core_type'),
        'configuration': options.config, 'receive_ring': ring_of(options.config),
        'device': options.dut, 'srv6d_here': srv6d_version(),
        'profile': options.profile, 'tunables': options.tunable, 'senders': options.senders,
        'trial_seconds': options.trial, 'final_seconds': options.final, 'generator_ceiling_pps': options.ceiling}


def machine(path='/proc/cpuinfo'):
    """Of what this runs on, as bench-net says it."""
    with open(path) as file:
        fields = dict(re.findall(r'^([^:\t\n]+?)\s*:[ \t]*(.*)$', file.read(), re.MULTILINE))
    kind = 'virtual machine' if 'hypervisor' in fields.get('flags', '').split() else 'machine'
    cores = os.cpu_count()
    return '%s with %d core%s, %s' % (kind, cores, '' if cores == 1 else 's', fields.get('model name') or platform.machine())


def client_version():
    """Of what pip has installed. A release of TRex has its own client beside it, under no version of its own."""
    try:
        return '%s %s' % (CLIENT, importlib.metadata.version(CLIENT))
    except importlib.metadata.PackageNotFoundError:
        return 'not from pip'


def srv6d_version():
    """Of the srv6d in PATH, if there is one. A device that is elsewhere is named with --dut."""
    path = shutil.which('srv6d')
    if not path:
        return None
    said = subprocess.run([path, '--version'], capture_output=True, text=True).stdout.strip()
    with open(path, 'rb') as file:
        return '%s, build %s' % (said or 'unknown', hashlib.sha256(file.read()).hexdigest()[:12])


def ring_of(configuration):
    """Frames that the receiving ring of a port takes: TRex loses what does not fit."""
    path = next((path for path in (configuration, os.path.join(HERE, configuration)) if os.path.isfile(path)), None)
    if not path:
        return None
    with open(path) as file:
        counts = sorted(set(re.findall(r'framecnt=(\d+)', file.read())), key=int)
    return '%s frames' % ', '.join(counts) if counts else None
