/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * H.Encaps.Red and H.Encaps, with an SRH of up to two segments, for what applications of this node send, at the egress of
 * the kernel's end of srv6d's own veth (tcx). There the kernel has not cut a stream into packets yet.
 *
 *   application -> srv6d0 -> plain? -> look up -> steered: a path of up to three segments -> next hop ready, fits? -> write
 *                              |          | anything else                                        | no               |
 *                              +----------+------------------------------------------------------+           the other port
 *                              v
 *              through the veth, to the worker
 *
 * It decides by the maps of offload.c, in the generation in force. A packet of up to 64 KiB (gso_size is not 0) leaves as
 * one, and the kernel or the NIC cuts it behind the outer header. What is counted, and what has to fit, are the packets
 * that it is cut into: they are what the worker would have had.
 *
 * At the end: the program at the ingress of ports, which hands over what offload_decaps.h has decapsulated.
 */
#pragma once

#include "offload_decaps.h"
#include "destination_cache.h"
#include "offload_encaps.h"

#define TCP_LEN 20
/* Bytes that are read of a frame. */
#define READ_LEN (ETH_LEN + IPV6_LEN + TCP_LEN)

static long (*const bpf_skb_adjust_room)(struct __sk_buff *skb, int by, __u32 mode, __u64 flags) =
	(void *)BPF_FUNC_skb_adjust_room;
static long (*const bpf_skb_store_bytes)(struct __sk_buff *skb, __u32 at, const void *from, __u32 len, __u64 flags) =
	(void *)BPF_FUNC_skb_store_bytes;

/* Interfaces, by the number of the device. 0: there is none. A map of devices cannot serve XDP programs and others. */
BY_NUMBER(BPF_MAP_TYPE_ARRAY, interfaces, __u32, PORTS);

/* The packets into which the kernel will cut a frame. Lengths are without the Ethernet header. */
struct cut {
	__u32 packets;
	__u32 longest;
	__u32 bytes; /* sum over all packets */
};

/* A new head of a frame. It begins behind the two unused bytes, which align it. */
struct head {
	__u8 unused[2];
	struct eth eth;
	struct outer outer;
	struct srh srh; /* as long as the path's */
};

static ALWAYS_INLINE void add_cut(void *counts, __u32 index, const struct cut *cut, __u32 header)
{
	struct count *count = bpf_map_lookup_elem(counts, &index);

	if (!count)
		return;
	count->packets += cut->packets;
	count->bytes += cut->bytes + (__u64)cut->packets * header;
}

/* Finds out into what a packet of this length will be cut. `ip_len` is the length of its IP header. Returns 0 if it is the
 * worker's. Datagrams of one call (UDP_SEGMENT) are: where a port writes no checksums behind an outer header, Linux 6.18
 * fails to cut them there, and drops them all. */
static ALWAYS_INLINE int cut_of(const struct __sk_buff *skb, __u32 len, __u32 ip_len, __u8 protocol,
				const __u8 *transport, const void *end, struct cut *cut)
{
	__u32 size = skb->gso_size, headers, payload;

	*cut = (struct cut){ .packets = 1, .longest = len, .bytes = len };
	if (!size)
		return 1;
	if (protocol != IPPROTO_TCP || (const void *)(transport + TCP_LEN) > end)
		return 0;
	headers = ip_len + (transport[12] >> 4) * 4;
	if (len <= headers)
		return 0;
	payload = len - headers;
	cut->packets = (payload + size - 1) / size;
	cut->longest = headers + (payload < size ? payload : size);
	cut->bytes = payload + cut->packets * headers;
	return 1;
}

/* Decrements the hop limit behind the outer headers. */
static ALWAYS_INLINE long spend_hop(struct __sk_buff *skb, __u32 at, struct ipv4 *v4, __u8 hop_limit, __u8 protocol)
{
	if (protocol == IPPROTO_IPIP) {
		spend_hop_v4(v4);
		return bpf_skb_store_bytes(skb, at, v4, sizeof(*v4), 0);
	}
	hop_limit -= 1;
	return bpf_skb_store_bytes(skb, at + 7, &hop_limit, sizeof(hop_limit), 0);
}

/* Encapsulates a packet. `v4` is a copy of its header if it is IPv4, `hop_limit` is that of IPv6. */
static ALWAYS_INLINE int encapsulate_local(struct __sk_buff *skb, __u32 set, __u32 in, const struct node *node,
					   __u32 steer, const struct inner *inner, const struct cut *cut,
					   struct ipv4 *v4, __u8 hop_limit)
{
	__u32 number, len, srh_len = 0;
	const struct srh *srh = 0;
	const struct device *device;
	const __u32 *ifindex;
	const struct path *path;
	const struct hop *hop;
	struct head head = {};

	number = choose(&steer_members, &steer_patterns, set, ROW(steers, set, steer), inner->flow,
			node->seed_of_paths);
	path = ROW(paths, set, number);
	if (!path)
		return TC_PASS;
	if (path->kind == PATH_WITH_SRH) {
		srh = srh_of(set, path, number);
		if (!srh)
			return TC_PASS;
		srh_len = path->srh_units == ONE_SEGMENT ? 8 * ONE_SEGMENT : 8 * TWO_SEGMENTS;
		head.srh = *srh;
		head.srh.bytes[0][0] = inner->protocol;
	} else if (path->kind != PATH_WITHOUT_SRH) {
		return TC_PASS;
	}
	len = cut->longest + IPV6_LEN + srh_len;
	if (len > path->mtu || inner->len + srh_len > 0xffff)
		return TC_PASS;
	number = choose(&group_members, &group_patterns, set, ROW(groups, set, path->group), inner->flow,
			node->seed_of_hops);
	hop = ROW(hops, set, number);
	if (!hop || len > hop->mtu)
		return TC_PASS;
	device = ROW(devices, set, hop->port);
	if (!device || !(device->flags & SENDS) || device->vid)
		return TC_PASS;
	number = device->number;
	ifindex = bpf_map_lookup_elem(&interfaces, &number);
	if (!ifindex || !*ifindex)
		return TC_PASS;
	/* The kernel refuses what it cannot cut behind an outer header, for example what has one already. */
	if (bpf_skb_adjust_room(skb, IPV6_LEN + srh_len, BPF_ADJ_ROOM_MAC,
				BPF_F_ADJ_ROOM_ENCAP_L3_IPV6 | BPF_F_ADJ_ROOM_FIXED_GSO))
		return TC_PASS;

	__builtin_memcpy(head.eth.addresses, hop->ethernet, sizeof(head.eth.addresses));
	head.eth.type = htons(ETH_P_IPV6);
	write_outer(&head.outer, path, inner, srh_len);
	if (bpf_skb_store_bytes(skb, 0, &head.eth, sizeof(head.eth) + sizeof(head.outer) + srh_len, 0))
		return TC_DROP;
	if (node->flags & DECREMENTS_LOCAL &&
	    spend_hop(skb, ETH_LEN + IPV6_LEN + srh_len, v4, hop_limit, inner->protocol))
		return TC_DROP;
	add_cut(&path_counts, path->slot, cut, IPV6_LEN + srh_len);
	add_cut(&hop_counts, hop->slot, cut, IPV6_LEN + srh_len);
	add_cut(&rx_counts, in, cut, ETH_LEN);
	add_cut(&tx_counts, device->number, cut, IPV6_LEN + srh_len + ETH_LEN);
	return bpf_redirect(*ifindex, 0);
}

static ALWAYS_INLINE int send_v6(struct __sk_buff *skb, __u32 set, __u32 in, const struct node *node, __u16 table,
				 const struct eth *eth, const void *end)
{
	const struct ipv6 *ip = (const void *)(eth + 1);
	struct inner inner = { .protocol = IPPROTO_IPV6 };
	struct ipv4 unused = {};
	const struct prefix *row;
	struct address to;
	struct cut cut;
	__u64 rest;

	if ((const void *)(ip + 1) > end || !is_plain_v6(ip, skb->len))
		return TC_PASS;
	/* Tunnels inside tunnels are rare, and are left to the worker. */
	if (ip->next_header == IPPROTO_IPV6 || ip->next_header == IPPROTO_IPIP || ip->next_header == IPPROTO_ROUTING)
		return TC_PASS;
	to.high = be64_to_cpu(ip->dst[0]);
	to.low = be64_to_cpu(ip->dst[1]);
	row = look_up_cached(set, node, table, to, 0);
	if (!row || target_of(row) != TARGET_STEER)
		return TC_PASS;
	inner.len = IPV6_LEN + ntohs(ip->payload_len);
	inner.class = ip->version_flow[0] << 4 | ip->version_flow[1] >> 4;
	if (!cut_of(skb, inner.len, IPV6_LEN, ip->next_header, (const void *)(ip + 1), end, &cut))
		return TC_PASS;
	if (!read_upper(ip->next_header, (const void *)(ip + 1), end, node->flags & HASH_QP, &rest))
		return TC_PASS;
	inner.flow = hash_v6(ip, to, rest);
	return encapsulate_local(skb, set, in, node, index_of(row), &inner, &cut, &unused, ip->hop_limit);
}

static ALWAYS_INLINE int send_v4(struct __sk_buff *skb, __u32 set, __u32 in, const struct node *node, __u16 table,
				 const struct eth *eth, const void *end)
{
	const struct ipv4 *ip = (const void *)(eth + 1);
	struct inner inner = { .protocol = IPPROTO_IPIP };
	const struct prefix *row;
	struct ipv4 copy;
	struct cut cut;
	__u64 rest;

	if ((const void *)(ip + 1) > end || !is_plain_v4(ip, skb->len))
		return TC_PASS;
	row = look_up_cached(set, node, table, (struct address){ (__u64)be32_to_cpu(ip->dst) << 32, 0 }, 1);
	if (!row || target_of(row) != TARGET_STEER)
		return TC_PASS;
	inner.len = ntohs(ip->total_len);
	inner.class = ip->tos;
	if (!cut_of(skb, inner.len, IPV4_LEN, ip->protocol, (const void *)(ip + 1), end, &cut))
		return TC_PASS;
	if (!read_upper_v4(ip, end, node->flags & HASH_QP, &rest))
		return TC_PASS;
	inner.flow = hash_v4(ip, rest);
	copy = *ip;
	return encapsulate_local(skb, set, in, node, index_of(row), &inner, &cut, &copy, 0);
}

SEC("classifier")
int srv6d_local(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex, zero = 0, *current_set, *number, set;
	const struct eth *eth = (const void *)(long)skb->data;
	const void *end = (const void *)(long)skb->data_end;
	const struct node *of_all;
	const struct port *port;

	number = bpf_map_lookup_elem(&port_of, &ifindex);
	current_set = bpf_map_lookup_elem(&current, &zero);
	if (!number || !current_set || skb->vlan_present)
		return TC_PASS;
	set = *current_set & 1;
	port = ROW(ports, set, *number);
	of_all = ROW(node, set, 0);
	/* Nobody asks who applications are. */
	if (!port || !of_all || (port->flags & (FORWARDS | CHECKS_SOURCES | GUARDS_SIDS)) != FORWARDS)
		return TC_PASS;
	/* A shorter frame is in one piece, or is left to the worker. */
	if ((const void *)eth + READ_LEN > end && skb->len >= READ_LEN) {
		if (bpf_skb_pull_data(skb, READ_LEN))
			return TC_PASS;
		eth = (const void *)(long)skb->data;
		end = (const void *)(long)skb->data_end;
	}
	if ((const void *)(eth + 1) > end)
		return TC_PASS;
	if (eth->type == htons(ETH_P_IPV6))
		return send_v6(skb, set, *number, of_all, port->table, eth, end);
	return eth->type == htons(ETH_P_IP) ? send_v4(skb, set, *number, of_all, port->table, eth, end) : TC_PASS;
}

#define DECAP_L3_IPV4 (1ull << 7) /* BPF_F_ADJ_ROOM_DECAP_L3_IPV4, since Linux 6.3 */
#define DECAP_L3_IPV6 (1ull << 8)
/* Bytes that are read of a frame with an outer header. */
#define READ_INSIDE_LEN (ETH_LEN + IPV6_LEN + IPV6_LEN + TCP_LEN)

/* Writes the traffic class of the packet that was inside, if it changes. `v4` is a copy of its header if it is IPv4. */
static ALWAYS_INLINE long change_class(struct __sk_buff *skb, const struct inside *inside, struct ipv4 *v4,
				       const __u8 *v6)
{
	__u8 first[2] = { 0x60 | inside->class >> 4, (v6[1] & 0x0f) | inside->class << 4 };

	if (inside->is_v4) {
		if (v4->tos == inside->class)
			return 0;
		set_tos(v4, inside->class);
		return bpf_skb_store_bytes(skb, ETH_LEN, v4, sizeof(*v4), 0);
	}
	if (first[0] == v6[0] && first[1] == v6[1])
		return 0;
	return bpf_skb_store_bytes(skb, ETH_LEN, first, sizeof(first), 0);
}

/* Removes the outer header of a packet for this node, and hands what is inside to the kernel's end of the own veth. */
static ALWAYS_INLINE int receive_here(struct __sk_buff *skb, __u32 in, const struct port *port, const struct sid *sid,
				      const struct inside *inside, const void *end)
{
	const struct eth *eth = (const void *)(long)skb->data;
	const __u8 *inner = (const __u8 *)(eth + 1) + IPV6_LEN;
	const struct ipv4 *v4 = (const void *)inner;
	__u32 ip_len = inside->is_v4 ? IPV4_LEN : IPV6_LEN, zero = 0;
	const struct kernel_end *kernel;
	__u8 protocol, v6[2];
	struct ipv4 copy;
	struct cut cut;
	struct eth head;

	kernel = bpf_map_lookup_elem(&kernel_end, &zero);
	if (!kernel || !kernel->ifindex || (const void *)(v4 + 1) > end)
		return TC_PASS;
	copy = *v4;
	v6[0] = inner[0];
	v6[1] = inner[1];
	protocol = inside->is_v4 ? v4->protocol : ((const struct ipv6 *)inner)->next_header;
	if (!cut_of(skb, inside->len, ip_len, protocol, inner + ip_len, end, &cut))
		return TC_PASS;
	if (cut.longest + IPV6_LEN + ETH_LEN > port->longest)
		return TC_PASS;
	if (bpf_skb_adjust_room(skb, -IPV6_LEN, BPF_ADJ_ROOM_MAC,
				BPF_F_ADJ_ROOM_FIXED_GSO | (inside->is_v4 ? DECAP_L3_IPV4 : DECAP_L3_IPV6)))
		return TC_PASS;
	__builtin_memcpy(head.addresses, kernel->ethernet, sizeof(head.addresses));
	head.type = inside->is_v4 ? htons(ETH_P_IP) : htons(ETH_P_IPV6);
	if (bpf_skb_store_bytes(skb, 0, &head, sizeof(head), 0) || change_class(skb, inside, &copy, v6))
		return TC_DROP;
	add_cut(&sid_counts, sid->slot, &cut, IPV6_LEN);
	add_cut(&rx_counts, in, &cut, IPV6_LEN + ETH_LEN);
	add_cut(&tx_counts, kernel->number, &cut, ETH_LEN);
	return bpf_redirect(kernel->ifindex, BPF_F_INGRESS);
}

/* Whether a packet is IPv6 with a packet inside. Nearly none is, so nothing is looked up for the others. */
static ALWAYS_INLINE int has_packet_inside(struct __sk_buff *skb)
{
	const struct ipv6 *ip = (const void *)(long)skb->data + ETH_LEN;
	__u32 read = ETH_LEN + IPV6_LEN;

	if (skb->protocol != htons(ETH_P_IPV6))
		return 0;
	if ((const void *)(ip + 1) > (const void *)(long)skb->data_end) {
		if (skb->len < read || bpf_skb_pull_data(skb, read))
			return 0;
		ip = (const void *)(long)skb->data + ETH_LEN;
		if ((const void *)(ip + 1) > (const void *)(long)skb->data_end)
			return 0;
	}
	return ip->next_header == IPPROTO_IPV6 || ip->next_header == IPPROTO_IPIP;
}

/* Decapsulates what is for this node, at the ingress of a port without XDP program (tcx). There GRO has merged the packets of
 * a stream already. All else is left to srv6d_arrived (arrivals.h), which comes next. */
SEC("classifier")
int srv6d_received(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex, zero = 0, *current_set, *number, set;
	struct inside inside = {};
	const struct eth *eth;
	const struct prefix *row;
	const struct node *of_all;
	const struct port *port;
	const struct ipv6 *ip;
	const struct sid *sid;
	struct address to;
	const void *end;

	if (!take_priority_tags(skb) || skb->pkt_type != FOR_THIS_HOST || !has_packet_inside(skb))
		return TC_PASS;
	number = bpf_map_lookup_elem(&port_of, &ifindex);
	current_set = bpf_map_lookup_elem(&current, &zero);
	if (!number || !current_set)
		return TC_PASS;
	set = *current_set & 1;
	port = ROW(ports, set, *number);
	of_all = ROW(node, set, 0);
	if (!port || !of_all || (port->flags & (DELIVERS | CHECKS_SOURCES | GUARDS_SIDS | CAPTURED)) != DELIVERS)
		return TC_PASS;
	eth = (const void *)(long)skb->data;
	end = (const void *)(long)skb->data_end;
	/* A shorter frame is in one piece, or is left to the worker. */
	if ((const void *)eth + READ_INSIDE_LEN > end && skb->len >= READ_INSIDE_LEN) {
		if (bpf_skb_pull_data(skb, READ_INSIDE_LEN))
			return TC_PASS;
		eth = (const void *)(long)skb->data;
		end = (const void *)(long)skb->data_end;
	}
	ip = (const void *)(eth + 1);
	if ((const void *)(ip + 1) > end || !is_plain_v6(ip, skb->len))
		return TC_PASS;
	to.high = be64_to_cpu(ip->dst[0]);
	to.low = be64_to_cpu(ip->dst[1]);
	row = look_up(set, port->table, to);
	if (!row || target_of(row) != TARGET_SID)
		return TC_PASS;
	sid = ROW(sids, set, index_of(row));
	if (!sid || sid->kind != SID_DECAPSULATE)
		return TC_PASS;
	if (of_all->flags & CHECKS_DOMAIN && !lists_v6(set, OF_DOMAIN, ip->src))
		return TC_PASS;
	if (!look_inside(set, sid, ip, end, to, &inside) || !is_own_address(inside.row) || inside.may_name_segments)
		return TC_PASS;
	return receive_here(skb, *number, port, sid, &inside, end);
}

/* Hands what srv6d_offload has decapsulated on a port to the kernel's end of the own veth, at the ingress of the port
 * (tcx). The worker sends such packets there, too: rules and filters of the kernel see one interface, whoever has
 * decapsulated. */
SEC("classifier")
int srv6d_delivered(struct __sk_buff *skb)
{
	const __u32 *mark = (const void *)(long)skb->data_meta;
	const struct kernel_end *kernel;
	__u32 zero = 0, value;

	/* Few packets have metadata, so the others need not be looked at any further. */
	if ((const void *)(mark + 1) > (const void *)(long)skb->data)
		return TC_PASS;
	value = *mark;
	kernel = bpf_map_lookup_elem(&kernel_end, &zero);
	if (!kernel || !kernel->ifindex || kernel->mark != value)
		return TC_PASS;
	if (bpf_skb_store_bytes(skb, 0, kernel->ethernet, sizeof(kernel->ethernet), 0))
		return TC_DROP;
	return bpf_redirect(kernel->ifindex, BPF_F_INGRESS);
}
