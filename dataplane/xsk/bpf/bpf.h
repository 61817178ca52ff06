/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The few names of the BPF C dialect that these programs need. Because they stand here, a build needs only clang and
 * the kernel's own uapi headers. Helper numbers are kernel ABI: see enum bpf_func_id in <linux/bpf.h>.
 */
#pragma once

#include <linux/bpf.h>

#define SEC(name) __attribute__((section(name), used))
#define ALWAYS_INLINE inline __attribute__((always_inline))

/* A map definition is a struct that is never instantiated as such: the loader
 * reads the array lengths and the pointed-to types from BTF. */
#define MAP_NUMBER(name, value) int(*name)[value]
#define MAP_TYPE(name, type) typeof(type) *name

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) =
	(void *)BPF_FUNC_map_lookup_elem;
static long (*const bpf_redirect_map)(void *map, __u64 key, __u64 flags) =
	(void *)BPF_FUNC_redirect_map;
static long (*const bpf_tail_call)(void *ctx, void *programs, __u32 index) =
	(void *)BPF_FUNC_tail_call;
static long (*const bpf_xdp_adjust_head)(struct xdp_md *ctx, int by) =
	(void *)BPF_FUNC_xdp_adjust_head;
static long (*const bpf_xdp_adjust_meta)(struct xdp_md *ctx, int by) =
	(void *)BPF_FUNC_xdp_adjust_meta;
static long (*const bpf_fib_lookup)(void *ctx, struct bpf_fib_lookup *route, int size, __u32 flags) =
	(void *)BPF_FUNC_fib_lookup;
/* Returns the length of a frame, all of its buffers together. */
static __u64 (*const bpf_xdp_get_buff_len)(struct xdp_md *ctx) =
	(void *)BPF_FUNC_xdp_get_buff_len;

static long (*const bpf_skb_pull_data)(struct __sk_buff *skb, __u32 len) = (void *)BPF_FUNC_skb_pull_data;
static long (*const bpf_redirect)(__u32 ifindex, __u64 flags) = (void *)BPF_FUNC_redirect;
static long (*const bpf_skb_vlan_pop)(struct __sk_buff *skb) = (void *)BPF_FUNC_skb_vlan_pop;

#define TC_PASS (-1) /* TCX_NEXT: to the next program, and on as without any if there is none */
#define TC_DROP 2 /* TCX_DROP */
#define FOR_THIS_HOST 0 /* PACKET_HOST of <linux/if_packet.h> */

/* Number of tags with VID 0 that may stand in front: see eth.rs. */
#define PRIORITY_TAGS 2

/* Removes tags that only carry a priority. A tc program sees tags beside the packet, one at a time. Returns whether the packet
 * has no tag then. */
static ALWAYS_INLINE int take_priority_tags(struct __sk_buff *skb)
{
	int i;

#pragma unroll
	for (i = 0; i < PRIORITY_TAGS; i++) {
		if (!skb->vlan_present || skb->vlan_tci & 0xfff || bpf_skb_vlan_pop(skb))
			break;
	}
	return !skb->vlan_present;
}

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define htons(x) __builtin_bswap16(x)
#define be32_to_cpu(x) __builtin_bswap32(x)
#define be64_to_cpu(x) __builtin_bswap64(x)
#else
#define htons(x) (x)
#define be32_to_cpu(x) (x)
#define be64_to_cpu(x) (x)
#endif
/* The conversion is the same in both directions. */
#define ntohs(x) htons(x)
#define cpu_to_be32(x) be32_to_cpu(x)
#define cpu_to_be64(x) be64_to_cpu(x)
