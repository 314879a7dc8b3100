/* asrconfig.h — the whole C boundary of asrconfig-go: six symbols. Its numbers and structures are in layout.h.
 *
 * The Go implementation includes this file, so a signature that drifts does not compile. All functions may be called
 * from any thread. None may be called in a process that was forked after the library was loaded: the Go runtime does
 * not survive a fork (the Python package raises ForkedProcessError instead).
 */
#ifndef ASRCONFIG_H
#define ASRCONFIG_H

#include "layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* cgo cannot say "const char"; these names let the Go side match these prototypes exactly. */
typedef const char ac_const_char;
typedef const ac_step ac_const_step;

/* The version of this header that the library was built with. Compare with AC_ABI_VERSION before any other call. */
uint32_t ac_abi_version(void);

/* Runs one operation of docs/reference/operations.md: {"v":1,"op":"plan.make","args":{…}} of n bytes, UTF-8.
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
