/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Which packets of a port are srv6d's.
 *
 *   frame -> for us on layer 2? -> VLAN known? -> unicast, not ND? -> claimed? -> XSK of this queue
 *               | no                 | no            | no             | no          | no socket
 *               +--------------------+---------------+----------------+-------------+--> the kernel
 *
 * On a port that guards SIDs (edge and host) the kernel gets only what it may forward: no SID space, no
 * header that names segments, no source that the port does not allow, no route of the kernel's own that
 * processes or encapsulates SRv6. The rest is the worker's, which refuses and counts it. On a queue that has
 * no worker, the program drops the rest.
 *
 * The program only looks, but for a tag that stands beside a claimed frame, which it writes into it. It
 * drops nothing else but a pile of priority tags on a port that guards SIDs; whatever else it does not
 * understand is the kernel's.
 *
 * tags.c compiles this file once more with READS_TAGS: the driver is asked for tags that stand beside the
 * frame, which takes a program that is bound to a device. The kernel lets only programs with a
 * GPL-compatible licence ask; that of this file is one of its choices.
 */
#include "bpf.h"

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define ETH_P_8021Q 0x8100
#define ETH_P_8021AD 0x88a8
#define VLAN_VID_MASK 0x0fff
/* Tags with VID 0 that may stand in front: see eth.rs. */
#define PRIORITY_TAGS 2

#define AF_INET6 10
#define IPPROTO_HOPOPTS 0
#define IPPROTO_ROUTING 43
#define IPPROTO_FRAGMENT 44
#define IPPROTO_DSTOPTS 60
/* Without options. */
#define IPV4_PLAIN 0x45

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
	__u8 rest[10];
	__u8 src[4];
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

/* A prefix of a view. The view is in front of the address, so it always matches as a whole. */
struct key4 {
	__u32 prefix_len; /* bits of the view, 32, included */
	__u32 view;
	__u8 addr[4];
};

struct key6 {
	__u32 prefix_len;
	__u32 view;
	__u8 addr[16];
};

struct vlan_key {
	__u32 prefix_len; /* always all of it */
	__u32 port;
	__u32 vid;
};

/* A prefix of the sources that a port allows. IPv4 addresses are mapped ones, ::ffff:0:0/96. */
struct source_key {
	__u32 prefix_len; /* bits of port and VLAN, 64, included */
	__u32 port;
	__u32 vid; /* 0: untagged */
	__u8 addr[16];
};

/* What holds for untagged frames of a port, or for those of a VLAN. */
enum { GUARDS_SIDS = 1, CHECKS_SOURCES = 2 };

/* Mirrored by `PortRow` in src/claim_program.rs. */
struct port {
	__u8 mac[6];
	__u8 untagged;	/* frames without a tag may be claimed */
	__u8 claim_all; /* no look-up: all unicast of both families is claimed */
	__u32 number;	/* where its counters and its sockets are */
	__u32 view;	/* which claims are its own */
	__u32 queues;	/* that may have a socket, from 0 */
	__u32 xsks;	/* where its sockets begin */
	__u32 rules;	/* of frames without a tag */
};

enum { PASSED, REDIRECTED, DROPPED, COUNTERS };

enum verdict { KERNEL, WORKER, NOBODY };

/* One set of maps serves all ports. A trie takes memory for each entry that is in it, and none for its
 * max_entries; a hash map would take 16 bytes for each of these. The loader sets the sizes. */
#define TRIE(name, key_type)                                                                       \
	struct {                                                                                   \
		MAP_NUMBER(type, BPF_MAP_TYPE_LPM_TRIE);                                           \
		MAP_TYPE(key, key_type);                                                           \
		MAP_TYPE(value, __u32);                                                            \
		MAP_NUMBER(max_entries, 1);                                                        \
		MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);                                          \
	} name SEC(".maps")

/* Claims: longest prefix wins; 1 = XSK, 0 = kernel. Ports that look packets up in the same tables share a
 * view. */
TRIE(claims6, struct key6);
TRIE(claims4, struct key4);

/* Addresses of this node whose Packet Too Big messages are claimed, and
 * nothing else of them: outer sources of what srv6d encapsulates. */
TRIE(outer_sources, struct key6);

/* SID space, for ports that guard it: 1; in it, what is not: 0. All ports share view 0. */
TRIE(sid_space, struct key6);

TRIE(allowed_sources, struct source_key);

/* Frames with these tags may be claimed, by these rules. */
TRIE(vlans, struct vlan_key);

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_XSKMAP);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u32);
	MAP_NUMBER(max_entries, 1);
} xsks SEC(".maps");

/* By number of the interface. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct port);
	MAP_NUMBER(max_entries, 1);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
} ports SEC(".maps");

/* COUNTERS for each port. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u64);
	MAP_NUMBER(max_entries, 1);
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

/* The logical port that a frame came in by. */
struct arrival {
	const struct port *port;
	__u32 vid;
	__u32 rules;
	int has_worker; /* a socket is bound to the queue */
};

static ALWAYS_INLINE int is_allowed_source(const struct arrival *in, const __u8 *address, int is_v4)
{
	struct source_key key = {
		.prefix_len = 8 * (sizeof(key) - sizeof(key.prefix_len)),
		.port = in->port->number,
		.vid = in->vid,
	};

	if (!(in->rules & CHECKS_SOURCES))
		return 1;
	if (is_v4) {
		key.addr[10] = key.addr[11] = 0xff;
		__builtin_memcpy(key.addr + 12, address, 4);
	} else {
		__builtin_memcpy(key.addr, address, sizeof(key.addr));
	}
	return bpf_map_lookup_elem(&allowed_sources, &key) != 0;
}

static ALWAYS_INLINE int is_link_local(const __u8 *address)
{
	return address[0] == 0xfe && (address[1] & 0xc0) == 0x80;
}

static ALWAYS_INLINE int is_unspecified(const __u8 *address)
{
	__u8 bits = 0;
	int i;

#pragma unroll
	for (i = 0; i < 16; i++)
		bits |= address[i];
	return !bits;
}

static ALWAYS_INLINE int begins_chain(__u8 next_header)
{
	return next_header == IPPROTO_HOPOPTS || next_header == IPPROTO_ROUTING ||
	       next_header == IPPROTO_FRAGMENT || next_header == IPPROTO_DSTOPTS;
}

/* A header that names segments may follow: a fragment of something plain hides none. */
static ALWAYS_INLINE int may_name_segments(const struct ipv6 *ip, const void *end)
{
	const __u8 *fragment = (const void *)(ip + 1);

	if (ip->next_header != IPPROTO_FRAGMENT)
		return begins_chain(ip->next_header);
	return (const void *)(fragment + 8) > end || begins_chain(*fragment);
}

/* The kernel has a route of its own to there that processes SIDs or encapsulates. */
static ALWAYS_INLINE int kernel_tunnels(struct xdp_md *ctx, const struct ipv6 *ip)
{
	struct bpf_fib_lookup route = { .family = AF_INET6, .ifindex = ctx->ingress_ifindex };

	__builtin_memcpy(route.ipv6_src, ip->src, sizeof(route.ipv6_src));
	__builtin_memcpy(route.ipv6_dst, ip->dst, sizeof(route.ipv6_dst));
	return bpf_fib_lookup(ctx, &route, sizeof(route), 0) == BPF_FIB_LKUP_RET_UNSUPP_LWT;
}

/* Unclaimed packets of a port that guards SIDs. */
static ALWAYS_INLINE enum verdict guard_ipv6(struct xdp_md *ctx, const struct ipv6 *ip)
{
	struct key6 key = { .prefix_len = 8 * (sizeof(key.view) + sizeof(key.addr)) };
	__u32 *is_sid_space;

	__builtin_memcpy(key.addr, ip->dst, sizeof(key.addr));
	is_sid_space = bpf_map_lookup_elem(&sid_space, &key);
	if (is_sid_space)
		return *is_sid_space ? WORKER : KERNEL;
	return kernel_tunnels(ctx, ip) ? WORKER : KERNEL;
}

static ALWAYS_INLINE enum verdict claim_ipv6(struct xdp_md *ctx, const struct arrival *in, const void *l3,
					     const void *end)
{
	const struct port *port = in->port;
	const struct ipv6 *ip = l3;
	struct key6 key = { .prefix_len = 8 * (sizeof(key.view) + sizeof(key.addr)), .view = port->view };
	int guards = in->rules & GUARDS_SIDS, is_multicast, has_no_address;
	__u32 *claim;

	if ((const void *)(ip + 1) > end)
		return guards ? WORKER : KERNEL;
	is_multicast = ip->dst[0] == 0xff;
	has_no_address = is_link_local(ip->src) || (is_multicast && is_unspecified(ip->src));
	if (!has_no_address && !is_allowed_source(in, ip->src, 0))
		return WORKER;
	if (is_multicast)
		return KERNEL;
	if (guards && may_name_segments(ip, end))
		return WORKER;
	if (is_link_local(ip->dst))
		return KERNEL;
	__builtin_memcpy(key.addr, ip->dst, sizeof(key.addr));
	if (ip->next_header == IPPROTO_ICMPV6) {
		const __u8 *icmp_type = (const void *)(ip + 1);
		int is_discovery;

		if ((const void *)(icmp_type + 1) > end)
			return guards ? WORKER : KERNEL;
		is_discovery = *icmp_type >= ND_FIRST && *icmp_type <= ND_LAST && ip->hop_limit == ND_HOP_LIMIT;
		/* To an address that is not the node's it is a packet like any other. */
		if (is_discovery && !guards)
			return KERNEL;
		if (in->has_worker && *icmp_type == PACKET_TOO_BIG && bpf_map_lookup_elem(&outer_sources, &key))
			return WORKER;
	}
	if (in->has_worker) {
		if (port->claim_all)
			return WORKER;
		claim = bpf_map_lookup_elem(&claims6, &key);
		if (claim && *claim)
			return WORKER;
	}
	return guards ? guard_ipv6(ctx, ip) : KERNEL;
}

static ALWAYS_INLINE enum verdict claim_ipv4(const struct arrival *in, const void *l3, const void *end)
{
	const struct port *port = in->port;
	const struct ipv4 *ip = l3;
	struct key4 key = { .prefix_len = 8 * (sizeof(key.view) + sizeof(key.addr)), .view = port->view };
	int guards = in->rules & GUARDS_SIDS, is_for_many, has_no_address;
	__u32 *claim = 0;

	if ((const void *)(ip + 1) > end)
		return guards ? WORKER : KERNEL;
	/* 224/4 multicast, 240/4 reserved with the limited broadcast in it. */
	is_for_many = ip->dst[0] >= 224;
	has_no_address = is_for_many && !(ip->src[0] | ip->src[1] | ip->src[2] | ip->src[3]);
	if (!has_no_address && !is_allowed_source(in, ip->src, 1))
		return WORKER;
	if (is_for_many)
		return KERNEL;
	if (in->has_worker) {
		if (port->claim_all)
			return WORKER;
		__builtin_memcpy(key.addr, ip->dst, sizeof(key.addr));
		claim = bpf_map_lookup_elem(&claims4, &key);
		if (claim && *claim)
			return WORKER;
	}
	/* Options may be a source route. */
	return guards && !claim && ip->version_ihl != IPV4_PLAIN ? WORKER : KERNEL;
}

static ALWAYS_INLINE const __u32 *vlan_rules(const struct port *port, __u32 vid)
{
	struct vlan_key key = {
		.prefix_len = 8 * (sizeof(key.port) + sizeof(key.vid)),
		.port = port->number,
		.vid = vid,
	};

	return bpf_map_lookup_elem(&vlans, &key);
}

static ALWAYS_INLINE int is_tag(__be16 type)
{
	return type == htons(ETH_P_8021Q) || type == htons(ETH_P_8021AD);
}

/* `vid`: that of a tag beside the frame, or 0. WORKER without a worker: only what the kernel may not have. */
static ALWAYS_INLINE enum verdict claim_frame(struct xdp_md *ctx, const struct port *port, __u32 vid, int has_worker)
{
	const void *data = (const void *)(long)ctx->data;
	const void *end = (const void *)(long)ctx->data_end;
	const struct eth *eth = data;
	const void *l3 = eth + 1;
	struct arrival in = { .port = port, .rules = port->rules, .has_worker = has_worker };
	const __u32 *rules;
	__be16 type;
	int i;

	if (l3 > end || !for_this_port(port, eth))
		return KERNEL;

	type = eth->type;
	/* Tags with VID 0 say only what the priority is, and the kernel takes any number of them off. */
#pragma unroll
	for (i = 0; i <= PRIORITY_TAGS; i++) {
		const struct vlan *tag = l3;

		if (vid || !is_tag(type))
			break;
		l3 = tag + 1;
		if (l3 > end)
			return KERNEL;
		vid = htons(tag->tci) & VLAN_VID_MASK;
		/* The VLAN of a service provider is no port of srv6d. */
		if (vid && type == htons(ETH_P_8021AD))
			return KERNEL;
		type = tag->type;
		if (!vid && i == PRIORITY_TAGS)
			return port->rules & GUARDS_SIDS ? NOBODY : KERNEL;
	}
	if (vid) {
		rules = vlan_rules(port, vid);
		if (!rules)
			return KERNEL;
		in.vid = vid;
		in.rules = *rules;
	} else if (!port->untagged) {
		return KERNEL;
	}

	/* A second tag is neither IP type. */
	if (type == htons(ETH_P_IPV6))
		return claim_ipv6(ctx, &in, l3, end);
	if (type == htons(ETH_P_IP))
		return claim_ipv4(&in, l3, end);
	return KERNEL;
}

#ifdef READS_TAGS
/* Linux 6.8, include/net/xdp.h. */
extern int bpf_xdp_metadata_rx_vlan_tag(const struct xdp_md *ctx, __be16 *protocol, __u16 *tci) SEC(".ksyms");

/* 1: there is one. A service tag is a type of its own, and the kernel's. */
static ALWAYS_INLINE int read_tag(struct xdp_md *ctx, __be16 *protocol, __u16 *tci)
{
	*protocol = 0;
	*tci = 0;
	return !bpf_xdp_metadata_rx_vlan_tag(ctx, protocol, tci) && *protocol;
}

/* Writes a tag into the frame. 0: there is no room. */
static ALWAYS_INLINE int write_tag(struct xdp_md *ctx, __u16 tci)
{
	struct {
		__u8 addresses[12];
		__be16 tag, tci;
	} __attribute__((packed)) *frame;
	__u8 addresses[12];

	if (bpf_xdp_adjust_head(ctx, -(int)sizeof(struct vlan)))
		return 0;
	frame = (void *)(long)ctx->data;
	if ((void *)(frame + 1) > (void *)(long)ctx->data_end)
		return 0;
	__builtin_memcpy(addresses, (__u8 *)frame + sizeof(struct vlan), sizeof(addresses));
	__builtin_memcpy(frame->addresses, addresses, sizeof(addresses));
	frame->tag = htons(ETH_P_8021Q);
	frame->tci = htons(tci);
	return 1;
}
#endif

/* What stands in front of this program on each port: srv6d_offload, or nothing. It calls a program like this one that does
 * not read tags: those of this kind cannot be called. */
#ifdef READS_TAGS
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_PROG_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u32);
	MAP_NUMBER(max_entries, 1);
} front SEC(".maps");
#endif

/* "xdp.frags": jumbo frames reach the program as several buffers; headers are
 * in the first one, or the frame counts as truncated and is the kernel's. */
SEC("xdp.frags")
int srv6d_claim(struct xdp_md *ctx)
{
	__u32 ifindex = ctx->ingress_ifindex, queue = ctx->rx_queue_index, socket, which = PASSED, vid = 0;
	const struct port *port = bpf_map_lookup_elem(&ports, &ifindex);
	enum verdict claim;
	int verdict = XDP_PASS, has_worker;
	__u64 *counter;
#ifdef READS_TAGS
	__be16 protocol;
	__u16 tci = 0;
#endif

	if (!port)
		return XDP_PASS;
#ifdef READS_TAGS
	if (read_tag(ctx, &protocol, &tci)) {
		vid = tci & VLAN_VID_MASK;
		if (vid && protocol == htons(ETH_P_8021AD))
			goto count;
	} else {
		bpf_tail_call(ctx, &front, 0);
	}
#endif
	socket = port->xsks + queue;
	has_worker = queue < port->queues && bpf_map_lookup_elem(&xsks, &socket);
	claim = claim_frame(ctx, port, vid, has_worker);
	if (claim == WORKER && !has_worker)
		claim = NOBODY;
#ifdef READS_TAGS
	/* Without room for the tag it is the kernel's, which sees it. */
	if (claim == WORKER && vid && !write_tag(ctx, tci))
		claim = KERNEL;
#endif
	if (claim == WORKER) {
		/* The socket was closed just now: the flags argument is the verdict. */
		verdict = bpf_redirect_map(&xsks, socket, port->rules ? XDP_DROP : XDP_PASS);
		if (verdict == XDP_REDIRECT)
			which = REDIRECTED;
	} else if (claim == NOBODY) {
		verdict = XDP_DROP;
		which = DROPPED;
	}
#ifdef READS_TAGS
count:
#endif
	which += COUNTERS * port->number;
	counter = bpf_map_lookup_elem(&counters, &which);
	if (counter)
		*counter += 1;
	return verdict;
}

char licence_text[] SEC("license") = "Dual MIT/GPL";
