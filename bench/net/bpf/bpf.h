/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Declarations of the BPF C dialect that traffic.c needs, so that building it needs only clang and the kernel's uapi
 * headers. Helper numbers are kernel ABI: see enum bpf_func_id in <linux/bpf.h>.
 */
#pragma once

#include <linux/bpf.h>

#define SEC(name) __attribute__((section(name), used))
#define ALWAYS_INLINE inline __attribute__((always_inline))

/* A map definition is a struct of which no instance is used: the loader reads
 * the array lengths and the pointed-to types from BTF. */
#define MAP_NUMBER(name, value) int(*name)[value]
#define MAP_TYPE(name, type) typeof(type) *name

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static __u64 (*const bpf_ktime_get_ns)(void) = (void *)BPF_FUNC_ktime_get_ns;
static long (*const bpf_redirect)(__u32 ifindex, __u64 flags) = (void *)BPF_FUNC_redirect;
static long (*const bpf_redirect_map)(void *map, __u64 key, __u64 flags) = (void *)BPF_FUNC_redirect_map;
static long (*const bpf_xdp_adjust_tail)(struct xdp_md *ctx, int delta) = (void *)BPF_FUNC_xdp_adjust_tail;
static __u64 (*const bpf_xdp_get_buff_len)(struct xdp_md *ctx) = (void *)BPF_FUNC_xdp_get_buff_len;
static long (*const bpf_xdp_load_bytes)(struct xdp_md *ctx, __u32 offset, void *buf, __u32 len) =
	(void *)BPF_FUNC_xdp_load_bytes;
static long (*const bpf_skb_load_bytes)(const void *skb, __u32 offset, void *to, __u32 len) =
	(void *)BPF_FUNC_skb_load_bytes;

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define htons(x) __builtin_bswap16(x)
#else
#define htons(x) (x)
#endif
