/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * H.Encaps.Red in one segment (RFC 8986 section 5.2): an IPv6 header in front, and no SRH. straight/write.rs.
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

/* RFC 1624: the TTL is the upper half of its word. */
static ALWAYS_INLINE void spend_hop_v4(struct ipv4 *ip)
{
	__u32 sum = (__u16)~ntohs(ip->checksum) + (__u16)~0x0100;

	ip->ttl -= 1;
	ip->checksum = htons((__u16)~((sum & 0xffff) + (sum >> 16)));
}

static ALWAYS_INLINE void write_outer(struct outer *outer, const struct path *path, const struct inner *inner)
{
	__u32 label = inner->flow >> 44; /* never 0: RFC 6437 section 3 */
	__u32 class = (inner->class & path->class_kept) | path->class_set;

	outer->version_class_label = cpu_to_be32(6u << 28 | class << 20 | (label ? label : 1));
	outer->payload_len = htons(inner->len);
	outer->next_header = inner->protocol;
	outer->hop_limit = path->hop_limit;
	__builtin_memcpy(outer->addresses, path->addresses, sizeof(outer->addresses));
}

/* XDP_REDIRECT: written, counted, on its way. Else nothing was done. */
static ALWAYS_INLINE int encapsulate(struct xdp_md *ctx, __u32 set, __u32 in, __u32 paths_number,
				     const struct inner *inner)
{
	__u32 len = inner->len + IPV6_LEN, path_number, hop_number, index;
	const struct path *path;
	const struct hop *hop;
	struct outer *outer;
	struct eth *eth;
	void *behind, *end;

	path_number = choose(paths_number, again(inner->flow));
	if (path_number >= PATHS)
		return XDP_PASS;
	index = set * PATHS + path_number;
	path = bpf_map_lookup_elem(&paths, &index);
	if (!path || len > path->mtu)
		return XDP_PASS;
	hop_number = choose(path->group, inner->flow);
	hop = leave_by(set, hop_number, len);
	if (!hop)
		return XDP_PASS;
	/* There may be no room in front: of a frame with much metadata, say. */
	if (bpf_xdp_adjust_head(ctx, -IPV6_LEN))
		return XDP_PASS;

	eth = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	outer = (void *)(eth + 1);
	behind = outer + 1;
	/* For the verifier, which has forgotten that the inner header is there. */
	if (behind + IPV4_LEN > end) {
		bpf_xdp_adjust_head(ctx, IPV6_LEN);
		return XDP_PASS;
	}
	if (inner->protocol == IPPROTO_IPV6)
		((struct ipv6 *)behind)->hop_limit -= 1;
	else
		spend_hop_v4(behind);
	__builtin_memcpy(eth->addresses, hop->addresses, sizeof(eth->addresses));
	eth->type = htons(ETH_P_IPV6);
	write_outer(outer, path, inner);
	add(&path_counts, path_number, len);
	add(&hop_counts, hop_number, len);
	add(&rx_counts, in, inner->len + ETH_LEN);
	add(&tx_counts, hop->port, len + ETH_LEN);
	return XDP_REDIRECT;
}

static ALWAYS_INLINE int encapsulate_v6(struct xdp_md *ctx, __u32 set, __u32 in, const struct way *way,
					const struct ipv6 *ip, struct address to)
{
	struct inner inner = {
		.len = IPV6_LEN + ntohs(ip->payload_len),
		.class = ip->version_flow[0] << 4 | ip->version_flow[1] >> 4,
		.protocol = IPPROTO_IPV6,
	};
	const void *end = (const void *)(long)ctx->data_end;
	__u64 rest;

	/* The worker looks for its own outer header in these (RFC 2473 section 4.1.3). */
	if (ip->next_header == IPPROTO_IPV6 || ip->next_header == IPPROTO_IPIP || ip->next_header == IPPROTO_ROUTING)
		return XDP_PASS;
	if (!read_upper(ip->next_header, (const void *)(ip + 1), end, way->by, &rest))
		return XDP_PASS;
	inner.flow = hash_v6(ip, to, rest);
	return encapsulate(ctx, set, in, way->group, &inner);
}

static ALWAYS_INLINE int encapsulate_v4(struct xdp_md *ctx, __u32 set, __u32 in, const struct way *way,
					const struct ipv4 *ip)
{
	struct inner inner = { .len = ntohs(ip->total_len), .class = ip->tos, .protocol = IPPROTO_IPIP };
	const void *end = (const void *)(long)ctx->data_end;
	__u64 rest = ip->protocol;

	/* Only the first fragment has ports: all of them go without. */
	if (!(ip->fragment & htons(0x3fff)) &&
	    !read_upper(ip->protocol, (const void *)(ip + 1), end, way->by, &rest))
		return XDP_PASS;
	inner.flow = hash_v4(ip, rest);
	return encapsulate(ctx, set, in, way->group, &inner);
}
