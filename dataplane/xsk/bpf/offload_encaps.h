/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * H.Encaps.Red and H.Encaps (RFC 8986 sections 5.1 and 5.2): an IPv6 header is put in front, and behind it an SRH of up to
 * two segments. fast/write.rs does the same in the worker.
 *
 *   | Ethernet | inner ...            ->  | Ethernet | outer IPv6 40 | SRH 0, 24 or 40 | inner, one hop less ...
 */
#pragma once

#include "offload_flow.h"

struct inner {
	__u64 flow;
	__u32 len;
	__u8 class;
	__u8 protocol;
};

/* `srh_len` is the length of the SRH behind the header, which names what is inside. */
static ALWAYS_INLINE void write_outer(struct outer *outer, const struct path *path, const struct inner *inner,
				      __u32 srh_len)
{
	__u8 next_header = srh_len ? IPPROTO_ROUTING : inner->protocol;
	__u32 label = inner->flow >> 44; /* never 0: RFC 6437 section 3 */
	__u64 first = path->first | ((__u64)inner->class << 52 & path->class_kept) | (__u64)(label ? label : 1) << 32 |
		      (__u64)(__u16)(inner->len + srh_len) << 16 | (__u64)next_header << 8;

	outer->first[0] = cpu_to_be32((__u32)(first >> 32));
	outer->first[1] = cpu_to_be32((__u32)first);
	__builtin_memcpy(outer->addresses, path->addresses, sizeof(outer->addresses));
}

/* Returns the SRH of a path of this number, which has one. 0: the worker writes it. */
static ALWAYS_INLINE const struct srh *srh_of(__u32 set, const struct path *path, __u32 number)
{
	if (path->srh_units != ONE_SEGMENT && path->srh_units != TWO_SEGMENTS)
		return 0;
	return ROW(srhs, set, number);
}

/* Writes the outer header and an SRH of this length, which is a constant: the kernel's verifier takes no other distance
 * between pointers to a packet from a process without CAP_PERFMON. Returns XDP_REDIRECT if the frame was written; otherwise
 * nothing has been changed. */
static ALWAYS_INLINE int put_outer(const struct frame *frame, const struct way *way, const struct srh *srh,
				   __u32 srh_len, const struct inner *inner)
{
	struct xdp_md *ctx = frame->ctx;
	struct outer *outer;
	struct eth *eth;
	void *behind;

	/* There may be no room in front, for example if the frame has much metadata. */
	if (way->vid && !has_room(ctx, IPV6_LEN + srh_len + TAG_LEN))
		return XDP_PASS;
	if (bpf_xdp_adjust_head(ctx, -(int)(IPV6_LEN + srh_len)))
		return XDP_PASS;
	tap_received(frame, IPV6_LEN + srh_len);

	eth = (void *)(long)ctx->data;
	outer = (void *)(eth + 1);
	behind = (void *)(outer + 1) + srh_len;
	/* This check is for the verifier, which no longer knows that the inner header is there. */
	if (behind + IPV4_LEN > (void *)(long)ctx->data_end)
		return XDP_DROP;
	if (inner->protocol == IPPROTO_IPV6)
		((struct ipv6 *)behind)->hop_limit -= 1;
	else
		spend_hop_v4(behind);
	__builtin_memcpy(eth->addresses, way->hop->ethernet, sizeof(eth->addresses));
	eth->type = htons(ETH_P_IPV6);
	write_outer(outer, way->path, inner, srh_len);
	if (srh_len) {
		__builtin_memcpy(outer + 1, srh->bytes, srh_len);
		*(__u8 *)(outer + 1) = inner->protocol;
	}
	return XDP_REDIRECT;
}

/* Encapsulates a packet. Returns XDP_REDIRECT if the frame was written; otherwise nothing has been changed. */
static ALWAYS_INLINE int encapsulate(const struct frame *frame, struct way *way, __u32 steer, const struct inner *inner)
{
	const struct node *node = frame->node;
	__u32 len = inner->len + IPV6_LEN, set = frame->set, number;
	const struct srh *srh = 0;
	const struct path *path;

	number = choose(&steer_members, &steer_patterns, set, ROW(steers, set, steer), inner->flow,
			node->seed_of_paths);
	path = ROW(paths, set, number);
	if (!path)
		return XDP_PASS;
	if (path->kind == PATH_WITH_SRH) {
		srh = srh_of(set, path, number);
		if (!srh)
			return XDP_PASS;
		len += 8 * path->srh_units;
	} else if (path->kind != PATH_WITHOUT_SRH) {
		return XDP_PASS;
	}
	if (len > path->mtu)
		return XDP_PASS;
	way->path = path;
	number = choose(&group_members, &group_patterns, set, ROW(groups, set, path->group), inner->flow,
			node->seed_of_hops);
	if (!leave_by(frame, way, number, len))
		return XDP_PASS;
	if (!srh)
		return put_outer(frame, way, srh, 0, inner);
	if (path->srh_units == ONE_SEGMENT)
		return put_outer(frame, way, srh, 8 * ONE_SEGMENT, inner);
	return put_outer(frame, way, srh, 8 * TWO_SEGMENTS, inner);
}

static ALWAYS_INLINE int encapsulate_v6(const struct frame *frame, struct way *way, __u32 steer, const struct ipv6 *ip,
					struct address to)
{
	struct inner inner = {
		.len = way->in_len,
		.class = ip->version_flow[0] << 4 | ip->version_flow[1] >> 4,
		.protocol = IPPROTO_IPV6,
	};
	__u64 rest;

	/* The worker searches such packets for its own outer header (RFC 2473 section 4.1.3). */
	if (ip->next_header == IPPROTO_IPV6 || ip->next_header == IPPROTO_IPIP || ip->next_header == IPPROTO_ROUTING)
		return XDP_PASS;
	if (!read_upper(ip->next_header, (const void *)(ip + 1), end_of(frame), frame->node->flags & HASH_QP, &rest))
		return XDP_PASS;
	inner.flow = hash_v6(ip, to, rest);
	return encapsulate(frame, way, steer, &inner);
}

static ALWAYS_INLINE int encapsulate_v4(const struct frame *frame, struct way *way, __u32 steer, const struct ipv4 *ip)
{
	struct inner inner = { .len = way->in_len, .class = ip->tos, .protocol = IPPROTO_IPIP };
	__u64 rest;

	if (!read_upper_v4(ip, end_of(frame), frame->node->flags & HASH_QP, &rest))
		return XDP_PASS;
	inner.flow = hash_v4(ip, rest);
	return encapsulate(frame, way, steer, &inner);
}
