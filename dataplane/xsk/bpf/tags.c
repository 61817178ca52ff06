/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* claim.c for drivers that take the VLAN tag out of the frame and put it beside it. */
#define READS_TAGS
#include "claim.c"
