/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What a queue of a port has given to its worker, and how much of that the worker has finished. claim.c counts what it gives,
 * the worker what it has sent, dropped or handed on, and offload.c takes the queue over when the two are equal. Mirrored by
 * `Row` in src/hand_over.rs.
 */
#pragma once

#include "bpf.h"

#ifndef BPF_F_MMAPABLE
#define BPF_F_MMAPABLE (1 << 10)
#endif
#ifndef BPF_F_INNER_MAP
#define BPF_F_INNER_MAP (1 << 12)
#endif

/* One cache line, because queues are on different processors. */
struct hand_over {
	__u64 given;	/* written by the queue's NAPI instance alone */
	__u64 finished; /* written by the worker alone */
	__u32 taken;	/* number of the last hand-over that is done */
	__u32 seen;	/* number of the hand-over for which the worker has last said what is finished */
	__u32 zero[10];
};
_Static_assert(sizeof(struct hand_over) == 64, "struct hand_over");

/* Rows by the index of the socket. The worker has them in its memory. A macro without names of types, because a type with a
 * name would be missing in the description of a map that holds such maps. */
#define HAND_OVERS                                                                                 \
	struct {                                                                                   \
		MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);                                              \
		MAP_NUMBER(key_size, 4);                                                           \
		MAP_NUMBER(value_size, 64);                                                        \
		MAP_NUMBER(max_entries, 1);                                                        \
		MAP_NUMBER(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);                           \
	}
