/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * uN and uA shifts (RFC 9800 section 4.1, NEXT-CSID) and encapsulations in one segment
 * (RFC 8986 section 5.2, H.Encaps.Red) without a worker, for ports whose AF_XDP sockets
 * copy every packet.
 *
 *   frame -> plain? -> look up -+- a SID that shifts: shift, uN: look up again -+-> next hop ready, fits? -> write
 *              |          |     +- steered: a path of one segment --------------+         |                    |
 *              |          | anything else                                                 | no                 v
 *              +----------+---------------------------------------------------------------+     the other port
 *                         v
 *              claim.c of this port, by tail call
 *
 * Each test is the worker's own or a stricter one, so whatever leaves here is,
 * byte for byte, what the worker would have sent. Nothing is written and
 * nothing is counted before all has been decided: claim.c and the worker see
 * every other frame as it was received.
 *
 * The tables are there twice. `current` says which set is in force, and each
 * key and index begins with it: a frame sees one generation as a whole. The
 * loader writes to the other set, once no program can be reading it any more.
 */
#include "offload_encaps.h"

/* An address is | block 32 | uSIDs ... |: what is not block, in its upper half. */
#define BEHIND_BLOCK 0xffffffffull

static ALWAYS_INLINE const struct way *look_up_in_block(__u32 set, struct address to)
{
	const struct block *block;
	const struct way *way;
	__u32 index, i;

#pragma unroll
	for (i = 0; i < BLOCKS; i++) {
		index = set * BLOCKS + i;
		block = bpf_map_lookup_elem(&blocks, &index);
		if (!block || !block->is_used || block->prefix != to.high >> 32)
			continue;
		index = index * USIDS + (to.high >> 16 & 0xffff);
		way = bpf_map_lookup_elem(&usids, &index);
		if (!way || way->kind == IN_TRIE)
			return 0;
		return way->kind == AS_BLOCK ? &block->way : way;
	}
	return 0;
}

static ALWAYS_INLINE const struct way *look_up(__u32 set, __u16 table, struct address to)
{
	const struct way *way = table == MAIN_TABLE ? look_up_in_block(set, to) : 0;
	struct way_key key = {
		.prefix_len = 8 * (sizeof(key) - sizeof(key.prefix_len)),
		.set = KEY_SET(set, table, 0),
		.high = cpu_to_be64(to.high),
		.low = cpu_to_be64(to.low),
	};

	return way ? way : bpf_map_lookup_elem(&ways, &key);
}

static ALWAYS_INLINE const struct way *look_up_v4(__u32 set, __u16 table, __be32 to)
{
	struct way_key key = {
		.prefix_len = 8 * (sizeof(key.set) + sizeof(to)),
		.set = KEY_SET(set, table, 1),
		.high = cpu_to_be64((__u64)be32_to_cpu(to) << 32),
	};

	return bpf_map_lookup_elem(&ways, &key);
}

static ALWAYS_INLINE int admits_source_v6(__u32 set, __u32 owner, const struct ipv6 *ip)
{
	struct way_key key = {
		.prefix_len = 8 * (sizeof(key) - sizeof(key.prefix_len)),
		.set = KEY_SET(set, owner, 0),
		.high = ip->src[0],
		.low = ip->src[1],
	};
	const __u32 *is_admitted = bpf_map_lookup_elem(&sources, &key);

	return is_admitted && *is_admitted;
}

static ALWAYS_INLINE int admits_source_v4(__u32 set, __u32 owner, const struct ipv4 *ip)
{
	struct way_key key = {
		.prefix_len = 8 * (sizeof(key.set) + sizeof(ip->src)),
		.set = KEY_SET(set, owner, 1),
		.high = cpu_to_be64((__u64)be32_to_cpu(ip->src) << 32),
	};
	const __u32 *is_admitted = bpf_map_lookup_elem(&sources, &key);

	return is_admitted && *is_admitted;
}

/* The next hop's number in `hops`, as far as the set does not matter. */
static ALWAYS_INLINE __u32 choose_for_transit(const struct ipv6 *ip, const void *end, struct address to, __u32 number)
{
	const struct group *group = bpf_map_lookup_elem(&groups, &number);
	const __be32 *ports = (const void *)(ip + 1);

	if (!group)
		return NONE;
	if (group->count == 1)
		return group->members[0];
	if ((const void *)(ports + 1) > end)
		return NONE;
	return pick(group, transit(ip, *ports, to));
}

/* XDP_REDIRECT: written, counted, on its way. Else nothing was done. */
static ALWAYS_INLINE int shift(struct xdp_md *ctx, __u32 set, __u32 in, const struct way *way, struct eth *eth,
			       struct address to)
{
	struct ipv6 *ip = (void *)(eth + 1);
	const void *end = (const void *)(long)ctx->data_end;
	__u32 len = ETH_LEN + IPV6_LEN + ntohs(ip->payload_len), l3_len = len - ETH_LEN;
	__u32 group = way->group, number;
	const struct way *next;
	const struct hop *hop;
	__u64 usids;

	/* RFC 9800 section 4.1.1: an argument that is used up is the worker's.
	 * | block 32 | active uSIDs | argument | -> | block 32 | argument | zero | */
	usids = to.high << (way->by & 63) & BEHIND_BLOCK;
	if (!usids && !to.low)
		return XDP_PASS;
	to.high = (to.high & ~BEHIND_BLOCK) | usids | to.low >> (64 - way->by & 63);
	to.low <<= way->by & 63;

	if (way->kind == SHIFT) {
		next = look_up(set, MAIN_TABLE, to);
		if (!next || next->kind != ROUTE)
			return XDP_PASS;
		group = next->group;
	}
	number = choose_for_transit(ip, end, to, group);
	hop = leave_by(set, number, l3_len);
	if (!hop)
		return XDP_PASS;

	__builtin_memcpy(eth->addresses, hop->addresses, sizeof(eth->addresses));
	ip->hop_limit -= 1;
	ip->dst[0] = cpu_to_be64(to.high);
	ip->dst[1] = cpu_to_be64(to.low);
	add(&sid_counts, way->sid, l3_len);
	add(&hop_counts, number, l3_len);
	add(&rx_counts, in, len);
	add(&tx_counts, hop->port, len);
	return XDP_REDIRECT;
}

static ALWAYS_INLINE int forward_v6(struct xdp_md *ctx, __u32 set, __u32 in, const struct port *port, struct eth *eth,
				    __u64 len)
{
	const struct ipv6 *ip = (const void *)(eth + 1);
	const struct way *way;
	struct address to;
	int is_shift;

	if (!is_plain_v6(ip, len))
		return XDP_PASS;
	if (port->checks & CHECK_PORT && !admits_source_v6(set, OF_PORT(in), ip))
		return XDP_PASS;
	to.high = be64_to_cpu(ip->dst[0]);
	to.low = be64_to_cpu(ip->dst[1]);
	way = look_up(set, port->table, to);
	if (!way)
		return XDP_PASS;
	is_shift = way->kind == SHIFT || way->kind == SHIFT_VIA;
	if (port->guards_sids && (is_shift || way->in_sid_space || may_name_segments(ip)))
		return XDP_PASS;
	if (is_shift) {
		if (port->checks & CHECK_DOMAIN && !admits_source_v6(set, OF_DOMAIN, ip))
			return XDP_PASS;
		return shift(ctx, set, in, way, eth, to);
	}
	return way->kind == ENCAPSULATE ? encapsulate_v6(ctx, set, in, way, ip, to) : XDP_PASS;
}

static ALWAYS_INLINE int forward_v4(struct xdp_md *ctx, __u32 set, __u32 in, const struct port *port,
				    const struct eth *eth, __u64 len)
{
	const struct ipv4 *ip = (const void *)(eth + 1);
	const struct way *way;

	if (!is_plain_v4(ip, len))
		return XDP_PASS;
	if (port->checks & CHECK_PORT && !admits_source_v4(set, OF_PORT(in), ip))
		return XDP_PASS;
	way = look_up_v4(set, port->table, ip->dst);
	return way && way->kind == ENCAPSULATE ? encapsulate_v4(ctx, set, in, way, ip) : XDP_PASS;
}

/* XDP_REDIRECT: written, counted, on its way. Else nothing was done. */
static ALWAYS_INLINE int forward(struct xdp_md *ctx, __u32 in)
{
	struct eth *eth = (void *)(long)ctx->data;
	const void *end = (const void *)(long)ctx->data_end;
	__u64 len = bpf_xdp_get_buff_len(ctx);
	__u32 zero = 0, *current_set, set, index;
	const struct port *port;

	current_set = bpf_map_lookup_elem(&current, &zero);
	/* A plain IPv4 packet is as long, too. */
	if (!current_set || (const void *)(eth + 1) + IPV6_LEN > end)
		return XDP_PASS;
	set = *current_set & 1;
	index = set * PORTS + in;
	port = bpf_map_lookup_elem(&ports, &index);
	if (!port || !is_for(port, eth, len))
		return XDP_PASS;
	if (eth->type == htons(ETH_P_IPV6))
		return forward_v6(ctx, set, in, port, eth, len);
	return eth->type == htons(ETH_P_IP) ? forward_v4(ctx, set, in, port, eth, len) : XDP_PASS;
}

SEC("xdp.frags")
int srv6d_offload(struct xdp_md *ctx)
{
	__u32 ifindex = ctx->ingress_ifindex, *number;

	number = bpf_map_lookup_elem(&port_of, &ifindex);
	if (!number)
		return XDP_PASS;
	if (forward(ctx, *number) == XDP_REDIRECT)
		return XDP_REDIRECT;
	bpf_tail_call(ctx, &claim, *number);
	/* There is nothing to call: the kernel keeps it. */
	return XDP_PASS;
}

char licence_text[] SEC("license") = "Apache-2.0 OR MIT";
