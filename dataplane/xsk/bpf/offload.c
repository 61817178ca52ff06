/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * uN and uA shifts (RFC 9800 section 4.1, NEXT-CSID) without a worker, for
 * ports whose AF_XDP sockets copy every packet.
 *
 *   frame -> plain? -> a SID that shifts? -> shift -> next hop ready, fits? -> write -> the other port
 *              | no          | no              (uN: look up again)  | no
 *              +-------------+--------------------------------------+--> claim.c of this port, by tail call
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
#include "bpf.h"

#define ETH_LEN 14
#define ETH_P_IPV6 0x86dd
#define IPV6_LEN 40
/* Without FCS. What is shorter is padded: left to the worker. */
#define ETH_MIN_FRAME 60

#define IPPROTO_HOPOPTS 0
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define IPPROTO_ICMPV6 58
#define IPPROTO_DSTOPTS 60
#define IPPROTO_SCTP 132

/* Mirrored by src/xdp_offload/maps.rs, as are the structs of the maps. */
#define PORTS 256
#define GROUPS 4096
#define GROUP_MEMBERS 63
#define HOPS 4096
#define SIDS 4096
#define BLOCKS 2
#define USIDS 65536

/* An address is | block 32 | uSIDs ... |: what is not block, in its upper half. */
#define BEHIND_BLOCK 0xffffffffull

struct eth {
	__u8 addresses[12];
	__be16 type;
} __attribute__((packed));

struct ipv6 {
	__u8 version_flow[4];
	__be16 payload_len;
	__u8 next_header;
	__u8 hop_limit;
	__u64 src[2];
	__u64 dst[2];
} __attribute__((packed));

struct address {
	__u64 high;
	__u64 low;
};

/* A port whose frames may be forwarded here. */
struct port {
	__u8 mac[6];
	__u16 longest; /* frame; 0: none */
};

/* What a prefix leads to. The first and the last stand in `usids` alone: what the
 * block leads to, and a uSID with something longer than /48 inside. */
enum { AS_BLOCK, TO_WORKER, SHIFT, SHIFT_VIA, ROUTE, IN_TRIE };

struct way {
	__u8 kind;
	__u8 by; /* bits: 16 or 32 */
	__u16 zero;
	__u32 sid;   /* whose counter */
	__u32 group; /* SHIFT_VIA and ROUTE */
};

/* A locator block whose uSIDs have an index: one load instead of a walk down
 * the trie, as in lpm.rs. */
struct block {
	__u32 prefix;
	__u32 is_used;
	struct way way; /* of the longest prefix not longer than the block */
};

/* LPM keys are compared byte by byte: the set stands in front of the address. */
struct way_key {
	__u32 prefix_len;
	__u32 set;
	__u64 high; /* big-endian */
	__u64 low;
};

/* What one and the same number means never changes while it is in use, so
 * there is one set of these. */
struct group {
	__u32 members;
	__u32 hops[GROUP_MEMBERS];
};

struct hop {
	__u8 addresses[12];
	__u32 mtu; /* 0: no packet can go there */
	__u32 port;
};

struct count {
	__u64 packets;
	__u64 bytes;
};

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u32);
	MAP_NUMBER(max_entries, 1);
} current SEC(".maps");

/* The port behind an interface's number. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u32);
	MAP_NUMBER(max_entries, PORTS);
} port_of SEC(".maps");

/* claim.c of each port. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_PROG_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u32);
	MAP_NUMBER(max_entries, PORTS);
} claim SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct port);
	MAP_NUMBER(max_entries, 2 * PORTS);
} ports SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct block);
	MAP_NUMBER(max_entries, 2 * BLOCKS);
} blocks SEC(".maps");

/* By block, and by the 16 bits behind it. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct way);
	MAP_NUMBER(max_entries, 2 * BLOCKS * USIDS);
} usids SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_LPM_TRIE);
	MAP_TYPE(key, struct way_key);
	MAP_TYPE(value, struct way);
	MAP_NUMBER(max_entries, 1);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
} ways SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct group);
	MAP_NUMBER(max_entries, GROUPS);
} groups SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct hop);
	MAP_NUMBER(max_entries, 2 * HOPS);
} hops SEC(".maps");

/* Interfaces, by the number of their port. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_DEVMAP);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct bpf_devmap_val);
	MAP_NUMBER(max_entries, PORTS);
} targets SEC(".maps");

#define COUNTS(name, entries)                                                                      \
	struct {                                                                                   \
		MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);                                       \
		MAP_TYPE(key, __u32);                                                              \
		MAP_TYPE(value, struct count);                                                     \
		MAP_NUMBER(max_entries, entries);                                                  \
	} name SEC(".maps")

COUNTS(sid_counts, SIDS); /* IPv6 length */
COUNTS(hop_counts, HOPS); /* IPv6 length */
COUNTS(rx_counts, PORTS); /* frame */
COUNTS(tx_counts, PORTS); /* frame */

static ALWAYS_INLINE void add(void *counts, __u32 index, __u64 bytes)
{
	struct count *count = bpf_map_lookup_elem(counts, &index);

	if (!count)
		return;
	count->packets += 1;
	count->bytes += bytes;
}

/* Untagged, to this port, IPv6, as long as its header says, with addresses
 * that may go anywhere, and nothing behind the header that asks to be looked
 * at: straight/headers.rs has the same list. */
static ALWAYS_INLINE int is_plain(const struct port *port, const struct eth *eth, const struct ipv6 *ip, __u64 len)
{
	const __u8 *src = (const __u8 *)ip->src, *dst = (const __u8 *)ip->dst;
	__u8 differs = 0;
	int i;

#pragma unroll
	for (i = 0; i < 6; i++)
		differs |= eth->addresses[i] ^ port->mac[i];
	return !differs && eth->type == htons(ETH_P_IPV6) && len >= ETH_MIN_FRAME && len <= port->longest &&
	       ip->version_flow[0] >> 4 == 6 && len == ETH_LEN + IPV6_LEN + (__u64)ntohs(ip->payload_len) &&
	       ip->hop_limit > 1 && ip->next_header != IPPROTO_HOPOPTS && ip->next_header != IPPROTO_ICMPV6 &&
	       ip->next_header != IPPROTO_DSTOPTS &&
	       /* Not ::/64 (unspecified, loopback), below fe00:: (link-local, multicast). */
	       ip->src[0] && ip->dst[0] && src[0] < 0xfe && dst[0] < 0xfe;
}

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

static ALWAYS_INLINE const struct way *look_up(__u32 set, struct address to)
{
	const struct way *way = look_up_in_block(set, to);
	struct way_key key = {
		.prefix_len = 8 * (sizeof(key) - sizeof(key.prefix_len)),
		.set = set,
		.high = cpu_to_be64(to.high),
		.low = cpu_to_be64(to.low),
	};

	return way ? way : bpf_map_lookup_elem(&ways, &key);
}

/* The halves of a 128-bit product, folded: flow.rs. */
static ALWAYS_INLINE __u64 mix(__u64 a, __u64 b)
{
	__u64 a_high = a >> 32, a_low = (__u32)a, b_high = b >> 32, b_low = (__u32)b;
	__u64 low = a_low * b_low, left = a_high * b_low, right = a_low * b_high;
	__u64 middle = (low >> 32) + (__u32)left + (__u32)right;

	return (a_high * b_high + (left >> 32) + (right >> 32) + (middle >> 32)) ^ (a * b);
}

/* Which of several next hops the packet's flow takes: flow.rs, `transit` and `pick`. */
static ALWAYS_INLINE __u32 pick(const struct ipv6 *ip, __be32 ports, struct address to, __u32 members)
{
	__u64 label = (__u64)(ip->version_flow[1] & 0xf) << 16 | (__u64)ip->version_flow[2] << 8 |
		      ip->version_flow[3];
	__u64 rest = label, from, hash;

	if (!label) {
		rest = ip->next_header;
		if (rest == IPPROTO_TCP || rest == IPPROTO_UDP || rest == IPPROTO_SCTP)
			rest |= (__u64)be32_to_cpu(ports) << 8;
	}
	from = mix(be64_to_cpu(ip->src[0]) ^ 0x2d358dccaa6c78a5, be64_to_cpu(ip->src[1]) ^ 0x8bb84b93962eacc9);
	hash = mix(to.high ^ 0x4b33a62ed433d4a3, to.low ^ 0x4d5a2da51de1aa47);
	hash = hash << 23 | hash >> 41;
	hash ^= mix(rest ^ 0xd6e8feb86659fd93, 0xff51afd7ed558ccd);
	hash = mix(from ^ 0x9e3779b97f4a7c15, hash);
	return (hash & 0xffffffff) * members >> 32;
}

/* The next hop's number in `hops`, as far as the set does not matter; HOPS: none. */
static ALWAYS_INLINE __u32 choose(const struct ipv6 *ip, const void *end, struct address to, __u32 number)
{
	const struct group *group = bpf_map_lookup_elem(&groups, &number);
	const __be32 *ports = (const void *)(ip + 1);
	__u32 at;

	if (!group || !group->members)
		return HOPS;
	if (group->members == 1)
		return group->hops[0];
	if ((const void *)(ports + 1) > end)
		return HOPS;
	at = pick(ip, *ports, to, group->members);
	return at < GROUP_MEMBERS ? group->hops[at] : HOPS;
}

/* XDP_REDIRECT: written, counted, on its way. Else nothing was done. */
static ALWAYS_INLINE int shift(struct xdp_md *ctx, __u32 in)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct eth *eth = data;
	struct ipv6 *ip = (void *)(eth + 1);
	__u64 len = bpf_xdp_get_buff_len(ctx), l3_len = len - ETH_LEN;
	__u32 zero = 0, *current_set, set, index, group, number;
	const struct port *port;
	const struct way *way, *next;
	const struct hop *hop;
	struct address to;
	__u64 usids;

	current_set = bpf_map_lookup_elem(&current, &zero);
	if (!current_set || (void *)(ip + 1) > end)
		return XDP_PASS;
	set = *current_set & 1;
	index = set * PORTS + in;
	port = bpf_map_lookup_elem(&ports, &index);
	if (!port || !is_plain(port, eth, ip, len))
		return XDP_PASS;

	to.high = be64_to_cpu(ip->dst[0]);
	to.low = be64_to_cpu(ip->dst[1]);
	way = look_up(set, to);
	if (!way || (way->kind != SHIFT && way->kind != SHIFT_VIA))
		return XDP_PASS;
	/* RFC 9800 section 4.1.1: an argument that is used up is the worker's.
	 * | block 32 | active uSIDs | argument | -> | block 32 | argument | zero | */
	usids = to.high << (way->by & 63) & BEHIND_BLOCK;
	if (!usids && !to.low)
		return XDP_PASS;
	to.high = (to.high & ~BEHIND_BLOCK) | usids | to.low >> (64 - way->by & 63);
	to.low <<= way->by & 63;

	group = way->group;
	if (way->kind == SHIFT) {
		next = look_up(set, to);
		if (!next || next->kind != ROUTE)
			return XDP_PASS;
		group = next->group;
	}
	number = choose(ip, end, to, group);
	if (number >= HOPS)
		return XDP_PASS;
	index = set * HOPS + number;
	hop = bpf_map_lookup_elem(&hops, &index);
	if (!hop || l3_len > hop->mtu)
		return XDP_PASS;
	/* Says where to, and no more: 0 when there is no such interface. */
	if (bpf_redirect_map(&targets, hop->port, 0) != XDP_REDIRECT)
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

SEC("xdp.frags")
int srv6d_offload(struct xdp_md *ctx)
{
	__u32 ifindex = ctx->ingress_ifindex, *number;

	number = bpf_map_lookup_elem(&port_of, &ifindex);
	if (!number)
		return XDP_PASS;
	if (shift(ctx, *number) == XDP_REDIRECT)
		return XDP_REDIRECT;
	bpf_tail_call(ctx, &claim, *number);
	/* There is nothing to call: the kernel keeps it. */
	return XDP_PASS;
}

char licence_text[] SEC("license") = "Apache-2.0 OR MIT";
