// Command capi is the C shared library: bytes in, bytes out. Everything it can do is in core/api; the contract of each
// symbol is in asrconfig.h.
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
	"github.com/asrconfig/asrconfig-go/core/runlog"
)

// maxRequest is AC_MAX_REQUEST.
const maxRequest = 1 << 30

// The C struct must have room for every GPU that a monitor reports.
var _ [C.AC_MAX_GPUS - monitor.MaxGPUs]struct{}
var _ [monitor.MaxGPUs - C.AC_MAX_GPUS]struct{}

var buildInfo = C.CString(api.BuildInfo())

//export ac_abi_version
func ac_abi_version() C.uint32_t { return C.AC_ABI_VERSION }

//export ac_call
func ac_call(req *C.ac_const_char, n C.size_t, resp **C.char, respN *C.size_t) (rc C.int32_t) {
	defer poisonOnPanic("ac_call", &rc)
	if req == nil || resp == nil || respN == nil || n > maxRequest {
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
	var s monitor.Stats
	if !api.ReadStats(uint64(handle), &s) {
		return C.AC_NO_MONITOR
	}
	copyStats(out, &s)
	return C.AC_OK
}

//export ac_step_put
func ac_step_put(handle C.uint64_t, step *C.ac_const_step, size C.size_t) (rc C.int32_t) {
	defer poisonOnPanic("ac_step_put", &rc)
	if step == nil || size != C.sizeof_ac_step || step.kind < 0 || int(step.kind) >= len(stepKinds) {
		return C.AC_BAD_CALL
	}
	if fault.PoisonError() != nil {
		return C.AC_POISONED
	}
	s := stepOf(step)
	if !api.PutStep(uint64(handle), &s) {
		return C.AC_NO_MONITOR
	}
	return C.AC_OK
}

// stepKinds are the kinds of steps by their numbers in asrconfig.h.
var stepKinds = [...]string{C.AC_STEP_TRAIN: runlog.KindTrain, C.AC_STEP_EVALUATION: runlog.KindEvaluation, C.AC_STEP_CHECKPOINT: runlog.KindCheckpoint}

func stepOf(s *C.ac_const_step) runlog.Step {
	return runlog.Step{
		Number: uint64(s.number), Kind: stepKinds[s.kind], GPU: int(s.gpu),
		SpentS: float64(s.spent_s), WaitedS: float64(s.waited_s), AudioS: float64(s.audio_s), PaddedS: float64(s.padded_s),
		LongestS: float64(s.longest_s), Allocated: float64(s.allocated), Reserved: float64(s.reserved),
		PeakAllocated: float64(s.peak_allocated), PeakReserved: float64(s.peak_reserved), LargestFree: float64(s.largest_free),
	}
}

//export ac_build_info
func ac_build_info() *C.ac_const_char { return buildInfo }

func copyStats(out *C.ac_stats, s *monitor.Stats) {
	out.samples = C.uint64_t(s.Samples)
	out.errors = C.uint64_t(s.Errors)
	out.unix_nanos = C.int64_t(s.UnixNanos)
	out.host_total = C.uint64_t(s.HostTotal)
	out.host_used = C.uint64_t(s.HostUsed)
	out.host_peak_used = C.uint64_t(s.HostPeak)
	out.gpu_count = C.uint64_t(s.GPUCount)
	out.alerts = C.uint64_t(s.Alerts)
	for i := range min(s.GPUCount, monitor.MaxGPUs) {
		g, o := &s.GPU[i], &out.gpu[i]
		o.total, o.used, o.free = C.uint64_t(g.Total), C.uint64_t(g.Used), C.uint64_t(g.Free)
		o.peak_used, o.valid = C.uint64_t(g.Peak), flag(g.Valid)
		o.allocated, o.reserved = C.uint64_t(g.Allocated), C.uint64_t(g.Reserved)
		o.headroom, o.torch_valid = C.uint64_t(g.Headroom), flag(g.TorchValid)
	}
}

func flag(set bool) C.uint64_t {
	if set {
		return 1
	}
	return 0
}

// poisonOnPanic turns a panic into AC_POISONED: a panic that leaves an export would end the whole process.
func poisonOnPanic(symbol string, rc *C.int32_t) {
	if r := recover(); r != nil {
		_ = fault.Poison(symbol, r)
		*rc = C.AC_POISONED
	}
}

func main() {}
