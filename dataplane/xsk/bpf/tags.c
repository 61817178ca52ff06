/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Builds claim.c for drivers that take the VLAN tag out of the frame and hand it over beside it. */
#define READS_TAGS
#include "claim.c"
