/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The maps that offload.c decides by, and its counters. Their rows are those of the worker's tables: fib.h has them from
 * the crate srv6d-fib.
 *
 *   destination -> prefix -+- TARGET_SID -> sid --------------------+-> group -> hop -> device
 *                          +- TARGET_STEER -> group -> path --------+
 *                          +- TARGET_ROUTE, TARGET_NEIGHBOR --------+
 *                          +- TARGET_KERNEL of a SID's table -> kernel_end
 *
 * A map holds the rows of the two generations in turn, and is as large as the tables need (sizes.rs): the numbers of
 * entries here are the most that it may have. A row of zeros leaves the packet to the worker.
 */
#pragma once

#include "fib.h"
#include "hand_over.h"

/* An index that no row has. */
#define NONE 0xffffffff

struct address {
	__u64 high;
	__u64 low;
};

#define KEY_OWNER(set, number, is_v4) \
	((__u32)(number) << KEY_NUMBER_BIT | (is_v4) << KEY_V4_BIT | (set) << KEY_SET_BIT)
#define OF_PORT(number) ((number) + OF_PORTS)
#define OF_TABLE(number) ((number) + OF_TABLES)
#define CARRIERS_OF_PORT(number) ((number) + OF_CARRIERS)

/* Declares a map that is indexed by number, with its kind, its name, the type of its values and its size. */
#define BY_NUMBER(kind, name, of, entries)                                                         \
	struct {                                                                                   \
		MAP_NUMBER(type, kind);                                                            \
		MAP_TYPE(key, __u32);                                                              \
		MAP_TYPE(value, of);                                                               \
		MAP_NUMBER(max_entries, entries);                                                  \
	} name SEC(".maps")

BY_NUMBER(BPF_MAP_TYPE_ARRAY, current, __u32, 1);

/* Numbers of devices, by interface index. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u32);
	MAP_NUMBER(max_entries, PORTS);
} port_of SEC(".maps");

/* The claim program (claim.c) of each port, by the number of the port. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_PROG_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u32);
	MAP_NUMBER(max_entries, PORTS);
} claim SEC(".maps");

/* What the queues of all ports have given to workers, and how much of it is finished: the map of claim.c. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	MAP_TYPE(key, __u32);
	MAP_NUMBER(max_entries, 1);
	HAND_OVERS *values[];
} hand_overs SEC(".maps");

/* A table of two generations. */
#define TABLE(name, of, entries) BY_NUMBER(BPF_MAP_TYPE_ARRAY, name, of, 2 * (entries))

TABLE(node, struct node, 1);
TABLE(ports, struct port, PORTS); /* by the number of the device */

/* VLANs of devices, by VLAN ID, number of the device and generation. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct vlan);
	MAP_NUMBER(max_entries, 2 * DEVICES);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
} vlans SEC(".maps");

TABLE(blocks, struct block, BLOCKS);
TABLE(usid_pages, __u32, BLOCKS * USID_PAGES); /* by index of the block, and the upper 8 bits of the uSID */
TABLE(usids, struct prefix, BLOCKS * USIDS); /* by page, and the lower 8 bits of the uSID */
TABLE(sids, struct sid, SIDS);
TABLE(steers, struct group, STEERS);
TABLE(steer_members, __u32, MEMBERS);
TABLE(steer_patterns, struct pattern, PATTERNS);
TABLE(paths, struct path, PATHS);
TABLE(srhs, struct srh, PATHS); /* by the index of the path */
TABLE(groups, struct group, GROUPS);
TABLE(group_members, __u32, MEMBERS);
TABLE(group_patterns, struct pattern, PATTERNS);
TABLE(hops, struct hop, HOPS);
TABLE(devices, struct device, DEVICES); /* by the index of the port */

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_LPM_TRIE);
	MAP_TYPE(key, struct key);
	MAP_TYPE(value, struct prefix);
	MAP_NUMBER(max_entries, 1);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
} prefixes SEC(".maps");

/* Prefixes of sources, and of destinations in SID space that a port lets in (CARRIERS_OF_PORT). Those of the domain (OF_DOMAIN) and of a port (OF_PORT) are admitted there. Those of a table
 * (OF_TABLE) are this node's own, and no sender outside the domain has one. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_LPM_TRIE);
	MAP_TYPE(key, struct key);
	MAP_TYPE(value, __u32);
	MAP_NUMBER(max_entries, 1);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
} sources SEC(".maps");

/* The way into the kernel of this node. */
BY_NUMBER(BPF_MAP_TYPE_ARRAY, kernel_end, struct kernel_end, 1);

/* Interfaces, by the number of the device. */
BY_NUMBER(BPF_MAP_TYPE_DEVMAP, targets, struct bpf_devmap_val, PORTS);

#define COUNTS(name, entries) BY_NUMBER(BPF_MAP_TYPE_PERCPU_ARRAY, name, struct count, entries)

COUNTS(sid_counts, SIDS); /* bytes: IPv6 length */
COUNTS(path_counts, COUNTED_PATHS); /* bytes: outer length */
COUNTS(hop_counts, COUNTED_HOPS); /* bytes: IPv6 length */
COUNTS(rx_counts, PORTS); /* bytes: frame length */
COUNTS(tx_counts, PORTS); /* bytes: frame length */
COUNTS(vlan_rx_counts, DEVICES); /* bytes: frame length */
COUNTS(vlan_tx_counts, DEVICES); /* bytes: frame length */

/* Returns the row of a table, of a generation. Rows that the map has no room for are not there. */
static ALWAYS_INLINE const void *row_of(void *table, __u32 set, __u32 number)
{
	__u32 index = number << 1 | set;

	return number <= NONE >> 1 ? bpf_map_lookup_elem(table, &index) : 0;
}

#define ROW(table, set, number) row_of(&(table), set, number)

static ALWAYS_INLINE void add(void *counts, __u32 index, __u64 bytes)
{
	struct count *count = bpf_map_lookup_elem(counts, &index);

	if (!count)
		return;
	count->packets += 1;
	count->bytes += bytes;
}
