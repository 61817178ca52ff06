/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Programs that make and count the traffic of the bench in the kernel, so that one core sends faster than any DUT
 * forwards.
 *
 *   generate      is run with live frames: every run of the program sends one frame into a veth
 *   count         on the last veth: counts frames, stores the first one, samples latency, drops
 *   count_slowly  like count, but so slow that it is the limit
 *   count_skb     like count, but behind the kernel's receive path, which passes it an skb
 *   cross         a DUT that rewrites MAC addresses and hop limit and redirects: the most that a veth can carry
 *   lossy         like cross, but drops every n-th frame
 */
#include <linux/pkt_cls.h>

#include "bpf.h"

#define HEADER 120
#define SHAPES 12
#define SAMPLES (1 << 17)
#define NANOSECONDS_LATE 100000
#define LOOKS_AT_CLOCK 1000
#define STAMP_MAGIC 0x7372763664626e63ULL

/* What to send. src/generator.rs has the same layout, one u64 per field. */
struct plan {
	__u64 ifindex;	   /* device that frames are redirected to */
	__u64 gap_q8;	   /* ns between two frames, times 256; 0: as fast as possible */
	__u64 limit;	   /* most frames that one core sends */
	__u64 shapes;	   /* number of shapes, which frames have in turn */
	__u64 flows;	   /* number of UDP source ports; a power of two */
	__u64 udp_offset;  /* offset of the UDP header in the frame */
	__u64 stamped;	   /* not 0: magic number and time in the last 16 bytes */
	__u64 full_length; /* length of the frame that the kernel passes to the program */
};

/* Length and first bytes of a frame. src/generator.rs has the same layout of 128 bytes. */
struct shape {
	__u64 length;
	__u64 header[HEADER / 8];
};

struct sender {
	__u64 next_q8;
	__u64 sent;
	__u64 bytes;
	__u64 late; /* number of frames omitted because the program did not run in time */
};

struct receiver {
	__u64 frames;
	__u64 bytes;
};

/* The first frame that the sink received. src/sink.rs has the same layout. */
struct seen {
	__u64 length;
	__u64 header[HEADER / 8];
};

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct plan);
	MAP_NUMBER(max_entries, 1);
} plans SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct shape);
	MAP_NUMBER(max_entries, SHAPES);
} shapes SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct sender);
	MAP_NUMBER(max_entries, 1);
} senders SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct receiver);
	MAP_NUMBER(max_entries, 1);
} receivers SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct seen);
	MAP_NUMBER(max_entries, 1);
} first_frame SEC(".maps");

/* Every n-th frame with a time stamp is a sample; n = 0: none. [0]: n, [1]: frames seen, [2]: samples taken. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u64);
	MAP_NUMBER(max_entries, 3);
} sampling SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u64);
	MAP_NUMBER(max_entries, SAMPLES);
} samples SEC(".maps");

/* Settings of cross and lossy: new destination and source MAC address, and every how many frames one is dropped. */
struct crossing {
	__u8 macs[12];
	__u32 drop_every;
};

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct crossing);
	MAP_NUMBER(max_entries, 1);
} crossings SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_DEVMAP);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u32);
	MAP_NUMBER(max_entries, 1);
} way_out SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u64);
	MAP_NUMBER(max_entries, 1);
} crossed SEC(".maps");

/*
 * Returns whether the next frame is due. After a delay, a sender omits the frames that became due in the meantime,
 * because catching up would cause a burst.
 */
static ALWAYS_INLINE int due(struct sender *sender, __u64 gap_q8)
{
	__u64 now_q8 = bpf_ktime_get_ns() << 8;
	__u64 next_q8 = sender->next_q8;

	if (now_q8 < next_q8)
		return 0;
	if (now_q8 - next_q8 > (__u64)NANOSECONDS_LATE << 8) {
		if (next_q8)
			sender->late += (now_q8 - next_q8) / gap_q8;
		next_q8 = now_q8;
	}
	sender->next_q8 = next_q8 + gap_q8;
	return 1;
}

/* Writes the header of a frame. This is needed for every frame, because the DUT may have changed the page. */
static ALWAYS_INLINE void write_header(void *data, const void *end, const struct shape *shape)
{
	__u64 *word = data;
	int i;

#pragma unroll
	for (i = 0; i < HEADER / 8; i++) {
		if ((const void *)(word + i + 1) > end)
			return;
		word[i] = shape->header[i];
	}
}

/*
 * Writes the flow as the UDP source port. The complement of the port follows the UDP header, so that the checksum stays
 * valid.
 */
static ALWAYS_INLINE void write_flow(void *data, const void *end, const struct plan *plan, __u64 number)
{
	__u16 flow = htons(0x8000 | (number & (plan->flows - 1) & 0x7fff));
	__u8 *udp = data + (plan->udp_offset & 0x7f);

	if ((const void *)(udp + 10) > end)
		return;
	*(__u16 *)udp = flow;
	*(__u16 *)(udp + 8) = ~flow;
}

static ALWAYS_INLINE void write_stamp(void *data, const void *end, __u64 length)
{
	__u64 *stamp = data + ((length - 16) & 0x7ff);

	if ((const void *)(stamp + 2) > end)
		return;
	stamp[0] = STAMP_MAGIC;
	stamp[1] = bpf_ktime_get_ns();
}

/* Sends one frame, or drops it if none is due: then its page is free again, and the program is run again. */
SEC("xdp")
int generate(struct xdp_md *ctx)
{
	__u32 zero = 0, which;
	struct plan *plan = bpf_map_lookup_elem(&plans, &zero);
	struct sender *sender = bpf_map_lookup_elem(&senders, &zero);
	struct shape *shape;

	if (!plan || !sender || sender->sent >= plan->limit || !plan->shapes)
		return XDP_DROP;
	if (plan->gap_q8 && !due(sender, plan->gap_q8))
		return XDP_DROP;
	which = sender->sent % plan->shapes;
	shape = bpf_map_lookup_elem(&shapes, &which);
	if (!shape)
		return XDP_DROP;
	if (shape->length < plan->full_length &&
	    bpf_xdp_adjust_tail(ctx, (int)shape->length - (int)plan->full_length))
		return XDP_DROP;
	write_header((void *)(long)ctx->data, (void *)(long)ctx->data_end, shape);
	write_flow((void *)(long)ctx->data, (void *)(long)ctx->data_end, plan, sender->sent);
	if (plan->stamped)
		write_stamp((void *)(long)ctx->data, (void *)(long)ctx->data_end, shape->length);
	sender->sent += 1;
	sender->bytes += shape->length;
	return bpf_redirect(plan->ifindex, 0);
}

/* A frame in one of the two kinds of sinks: ctx is a struct xdp_md or a struct __sk_buff. */
struct frame {
	void *ctx;
	int is_skb;
	__u64 length;
};

static ALWAYS_INLINE long load(const struct frame *frame, __u32 offset, void *to, __u32 length)
{
	if (frame->is_skb)
		return bpf_skb_load_bytes(frame->ctx, offset, to, length);
	return bpf_xdp_load_bytes(frame->ctx, offset, to, length);
}

static ALWAYS_INLINE void look_once(const struct frame *frame)
{
	__u32 zero = 0;
	struct seen *seen = bpf_map_lookup_elem(&first_frame, &zero);

	if (!seen || seen->length)
		return;
	seen->length = frame->length;
	/* A frame shorter than 60 bytes is not stored, because the kernel does not read behind its end. */
	if (load(frame, 0, seen->header, HEADER))
		load(frame, 0, seen->header, 60);
}

static ALWAYS_INLINE void sample(const struct frame *frame)
{
	__u32 zero = 0, one = 1, two = 2, at;
	__u64 *every = bpf_map_lookup_elem(&sampling, &zero);
	__u64 *frames = bpf_map_lookup_elem(&sampling, &one);
	__u64 *taken = bpf_map_lookup_elem(&sampling, &two);
	__u64 stamp[2], *slot;

	if (!every || !frames || !taken || !*every)
		return;
	if (__sync_fetch_and_add(frames, 1) % *every)
		return;
	if (frame->length < 16 || load(frame, frame->length - 16, stamp, sizeof(stamp)) || stamp[0] != STAMP_MAGIC)
		return;
	at = __sync_fetch_and_add(taken, 1);
	slot = bpf_map_lookup_elem(&samples, &at);
	if (slot)
		*slot = bpf_ktime_get_ns() - stamp[1];
}

static ALWAYS_INLINE void arrived(const struct frame *frame, __u8 first_byte)
{
	__u32 zero = 0;
	struct receiver *receiver = bpf_map_lookup_elem(&receivers, &zero);

	/* Multicast that the DUT itself sends, such as MLD, is not test traffic. */
	if (first_byte & 1)
		return;
	if (receiver) {
		receiver->frames += 1;
		receiver->bytes += frame->length;
	}
	look_once(frame);
	sample(frame);
}

SEC("xdp.frags")
int count(struct xdp_md *ctx)
{
	const struct frame frame = { .ctx = ctx, .is_skb = 0, .length = bpf_xdp_get_buff_len(ctx) };
	const __u8 *data = (void *)(long)ctx->data;

	if ((const void *)(data + 1) <= (const void *)(long)ctx->data_end)
		arrived(&frame, *data);
	return XDP_DROP;
}

/* A slow sink for tests of the bench itself: it takes more than about ten microseconds per frame on any machine. */
SEC("xdp.frags")
int count_slowly(struct xdp_md *ctx)
{
	int i;

	for (i = 0; i < LOOKS_AT_CLOCK; i++)
		bpf_ktime_get_ns();
	return count(ctx);
}

SEC("classifier")
int count_skb(struct __sk_buff *skb)
{
	const struct frame frame = { .ctx = skb, .is_skb = 1, .length = skb->len };
	const __u8 *data = (void *)(long)skb->data;

	if ((const void *)(data + 1) <= (const void *)(long)skb->data_end)
		arrived(&frame, *data);
	return TC_ACT_SHOT;
}

static ALWAYS_INLINE int forwarded(struct xdp_md *ctx, const struct crossing *crossing)
{
	__u8 *data = (void *)(long)ctx->data;

	if ((const void *)(data + 54) > (const void *)(long)ctx->data_end)
		return XDP_DROP;
	__builtin_memcpy(data, crossing->macs, 12);
	data[21] -= 1; /* IPv6 hop limit */
	return bpf_redirect_map(&way_out, 0, XDP_DROP);
}

SEC("xdp.frags")
int cross(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct crossing *crossing = bpf_map_lookup_elem(&crossings, &zero);

	return crossing ? forwarded(ctx, crossing) : XDP_DROP;
}

SEC("xdp.frags")
int lossy(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct crossing *crossing = bpf_map_lookup_elem(&crossings, &zero);
	__u64 *frames = bpf_map_lookup_elem(&crossed, &zero);

	if (!crossing || !frames)
		return XDP_DROP;
	*frames += 1;
	if (crossing->drop_every && *frames % crossing->drop_every == 0)
		return XDP_DROP;
	return forwarded(ctx, crossing);
}

char licence_text[] SEC("license") = "Apache-2.0 OR MIT";
