/* asrconfig.h — the whole C boundary of asrconfig-go: five symbols, written by hand.
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

#define AC_ABI_VERSION 2
#define AC_MAX_GPUS 16

/* Return codes. Anything but AC_OK is a failure of the transport: no answer was made. A failed operation is an answer. */
#define AC_OK 0
#define AC_BAD_CALL 1   /* a null pointer, a request over AC_MAX_REQUEST, or a struct size that is not this version's */
#define AC_NO_MONITOR 2 /* ac_stats_read: no running monitor has this handle */
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
	ac_gpu_stats gpu[AC_MAX_GPUS];
} ac_stats;

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

/* Version, Go version and platform on one line; static, never freed. */
ac_const_char *ac_build_info(void);

#ifdef __cplusplus
}
#endif
#endif
