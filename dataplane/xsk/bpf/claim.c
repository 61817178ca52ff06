/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Which packets of a port are srv6d's.
 *
 *   frame -> for us on layer 2? -> VLAN known? -> unicast, not ND? -> claimed? -> XSK of this queue
 *               | no                 | no            | no             | no          | no socket
 *               +--------------------+---------------+----------------+-------------+--> the kernel
 *
 * The program only looks. It never writes to a frame, never drops one, and
 * whatever it does not understand is the kernel's.
 */
#include "bpf.h"

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define ETH_P_8021Q 0x8100
#define VLAN_VID_MASK 0x0fff
#define VLAN_COUNT 4096

#define IPPROTO_ICMPV6 58
/* RFC 4443 section 3.2. */
#define PACKET_TOO_BIG 2
/* Router solicitation .. redirect: RFC 4861 section 4. */
#define ND_FIRST 133
#define ND_LAST 137
/* What another router has forwarded is not from this link, and so no ND. */
#define ND_HOP_LIMIT 255

struct eth {
	__u8 dst[6];
	__u8 src[6];
	__be16 type;
} __attribute__((packed));

struct vlan {
	__be16 tci;
	__be16 type;
} __attribute__((packed));

struct ipv4 {
	__u8 version_ihl;
	__u8 tos;
	__u8 rest[14];
	__u8 dst[4];
} __attribute__((packed));

struct ipv6 {
	__u8 version_flow[4];
	__be16 payload_len;
	__u8 next_header;
	__u8 hop_limit;
	__u8 src[16];
	__u8 dst[16];
} __attribute__((packed));

struct key4 {
	__u32 prefix_len;
	__u8 addr[4];
};

struct address6 {
	__u8 addr[16];
};

struct key6 {
	__u32 prefix_len;
	__u8 addr[16];
};

/* Mirrored by `PortConfig` in src/program.rs. */
struct port {
	__u8 mac[6];
	__u8 untagged;	/* frames without a tag may be claimed */
	__u8 claim_all; /* no look-up: all unicast of both families is claimed */
};

enum { PASSED, REDIRECTED, COUNTERS };

/* Claims: longest prefix wins; 1 = XSK, 0 = kernel. The loader sets the sizes. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_LPM_TRIE);
	MAP_TYPE(key, struct key6);
	MAP_TYPE(value, __u32);
	MAP_NUMBER(max_entries, 1);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
} claims6 SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_LPM_TRIE);
	MAP_TYPE(key, struct key4);
	MAP_TYPE(value, __u32);
	MAP_NUMBER(max_entries, 1);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
} claims4 SEC(".maps");

/* Addresses of this node whose Packet Too Big messages are claimed, and
 * nothing else of them: outer sources of what srv6d encapsulates. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, struct address6);
	MAP_TYPE(value, __u32);
	MAP_NUMBER(max_entries, 1);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
} outer_sources SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_XSKMAP);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u32);
	MAP_NUMBER(max_entries, 1);
} xsks SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct port);
	MAP_NUMBER(max_entries, 1);
} port SEC(".maps");

/* vlans[vid] != 0: frames with this tag may be claimed. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u32);
	MAP_NUMBER(max_entries, VLAN_COUNT);
} vlans SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u64);
	MAP_NUMBER(max_entries, COUNTERS);
} counters SEC(".maps");

static ALWAYS_INLINE int for_this_port(const struct port *port, const struct eth *eth)
{
	__u8 differs = 0;
	int i;

	if (eth->dst[0] & 1)
		return 1;
	/* Not memcmp: clang makes a call of it, and there is nothing to call. */
#pragma unroll
	for (i = 0; i < 6; i++)
		differs |= eth->dst[i] ^ port->mac[i];
	return !differs;
}

static ALWAYS_INLINE int claims_ipv6(const struct port *port, const void *l3, const void *end)
{
	const struct ipv6 *ip = l3;
	struct key6 key = { .prefix_len = 128 };
	struct address6 dst;
	__u32 *claim;

	if ((const void *)(ip + 1) > end)
		return 0;
	if (ip->dst[0] == 0xff)
		return 0;
	if (ip->dst[0] == 0xfe && (ip->dst[1] & 0xc0) == 0x80)
		return 0;
	__builtin_memcpy(dst.addr, ip->dst, sizeof(dst.addr));
	if (ip->next_header == IPPROTO_ICMPV6) {
		const __u8 *icmp_type = (const void *)(ip + 1);

		if ((const void *)(icmp_type + 1) > end)
			return 0;
		if (*icmp_type >= ND_FIRST && *icmp_type <= ND_LAST && ip->hop_limit == ND_HOP_LIMIT)
			return 0;
		if (*icmp_type == PACKET_TOO_BIG && bpf_map_lookup_elem(&outer_sources, &dst))
			return 1;
	}
	if (port->claim_all)
		return 1;
	__builtin_memcpy(key.addr, ip->dst, sizeof(key.addr));
	claim = bpf_map_lookup_elem(&claims6, &key);
	return claim && *claim;
}

static ALWAYS_INLINE int claims_ipv4(const struct port *port, const void *l3, const void *end)
{
	const struct ipv4 *ip = l3;
	struct key4 key = { .prefix_len = 32 };
	__u32 *claim;

	if ((const void *)(ip + 1) > end)
		return 0;
	/* 224/4 multicast, 240/4 reserved with the limited broadcast in it. */
	if (ip->dst[0] >= 224)
		return 0;
	if (port->claim_all)
		return 1;
	__builtin_memcpy(key.addr, ip->dst, sizeof(key.addr));
	claim = bpf_map_lookup_elem(&claims4, &key);
	return claim && *claim;
}

static ALWAYS_INLINE int claimed(const struct xdp_md *ctx)
{
	const void *data = (const void *)(long)ctx->data;
	const void *end = (const void *)(long)ctx->data_end;
	const struct eth *eth = data;
	const void *l3 = eth + 1;
	const struct port *conf;
	__u32 zero = 0;
	__be16 type;

	conf = bpf_map_lookup_elem(&port, &zero);
	if (!conf || l3 > end || !for_this_port(conf, eth))
		return 0;

	type = eth->type;
	if (type == htons(ETH_P_8021Q)) {
		const struct vlan *tag = l3;
		__u32 vid, *known;

		l3 = tag + 1;
		if (l3 > end)
			return 0;
		/* VID 0 is a priority tag, not a VLAN: the kernel's. */
		vid = htons(tag->tci) & VLAN_VID_MASK;
		known = bpf_map_lookup_elem(&vlans, &vid);
		if (!known || !*known || vid == 0)
			return 0;
		type = tag->type; /* a second tag is neither IP type below */
	} else if (!conf->untagged) {
		return 0;
	}

	if (type == htons(ETH_P_IPV6))
		return claims_ipv6(conf, l3, end);
	if (type == htons(ETH_P_IP))
		return claims_ipv4(conf, l3, end);
	return 0;
}

/* "xdp.frags": jumbo frames reach the program as several buffers; headers are
 * in the first one, or the frame counts as truncated and is the kernel's. */
SEC("xdp.frags")
int srv6d_claim(struct xdp_md *ctx)
{
	__u32 which = PASSED;
	int verdict = XDP_PASS;
	__u64 *counter;

	if (claimed(ctx)) {
		/* No socket on this queue: the flags argument is the verdict. */
		verdict = bpf_redirect_map(&xsks, ctx->rx_queue_index, XDP_PASS);
		if (verdict == XDP_REDIRECT)
			which = REDIRECTED;
	}
	counter = bpf_map_lookup_elem(&counters, &which);
	if (counter)
		*counter += 1;
	return verdict;
}

char licence_text[] SEC("license") = "Apache-2.0 OR MIT";
