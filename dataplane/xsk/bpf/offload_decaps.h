/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * uDT4, uDT6 and uDT46 (RFC 8986 sections 4.6 to 4.8): the outer header is removed.
 *
 *   | Ethernet | outer IPv6 40 | inner ...    ->         | Ethernet | inner, one hop less ...
 *   for this node:                            ->  | mark | Ethernet | inner ...
 *
 * What is for this node is merged by the kernel (GRO) as it merges packets that came without an outer header, and tc.h
 * hands what was merged to the kernel's end of srv6d's own veth. The mark is metadata, which no sender on the wire can
 * write. Its value is random (kernel_end), so that another program of this node cannot have written it by chance or by rote.
 */
#pragma once

#include "offload_flow.h"

/* The frame was written, and the kernel has it. No verdict of XDP has this number. */
#define DELIVERED 64

#define ECN_MASK 3
#define NOT_ECT 0
#define ECT_1 1
#define ECT_0 2
#define CE 3

/* The packet behind the outer header. */
struct inside {
	struct address to; /* IPv6 */
	const struct prefix *row;
	__u32 len;
	__u8 class; /* traffic class to be written */
	__u8 is_v4;
	__u8 may_name_segments;
};

/* Calculates the traffic class of the inner packet (RFC 6040 section 4.2). Returns 0 if the worker has to refuse or to
 * count the packet. */
static ALWAYS_INLINE int class_inside(__u8 outer, __u8 inner, int is_uniform, __u8 *class)
{
	__u8 without = outer & ECN_MASK, within = inner & ECN_MASK;

	if (without != NOT_ECT) {
		if (within == NOT_ECT)
			return 0;
		if (without == CE || within == CE)
			within = CE;
		else if (without == ECT_1 || within == ECT_1)
			within = ECT_1;
	}
	*class = ((is_uniform ? outer : inner) & ~ECN_MASK) | within;
	return 1;
}

/* Replaces the TOS of an IPv4 header and corrects the checksum (RFC 1624). It is the lower half of its 16-bit word. */
static ALWAYS_INLINE void set_tos(struct ipv4 *ip, __u8 tos)
{
	__u32 sum = (__u16)~ntohs(ip->checksum) + (__u16)~ip->tos + tos;

	sum = (sum & 0xffff) + (sum >> 16);
	ip->tos = tos;
	ip->checksum = htons((__u16)~((sum & 0xffff) + (sum >> 16)));
}

/* Writes the traffic class of the inner header, and the type of the Ethernet header in front of it. */
static ALWAYS_INLINE void write_class(struct eth *eth, const struct inside *inside)
{
	struct ipv6 *v6 = (void *)(eth + 1);

	if (inside->is_v4) {
		eth->type = htons(ETH_P_IP);
		set_tos((void *)(eth + 1), inside->class);
		return;
	}
	eth->type = htons(ETH_P_IPV6);
	v6->version_flow[0] = 0x60 | inside->class >> 4;
	v6->version_flow[1] = (v6->version_flow[1] & 0x0f) | inside->class << 4;
}

/* Removes the outer header, for another port. Returns XDP_REDIRECT, or XDP_PASS if nothing has been changed. */
static ALWAYS_INLINE int decapsulate(const struct frame *frame, const struct hop *hop, const struct inside *inside)
{
	struct xdp_md *ctx = frame->ctx;
	struct eth *eth;
	void *inner;

	tap_received(frame, 0);
	/* Nothing is in the way: the frame is longer than what is removed. */
	if (bpf_xdp_adjust_head(ctx, IPV6_LEN))
		return XDP_PASS;
	eth = (void *)(long)ctx->data;
	inner = eth + 1;
	/* This check is for the verifier, which no longer knows what is there. */
	if (inner + IPV4_LEN > (void *)(long)ctx->data_end)
		return XDP_DROP;
	__builtin_memcpy(eth->addresses, hop->ethernet, sizeof(eth->addresses));
	write_class(eth, inside);
	if (inside->is_v4)
		spend_hop_v4(inner);
	else
		((struct ipv6 *)inner)->hop_limit -= 1;
	return XDP_REDIRECT;
}

/* Removes the outer header, for this node. The tc program knows the frame by this mark. Returns DELIVERED, or XDP_PASS if
 * nothing has been changed. */
static ALWAYS_INLINE int decapsulate_here(const struct frame *frame, struct eth *eth, const struct inside *inside,
					  __u32 value)
{
	struct xdp_md *ctx = frame->ctx;
	void *inner, *end;
	__u8 addresses[12];
	__u32 *mark;

	__builtin_memcpy(addresses, eth->addresses, sizeof(addresses));
	/* Not every driver has metadata. */
	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*mark)))
		return XDP_PASS;
	tap_received(frame, 0);
	/* Nothing is in the way: the frame is longer than what is removed, and metadata moves with the head. */
	if (bpf_xdp_adjust_head(ctx, IPV6_LEN)) {
		bpf_xdp_adjust_meta(ctx, sizeof(*mark));
		return XDP_PASS;
	}
	mark = (void *)(long)ctx->data_meta;
	eth = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	inner = eth + 1;
	/* These checks are for the verifier, which no longer knows what is there. */
	if ((void *)(mark + 1) > (void *)eth || inner + IPV4_LEN > end)
		return XDP_DROP;
	*mark = value;
	__builtin_memcpy(eth->addresses, addresses, sizeof(addresses));
	write_class(eth, inside);
	return DELIVERED;
}
