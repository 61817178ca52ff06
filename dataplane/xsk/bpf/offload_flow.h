/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Chooses one of several paths or next hops by a packet's flow, and the outer flow label, as flow.rs does in the worker. */
#pragma once

#include "offload_tap.h"

/* UDP port of RoCEv2, and the index of the word that holds the destination QP, counted from the UDP header's first
 * word. The QP is in the BTH, behind opcode, flags, P_Key and a reserved byte. */
#define ROCE_V2 4791
#define BTH_QP_WORD 3

/* Returns the upper half of a 128-bit product. */
static ALWAYS_INLINE __u64 multiply_high(__u64 a, __u64 b)
{
	__u64 a_high = a >> 32, a_low = (__u32)a, b_high = b >> 32, b_low = (__u32)b;
	__u64 low = a_low * b_low, left = a_high * b_low, right = a_low * b_high;
	__u64 middle = (low >> 32) + (__u32)left + (__u32)right;

	return a_high * b_high + (left >> 32) + (right >> 32) + (middle >> 32);
}

/* Returns the two halves of a 128-bit product, combined by XOR. */
static ALWAYS_INLINE __u64 mix(__u64 a, __u64 b)
{
	return multiply_high(a, b) ^ (a * b);
}

static ALWAYS_INLINE int has_ports(__u8 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP || protocol == IPPROTO_SCTP;
}

static ALWAYS_INLINE __u64 with_ports(__u8 protocol, __be32 ports)
{
	return has_ports(protocol) ? (__u64)be32_to_cpu(ports) << 8 | protocol : protocol;
}

/* Returns eight bytes as a little-endian processor loads them from memory. */
static ALWAYS_INLINE __u64 as_it_lies(__u64 value)
{
	return __builtin_bswap64(value);
}

static ALWAYS_INLINE __u64 hash_v6(const struct ipv6 *ip, struct address to, __u64 rest)
{
	__u64 from, hash;

	from = mix(as_it_lies(be64_to_cpu(ip->src[1])) ^ 0x2d358dccaa6c78a5,
		   as_it_lies(be64_to_cpu(ip->src[0])) ^ 0x8bb84b93962eacc9);
	hash = mix(as_it_lies(to.low) ^ 0x4b33a62ed433d4a3, as_it_lies(to.high) ^ 0x4d5a2da51de1aa47);
	return mix(from ^ rest, hash);
}

static ALWAYS_INLINE __u64 hash_v4(const struct ipv4 *ip, __u64 rest)
{
	__u64 addresses = (__u64)be32_to_cpu(ip->src) << 32 | be32_to_cpu(ip->dst);
	__u64 a = addresses ^ 0x2d358dccaa6c78a5, b = rest ^ 0x8bb84b93962eacc9;

	return mix(multiply_high(a, b) ^ 0x4b33a62ed433d4a3, a * b ^ 0x4d5a2da51de1aa47);
}

/* Returns the flow hash of a packet that is forwarded without encapsulation: of its flow label or, if that is 0, of
 * its ports. */
static ALWAYS_INLINE __u64 transit(const struct ipv6 *ip, __be32 ports, struct address to)
{
	__u64 label = (__u64)(ip->version_flow[1] & 0xf) << 16 | (__u64)ip->version_flow[2] << 8 |
		      ip->version_flow[3];

	return hash_v6(ip, to, label ? label : with_ports(ip->next_header, ports));
}

/* Reads the part of an encapsulated packet's flow key that lies behind the addresses. Returns 0 if the packet is too
 * short. */
static ALWAYS_INLINE int read_upper(__u8 protocol, const __be32 *transport, const void *end, int with_qp, __u64 *rest)
{
	*rest = protocol;
	if (!has_ports(protocol))
		return 1;
	if ((const void *)(transport + 1) > end)
		return 0;
	*rest = with_ports(protocol, transport[0]);
	if (!with_qp || protocol != IPPROTO_UDP || (*rest >> 8 & 0xffff) != ROCE_V2)
		return 1;
	if ((const void *)(transport + BTH_QP_WORD + 1) > end)
		return 0;
	*rest ^= (__u64)(be32_to_cpu(transport[BTH_QP_WORD]) & 0xffffff) << 40;
	return 1;
}

/* Like read_upper, for IPv4. Only the first fragment has ports, so the flow key of every fragment leaves them out. */
static ALWAYS_INLINE int read_upper_v4(const struct ipv4 *ip, const void *end, int with_qp, __u64 *rest)
{
	*rest = ip->protocol;
	return ip->fragment & htons(0x3fff) ||
	       read_upper(ip->protocol, (const void *)(ip + 1), end, with_qp, rest);
}

/* Returns the member of a group of several that a flow takes at a node with this seed. */
static ALWAYS_INLINE __u32 pick(void *members, void *patterns, __u32 set, const struct group *group, __u64 flow,
				const __u64 *seed)
{
	const struct pattern *pattern = row_of(patterns, set, group->pattern);
	__u32 slot = (__u32)mix(flow ^ seed[0], seed[1]) >> (32 - SLOT_BITS);
	const __u32 *member;

	if (!pattern)
		return NONE;
	member = row_of(members, set, group->at + pattern->members[slot / 32][slot % 32]);
	return member ? *member : NONE;
}

static ALWAYS_INLINE __u32 choose(void *members, void *patterns, __u32 set, const struct group *group, __u64 flow,
				  const __u64 *seed)
{
	if (!group || !group->count)
		return NONE;
	return group->count == 1 ? group->at : pick(members, patterns, set, group, flow, seed);
}

/* Whether no frame of this one's queue can be overtaken: the worker has finished all that it was given. Once that was seen, the
 * queue is this program's. */
static ALWAYS_INLINE int may_take(const struct frame *frame)
{
	const struct node *node = frame->node;
	__u32 zero = 0, queue = frame->ctx->rx_queue_index;
	struct hand_over *row;
	void *rows;

	rows = bpf_map_lookup_elem(&hand_overs, &zero);
	if (!rows || queue >= node->queues)
		return 1;
	queue += frame->in * node->queues;
	row = bpf_map_lookup_elem(rows, &queue);
	if (!row || row->taken == node->hand_over)
		return 1;
	if (*(volatile __u32 *)&row->seen != node->hand_over ||
	    *(volatile __u64 *)&row->given != *(volatile __u64 *)&row->finished)
		return 0;
	row->taken = node->hand_over;
	return 1;
}

/* Makes the next hop of this number the one by which the frame leaves, with `len` bytes behind the Ethernet header. Returns 0
 * if the hop is not ready or does not take so much, or if the frame would overtake others: then it is the worker's. */
static ALWAYS_INLINE int leave_by(const struct frame *frame, struct way *way, __u32 number, __u32 len)
{
	const struct hop *hop = ROW(hops, frame->set, number);
	const struct device *device;

	if (!hop || len > hop->mtu)
		return 0;
	device = ROW(devices, frame->set, hop->port);
	if (!device || len > device->mtu || (device->vid && !frame->has_room))
		return 0;
	if ((frame->is_new || hop->flags & HOP_IS_NEW) && !may_take(frame))
		return 0;
	way->hop = hop;
	way->out = device->number;
	way->device_flags = device->flags;
	way->vid = device->vid;
	way->vlan_slot = device->slot;
	way->out_len = len;
	/* This only records the target port. It returns 0 if there is no such interface. */
	return bpf_redirect_map(&targets, device->number, 0) == XDP_REDIRECT;
}
