/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * H.Encaps.Red in one segment (RFC 8986 section 5.2): an IPv6 header is put in front, without an SRH.
 * fast/write.rs does the same in the worker.
 *
 *   | Ethernet | inner ...            ->  | Ethernet | outer IPv6 40 | inner, one hop less ...
 */
#pragma once

#include "offload_flow.h"

struct inner {
	__u64 flow;
	__u32 len;
	__u8 class;
	__u8 protocol;
};

static ALWAYS_INLINE void write_outer(struct outer *outer, const struct path *path, const struct inner *inner)
{
	__u32 label = inner->flow >> 44; /* never 0: RFC 6437 section 3 */
	__u64 first = path->first | ((__u64)inner->class << 52 & path->class_kept) | (__u64)(label ? label : 1) << 32 |
		      (__u64)(__u16)inner->len << 16 | (__u64)inner->protocol << 8;

	outer->first[0] = cpu_to_be32((__u32)(first >> 32));
	outer->first[1] = cpu_to_be32((__u32)first);
	__builtin_memcpy(outer->addresses, path->addresses, sizeof(outer->addresses));
}

/* Encapsulates a packet. Returns XDP_REDIRECT if the frame was written, counted and redirected; otherwise nothing
 * has been changed. */
static ALWAYS_INLINE int encapsulate(struct xdp_md *ctx, __u32 set, __u32 in, const struct node *node, __u32 steer,
				     const struct inner *inner)
{
	__u32 len = inner->len + IPV6_LEN, number, out;
	const struct path *path;
	const struct hop *hop;
	struct outer *outer;
	struct eth *eth;
	void *behind, *end;

	number = choose(&steer_members, &steer_patterns, set, ROW(steers, set, steer), inner->flow,
			node->seed_of_paths);
	path = ROW(paths, set, number);
	if (!path || path->kind != PATH_WITHOUT_SRH || len > path->mtu)
		return XDP_PASS;
	number = choose(&group_members, &group_patterns, set, ROW(groups, set, path->group), inner->flow,
			node->seed_of_hops);
	hop = leave_by(set, number, len, &out);
	if (!hop)
		return XDP_PASS;
	/* There may be no room in front, for example if the frame has much metadata. */
	if (bpf_xdp_adjust_head(ctx, -IPV6_LEN))
		return XDP_PASS;

	eth = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	outer = (void *)(eth + 1);
	behind = outer + 1;
	/* This check is for the verifier, which no longer knows that the inner header is there. */
	if (behind + IPV4_LEN > end) {
		bpf_xdp_adjust_head(ctx, IPV6_LEN);
		return XDP_PASS;
	}
	if (inner->protocol == IPPROTO_IPV6)
		((struct ipv6 *)behind)->hop_limit -= 1;
	else
		spend_hop_v4(behind);
	__builtin_memcpy(eth->addresses, hop->ethernet, sizeof(eth->addresses));
	eth->type = htons(ETH_P_IPV6);
	write_outer(outer, path, inner);
	add(&path_counts, path->slot, len);
	add(&hop_counts, hop->slot, len);
	add(&rx_counts, in, inner->len + ETH_LEN);
	add(&tx_counts, out, len + ETH_LEN);
	return XDP_REDIRECT;
}

static ALWAYS_INLINE int encapsulate_v6(struct xdp_md *ctx, __u32 set, __u32 in, const struct node *node, __u32 steer,
					const struct ipv6 *ip, struct address to)
{
	struct inner inner = {
		.len = IPV6_LEN + ntohs(ip->payload_len),
		.class = ip->version_flow[0] << 4 | ip->version_flow[1] >> 4,
		.protocol = IPPROTO_IPV6,
	};
	const void *end = (const void *)(long)ctx->data_end;
	__u64 rest;

	/* The worker searches such packets for its own outer header (RFC 2473 section 4.1.3). */
	if (ip->next_header == IPPROTO_IPV6 || ip->next_header == IPPROTO_IPIP || ip->next_header == IPPROTO_ROUTING)
		return XDP_PASS;
	if (!read_upper(ip->next_header, (const void *)(ip + 1), end, node->flags & HASH_QP, &rest))
		return XDP_PASS;
	inner.flow = hash_v6(ip, to, rest);
	return encapsulate(ctx, set, in, node, steer, &inner);
}

static ALWAYS_INLINE int encapsulate_v4(struct xdp_md *ctx, __u32 set, __u32 in, const struct node *node, __u32 steer,
					const struct ipv4 *ip)
{
	struct inner inner = { .len = ntohs(ip->total_len), .class = ip->tos, .protocol = IPPROTO_IPIP };
	const void *end = (const void *)(long)ctx->data_end;
	__u64 rest;

	if (!read_upper_v4(ip, end, node->flags & HASH_QP, &rest))
		return XDP_PASS;
	inner.flow = hash_v4(ip, rest);
	return encapsulate(ctx, set, in, node, steer, &inner);
}
