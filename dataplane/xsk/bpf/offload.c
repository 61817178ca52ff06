/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What a worker does with plain packets, without a worker, for ports whose AF_XDP sockets copy every packet (FORWARDS):
 * uN and uA shifts (RFC 9800 section 4.1, NEXT-CSID), encapsulations in up to three segments (RFC 8986
 * section 5), decapsulations (uDT4, uDT6, uDT46) and transit. For ports of a node whose tc engine is on (DELIVERS),
 * decapsulations for this node.
 *
 *   frame -> plain? -> look up -+- a SID that shifts: shift, uN: look up again ---------+-> next hop ready, fits? -> write
 *              |          |     +- a SID that decapsulates: look up what is inside -----+         |                    |
 *              |          |     |         +- for this node: offload_decaps.h -> kernel  |         |                    |
 *              |          |     +- steered: a path of up to three segments -------------+         |                    |
 *              |          |     +- a route or a neighbour ------------------------------+         |                    |
 *              |          | anything else                                                         | no                 v
 *              +----------+-----------------------------------------------------------------------+     the other port
 *                         v
 *              claim.c of this port, by tail call
 *
 * A VLAN tag that stands in the frame is removed first, and put back if the frame is the worker's. A tag that stands beside
 * the frame is not seen here: tags.c does not come here with such a frame.
 *
 * Each check is the same as the worker's or stricter, so a frame that is forwarded here is, byte for byte, what the
 * worker would have sent. Nothing is written or counted before everything has been decided: claim.c and the worker
 * see every other frame as it was received.
 *
 * There are two sets of the tables. `current` says which set is in force, and every key and index begins with the
 * set: one frame sees one generation only. The loader writes to the other set once no program can be reading it any
 * more.
 */
#include "offload_encaps.h"
#include "offload_decaps.h"

/* An address is | block 32 | uSIDs ... |. This mask selects the part of the upper half that lies behind the block. */
#define BEHIND_BLOCK 0xffffffffull

/* Returns what a prefix leads to, TARGET_... */
static ALWAYS_INLINE __u32 target_of(const struct prefix *row)
{
	return row->target >> TARGET_INDEX_BITS;
}

/* Returns the index in the table that the target names. */
static ALWAYS_INLINE __u32 index_of(const struct prefix *row)
{
	return row->target & ((1 << TARGET_INDEX_BITS) - 1);
}

static ALWAYS_INLINE const struct prefix *look_up_in_block(__u32 set, struct address to)
{
	const struct block *block;
	const struct prefix *row;
	const __u32 *page;
	__u32 i;

#pragma unroll
	for (i = 0; i < BLOCKS; i++) {
		block = ROW(blocks, set, i);
		if (!block || !block->is_used || block->prefix != to.high >> 32)
			continue;
		page = ROW(usid_pages, set, i * USID_PAGES + (to.high >> 24 & 0xff));
		if (!page)
			return 0;
		row = ROW(usids, set, *page * USIDS_PER_PAGE + (to.high >> 16 & 0xff));
		if (!row || row->flags & PREFIX_IN_TRIE)
			return 0;
		return row->flags & PREFIX_HAS_TARGET ? row : &block->covering;
	}
	return 0;
}

static ALWAYS_INLINE const struct prefix *look_up(__u32 set, __u16 table, struct address to)
{
	const struct prefix *row = table == MAIN_TABLE ? look_up_in_block(set, to) : 0;
	struct key key = {
		.prefix_len = 8 * (sizeof(key) - sizeof(key.prefix_len)),
		.owner = KEY_OWNER(set, table, 0),
		.high = cpu_to_be64(to.high),
		.low = cpu_to_be64(to.low),
	};

	return row ? row : bpf_map_lookup_elem(&prefixes, &key);
}

static ALWAYS_INLINE const struct prefix *look_up_v4(__u32 set, __u16 table, __be32 to)
{
	struct key key = {
		.prefix_len = 8 * (sizeof(key.owner) + sizeof(to)),
		.owner = KEY_OWNER(set, table, 1),
		.high = cpu_to_be64((__u64)be32_to_cpu(to) << 32),
	};

	return bpf_map_lookup_elem(&prefixes, &key);
}

static ALWAYS_INLINE int lists_v6(__u32 set, __u32 owner, const __u64 *address)
{
	struct key key = {
		.prefix_len = 8 * (sizeof(key) - sizeof(key.prefix_len)),
		.owner = KEY_OWNER(set, owner, 0),
		.high = address[0],
		.low = address[1],
	};
	const __u32 *is_listed = bpf_map_lookup_elem(&sources, &key);

	return is_listed && *is_listed;
}

static ALWAYS_INLINE int lists_source_v4(__u32 set, __u32 owner, const struct ipv4 *ip)
{
	struct key key = {
		.prefix_len = 8 * (sizeof(key.owner) + sizeof(ip->src)),
		.owner = KEY_OWNER(set, owner, 1),
		.high = cpu_to_be64((__u64)be32_to_cpu(ip->src) << 32),
	};
	const __u32 *is_listed = bpf_map_lookup_elem(&sources, &key);

	return is_listed && *is_listed;
}

/* Returns the group that a prefix leads to, or NONE if it leads elsewhere. */
static ALWAYS_INLINE __u32 group_of(const struct prefix *row)
{
	__u32 target = target_of(row);

	return target == TARGET_ROUTE || target == TARGET_NEIGHBOR ? index_of(row) : NONE;
}

/* Returns the index of a next hop. */
static ALWAYS_INLINE __u32 choose_for_transit(const struct frame *frame, const struct ipv6 *ip, struct address to,
					      __u32 number)
{
	const struct group *group = ROW(groups, frame->set, number);
	const __be32 *ports = (const void *)(ip + 1);

	if (!group || !group->count)
		return NONE;
	if (group->count == 1)
		return group->at;
	if ((const void *)(ports + 1) > end_of(frame))
		return NONE;
	return pick(&group_members, &group_patterns, frame->set, group, transit(ip, *ports, to),
		    frame->node->seed_of_hops);
}

/* Likewise, for IPv4. */
static ALWAYS_INLINE __u32 choose_for_transit_v4(const struct frame *frame, const struct ipv4 *ip, __u32 number)
{
	const struct group *group = ROW(groups, frame->set, number);
	__u64 rest;

	if (!group || !group->count)
		return NONE;
	if (group->count == 1)
		return group->at;
	if (!read_upper_v4(ip, end_of(frame), frame->node->flags & HASH_QP, &rest))
		return NONE;
	return pick(&group_members, &group_patterns, frame->set, group, hash_v4(ip, rest), frame->node->seed_of_hops);
}

/* Forwards a packet as it is. Returns XDP_REDIRECT if the frame was written; otherwise nothing has been changed. */
static ALWAYS_INLINE int route_v6(const struct frame *frame, struct way *way, struct eth *eth, struct address to,
				  __u32 group)
{
	struct ipv6 *ip = (void *)(eth + 1);

	if (!leave_by(frame, way, choose_for_transit(frame, ip, to, group), way->in_len))
		return XDP_PASS;
	tap_received(frame, 0);
	__builtin_memcpy(eth->addresses, way->hop->ethernet, sizeof(eth->addresses));
	ip->hop_limit -= 1;
	return XDP_REDIRECT;
}

/* Likewise, for IPv4. */
static ALWAYS_INLINE int route_v4(const struct frame *frame, struct way *way, struct eth *eth, __u32 group)
{
	struct ipv4 *ip = (void *)(eth + 1);

	if (!leave_by(frame, way, choose_for_transit_v4(frame, ip, group), way->in_len))
		return XDP_PASS;
	tap_received(frame, 0);
	__builtin_memcpy(eth->addresses, way->hop->ethernet, sizeof(eth->addresses));
	spend_hop_v4(ip);
	return XDP_REDIRECT;
}

/* Shifts a packet to its next uSID. Returns XDP_REDIRECT if the frame was written; otherwise nothing has been changed. */
static ALWAYS_INLINE int shift(struct frame *frame, struct way *way, struct eth *eth, struct address to)
{
	struct ipv6 *ip = (void *)(eth + 1);
	const struct sid *sid = way->sid;
	__u32 group = sid->group;
	const struct prefix *next;
	__u64 usids;

	/* If the argument is used up (RFC 9800 section 4.1.1), the packet is left to the worker.
	 * | block 32 | active uSIDs | argument | -> | block 32 | argument | zero | */
	usids = to.high << (sid->by & 63) & BEHIND_BLOCK;
	if (!usids && !to.low)
		return XDP_PASS;
	to.high = (to.high & ~BEHIND_BLOCK) | usids | to.low >> (64 - sid->by & 63);
	to.low <<= sid->by & 63;

	if (sid->kind == SID_SHIFT) {
		next = look_up(frame->set, MAIN_TABLE, to);
		if (!next)
			return XDP_PASS;
		group = group_of(next);
		frame->is_new |= next->flags & PREFIX_IS_NEW;
	}
	if (!leave_by(frame, way, choose_for_transit(frame, ip, to, group), way->in_len))
		return XDP_PASS;
	tap_received(frame, 0);
	__builtin_memcpy(eth->addresses, way->hop->ethernet, sizeof(eth->addresses));
	ip->hop_limit -= 1;
	ip->dst[0] = cpu_to_be64(to.high);
	ip->dst[1] = cpu_to_be64(to.low);
	return XDP_REDIRECT;
}

/* Returns whether a prefix leads to an address of this node. */
static ALWAYS_INLINE int is_own_address(const struct prefix *row)
{
	return row && row->target == (TARGET_KERNEL << TARGET_INDEX_BITS | IS_OWN_ADDRESS);
}

/* Reads the packet behind an outer header. Returns 0 if it is not plain, or the worker has to refuse or to count it. */
static ALWAYS_INLINE int look_inside(__u32 set, const struct sid *sid, const struct ipv6 *ip, const void *end,
				     struct address to, struct inside *inside)
{
	__u8 class = ip->version_flow[0] << 4 | ip->version_flow[1] >> 4, inner_class;
	const struct ipv4 *v4 = (const void *)(ip + 1);
	const struct ipv6 *v6 = (const void *)(ip + 1);

	inside->len = ntohs(ip->payload_len);
	if ((to.high & sid->argument[0]) | (to.low & sid->argument[1]))
		return 0;
	if (ip->next_header == IPPROTO_IPV6 && sid->flags & DECAPSULATES_V6) {
		if ((const void *)(v6 + 1) > end || !is_plain_v6(v6, ETH_LEN + (__u64)inside->len))
			return 0;
		inside->to = (struct address){ be64_to_cpu(v6->dst[0]), be64_to_cpu(v6->dst[1]) };
		inside->row = look_up(set, sid->table, inside->to);
		inside->may_name_segments = may_name_segments(v6);
		inner_class = v6->version_flow[0] << 4 | v6->version_flow[1] >> 4;
	} else if (ip->next_header == IPPROTO_IPIP && sid->flags & DECAPSULATES_V4) {
		if ((const void *)(v4 + 1) > end || !is_plain_v4(v4, ETH_LEN + (__u64)inside->len))
			return 0;
		inside->row = look_up_v4(set, sid->table, v4->dst);
		inside->is_v4 = 1;
		inner_class = v4->tos;
	} else {
		return 0;
	}
	return inside->row && class_inside(class, inner_class, sid->flags & UNIFORM, &inside->class);
}

/* Gives a packet to the kernel of this node. Returns DELIVERED if the frame was written; otherwise nothing has been
 * changed. */
static ALWAYS_INLINE int deliver(const struct frame *frame, struct way *way, struct eth *eth,
				 const struct inside *inside)
{
	const struct kernel_end *kernel;
	__u32 zero = 0;

	kernel = bpf_map_lookup_elem(&kernel_end, &zero);
	if (!kernel || !kernel->ifindex || inside->may_name_segments)
		return XDP_PASS;
	if (frame->is_new && !may_take(frame))
		return XDP_PASS;
	way->out = kernel->number;
	way->out_len = inside->len;
	return decapsulate_here(frame, eth, inside, kernel->mark);
}

/* Forwards what is behind the outer header. Returns XDP_REDIRECT if the frame was written; otherwise nothing has been
 * changed. */
static ALWAYS_INLINE int unwrap(const struct frame *frame, struct way *way, struct eth *eth, const struct inside *inside)
{
	const void *inner = (const void *)(eth + 1) + IPV6_LEN;
	__u32 group = group_of(inside->row), number;

	/* A shorter frame has to be padded, which is left to the worker. */
	if (inside->len + ETH_LEN < ETH_MIN_FRAME)
		return XDP_PASS;
	number = inside->is_v4 ? choose_for_transit_v4(frame, inner, group) :
				 choose_for_transit(frame, inner, inside->to, group);
	return leave_by(frame, way, number, inside->len) ? decapsulate(frame, way->hop, inside) : XDP_PASS;
}

/* Whether a port lets in a packet from this source, which is looked up in this table. */
static ALWAYS_INLINE int admits_source(const struct frame *frame, const struct ipv6 *ip, __u16 table)
{
	__u32 flags = frame->port->flags;

	if (flags & CHECKS_SOURCES && !lists_v6(frame->set, OF_PORT(frame->port->flags >> PORT_INDEX_BIT), ip->src))
		return 0;
	return !(flags & GUARDS_SIDS) || !lists_v6(frame->set, OF_TABLE(table), ip->src);
}

/* Likewise, for IPv4. */
static ALWAYS_INLINE int admits_source_v4(const struct frame *frame, const struct ipv4 *ip, __u16 table)
{
	__u32 flags = frame->port->flags;

	if (flags & CHECKS_SOURCES && !lists_source_v4(frame->set, OF_PORT(frame->port->flags >> PORT_INDEX_BIT), ip))
		return 0;
	return !(flags & GUARDS_SIDS) || !lists_source_v4(frame->set, OF_TABLE(table), ip);
}

/* Whether a port that guards SIDs lets a packet in. `row` is where its destination leads. */
static ALWAYS_INLINE int may_enter(const struct frame *frame, const struct prefix *row, const struct ipv6 *ip)
{
	if (may_name_segments(ip))
		return 0;
	if (target_of(row) != TARGET_SID && !(row->flags & PREFIX_IN_SID_SPACE))
		return 1;
	return lists_v6(frame->set, CARRIERS_OF_PORT(frame->port->flags >> PORT_INDEX_BIT), ip->dst);
}

/* Whether the port lets in what is behind an outer header. From outside the domain it must obey the rules that hold for a
 * packet without an outer header. `table` is the table that it is looked up in. */
static ALWAYS_INLINE int may_enter_inside(const struct frame *frame, const struct inside *inside, const void *inner,
					  __u16 table)
{
	if (!(frame->port->flags & GUARDS_SIDS))
		return 1;
	if (inside->is_v4)
		return admits_source_v4(frame, inner, table);
	return may_enter(frame, inside->row, inner) && admits_source(frame, inner, table);
}

/* What a SID that decapsulates does: uDT4, uDT6, uDT46. */
static ALWAYS_INLINE int end_here(struct frame *frame, struct way *way, struct eth *eth, struct address to)
{
	const struct ipv6 *ip = (const void *)(eth + 1);
	__u32 flags = frame->port->flags;
	struct inside inside = {};

	if (!look_inside(frame->set, way->sid, ip, end_of(frame), to, &inside))
		return XDP_PASS;
	if (!may_enter_inside(frame, &inside, ip + 1, way->sid->table))
		return XDP_PASS;
	frame->is_new |= inside.row->flags & PREFIX_IS_NEW;
	if (is_own_address(inside.row))
		return flags & DELIVERS ? deliver(frame, way, eth, &inside) : XDP_PASS;
	return flags & FORWARDS ? unwrap(frame, way, eth, &inside) : XDP_PASS;
}

static ALWAYS_INLINE int forward_v6(struct frame *frame, struct way *way, struct eth *eth, __u64 len)
{
	const struct ipv6 *ip = (const void *)(eth + 1);
	const struct port *port = frame->port;
	const struct prefix *row;
	const struct sid *sid;
	__u32 set = frame->set;
	struct address to;
	int is_sid;

	if (!is_plain_v6(ip, len))
		return XDP_PASS;
	if (!admits_source(frame, ip, port->table))
		return XDP_PASS;
	to.high = be64_to_cpu(ip->dst[0]);
	to.low = be64_to_cpu(ip->dst[1]);
	row = look_up(set, port->table, to);
	if (!row)
		return XDP_PASS;
	frame->is_new |= row->flags & PREFIX_IS_NEW;
	way->in_len = IPV6_LEN + ntohs(ip->payload_len);
	is_sid = target_of(row) == TARGET_SID;
	if (port->flags & GUARDS_SIDS && !may_enter(frame, row, ip))
		return XDP_PASS;
	if (is_sid) {
		sid = ROW(sids, set, index_of(row));
		if (!sid || (frame->node->flags & CHECKS_DOMAIN && !lists_v6(set, OF_DOMAIN, ip->src)))
			return XDP_PASS;
		way->sid = sid;
		if (sid->kind == SID_DECAPSULATE)
			return end_here(frame, way, eth, to);
		if (!(port->flags & FORWARDS) || (sid->kind != SID_SHIFT && sid->kind != SID_SHIFT_VIA))
			return XDP_PASS;
		return shift(frame, way, eth, to);
	}
	if (!(port->flags & FORWARDS))
		return XDP_PASS;
	if (target_of(row) == TARGET_STEER)
		return encapsulate_v6(frame, way, index_of(row), ip, to);
	return route_v6(frame, way, eth, to, group_of(row));
}

static ALWAYS_INLINE int forward_v4(struct frame *frame, struct way *way, struct eth *eth, __u64 len)
{
	const struct ipv4 *ip = (const void *)(eth + 1);
	const struct port *port = frame->port;
	const struct prefix *row;

	if (!(port->flags & FORWARDS) || !is_plain_v4(ip, len))
		return XDP_PASS;
	if (!admits_source_v4(frame, ip, port->table))
		return XDP_PASS;
	row = look_up_v4(frame->set, port->table, ip->dst);
	if (!row)
		return XDP_PASS;
	frame->is_new |= row->flags & PREFIX_IS_NEW;
	way->in_len = ntohs(ip->total_len);
	if (target_of(row) == TARGET_STEER)
		return encapsulate_v4(frame, way, index_of(row), ip);
	return route_v4(frame, way, eth, group_of(row));
}

/* Counts a frame that is forwarded. */
static ALWAYS_INLINE void count(const struct frame *frame, const struct way *way)
{
	if (way->sid)
		add(&sid_counts, way->sid->slot, way->in_len);
	if (way->path)
		add(&path_counts, way->path->slot, way->out_len);
	if (way->hop)
		add(&hop_counts, way->hop->slot, way->out_len);
	add(&rx_counts, frame->in, way->in_len + ETH_LEN + (frame->tag ? TAG_LEN : 0));
	if (frame->tag)
		add(&vlan_rx_counts, frame->vlan_slot, way->in_len + ETH_LEN + TAG_LEN);
	add(&tx_counts, way->out, way->out_len + ETH_LEN + (way->vid ? TAG_LEN : 0));
	if (way->vid)
		add(&vlan_tx_counts, way->vlan_slot, way->out_len + ETH_LEN + TAG_LEN);
}

/* Finds the port that a frame belongs to. Returns 0 if the frame is the worker's; then nothing has been changed. */
static ALWAYS_INLINE int enter(struct frame *frame)
{
	struct tagged *tagged = (void *)(long)frame->ctx->data;
	const struct vlan *vlan;
	__u32 key;

	if ((const void *)(tagged + 1) > end_of(frame))
		return 0;
	if ((tagged->tag & cpu_to_be32(0xffff0000)) == tag_of(0)) {
		key = (be32_to_cpu(tagged->tag) & VLAN_VID_MASK) << VLAN_ID_BIT | frame->in << VLAN_DEVICE_BIT | frame->set;
		vlan = bpf_map_lookup_elem(&vlans, &key);
		if (!vlan || (tagged->type != htons(ETH_P_IPV6) && tagged->type != htons(ETH_P_IP)))
			return 0;
		frame->port = &vlan->port;
		frame->vlan_slot = vlan->slot;
		frame->tag = tagged->tag;
		frame->has_room = take_tag(frame->ctx);
		return frame->has_room;
	}
	frame->port = ROW(ports, frame->set, frame->in);
	if (!frame->port)
		return 0;
	frame->has_room = frame->node->flags & SENDS_TAGS ? has_room(frame->ctx, TAG_LEN) : 0;
	return 1;
}

/* Forwards a packet of the port that the frame belongs to. */
static ALWAYS_INLINE int forward_untagged(struct frame *frame, struct way *way)
{
	struct eth *eth = (void *)(long)frame->ctx->data;
	__u64 len = bpf_xdp_get_buff_len(frame->ctx);

	/* A plain IPv4 frame is at least as long, because shorter frames are padded. */
	if ((const void *)(eth + 1) + IPV6_LEN > end_of(frame) || !is_for(frame->port, eth, len))
		return XDP_PASS;
	frame->is_new = frame->port->flags & TAKES_OVER;
	if (eth->type == htons(ETH_P_IPV6))
		return forward_v6(frame, way, eth, len);
	return eth->type == htons(ETH_P_IP) ? forward_v4(frame, way, eth, len) : XDP_PASS;
}

/* Forwards a frame that came in through interface number `in`. Returns XDP_REDIRECT if the frame was written,
 * counted and redirected, DELIVERED if the kernel has it; with XDP_PASS nothing has been changed. */
static ALWAYS_INLINE int forward(struct xdp_md *ctx, __u32 in)
{
	struct frame frame = { .ctx = ctx, .in = in };
	__u32 zero = 0, *current_set;
	struct way way = {};
	int done;

	current_set = bpf_map_lookup_elem(&current, &zero);
	if (!current_set)
		return XDP_PASS;
	frame.set = *current_set & 1;
	frame.node = ROW(node, frame.set, 0);
	if (!frame.node || !enter(&frame))
		return XDP_PASS;
	done = forward_untagged(&frame, &way);
	/* There is room for what has just been removed. Without its tag nobody else may have the frame. */
	if (done == XDP_PASS && frame.tag && !put_tag(ctx, frame.tag))
		return XDP_DROP;
	/* There is room, because leave_by has asked for it. */
	if (done == XDP_REDIRECT && way.vid && !put_tag(ctx, tag_of(way.vid)))
		return XDP_DROP;
	if (done == XDP_REDIRECT)
		tap_sent(&frame, &way);
	if (done == XDP_REDIRECT || done == DELIVERED)
		count(&frame, &way);
	return done;
}

SEC("xdp.frags")
int srv6d_offload(struct xdp_md *ctx)
{
	__u32 ifindex = ctx->ingress_ifindex, *number;
	int done;

	number = bpf_map_lookup_elem(&port_of, &ifindex);
	if (!number)
		return XDP_PASS;
	done = forward(ctx, *number);
	if (done != XDP_PASS)
		return done == DELIVERED ? XDP_PASS : done;
	bpf_tail_call(ctx, &claim, *number);
	/* There is no program to call, so the frame goes to the kernel. */
	return XDP_PASS;
}

char licence_text[] SEC("license") = "Apache-2.0 OR MIT";

#include "tc.h"
