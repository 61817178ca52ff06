/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Decides which packets of a port srv6d claims.
 *
 *   frame -> VLAN known? -> for us on layer 2? -> unicast, not ND? -> claimed? -> XSK of this queue
 *               | no                 | no            | no             | no          | no socket
 *               +--------------------+---------------+----------------+-------------+--> the kernel
 *
 * A port may guard SIDs (in the roles edge and host). Then the kernel gets only packets that it may forward. It does
 * not get a packet to SID space, a packet with a header that names segments, a packet whose source the port does not
 * allow or is this node's own, or a packet for which the kernel itself has a route that processes or encapsulates SRv6.
 * Such packets go to the worker, which refuses and counts them. On a queue that has no worker the program drops them.
 * The same holds for frames that a device of the kernel above the port takes (a macvlan by its MAC address, a VLAN that
 * is no port): nothing of them is claimed, but whoever sends to the port can send to that device, too.
 *
 * The program only reads the frame, with one exception: a VLAN tag that the driver hands over beside a claimed frame
 * is written into the frame. Apart from the packets above it drops only frames with more priority tags than it
 * reads, on a port that guards SIDs. All else that it does not understand goes to the kernel.
 *
 * tags.c compiles this file a second time, with READS_TAGS. That program asks the driver for tags that stand beside
 * the frame; the kernel allows this only to a program that is bound to a device and has a GPL-compatible licence.
 * The licence of this file offers one.
 */
#include "hand_over.h"

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define ETH_P_8021Q 0x8100
#define ETH_P_8021AD 0x88a8
#define VLAN_VID_MASK 0x0fff

#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_HOPOPTS 0
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define IPPROTO_ROUTING 43
#define IPPROTO_FRAGMENT 44
#define IPPROTO_AH 51
#define IPPROTO_DSTOPTS 60
/* First byte of a header without options. */
#define IPV4_PLAIN 0x45

#define IPPROTO_ICMPV6 58
/* ICMPv6 type, RFC 4443 section 3.2. */
#define PACKET_TOO_BIG 2
/* ICMPv6 types from router solicitation to redirect: RFC 4861 section 4. */
#define ND_FIRST 133
#define ND_LAST 137
/* A packet with a lower hop limit was forwarded by another router. It does not come from this link, so it is not ND. */
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

/* A prefix of a view. The view stands in front of the address and is always compared as a whole. */
struct key4 {
	__u32 prefix_len; /* in bits, with the 32 of the view */
	__u32 view;
	__u8 addr[4];
};

struct key6 {
	__u32 prefix_len;
	__u32 view;
	__u8 addr[16];
};

struct vlan_key {
	__u32 prefix_len; /* always the whole key */
	__u32 port;
	__u32 vid;
};

/* A prefix of the sources that a port allows. IPv4 addresses are written as mapped ones, ::ffff:0:0/96. */
struct source_key {
	__u32 prefix_len; /* in bits, with the 64 of port and VLAN */
	__u32 port;
	__u32 vid; /* 0: untagged */
	__u8 addr[16];
};

/* Rules for the untagged frames of a port, or for the frames of one VLAN. The bits above the flags hold the number of the
 * set of this node's own sources; no packet from outside may have one. 0: there is none. */
enum { GUARDS_SIDS = 1, CHECKS_SOURCES = 2 };
#define OWN_SOURCES_SHIFT 8

/* Mirrored by `ClaimPortRow` in src/claim_program.rs. */
struct port {
	__u8 mac[6];
	__u8 untagged;	/* frames without a tag may be claimed */
	__u8 claim_all; /* no look-up: all unicast of both families is claimed */
	__u32 number;	/* index of its counters and its sockets */
	__u32 view;	/* the view that holds its claims */
	__u32 queues;	/* queues 0 .. queues-1 may have a socket */
	__u32 xsks;	/* index of its first socket */
	__u32 rules;	/* for frames without a tag */
};

enum { PASSED, REDIRECTED, DROPPED, COUNTERS };

enum verdict { KERNEL, WORKER, NOBODY };

/* One set of maps serves all ports. A trie takes memory only for entries that are in it, whatever max_entries says;
 * a hash map would take 16 bytes for each possible entry. The loader sets the sizes. */
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

/* Addresses of this node that are outer sources of srv6d's encapsulations. Of the packets to them only Packet Too
 * Big messages are claimed. */
TRIE(outer_sources, struct key6);

/* View 0, of all ports: SID space, for ports that guard SIDs. 1: the prefix is SID space; 0: an exception inside of it.
 * Other views: sets of this node's own sources. */
TRIE(sid_space, struct key6);

TRIE(allowed_sources, struct source_key);

/* VLANs whose frames may be claimed, and the rules for them. */
TRIE(vlans, struct vlan_key);

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_XSKMAP);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u32);
	MAP_NUMBER(max_entries, 1);
} xsks SEC(".maps");

/* Ports, by interface index. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct port);
	MAP_NUMBER(max_entries, 1);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
} ports SEC(".maps");

/* COUNTERS entries for each port. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u64);
	MAP_NUMBER(max_entries, 1);
} counters SEC(".maps");

HAND_OVERS hand_overs SEC(".maps");

#ifdef READS_TAGS
/*
 * Reserves room so that the verifier can rewrite this program in the pages that it was loaded into.
 *
 * The verifier adds instructions (map look-ups, kfuncs). If the program outgrows its pages, the kernel moves it
 * (bpf_prog_realloc), but the list of programs that are bound to a device keeps the old address (offload->prog,
 * kernel/bpf/offload.c). When that device is removed, the kernel reads freed memory with the RTNL lock held, and no
 * network interface of the machine can be changed until it is rebooted. The branch below is never taken. The
 * verifier sees that and removes it, but the pages remain allocated.
 */
static ALWAYS_INLINE void leave_room(void)
{
	__u64 never;

	asm volatile("%0 = 0\n"
		     "if %0 == 0 goto +1024\n"
		     ".rept 1024\n"
		     "%0 = 0\n"
		     ".endr\n"
		     : "=r"(never));
}
#endif

static ALWAYS_INLINE int for_this_port(const struct port *port, const struct eth *eth)
{
	__u8 differs = 0;
	int i;

	if (eth->dst[0] & 1)
		return 1;
	/* Not memcmp: clang would compile it to a call, and BPF has no such function to call. */
#pragma unroll
	for (i = 0; i < 6; i++)
		differs |= eth->dst[i] ^ port->mac[i];
	return !differs;
}

/* The logical port through which a frame came in. */
struct arrival {
	const struct port *port;
	__u32 vid;
	__u32 rules;
	int may_claim; /* a socket is bound to the queue, and the frame is for the port itself */
};

/* Whether an IPv6 address is written like an IPv4 address in `source_key`. */
static ALWAYS_INLINE int is_mapped(const __u8 *address)
{
	__u8 bits = 0;
	int i;

#pragma unroll
	for (i = 0; i < 10; i++)
		bits |= address[i];
	return !bits && (address[10] & address[11]) == 0xff;
}

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
	} else if (is_mapped(address)) {
		return 0; /* no packet on a link has such a source (RFC 4291 section 2.5.5.2) */
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
	       next_header == IPPROTO_FRAGMENT || next_header == IPPROTO_DSTOPTS || next_header == IPPROTO_AH;
}

/* Whether a header that names segments may follow. A fragment whose own next header is plain hides none, and neither
 * does an authentication header in front of a plain one. */
static ALWAYS_INLINE int may_name_segments(const struct ipv6 *ip, const void *end)
{
	const __u8 *header = (const void *)(ip + 1);

	if (ip->next_header != IPPROTO_FRAGMENT && ip->next_header != IPPROTO_AH)
		return begins_chain(ip->next_header);
	return (const void *)(header + 8) > end || begins_chain(*header);
}

/* Reads the ports of a packet, by which the kernel may choose among several next hops. */
static ALWAYS_INLINE void read_ports(struct bpf_fib_lookup *route, const void *transport, const void *end)
{
	const __be16 *ports = transport;

	if (route->l4_protocol != IPPROTO_TCP && route->l4_protocol != IPPROTO_UDP)
		return;
	if ((const void *)(ports + 2) > end)
		return;
	route->sport = ports[0];
	route->dport = ports[1];
}

/* Whether the kernel has a route of its own to this destination that processes SIDs or encapsulates. Through a port on which
 * the kernel does not forward, it does not say what route it has, and packets for such a route get in all the same. */
static ALWAYS_INLINE int kernel_tunnels(struct xdp_md *ctx, const struct ipv6 *ip, const void *end)
{
	struct bpf_fib_lookup route = {
		.family = AF_INET6,
		.ifindex = ctx->ingress_ifindex,
		.l4_protocol = ip->next_header,
	};
	int found;

	__builtin_memcpy(&route.flowinfo, ip->version_flow, sizeof(route.flowinfo));
	route.flowinfo &= cpu_to_be32(0x0fffffff);
	__builtin_memcpy(route.ipv6_src, ip->src, sizeof(route.ipv6_src));
	__builtin_memcpy(route.ipv6_dst, ip->dst, sizeof(route.ipv6_dst));
	read_ports(&route, ip + 1, end);
	found = bpf_fib_lookup(ctx, &route, sizeof(route), 0);
	return found == BPF_FIB_LKUP_RET_UNSUPP_LWT || found == BPF_FIB_LKUP_RET_FWD_DISABLED;
}

/* Likewise, for IPv4. Where the kernel does not forward it uses no route. */
static ALWAYS_INLINE int kernel_tunnels_v4(struct xdp_md *ctx, const struct ipv4 *ip, const void *end)
{
	struct bpf_fib_lookup route = { .family = AF_INET, .ifindex = ctx->ingress_ifindex, .tos = ip->tos };

	route.l4_protocol = ip->rest[7];
	__builtin_memcpy(&route.ipv4_src, ip->src, sizeof(route.ipv4_src));
	__builtin_memcpy(&route.ipv4_dst, ip->dst, sizeof(route.ipv4_dst));
	read_ports(&route, ip + 1, end);
	return bpf_fib_lookup(ctx, &route, sizeof(route), 0) == BPF_FIB_LKUP_RET_UNSUPP_LWT;
}

/* Whether the source is this node's own. No sender outside the domain has one. */
static ALWAYS_INLINE int is_own_source(const struct arrival *in, const struct ipv6 *ip)
{
	struct key6 key = {
		.prefix_len = 8 * (sizeof(key.view) + sizeof(key.addr)),
		.view = in->rules >> OWN_SOURCES_SHIFT,
	};

	if (!key.view)
		return 0;
	__builtin_memcpy(key.addr, ip->src, sizeof(key.addr));
	return bpf_map_lookup_elem(&sid_space, &key) != 0;
}

/* Decides about an unclaimed packet of a port that guards SIDs. */
static ALWAYS_INLINE enum verdict guard_ipv6(struct xdp_md *ctx, const struct arrival *in, const struct ipv6 *ip,
					     const void *end)
{
	struct key6 key = { .prefix_len = 8 * (sizeof(key.view) + sizeof(key.addr)) };
	__u32 *is_sid_space;

	if (is_own_source(in, ip))
		return WORKER;
	__builtin_memcpy(key.addr, ip->dst, sizeof(key.addr));
	is_sid_space = bpf_map_lookup_elem(&sid_space, &key);
	if (is_sid_space)
		return *is_sid_space ? WORKER : KERNEL;
	return kernel_tunnels(ctx, ip, end) ? WORKER : KERNEL;
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
		return guards && is_own_source(in, ip) ? WORKER : KERNEL;
	__builtin_memcpy(key.addr, ip->dst, sizeof(key.addr));
	if (ip->next_header == IPPROTO_ICMPV6) {
		const __u8 *icmp_type = (const void *)(ip + 1);
		int is_discovery;

		if ((const void *)(icmp_type + 1) > end)
			return guards ? WORKER : KERNEL;
		is_discovery = *icmp_type >= ND_FIRST && *icmp_type <= ND_LAST && ip->hop_limit == ND_HOP_LIMIT;
		/* A port that guards SIDs judges neighbour discovery by its destination, like any other packet. */
		if (is_discovery && !guards)
			return KERNEL;
		if (in->may_claim && *icmp_type == PACKET_TOO_BIG && bpf_map_lookup_elem(&outer_sources, &key))
			return WORKER;
	}
	if (in->may_claim) {
		if (port->claim_all)
			return WORKER;
		claim = bpf_map_lookup_elem(&claims6, &key);
		if (claim && *claim)
			return WORKER;
	}
	return guards ? guard_ipv6(ctx, in, ip, end) : KERNEL;
}

static ALWAYS_INLINE enum verdict claim_ipv4(struct xdp_md *ctx, const struct arrival *in, const void *l3,
					     const void *end)
{
	const struct port *port = in->port;
	const struct ipv4 *ip = l3;
	struct key4 key = { .prefix_len = 8 * (sizeof(key.view) + sizeof(key.addr)), .view = port->view };
	int guards = in->rules & GUARDS_SIDS, is_for_many, has_no_address;
	__u32 *claim;

	if ((const void *)(ip + 1) > end)
		return guards ? WORKER : KERNEL;
	/* 224/4 is multicast; 240/4 is reserved and includes the limited broadcast. */
	is_for_many = ip->dst[0] >= 224;
	has_no_address = is_for_many && !(ip->src[0] | ip->src[1] | ip->src[2] | ip->src[3]);
	if (!has_no_address && !is_allowed_source(in, ip->src, 1))
		return WORKER;
	if (is_for_many)
		return KERNEL;
	if (in->may_claim) {
		if (port->claim_all)
			return WORKER;
		__builtin_memcpy(key.addr, ip->dst, sizeof(key.addr));
		claim = bpf_map_lookup_elem(&claims4, &key);
		if (claim && *claim)
			return WORKER;
	}
	/* IPv4 options may contain a source route. The worker gives the kernel what has none and is for this node. */
	return guards && (ip->version_ihl != IPV4_PLAIN || kernel_tunnels_v4(ctx, ip, end)) ? WORKER : KERNEL;
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

/* Counts a frame that the worker of a queue gets. */
static ALWAYS_INLINE void count_given(__u32 socket)
{
	struct hand_over *queue = bpf_map_lookup_elem(&hand_overs, &socket);

	if (queue)
		queue->given += 1;
}

/* Decides about a frame. `vid` is the VID of a tag that stands beside the frame, or 0. If the queue has no worker, or
 * the frame is not for the port itself, the result WORKER is given only for packets that the kernel must not have.
 *
 * Tags with VID 0 only carry a priority. The kernel removes any number of them, in front of a VLAN's tag and behind it. */
static ALWAYS_INLINE enum verdict claim_frame(struct xdp_md *ctx, const struct port *port, __u32 vid, int has_worker)
{
	const void *data = (const void *)(long)ctx->data;
	const void *end = (const void *)(long)ctx->data_end;
	const struct eth *eth = data;
	const void *l3 = eth + 1;
	struct arrival in = { .port = port, .rules = port->rules };
	enum verdict verdict = KERNEL;
	int is_behind_vlan = 0, i;
	const __u32 *rules;
	__be16 type;

	if (l3 > end)
		return KERNEL;
	in.may_claim = has_worker && for_this_port(port, eth);

	type = eth->type;
#pragma unroll
	for (i = 0; i <= PRIORITY_TAGS; i++) {
		const struct vlan *tag = l3;
		__u32 next;

		if (!is_tag(type))
			break;
		if ((const void *)(tag + 1) > end)
			return KERNEL;
		next = htons(tag->tci) & VLAN_VID_MASK;
		/* A VLAN in a VLAN is never a port of srv6d, and neither is that of a service provider (802.1ad). */
		if (next && (vid || type == htons(ETH_P_8021AD)))
			return KERNEL;
		if (!next && i == PRIORITY_TAGS)
			return port->rules & GUARDS_SIDS ? NOBODY : KERNEL;
		is_behind_vlan |= vid && !next;
		if (next)
			vid = next;
		l3 = tag + 1;
		type = tag->type;
	}
	/* Nobody has read what is behind so many tags. */
	if (i > PRIORITY_TAGS && is_tag(type))
		return port->rules & GUARDS_SIDS ? NOBODY : KERNEL;
	/* A worker reads no tag behind that of a VLAN. */
	if (is_behind_vlan)
		in.may_claim = 0;
	if (vid) {
		rules = vlan_rules(port, vid);
		if (rules) {
			in.vid = vid;
			in.rules = *rules;
			/* On the own veth a tag names the port that has received the frame (arrivals.h). */
			if (port->claim_all && !is_behind_vlan)
				in.may_claim = has_worker;
		} else {
			/* A VLAN of the kernel's has sources of its own. */
			in.rules &= GUARDS_SIDS;
			in.may_claim = 0;
		}
	} else if (!port->untagged) {
		return KERNEL;
	}

	if (type == htons(ETH_P_IPV6))
		verdict = claim_ipv6(ctx, &in, l3, end);
	else if (type == htons(ETH_P_IP))
		verdict = claim_ipv4(ctx, &in, l3, end);
	return is_behind_vlan && verdict == WORKER ? NOBODY : verdict;
}

#ifdef READS_TAGS
/* Declared in include/net/xdp.h since Linux 6.8. */
extern int bpf_xdp_metadata_rx_vlan_tag(const struct xdp_md *ctx, __be16 *protocol, __u16 *tci) SEC(".ksyms");

/* Returns 1 if there is a tag beside the frame. A service tag has a protocol of its own; its frames go to the
 * kernel. */
static ALWAYS_INLINE int read_tag(struct xdp_md *ctx, __be16 *protocol, __u16 *tci)
{
	*protocol = 0;
	*tci = 0;
	return !bpf_xdp_metadata_rx_vlan_tag(ctx, protocol, tci) && *protocol;
}

/* Writes a tag into the frame. Returns 0 if there is no room for it. */
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

/* The program that runs in front of this one on each port: srv6d_offload, or none. srv6d_offload continues with a
 * copy of this program that does not read tags, because a program that is bound to a device cannot be called. */
#ifdef READS_TAGS
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_PROG_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u32);
	MAP_NUMBER(max_entries, 1);
} front SEC(".maps");
#endif

/* "xdp.frags": a jumbo frame reaches the program in several buffers. If its headers are not in the first one, the
 * frame counts as truncated and goes to the kernel. */
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

#ifdef READS_TAGS
	leave_room();
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
	/* Keeps the compiler from comparing the pointer to the socket again later: without CAP_PERFMON the verifier
	 * accepts that only where the pointer comes from. */
	asm volatile("" : "+r"(has_worker));
	claim = claim_frame(ctx, port, vid, has_worker);
	if (claim == WORKER && !has_worker)
		claim = NOBODY;
#ifdef READS_TAGS
	/* If there is no room for the tag, the frame goes to the kernel, which sees the tag. */
	if (claim == WORKER && vid && !write_tag(ctx, tci))
		claim = KERNEL;
#endif
	if (claim == WORKER) {
		/* If the socket was closed in the meantime, the flags argument is the verdict. */
		verdict = bpf_redirect_map(&xsks, socket, port->rules ? XDP_DROP : XDP_PASS);
		if (verdict == XDP_REDIRECT) {
			which = REDIRECTED;
			count_given(socket);
		}
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

#ifndef READS_TAGS
#include "arrivals.h"
#endif

char licence_text[] SEC("license") = "Dual MIT/GPL";
