"""Addresses of the network interfaces of this machine, as the kernel shows them."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from typing import Union

Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]

#: ioctl(2) request for the IPv4 address of an interface (linux/sockios.h).
_SIOCGIFADDR = 0x8915

#: Flags of an IPv6 address that nobody should be told of: temporary, failed, deprecated, tentative (linux/if_addr.h).
_UNFIT = 0x01 | 0x08 | 0x20 | 0x40

#: Scope of an address that is neither link-local nor of the host, in /proc/net/if_inet6.
_GLOBAL = 0


def _ipv6_of(interface: str, table: str) -> list[Address]:
    found: list[Address] = []
    for line in table.splitlines():
        fields = line.split()
        if len(fields) != 6 or fields[5] != interface:
            continue
        try:
            packed, scope, flags = bytes.fromhex(fields[0]), int(fields[3], 16), int(fields[4], 16)
            address = ipaddress.IPv6Address(packed)
        except ValueError:
            continue
        if scope == _GLOBAL and not flags & _UNFIT:
            found.append(address)
    return found


def _ipv4_of(interface: str) -> list[Address]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("256s", interface.encode()[:15])
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
        except OSError:
            return []
    address = ipaddress.IPv4Address(answer[20:24])
    return [] if address.is_loopback or address.is_link_local else [address]


def of_interface(interface: str) -> list[Address]:
    """Returns the addresses of an interface that other machines can send to, IPv6 first. Empty: it has none, or is missing."""
    try:
        with open("/proc/net/if_inet6", encoding="ascii") as file:
            table = file.read()
    except OSError:
        table = ""
    return _ipv6_of(interface, table) + _ipv4_of(interface)


def interface_of(address: Address) -> str | None:
    """Returns the name of the interface that has an address."""
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in names if address in of_interface(name)), None)


def source_towards(host: str, port: int) -> Address | None:
    """Returns the address that packets to a host leave from. Nothing is sent. None: there is no route, or no such name."""
    try:
        choices = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except OSError:
        return None
    for family, kind, protocol, _, target in choices:
        with socket.socket(family, kind, protocol) as probe:
            try:
                probe.connect(target)
            except OSError:
                continue
            source = probe.getsockname()[0].split("%")[0]
        return ipaddress.ip_address(source)
    return None
