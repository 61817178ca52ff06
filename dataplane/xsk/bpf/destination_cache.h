/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A cache of the last destinations of each processor, in front of the trie of prefixes: direct-mapped, tagged with the epoch
 * of the tables. A publication makes all entries invalid; nothing has to be removed. A trie compares the key in each node on
 * its way down, a dozen with the roots of all tables; the cache compares once.
 */
#pragma once

#define DESTINATIONS 256

struct destination {
	__u64 high;
	__u64 low;
	__u32 epoch; /* 0: no entry */
	__u32 owner; /* table and family */
	struct prefix row;
};

BY_NUMBER(BPF_MAP_TYPE_PERCPU_ARRAY, destinations, struct destination, DESTINATIONS);

/* Returns where a packet of local applications leads, or 0. An IPv4 address stands in the upper half of `to`, from its top. */
static ALWAYS_INLINE const struct prefix *look_up_cached(__u32 set, const struct node *node, __u16 table,
							 struct address to, __u32 is_v4)
{
	__u32 owner = KEY_OWNER(set, table, is_v4);
	__u32 at = ((to.high ^ to.low) * 0x9e3779b97f4a7c15ull) >> 56;
	struct destination *known = bpf_map_lookup_elem(&destinations, &at);
	const struct prefix *row;

	if (known && known->epoch == node->epoch && known->high == to.high && known->low == to.low &&
	    known->owner == owner)
		return &known->row;
	row = is_v4 ? look_up_v4(set, table, cpu_to_be32(to.high >> 32)) : look_up(set, table, to);
	if (row && known) {
		known->high = to.high;
		known->low = to.low;
		known->epoch = node->epoch;
		known->owner = owner;
		known->row = *row;
	}
	return row;
}
