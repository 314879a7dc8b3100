// Command capi is the C shared library: bytes in, bytes out. Everything it can do is in core/api;
// the contract of each symbol is in asrconfig.h. The structures are Go's own: layout.h is written
// from them and holds their offsets against C's.
package main

/*
#include <stdlib.h>
#include "asrconfig.h"
*/
import "C"

import (
	"unsafe"

	"github.com/asrconfig/asrconfig-go/core/api"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/monitor"
)

var buildInfo = C.CString(api.BuildInfo())

//export ac_abi_version
func ac_abi_version() C.uint32_t { return C.AC_ABI_VERSION }

//export ac_call
func ac_call(req *C.ac_const_char, n C.size_t, resp **C.char, respN *C.size_t) (rc C.int32_t) {
	defer poisonOnPanic("ac_call", &rc)
	if req == nil || resp == nil || respN == nil || n > C.AC_MAX_REQUEST {
		return C.AC_BAD_CALL
	}
	api.CallInto(unsafe.Slice((*byte)(unsafe.Pointer(req)), int(n)), func(size int) []byte {
		*resp, *respN = (*C.char)(C.malloc(C.size_t(size))), C.size_t(size)
		return unsafe.Slice((*byte)(unsafe.Pointer(*resp)), size)
	})
	return C.AC_OK
}

//export ac_free
func ac_free(p unsafe.Pointer) { C.free(p) }

//export ac_stats_read
func ac_stats_read(handle C.uint64_t, out *C.ac_stats, size C.size_t) (rc C.int32_t) {
	defer poisonOnPanic("ac_stats_read", &rc)
	if out == nil || size != C.sizeof_ac_stats {
		return C.AC_BAD_CALL
	}
	if fault.PoisonError() != nil {
		return C.AC_POISONED
	}
	if !api.ReadStats(uint64(handle), (*monitor.Stats)(unsafe.Pointer(out))) {
		return C.AC_NO_MONITOR
	}
	return C.AC_OK
}

//export ac_step_put
func ac_step_put(handle C.uint64_t, step *C.ac_const_step, size C.size_t) (rc C.int32_t) {
	defer poisonOnPanic("ac_step_put", &rc)
	if step == nil || size != C.sizeof_ac_step {
		return C.AC_BAD_CALL
	}
	s := *(*api.Step)(unsafe.Pointer(step))
	if !s.KindKnown() {
		return C.AC_BAD_CALL
	}
	if fault.PoisonError() != nil {
		return C.AC_POISONED
	}
	if !api.PutStep(uint64(handle), &s) {
		return C.AC_NO_MONITOR
	}
	return C.AC_OK
}

//export ac_build_info
func ac_build_info() *C.ac_const_char { return buildInfo }

// poisonOnPanic turns a panic into AC_POISONED: a panic that leaves an export would end the whole
// process.
func poisonOnPanic(symbol string, rc *C.int32_t) {
	if r := recover(); r != nil {
		_ = fault.Poison(symbol, r)
		*rc = C.AC_POISONED
	}
}

func main() {}
