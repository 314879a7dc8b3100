/* asrconfig.h — the whole C boundary of asrconfig-go: six symbols, written by hand.
 *
 * The Go implementation includes this file, so a signature that drifts does not compile. All functions may be called
 * from any thread. None may be called in a process that was forked after the library was loaded: the Go runtime does
 * not survive a fork (the Python package raises ForkedProcessError instead).
 */
#ifndef ASRCONFIG_H
#define ASRCONFIG_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define AC_ABI_VERSION 3
#define AC_MAX_GPUS 16

/* Return codes. Anything but AC_OK is a failure of the transport: no answer was made. A failed operation is an answer. */
#define AC_OK 0
#define AC_BAD_CALL 1   /* a null pointer, a request over AC_MAX_REQUEST, or a struct size that is not this version's */
#define AC_NO_MONITOR 2 /* ac_stats_read, ac_step_put: no monitor has this handle */
#define AC_POISONED 3   /* an earlier panic; restart the process */

#define AC_MAX_REQUEST ((size_t)1 << 30)

/* cgo cannot say "const char"; this name lets the Go side match these prototypes exactly. */
typedef const char ac_const_char;

/* Memory of one GPU in bytes. valid is 0 while the driver does not answer; then the other fields keep the last values. */
typedef struct ac_gpu_stats {
	uint64_t total;
	uint64_t used;
	uint64_t free;
	uint64_t peak_used; /* highest since the start or the last reset */
	uint64_t valid;
	uint64_t allocated; /* by PyTorch in this process, as of the newest step; 0 before the first */
	uint64_t reserved;
	uint64_t headroom;    /* what training can still allocate: free, and what PyTorch's cache holds unused */
	uint64_t torch_valid; /* a step has told of PyTorch's counters */
} ac_gpu_stats;

/* The newest sample of a monitor. Host figures respect the container's limit. */
typedef struct ac_stats {
	uint64_t samples;    /* taken since the start, at least 1 */
	uint64_t errors;     /* failed readings since the start */
	int64_t unix_nanos;  /* wall clock of the newest sample */
	uint64_t host_total; /* bytes */
	uint64_t host_used;
	uint64_t host_peak_used;
	uint64_t gpu_count; /* entries of gpu[] in use, at most AC_MAX_GPUS */
	uint64_t alerts;    /* raised and cleared so far: when it changes, ask (operation monitor.alerts) */
	ac_gpu_stats gpu[AC_MAX_GPUS];
} ac_stats;

/* Kinds of steps. */
#define AC_STEP_TRAIN 0
#define AC_STEP_EVALUATION 1
#define AC_STEP_CHECKPOINT 2

/* One optimizer step, evaluation batch or checkpoint at its end. Seconds and bytes; NaN for what is not known. */
typedef struct ac_step {
	uint64_t number;
	int64_t kind; /* AC_STEP_… */
	int64_t gpu;  /* whose counters these are, as in ac_stats.gpu; -1: none */
	double spent_s;  /* since the step before */
	double waited_s; /* of that, for the loader */
	double audio_s;  /* of the batch, without padding */
	double padded_s;
	double longest_s; /* longest clip */
	double allocated; /* PyTorch's counters */
	double reserved;
	double peak_allocated; /* since the step before */
	double peak_reserved;
	double largest_free; /* largest free block of PyTorch's cache */
} ac_step;

typedef const ac_step ac_const_step; /* as ac_const_char */

/* The version of this header that the library was built with. Compare with AC_ABI_VERSION before any other call. */
uint32_t ac_abi_version(void);

/* Runs one operation: {"v":1,"op":"plan.make","args":{…}} of n bytes, UTF-8.
 * On AC_OK *resp holds *resp_n bytes of {"v":1,"ok":true,"result":…} or {"v":1,"ok":false,"error":{code,message,hint}},
 * to be given back with ac_free. Behind a zero byte, request and answer may carry bytes that are no JSON, where the
 * operation says so: paths, columns of numbers. The request is not kept after the return. */
int32_t ac_call(ac_const_char *req, size_t n, char **resp, size_t *resp_n);

/* Frees an answer of ac_call. A null pointer is ignored. */
void ac_free(void *p);

/* Copies the newest sample of a monitor (operation monitor.start) into *out. size must be sizeof(ac_stats).
 * The hot path: it allocates nothing and does no I/O. */
int32_t ac_stats_read(uint64_t monitor, ac_stats *out, size_t size);

/* Tells a monitor of one step. size must be sizeof(ac_step). On the hot path, too: it allocates nothing as a rule, and asks the
 * driver only when PyTorch's reserved memory has grown since the step before. */
int32_t ac_step_put(uint64_t monitor, ac_const_step *step, size_t size);

/* Version, Go version and platform on one line; static, never freed. */
ac_const_char *ac_build_info(void);

#ifdef __cplusplus
}
#endif
#endif
