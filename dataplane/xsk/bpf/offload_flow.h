/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Which of several ways a packet's flow takes, and its outer flow label: flow.rs. */
#pragma once

#include "offload_headers.h"

/* UDP port of RoCEv2, and the word of the destination QP behind the UDP header's first:
 * in the BTH, behind opcode, flags, P_Key and a reserved byte. */
#define ROCE_V2 4791
#define BTH_QP_WORD 3

/* The upper half of a 128-bit product. */
static ALWAYS_INLINE __u64 multiply_high(__u64 a, __u64 b)
{
	__u64 a_high = a >> 32, a_low = (__u32)a, b_high = b >> 32, b_low = (__u32)b;
	__u64 low = a_low * b_low, left = a_high * b_low, right = a_low * b_high;
	__u64 middle = (low >> 32) + (__u32)left + (__u32)right;

	return a_high * b_high + (left >> 32) + (right >> 32) + (middle >> 32);
}

/* Its halves, folded. */
static ALWAYS_INLINE __u64 mix(__u64 a, __u64 b)
{
	return multiply_high(a, b) ^ (a * b);
}

/* An independent hash of the same flow, for a second choice. */
static ALWAYS_INLINE __u64 again(__u64 flow)
{
	return mix(flow ^ 0xa0761d6478bd642f, 0xe7037ed1a0b428db);
}

static ALWAYS_INLINE int has_ports(__u8 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP || protocol == IPPROTO_SCTP;
}

static ALWAYS_INLINE __u64 with_ports(__u8 protocol, __be32 ports)
{
	return has_ports(protocol) ? (__u64)be32_to_cpu(ports) << 8 | protocol : protocol;
}

/* Eight bytes as a little-endian processor loads them. */
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

/* Of a packet that goes on as it is: flow label; ports where there is none. */
static ALWAYS_INLINE __u64 transit(const struct ipv6 *ip, __be32 ports, struct address to)
{
	__u64 label = (__u64)(ip->version_flow[1] & 0xf) << 16 | (__u64)ip->version_flow[2] << 8 |
		      ip->version_flow[3];

	return hash_v6(ip, to, label ? label : with_ports(ip->next_header, ports));
}

/* The rest of the key of a packet that is encapsulated. 1: it is there. */
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

/* The flow's member of a group. */
static ALWAYS_INLINE __u32 pick(const struct group *group, __u64 flow)
{
	__u32 at = (flow & 0xffffffff) * group->count >> 32;

	return group->count && at < GROUP_MEMBERS ? group->members[at] : NONE;
}

static ALWAYS_INLINE __u32 choose(__u32 number, __u64 flow)
{
	const struct group *group = bpf_map_lookup_elem(&groups, &number);

	return group ? pick(group, flow) : NONE;
}

/* The next hop of this number, if it is ready and takes so long a packet: the frame will leave there. 0: not. */
static ALWAYS_INLINE const struct hop *leave_by(__u32 set, __u32 number, __u32 len)
{
	__u32 index = set * HOPS + number;
	const struct hop *hop;

	if (number >= HOPS)
		return 0;
	hop = bpf_map_lookup_elem(&hops, &index);
	if (!hop || len > hop->mtu)
		return 0;
	/* Says where to, and no more: 0 when there is no such interface. */
	return bpf_redirect_map(&targets, hop->port, 0) == XDP_REDIRECT ? hop : 0;
}
