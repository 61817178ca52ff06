/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What offload.c decides by, and what it counts: mirrored by src/xdp_offload/maps.rs.
 *
 *   destination -> way -+- SHIFT, SHIFT_VIA, ROUTE -------------------> group of hops -> hop
 *                       +- ENCAPSULATE -> group of paths -> path -----> group of hops -> hop
 */
#pragma once

#include "bpf.h"

#define PORTS 256
#define GROUPS 4096
#define GROUP_MEMBERS 63
#define HOPS 4096
#define PATHS 4096
#define SIDS 4096
#define BLOCKS 2
#define USIDS 65536
/* No member of any group. */
#define NONE 0xffffffff

struct address {
	__u64 high;
	__u64 low;
};

/* A port whose frames may be forwarded here. */
struct port {
	__u8 mac[6];
	__u16 longest; /* frame; 0: none */
	__u16 table; /* number of its VRF, MAIN_TABLE or another */
	__u16 guards_sids; /* edge and host: what is addressed to a SID is for the worker to admit */
	__u16 checks; /* CHECK_... */
};

/* Sources are looked up in `sources`: those that may send through the port, and those that may use SIDs. What is
 * not there is for the worker to refuse. */
enum { CHECK_PORT = 1, CHECK_DOMAIN = 2 };

/* What a prefix leads to. AS_BLOCK and IN_TRIE stand in `usids` alone: what the block
 * leads to, and a uSID with something longer than /48 inside. */
enum { AS_BLOCK, TO_WORKER, SHIFT, SHIFT_VIA, ROUTE, IN_TRIE, ENCAPSULATE };

struct way {
	__u8 kind;
	__u8 by; /* bits: 16 or 32; ENCAPSULATE: 1: RoCEv2 queue pairs are part of the flow */
	__u8 in_sid_space; /* the whole prefix is SID space; of any other, nothing that leads here is */
	__u8 zero;
	__u32 sid;   /* whose counter */
	__u32 group; /* SHIFT_VIA and ROUTE: of hops; ENCAPSULATE: of paths */
};

/* A locator block whose uSIDs have an index: one load instead of a walk down
 * the trie, as in lpm.rs. */
struct block {
	__u32 prefix;
	__u32 is_used;
	struct way way; /* of the longest prefix not longer than the block */
};

/* SIDs are there, and carriers are looked up there once they are shifted. */
#define MAIN_TABLE 0

/* LPM keys are compared byte by byte: table, family and set stand in front of the address.
 * An IPv4 address is the first four bytes of one. */
#define KEY_SET(set, table, is_v4) ((__u32)(table) << 2 | (is_v4) << 1 | (set))

struct way_key {
	__u32 prefix_len;
	__u32 set;
	__u64 high; /* big-endian */
	__u64 low;
};

/* Next hops or paths, each as often as its share of the flows. What one and the same
 * number means never changes while it is in use, so there is one set of these. */
struct group {
	__u32 count;
	__u32 members[GROUP_MEMBERS];
};

/* A path of one segment: the outer header, as far as it is the same for every packet. */
struct path {
	__u32 addresses[8]; /* source, destination */
	__u32 group;
	__u32 mtu; /* of the outer packet; 0: left to the worker */
	__u8 hop_limit;
	__u8 class_kept; /* bits of the inner traffic class */
	__u8 class_set;
	__u8 zero;
};

struct hop {
	__u8 addresses[12];
	__u32 mtu; /* 0: no packet can go there */
	__u32 port;
};

struct count {
	__u64 packets;
	__u64 bytes;
};

/* A map by number: kind, name, what is in it, and how much of that. */
#define BY_NUMBER(kind, name, of, entries)                                                         \
	struct {                                                                                   \
		MAP_NUMBER(type, kind);                                                            \
		MAP_TYPE(key, __u32);                                                              \
		MAP_TYPE(value, of);                                                               \
		MAP_NUMBER(max_entries, entries);                                                  \
	} name SEC(".maps")

BY_NUMBER(BPF_MAP_TYPE_ARRAY, current, __u32, 1);

/* The port behind an interface's number. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u32);
	MAP_NUMBER(max_entries, PORTS);
} port_of SEC(".maps");

/* claim.c of each port. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_PROG_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u32);
	MAP_NUMBER(max_entries, PORTS);
} claim SEC(".maps");

BY_NUMBER(BPF_MAP_TYPE_ARRAY, ports, struct port, 2 * PORTS);

BY_NUMBER(BPF_MAP_TYPE_ARRAY, blocks, struct block, 2 * BLOCKS);

/* By block, and by the 16 bits behind it. */
BY_NUMBER(BPF_MAP_TYPE_ARRAY, usids, struct way, 2 * BLOCKS * USIDS);

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_LPM_TRIE);
	MAP_TYPE(key, struct way_key);
	MAP_TYPE(value, struct way);
	MAP_NUMBER(max_entries, 1);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
} ways SEC(".maps");

/* Prefixes of sources that are admitted, by whose they are: keys as of `ways`, the owner in place of the table. */
#define OF_DOMAIN 0
#define OF_PORT(number) ((number) + 1)

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_LPM_TRIE);
	MAP_TYPE(key, struct way_key);
	MAP_TYPE(value, __u32);
	MAP_NUMBER(max_entries, 1);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
} sources SEC(".maps");

BY_NUMBER(BPF_MAP_TYPE_ARRAY, groups, struct group, GROUPS);

BY_NUMBER(BPF_MAP_TYPE_ARRAY, hops, struct hop, 2 * HOPS);

BY_NUMBER(BPF_MAP_TYPE_ARRAY, paths, struct path, 2 * PATHS);

/* Interfaces, by the number of their port. */
BY_NUMBER(BPF_MAP_TYPE_DEVMAP, targets, struct bpf_devmap_val, PORTS);

#define COUNTS(name, entries) BY_NUMBER(BPF_MAP_TYPE_PERCPU_ARRAY, name, struct count, entries)

COUNTS(sid_counts, SIDS); /* IPv6 length */
COUNTS(path_counts, PATHS); /* outer length */
COUNTS(hop_counts, HOPS); /* IPv6 length */
COUNTS(rx_counts, PORTS); /* frame */
COUNTS(tx_counts, PORTS); /* frame */

static ALWAYS_INLINE void add(void *counts, __u32 index, __u64 bytes)
{
	struct count *count = bpf_map_lookup_elem(counts, &index);

	if (!count)
		return;
	count->packets += 1;
	count->bytes += bytes;
}
