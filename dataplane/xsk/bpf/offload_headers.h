/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Headers, and the checks that they are plain. fast/headers.rs and fast/look_ups.rs have the same list of
 * checks. */
#pragma once

#include "offload_tables.h"

#define ETH_LEN 14
#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define ETH_P_8021Q 0x8100
#define VLAN_VID_MASK 0x0fff
#define TAG_LEN 4
#define IPV4_LEN 20
#define IPV6_LEN 40
/* Shortest frame without FCS. A shorter frame has to be padded, which is left to the worker. */
#define ETH_MIN_FRAME 60

#define IPPROTO_HOPOPTS 0
#define IPPROTO_IPIP 4
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define IPPROTO_IPV6 41
#define IPPROTO_ROUTING 43
#define IPPROTO_FRAGMENT 44
#define IPPROTO_AH 51
#define IPPROTO_ICMPV6 58
#define IPPROTO_DSTOPTS 60
#define IPPROTO_SCTP 132

/* Headers are accessed in words of two and four bytes. Where alignment matters, frames begin two bytes behind a
 * multiple of four (NET_IP_ALIGN). */
struct eth {
	__u8 addresses[12];
	__be16 type;
} __attribute__((packed, aligned(2)));

/* What stands in front of a tagged packet. */
struct tagged {
	__u8 addresses[12];
	__be32 tag; /* its type, and its contents */
	__be16 type;
} __attribute__((packed, aligned(2)));

struct ipv6 {
	__u8 version_flow[4];
	__be16 payload_len;
	__u8 next_header;
	__u8 hop_limit;
	__u64 src[2];
	__u64 dst[2];
} __attribute__((packed, aligned(4)));

struct ipv4 {
	__u8 version_len;
	__u8 tos;
	__be16 total_len;
	__be16 id;
	__be16 fragment;
	__u8 ttl;
	__u8 protocol;
	__be16 checksum;
	__be32 src;
	__be32 dst;
} __attribute__((packed, aligned(4)));

/* A frame, and what it is forwarded by. */
struct frame {
	struct xdp_md *ctx;
	__u32 set; /* of the tables */
	__u32 in; /* number of the device that it came in through */
	const struct node *node;
	const struct port *port;
	__be32 tag; /* that it came in with, or 0 */
	__u32 vlan_slot; /* with a tag: of the counter of its VLAN */
	__u32 has_room; /* for a tag, in front of the frame as it is */
	__u32 is_new; /* packets like this one were the worker's until now */
};

/* What has been decided about a frame that is forwarded. Lengths are without Ethernet header. */
struct way {
	const struct sid *sid; /* or 0 */
	const struct path *path; /* or 0 */
	const struct hop *hop; /* or 0: for this node */
	__u32 out; /* number of the device that it leaves through */
	__u32 device_flags; /* of that device */
	__u32 vid; /* of the tag that it leaves with, or 0 */
	__u32 vlan_slot; /* of the counter of that VLAN */
	__u32 in_len;
	__u32 out_len;
};

/* An outer header as it is written into the frame. */
struct outer {
	__be32 first[2];
	__u32 addresses[8];
};

static ALWAYS_INLINE const void *end_of(const struct frame *frame)
{
	return (const void *)(long)frame->ctx->data_end;
}

/* Returns the tag of this VLAN and priority. */
static ALWAYS_INLINE __be32 tag_of(__u32 tci)
{
	return cpu_to_be32((__u32)ETH_P_8021Q << 16 | tci);
}

/* Removes the tag of a frame, which has one. Returns 0 if nothing has been changed. */
static ALWAYS_INLINE int take_tag(struct xdp_md *ctx)
{
	struct tagged *tagged = (void *)(long)ctx->data;
	__u8 addresses[12];
	struct eth *eth;

	if ((void *)(tagged + 1) > (void *)(long)ctx->data_end)
		return 0;
	__builtin_memcpy(addresses, tagged->addresses, sizeof(addresses));
	if (bpf_xdp_adjust_head(ctx, TAG_LEN))
		return 0;
	eth = (void *)(long)ctx->data;
	/* This check is for the verifier, which no longer knows what is there. */
	if ((void *)(eth + 1) <= (void *)(long)ctx->data_end)
		__builtin_memcpy(eth->addresses, addresses, sizeof(addresses));
	return 1;
}

/* Puts a tag into a frame. Returns 0 if there is no room for it; then nothing has been changed. */
static ALWAYS_INLINE int put_tag(struct xdp_md *ctx, __be32 tag)
{
	struct tagged *tagged;
	__u8 addresses[12];

	if (bpf_xdp_adjust_head(ctx, -TAG_LEN))
		return 0;
	tagged = (void *)(long)ctx->data;
	/* This check is for the verifier, too: the frame is longer than that. */
	if ((void *)(tagged + 1) > (void *)(long)ctx->data_end)
		return 0;
	__builtin_memcpy(addresses, (__u8 *)tagged + TAG_LEN, sizeof(addresses));
	__builtin_memcpy(tagged->addresses, addresses, sizeof(addresses));
	tagged->tag = tag;
	return 1;
}

/* Whether there is so much room in front of a frame. */
static ALWAYS_INLINE int has_room(struct xdp_md *ctx, int len)
{
	return !bpf_xdp_adjust_head(ctx, -len) && !bpf_xdp_adjust_head(ctx, len);
}

/* Whether the frame is addressed to this port and no longer than the port takes. */
static ALWAYS_INLINE int is_for(const struct port *port, const struct eth *eth, __u64 len)
{
	__u8 differs = 0;
	int i;

#pragma unroll
	for (i = 0; i < 6; i++)
		differs |= eth->addresses[i] ^ port->mac[i];
	return !differs && len >= ETH_MIN_FRAME && len <= port->longest;
}

/* Whether the packet is as long as its header says, its addresses may be forwarded anywhere, and no header follows
 * that a router has to look at. */
static ALWAYS_INLINE int is_plain_v6(const struct ipv6 *ip, __u64 len)
{
	const __u8 *src = (const __u8 *)ip->src, *dst = (const __u8 *)ip->dst;

	return ip->version_flow[0] >> 4 == 6 && len == ETH_LEN + IPV6_LEN + (__u64)ntohs(ip->payload_len) &&
	       ip->hop_limit > 1 && ip->next_header != IPPROTO_HOPOPTS && ip->next_header != IPPROTO_ICMPV6 &&
	       ip->next_header != IPPROTO_DSTOPTS &&
	       /* The addresses are not in ::/64 (unspecified, loopback), and below fe00:: (link-local, multicast). */
	       ip->src[0] && ip->dst[0] && src[0] < 0xfe && dst[0] < 0xfe;
}

/* Whether the packet may name segments. They are destinations, too, and a fragment or an authentication header may
 * hide them. */
static ALWAYS_INLINE int may_name_segments(const struct ipv6 *ip)
{
	return ip->next_header == IPPROTO_ROUTING || ip->next_header == IPPROTO_FRAGMENT ||
	       ip->next_header == IPPROTO_AH;
}

/* Whether an address may be forwarded anywhere: not 0.0.0.0/8, 127.0.0.0/8, 169.254.0.0/16 (link-local), multicast
 * or broadcast. */
static ALWAYS_INLINE int goes_everywhere_v4(__u32 address)
{
	__u32 network = address >> 24;

	return network && network != 127 && network < 224 && address >> 16 != 0xa9fe;
}

/* Like is_plain_v6, but for IPv4: the header must have no options and a correct checksum. */
static ALWAYS_INLINE int is_plain_v4(const struct ipv4 *ip, __u64 len)
{
	const __u32 *words = (const void *)ip;
	__u64 sum = 0;
	int i;

#pragma unroll
	for (i = 0; i < IPV4_LEN / 4; i++)
		sum += words[i];
#pragma unroll
	for (i = 0; i < 3; i++)
		sum = (sum & 0xffff) + (sum >> 16);
	return ip->version_len == 0x45 && len == ETH_LEN + (__u64)ntohs(ip->total_len) && ip->ttl > 1 &&
	       sum == 0xffff && goes_everywhere_v4(be32_to_cpu(ip->src)) && goes_everywhere_v4(be32_to_cpu(ip->dst));
}

/* Decrements the TTL and corrects the checksum (RFC 1624). The TTL is the upper half of its 16-bit word. */
static ALWAYS_INLINE void spend_hop_v4(struct ipv4 *ip)
{
	__u32 sum = (__u16)~ntohs(ip->checksum) + (__u16)~0x0100;

	ip->ttl -= 1;
	ip->checksum = htons((__u16)~((sum & 0xffff) + (sum >> 16)));
}
