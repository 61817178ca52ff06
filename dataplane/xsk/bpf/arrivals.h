/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Claims packets at the ingress of a port that has no XDP program (tcx). Such a port is that of a host: nearly all that
 * arrives is the kernel's, and an XDP program would cost each packet of it a copy or a conversion.
 *
 *   packet -> untagged, for us on layer 2? -> claimed? -> a tag with the number of the port -> own veth -> worker
 *                  | no                          | no
 *                  +-----------------------------+--> the kernel, as merged by GRO
 *
 * The claims are those of the XDP program, and so are the counters. The port guards no SIDs and checks no sources: such
 * ports have the XDP program, or nothing comes in.
 */

/* Bytes that are read of a frame: up to the type of an ICMPv6 message. */
#define READ_LEN (sizeof(struct eth) + sizeof(struct ipv6) + 1)

static long (*const bpf_skb_vlan_push)(struct __sk_buff *skb, __be16 protocol, __u16 tci) =
	(void *)BPF_FUNC_skb_vlan_push;

/* The kernel's end of the own veth, by interface index. 0: there is none. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u32);
	MAP_NUMBER(max_entries, 1);
} own_veth SEC(".maps");

static ALWAYS_INLINE int is_claimed(const struct __sk_buff *skb, const struct port *port)
{
	const struct eth *eth = (const void *)(long)skb->data;
	const void *end = (const void *)(long)skb->data_end;
	struct arrival in = { .port = port, .may_claim = 1 };

	if ((const void *)(eth + 1) > end)
		return 0;
	if (eth->type == htons(ETH_P_IPV6))
		return claim_ipv6(0, &in, eth + 1, end) == WORKER;
	return eth->type == htons(ETH_P_IP) && claim_ipv4(0, &in, eth + 1, end) == WORKER;
}

/* Counts the packets that GRO has merged into this one. */
static ALWAYS_INLINE void count_arrived(const struct __sk_buff *skb, const struct port *port, __u32 which)
{
	__u64 *counter;

	which += COUNTERS * port->number;
	counter = bpf_map_lookup_elem(&counters, &which);
	if (counter)
		*counter += skb->gso_segs ? skb->gso_segs : 1;
}

SEC("classifier")
int srv6d_arrived(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex, zero = 0, *kernel_end;
	const struct port *port;

	port = bpf_map_lookup_elem(&ports, &ifindex);
	if (!port)
		return TC_PASS;
	/* Only the XDP program guards SIDs and checks sources, and it could not be put back. */
	if (port->rules)
		return TC_DROP;
	if (!take_priority_tags(skb) || skb->pkt_type != FOR_THIS_HOST)
		return TC_PASS;
	/* A shorter frame is in one piece, or has no headers that could be claimed. */
	if (skb->data + READ_LEN > skb->data_end && skb->len >= READ_LEN && bpf_skb_pull_data(skb, READ_LEN))
		return TC_PASS;
	kernel_end = bpf_map_lookup_elem(&own_veth, &zero);
	if (!kernel_end || !*kernel_end || !is_claimed(skb, port)) {
		count_arrived(skb, port, PASSED);
		return TC_PASS;
	}
	count_arrived(skb, port, REDIRECTED);
	if (bpf_skb_vlan_push(skb, htons(ETH_P_8021Q), port->number + 1))
		return TC_DROP;
	return bpf_redirect(*kernel_end, 0);
}
