/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Copies of frames for captures (CAPTURED). They go into a ring that exists while a capture is open, and of a frame that finds
 * no room there nothing but a count remains. Who forwards does not depend on it.
 */
#pragma once

#include "offload_headers.h"

/* Bytes of a frame that are copied at most: as many as a worker has in the first buffer. */
#define TAP_LONG 3840
/* Room of a shorter record. */
#define TAP_SHORT 240

/* A record is a head and the bytes. Mirrored by `Head` in src/xdp_offload/tap.rs. */
struct tap_head {
	__u64 time; /* nanoseconds of CLOCK_MONOTONIC */
	__u32 length; /* of the frame */
	__u32 copied;
	__u32 device;
	__u32 is_sent;
};

struct tap_short {
	struct tap_head head;
	__u8 bytes[TAP_SHORT];
};

struct tap_long {
	struct tap_head head;
	__u8 bytes[TAP_LONG];
};

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	MAP_TYPE(key, __u32);
	MAP_NUMBER(max_entries, 1);
	struct {
		MAP_NUMBER(type, BPF_MAP_TYPE_RINGBUF);
		MAP_NUMBER(max_entries, 4096);
	} *values[];
} taps SEC(".maps");

/* Frames that found no room, by the number of the device. */
BY_NUMBER(BPF_MAP_TYPE_PERCPU_ARRAY, tap_losses, __u64, PORTS);

static void *(*const bpf_ringbuf_reserve)(void *ring, __u64 size, __u64 flags) = (void *)BPF_FUNC_ringbuf_reserve;
static void (*const bpf_ringbuf_submit)(void *record, __u64 flags) = (void *)BPF_FUNC_ringbuf_submit;
static void (*const bpf_ringbuf_discard)(void *record, __u64 flags) = (void *)BPF_FUNC_ringbuf_discard;
static long (*const bpf_xdp_load_bytes)(struct xdp_md *ctx, __u32 at, void *to, __u32 len) =
	(void *)BPF_FUNC_xdp_load_bytes;
static __u64 (*const bpf_ktime_get_ns)(void) = (void *)BPF_FUNC_ktime_get_ns;

#define ADDRESSES 12

#define LOAD_AS_IT_IS(bytes, copied, most) bpf_xdp_load_bytes(ctx, skip, bytes, copied)

/* The addresses, the tag, and the rest. */
#define LOAD_WITH_TAG(bytes, copied, most)                                                         \
	(copied <= ADDRESSES + TAG_LEN || bpf_xdp_load_bytes(ctx, skip, bytes, ADDRESSES) ||       \
	 put_word(bytes + ADDRESSES, tag) ||                                                       \
	 load_rest(ctx, skip + ADDRESSES, bytes + ADDRESSES + TAG_LEN,                             \
		   copied - ADDRESSES - TAG_LEN, most - ADDRESSES - TAG_LEN))

static ALWAYS_INLINE int put_word(__u8 *at, __be32 word)
{
	__builtin_memcpy(at, &word, sizeof(word));
	return 0;
}

static ALWAYS_INLINE long load_rest(struct xdp_md *ctx, __u32 at, __u8 *to, __u64 len, __u64 most)
{
	/* The verifier has to see both bounds, and the compiler would remove them. */
	asm volatile("" : "+r"(len));
	if (!len)
		return 1;
	asm volatile("" : "+r"(len));
	return len > most ? 1 : bpf_xdp_load_bytes(ctx, at, to, len);
}

/* Copies a frame without its first `skip` bytes, and with a tag that stood in it. Returns 0 if there is no room for it. */
#define TAP_INTO(type, most, LOAD)                                                                 \
	do {                                                                                       \
		struct type *record = bpf_ringbuf_reserve(ring, sizeof(*record), 0);               \
		__u64 copied = length;                                                             \
		if (!record)                                                                       \
			return 0;                                                                  \
		if (copied > most)                                                                 \
			copied = most;                                                             \
		/* The verifier has to see both bounds, and the compiler would remove them. */     \
		asm volatile("" : "+r"(copied));                                                   \
		if (!copied) {                                                                     \
			bpf_ringbuf_discard(record, 0);                                            \
			return 0;                                                                  \
		}                                                                                  \
		asm volatile("" : "+r"(copied));                                                   \
		if (copied > most || LOAD(record->bytes, copied, most)) {                          \
			bpf_ringbuf_discard(record, 0);                                            \
			return 0;                                                                  \
		}                                                                                  \
		record->head = (struct tap_head){ bpf_ktime_get_ns(), length, copied, device, is_sent }; \
		bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);                                      \
		return 1;                                                                          \
	} while (0)

static ALWAYS_INLINE int copy(struct xdp_md *ctx, void *ring, __u32 skip, __u32 device, __u32 is_sent)
{
	__u32 length = bpf_xdp_get_buff_len(ctx) - skip;

	if (length <= TAP_SHORT)
		TAP_INTO(tap_short, TAP_SHORT, LOAD_AS_IT_IS);
	TAP_INTO(tap_long, TAP_LONG, LOAD_AS_IT_IS);
}

/* Likewise, of a frame whose tag has been removed. */
static ALWAYS_INLINE int copy_tagged(struct xdp_md *ctx, void *ring, __u32 skip, __u32 device, __be32 tag)
{
	__u32 length = bpf_xdp_get_buff_len(ctx) - skip + TAG_LEN, is_sent = 0;

	if (length <= TAP_SHORT)
		TAP_INTO(tap_short, TAP_SHORT, LOAD_WITH_TAG);
	TAP_INTO(tap_long, TAP_LONG, LOAD_WITH_TAG);
}

static __attribute__((noinline)) int tap(struct xdp_md *ctx, __u32 skip, __u32 device, __u32 is_sent, __be32 tag)
{
	__u32 zero = 0;
	void *ring = bpf_map_lookup_elem(&taps, &zero);
	__u64 *losses;

	if (!ring || (tag ? copy_tagged(ctx, ring, skip, device, tag) : copy(ctx, ring, skip, device, is_sent)))
		return 0;
	losses = bpf_map_lookup_elem(&tap_losses, &device);
	if (losses)
		*losses += 1;
	return 0;
}

/* Copies a frame as it was received, which begins behind `skip` bytes. It is to be forwarded for certain. */
static ALWAYS_INLINE void tap_received(const struct frame *frame, __u32 skip)
{
	if (frame->port->flags & CAPTURED)
		tap(frame->ctx, skip, frame->in, 0, frame->tag);
}

/* Copies a frame as it leaves. */
static ALWAYS_INLINE void tap_sent(const struct frame *frame, const struct way *way)
{
	if (way->device_flags & CAPTURED)
		tap(frame->ctx, 0, way->out, 1, 0);
}
