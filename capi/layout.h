/* layout.h — the numbers and structures of the boundary, written by build/generate from core/api/abi.go. The assertions hold
 * the compiler's layout against Go's. */
#ifndef ASRCONFIG_LAYOUT_H
#define ASRCONFIG_LAYOUT_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AC_ABI_VERSION 5 /* of this contract; compare it with ac_abi_version() before any other call */
#define AC_MAX_GPUS 16
#define AC_MAX_REQUEST 1073741824 /* bytes */
#define AC_OK 0 /* success; any other code means that there is no answer. A failed operation still returns an answer */
#define AC_BAD_CALL 1 /* a null pointer, a request over AC_MAX_REQUEST, or a struct size that is not this version's */
#define AC_NO_MONITOR 2 /* ac_stats_read, ac_step_put: no monitor has this handle */
#define AC_POISONED 3 /* an earlier panic; restart the process */

#define AC_STEP_TRAIN 0
#define AC_STEP_EVALUATION 1
#define AC_STEP_CHECKPOINT 2

/* One GPU's memory in bytes. While the driver does not answer, Valid is false and the rest keeps the last values. */
typedef struct ac_gpu_stats {
	uint64_t total;
	uint64_t used;
	uint64_t free;
	uint64_t peak; /* highest Used since the start */
	bool valid;
	uint64_t allocated; /* PyTorch's counters of this process at the last step; 0 before the first */
	uint64_t reserved; /* PyTorch's counters of this process at the last step; 0 before the first */
	uint64_t headroom; /* what training can still allocate; Free before the first step */
	bool torch_valid; /* a step has reported PyTorch's counters */
	uint64_t free_at_step; /* Free when PyTorch's counters were read */
} ac_gpu_stats;

static_assert(offsetof(ac_gpu_stats, total) == 0, "ac_gpu_stats.total");
static_assert(offsetof(ac_gpu_stats, used) == 8, "ac_gpu_stats.used");
static_assert(offsetof(ac_gpu_stats, free) == 16, "ac_gpu_stats.free");
static_assert(offsetof(ac_gpu_stats, peak) == 24, "ac_gpu_stats.peak");
static_assert(offsetof(ac_gpu_stats, valid) == 32, "ac_gpu_stats.valid");
static_assert(offsetof(ac_gpu_stats, allocated) == 40, "ac_gpu_stats.allocated");
static_assert(offsetof(ac_gpu_stats, reserved) == 48, "ac_gpu_stats.reserved");
static_assert(offsetof(ac_gpu_stats, headroom) == 56, "ac_gpu_stats.headroom");
static_assert(offsetof(ac_gpu_stats, torch_valid) == 64, "ac_gpu_stats.torch_valid");
static_assert(offsetof(ac_gpu_stats, free_at_step) == 72, "ac_gpu_stats.free_at_step");
static_assert(sizeof(ac_gpu_stats) == 80, "ac_gpu_stats");

/* The newest sample. Sizes are bytes. */
typedef struct ac_stats {
	uint64_t samples; /* taken since the start, at least 1 */
	uint64_t errors; /* failed readings since the start, of a GPU or of the host */
	int64_t unix_nanos; /* wall clock of the newest sample */
	uint64_t host_total; /* 0 as long as the host has never answered; after a failed reading the host fields keep the last values */
	uint64_t host_used; /* total less available */
	uint64_t host_peak; /* highest HostUsed since the start */
	intptr_t gpu_count; /* entries of GPU in use */
	uint64_t alerts; /* alerts raised and cleared so far: asking for them is worth it when this changes */
	ac_gpu_stats gpu[16];
} ac_stats;

static_assert(offsetof(ac_stats, samples) == 0, "ac_stats.samples");
static_assert(offsetof(ac_stats, errors) == 8, "ac_stats.errors");
static_assert(offsetof(ac_stats, unix_nanos) == 16, "ac_stats.unix_nanos");
static_assert(offsetof(ac_stats, host_total) == 24, "ac_stats.host_total");
static_assert(offsetof(ac_stats, host_used) == 32, "ac_stats.host_used");
static_assert(offsetof(ac_stats, host_peak) == 40, "ac_stats.host_peak");
static_assert(offsetof(ac_stats, gpu_count) == 48, "ac_stats.gpu_count");
static_assert(offsetof(ac_stats, alerts) == 56, "ac_stats.alerts");
static_assert(offsetof(ac_stats, gpu) == 64, "ac_stats.gpu");
static_assert(sizeof(ac_stats) == 1344, "ac_stats");

/* One optimizer step, evaluation batch or checkpoint at its end. Seconds and bytes; NaN for what is not known. */
typedef struct ac_step {
	uint64_t number;
	int64_t kind; /* AC_STEP_… */
	intptr_t gpu; /* whose counters these are, as in ac_stats.gpu; -1: none */
	double ago_s; /* since its end: steps may be told some at a time */
	double spent_s; /* since the step before */
	double waited_s; /* of that, for the loader */
	double audio_s; /* of the batch, without padding */
	double padded_s;
	double longest_s; /* longest clip */
	double arithmetic_s; /* what the model's arithmetic takes at the GPU's published rate */
	double allocated; /* PyTorch's counters */
	double reserved;
	double peak_allocated; /* since the step before */
	double peak_reserved;
} ac_step;

static_assert(offsetof(ac_step, number) == 0, "ac_step.number");
static_assert(offsetof(ac_step, kind) == 8, "ac_step.kind");
static_assert(offsetof(ac_step, gpu) == 16, "ac_step.gpu");
static_assert(offsetof(ac_step, ago_s) == 24, "ac_step.ago_s");
static_assert(offsetof(ac_step, spent_s) == 32, "ac_step.spent_s");
static_assert(offsetof(ac_step, waited_s) == 40, "ac_step.waited_s");
static_assert(offsetof(ac_step, audio_s) == 48, "ac_step.audio_s");
static_assert(offsetof(ac_step, padded_s) == 56, "ac_step.padded_s");
static_assert(offsetof(ac_step, longest_s) == 64, "ac_step.longest_s");
static_assert(offsetof(ac_step, arithmetic_s) == 72, "ac_step.arithmetic_s");
static_assert(offsetof(ac_step, allocated) == 80, "ac_step.allocated");
static_assert(offsetof(ac_step, reserved) == 88, "ac_step.reserved");
static_assert(offsetof(ac_step, peak_allocated) == 96, "ac_step.peak_allocated");
static_assert(offsetof(ac_step, peak_reserved) == 104, "ac_step.peak_reserved");
static_assert(sizeof(ac_step) == 112, "ac_step");

#endif
